"""A workload's failure policy: timings, rules, actions, budgets. A profile is a value of these types."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Final, Self

from pydantic import Field, WrapValidator, field_validator, model_validator

from holdfast.model.base import Duration, Model, Word, format_duration
from holdfast.model.pattern import compiled
from holdfast.model.shared import Shared
from holdfast.model.vocabulary import (
    ActionKind,
    AtEnd,
    FailureClass,
    InterruptedCreate,
    NodeAvoidance,
    Reason,
    RefusedCreate,
    Renewal,
    RestartMode,
    Scope,
    SuccessOperator,
    SuspendMode,
)

ExitCode = Annotated[int, Field(ge=0, le=255)]

DEFAULT_RULE = "default"
"""The name of the default action where a rule's name is expected."""

_RULE_NAME = re.compile(r"^[A-Za-z]([A-Za-z0-9_,:.-]*[A-Za-z0-9_])?$")


class Timings(Model):
    """All waits in a workload's life. Defaults are AppWrapper's (appwrapper-fault-tolerance.md, configuration).

    Grace and pause periods are capped by `grace_period_maximum` and by the operator's own maximum; `success_ttl` is
    capped only by the operator's own success TTL (row A14). If `success_ttl` or `deletion_on_failure_grace_period`
    is none, the remaining objects stay until a user cancels the workload, within the operator's limits (row J15).
    """

    admission_grace_period: Duration = timedelta(minutes=1)
    """How long its pods may be missing or Pending without a node before that is a failure."""
    warmup_grace_period: Duration = timedelta(minutes=5)
    """How long its pods may take until they run before that is a failure."""
    failure_grace_period: Duration = timedelta(minutes=1)
    """How long a failure may heal by itself before the rule acts."""
    retry_pause_period: Duration = timedelta(seconds=90)
    """The pause between the removal of one attempt and the next."""
    deletion_on_failure_grace_period: Duration | None = timedelta(0)
    """How long the objects of a failed workload stay; none: until a user cancels it."""
    forceful_deletion_grace_period: Duration = timedelta(minutes=10)
    """How long a deletion may take before it is forced."""
    success_ttl: Duration | None = timedelta(days=7)
    """How long the objects of a succeeded workload stay; none: until a user cancels it."""
    launch_grace_period: Annotated[Duration | None, Field(exclude_if=lambda value: value is None)] = None
    """How long a pod is tolerated that its kubelet cannot start and retries: an image, a volume, an init container.

    None: such a pod is not a failure, and only the warm-up grace applies (row L16)."""
    submission_timeout: Duration | None = None
    """How long transient refusals are tolerated before a workload that waits in submission fails; none: for ever.

    Time in which the API server did not answer does not count (row S10)."""


class Limits(Model):
    """The operator's limits, which override a submission's values (row A14)."""

    grace_period_maximum: Duration = timedelta(hours=24)
    success_ttl_maximum: Duration | None = None

    def clamp(self, timings: Timings, *, one_ttl: bool = False) -> Timings:
        """Return the timings with each grace and pause capped, and the TTL capped by the operator's own.

        `one_ttl`: whether what has failed is kept for a TTL as well, as a JobSet is, and not for a grace (row J15).
        """
        top = self.grace_period_maximum
        held = timings.deletion_on_failure_grace_period
        graces = (
            timings.admission_grace_period,
            timings.warmup_grace_period,
            timings.failure_grace_period,
            timings.retry_pause_period,
            timedelta(0) if held is None or one_ttl else held,
            timings.forceful_deletion_grace_period,
            timings.launch_grace_period or timedelta(0),
        )
        if max(graces) <= top and self.success_ttl_maximum is None:
            return timings  # The usual case, and this runs at every step.
        ttl, launch = self._kept(timings.success_ttl), timings.launch_grace_period
        held = self._kept(held) if one_ttl else None if held is None else min(held, top)
        return Timings(
            admission_grace_period=min(timings.admission_grace_period, top),
            warmup_grace_period=min(timings.warmup_grace_period, top),
            failure_grace_period=min(timings.failure_grace_period, top),
            retry_pause_period=min(timings.retry_pause_period, top),
            deletion_on_failure_grace_period=held,
            forceful_deletion_grace_period=min(timings.forceful_deletion_grace_period, top),
            success_ttl=ttl,
            launch_grace_period=None if launch is None else min(launch, top),
            submission_timeout=timings.submission_timeout,
        )

    def _kept(self, ttl: timedelta | None) -> timedelta | None:
        most = self.success_ttl_maximum
        return ttl if most is None else most if ttl is None else min(ttl, most)


class Action(Model):
    """What to do with a failure: restart a unit and charge a budget, fail the workload, or ignore it."""

    kind: ActionKind = ActionKind.RESTART
    """Restart, Fail or Ignore."""
    unit: Scope = Scope.WORKLOAD
    """What is restarted: the whole workload, or only the component that failed (row U7).

    Member means the same for a component that is itself a pod; of a component with copies it restarts only the copy
    that failed (row J23). A controller replaces its own pods. A failure that belongs to no single component restarts
    the workload, whatever the unit."""
    charge: str | None = "restart"
    """The budget that each use charges; none: no budget."""
    grace: bool = True
    """Whether the failure grace period is waited out first (document: skipped where no controller would heal it)."""
    avoid: NodeAvoidance = NodeAvoidance.NEVER
    """How the workload treats the node of a failure matched by its rule, once the workload is restarted."""
    limit: Annotated[int | None, Field(ge=0, le=1_000_000, exclude_if=lambda value: value is None)] = None
    """How often its rule may act before the workload fails, beside any budget; none: only the budget limits it (J19).

    Counted over all attempts. If it charges a budget, and health renews that budget, this limit is renewed too."""
    pause: Annotated[Duration | None, Field(exclude_if=lambda value: value is None)] = None
    """How long the next attempt waits once this one is gone, instead of the retry pause; if only a component restarts,
    how long that restart waits after the grace."""
    requeue: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the workload returns to its queue and releases its quota, instead of restarting in place: it keeps its
    submission time, and is admitted in a later cycle than the one in which it returned (rows L22 to L27)."""

    @field_validator("unit")
    @classmethod
    def _unit_is_known(cls, value: Scope) -> Scope:
        if value is Scope.GANG:
            raise ValueError(
                "Gang: its rendezvous begins a new round by itself: expected Member, Component or Workload"
            )
        return value

    @model_validator(mode="after")
    def _restarts(self) -> Self:
        for field in ("limit", "pause"):
            if self.kind is not ActionKind.RESTART and getattr(self, field) is not None:
                raise ValueError(f"{field}: expected only where kind is Restart, found {self.kind.value}")
        if self.requeue and (self.kind is not ActionKind.RESTART or self.unit is not Scope.WORKLOAD):
            found = self.kind.value if self.kind is not ActionKind.RESTART else f"unit {self.unit.value}"
            raise ValueError(f"requeue: expected only where kind is Restart and unit is Workload, found {found}")
        return self

    @property
    def alone(self) -> bool:
        """Whether it restarts less than the workload."""
        return self.kind is ActionKind.RESTART and self.unit is not Scope.WORKLOAD


class Match(Model):
    """Which failures a rule matches. An empty field matches anything."""

    classes: tuple[FailureClass, ...] = ()
    """Classes of failures."""
    scopes: tuple[Scope, ...] = ()
    """What failed: a member, a component or the workload."""
    reasons: tuple[Reason | str, ...] = ()
    """Reasons of failures: Holdfast's own, or those of Kubernetes."""
    exit_codes: tuple[ExitCode, ...] = ()
    """Exit codes of containers."""
    exit_codes_except: tuple[ExitCode, ...] = ()
    """Matches a failure whose exit code is none of these; a failure without an exit code does not match."""
    message_pattern: str | None = None
    """A regular expression (RE2) found in the failure's message."""
    components: tuple[str, ...] = ()
    """Names of components."""

    @model_validator(mode="after")
    def _pattern_compiles(self) -> Self:
        if self.message_pattern is not None:
            try:
                compiled(self.message_pattern)
            except ValueError as error:
                raise ValueError(f"messagePattern: {error}") from None
        return self


class Rule(Model):
    """One line of a failure policy; the first rule that matches decides."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    """Its name, unique in the policy."""
    match: Match = Match()
    """Which failures it decides."""
    action: Action = Action()
    """What it does with them."""

    @model_validator(mode="after")
    def _name_is_plain(self) -> Self:
        if not _RULE_NAME.fullmatch(self.name):
            raise ValueError(f"rule name {self.name!r}: expected {_RULE_NAME.pattern}")
        return self


class Budget(Model):
    """How often something may happen before the workload fails."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Its name, unique in the policy."""
    limit: Annotated[int, Field(ge=0, le=1_000_000)] | None
    """None: no limit."""
    scope: Scope = Scope.WORKLOAD
    """Whose budget it is: the workload's, over all attempts; or each member's own, anew in each attempt."""
    reset_after: Duration | None = None
    """How long the workload must be healthy without interruption before its use of the budget is forgiven; none: never.

    Time in which the watch could not see does not count as health (row U10)."""
    maximum: Annotated[int | None, Field(ge=0, exclude_if=lambda value: value is None)] = None
    """The highest limit that may be set; none: any (row L24)."""
    renewal: Annotated[Renewal, Field(exclude_if=lambda value: value is Renewal.NEVER)] = Renewal.NEVER
    """When its use is forgiven, independent of health."""
    exceeded: Annotated[Reason, Field(exclude_if=lambda value: value is Reason.RETRY_LIMIT_EXCEEDED)] = (
        Reason.RETRY_LIMIT_EXCEEDED
    )
    """The workload's failure reason when the used-up budget is charged again."""

    @model_validator(mode="after")
    def _is_kept_somewhere(self) -> Self:
        if self.reset_after is not None and not self.reset_after:
            raise ValueError("resetAfter: expected more than 0s, or none at all: then it counts for ever")
        if self.scope not in {Scope.WORKLOAD, Scope.MEMBER}:
            raise ValueError(f"scope {self.scope.value}: expected Workload or Member")
        if self.maximum is not None and (self.limit is None or self.limit > self.maximum):
            found = "no limit" if self.limit is None else str(self.limit)
            raise ValueError(f"limit: {found}: expected at most {self.maximum}")
        return self


class Replacement(Model):
    """Which pods of a live attempt are replaced alone, by deleting and recreating their component (row S9).

    A controller replaces its component's pods itself: for such a component only its own end counts here.
    """

    failed: bool = False
    """Whether failed pods are replaced."""
    completed: bool = False
    """Whether completed pods are replaced."""
    deleted: bool = False
    """Whether deleted pods are replaced."""
    charge: str | None = None
    """The member budget that each replacement charges; a changed configuration charges nothing."""
    backoff: Duration = timedelta(seconds=10)
    """Pause before a failed or completed pod is replaced: none the first time, then this, doubled up to 5 minutes."""


class Exclusion(Model):
    """How many nodes a workload avoids, and for how long (row U9)."""

    limit: Annotated[int, Field(ge=0, le=32)] = 3
    """Number of nodes avoided for the workload's own failures: a newer node displaces the oldest, so a workload that
    fails everywhere never avoids more than this. A node that others found broken does not count, nor one that could not
    start a pod, until the budget of such tries is renewed; if more than this could not at once, they count."""
    expiry: Duration = timedelta(hours=24)
    """How long a node is avoided after its last failure."""


class Success(Model):
    """Which complete components end a workload as Succeeded (row J12)."""

    operator: SuccessOperator = SuccessOperator.ALL
    """Whether all of them must be complete, or any one."""
    components: tuple[str, ...] = ()
    """Empty: all components; for Any, those that have pods or whose own status reports completion."""


class Deletion(Model):
    """What is deleted at the end and on suspension, if not the whole workload."""

    at_end: AtEnd = AtEnd.ALL
    """What stays after the end until its TTL or grace is over: all objects, or those no longer active (row J12)."""
    suspend: Annotated[SuspendMode, Field(exclude_if=lambda value: value is SuspendMode.DELETE)] = SuspendMode.DELETE
    """Whether a suspension deletes all objects, or suspends them in place (row J14).

    Only a fully created attempt can be suspended in place, and only if each component with pods is a Job; everything
    else is deleted."""
    termination_grace: Annotated[Duration | None, Field(exclude_if=lambda value: value is None)] = None
    """The time between SIGTERM and SIGKILL for pods whose template sets none, in whole seconds; none: Kubernetes'
    default of 30 s (row L18)."""

    @field_validator("termination_grace")
    @classmethod
    def _in_whole_seconds(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and (value < timedelta(seconds=1) or value % timedelta(seconds=1)):
            raise ValueError(f"{format_duration(value)}: expected whole seconds, at least 1s")
        return value


def _as_ever(value: object) -> bool:
    """Whether a newer field has its default: then it is not written, so that an older release can read the rest."""
    return value is None or value in (Success(), Deletion())


class Policy(Model):
    """A workload's whole failure policy. Rules are tried in order; `default` ends the list."""

    profile: Word = "manifests"
    """The published policy that gives the fields which are omitted here."""
    timings: Timings = Timings()
    """Grace periods, pauses and time limits."""
    rules: Annotated[tuple[Rule, ...], Field(max_length=64)] = ()
    """Which failures are treated how; the first rule that matches decides."""
    default: Action = Action()
    """The action for failures that no rule matches."""
    budgets: tuple[Budget, ...] = (Budget(name="restart", limit=3),)
    """How often rules may act before the workload fails."""
    interrupted_create: InterruptedCreate = InterruptedCreate.ADOPT
    """What happens to objects of a creation that was interrupted."""
    refused_create: RefusedCreate = RefusedCreate.FAIL
    """What happens if the API server refuses an object."""
    replacement: Replacement = Replacement()
    """Applies to each component without its own replacement."""
    exclusion: Exclusion = Exclusion()
    """How many nodes it avoids after failures on them, and for how long."""
    success: Success = Field(default=Success(), exclude_if=_as_ever)
    """Which complete components end it as Succeeded."""
    deletion: Deletion = Field(default=Deletion(), exclude_if=_as_ever)
    """What is deleted at its end, and when it is suspended."""
    restart_mode: Annotated[RestartMode, Field(exclude_if=lambda value: value is RestartMode.RECREATE)] = (
        RestartMode.RECREATE
    )
    """How a restart of the whole workload begins: with new pods, or in the pods that it has (row J24)."""
    own_failure_grace: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the document itself sets the failure grace: it then ends even during a Job's own back-off (row D22)."""

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        names = [rule.name for rule in self.rules]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"rule name {name!r} is used {names.count(name)} times: names must be unique")
        if DEFAULT_RULE in names and self.default.limit is not None:
            raise ValueError(f"rule name {DEFAULT_RULE!r} is the default's own, which has a limit: choose another")
        budgets = [budget.name for budget in self.budgets]
        for name in budgets:
            if budgets.count(name) > 1:
                raise ValueError(f"budget {name!r} is given {budgets.count(name)} times: names must be unique")
        members = [budget.name for budget in self.budgets if budget.scope is Scope.MEMBER]
        if len(members) > 1:
            raise ValueError(f"budgets: expected at most one of scope Member, found {', '.join(members)}")
        for action in (*(rule.action for rule in self.rules), self.default):
            if action.charge is not None and action.charge not in budgets:
                raise ValueError(f"charge {action.charge!r} names no budget: expected one of {sorted(budgets)}")
            scope = self.budget(action.charge).scope if action.charge is not None else Scope.WORKLOAD
            if scope is Scope.MEMBER and not action.alone:
                raise ValueError(f"charge {action.charge!r}: expected a budget of scope {action.unit.value}")
        self.check_replacement(self.replacement)
        return self

    def check_replacement(self, replacement: Replacement) -> None:
        """Refuse a replacement whose charge is not a member budget.

        Raises:
            ValueError: naming the charge and the budgets that are allowed.
        """
        members = sorted(budget.name for budget in self.budgets if budget.scope is Scope.MEMBER)
        if replacement.charge is not None and replacement.charge not in members:
            raise ValueError(f"replacement.charge {replacement.charge!r}: expected one of {members}, of scope Member")

    def budget(self, name: str) -> Budget:
        """Return a budget by its name (validation ensures that it exists)."""
        return next(budget for budget in self.budgets if budget.name == name)


POLICIES: Final = Shared()
SharedPolicy = Annotated[Policy, WrapValidator(POLICIES)]
"""A policy as a field: equal ones are one object, as most workloads have one of few."""
