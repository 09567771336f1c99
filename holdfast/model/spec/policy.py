"""How a workload's failures are ruled: timings, rules, actions, budgets. A profile is a value of these types."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from holdfast.model.base import Duration, Model, Word, format_duration
from holdfast.model.pattern import compiled
from holdfast.model.vocabulary import (
    ActionKind,
    AtEnd,
    FailureClass,
    InterruptedCreate,
    NodeAvoidance,
    Reason,
    RefusedCreate,
    Renewal,
    Scope,
    SuccessOperator,
    SuspendMode,
)

ExitCode = Annotated[int, Field(ge=0, le=255)]

DEFAULT_RULE = "default"
"""What the default action is called where a rule would be named."""

_RULE_NAME = re.compile(r"^[A-Za-z]([A-Za-z0-9_,:.-]*[A-Za-z0-9_])?$")


class Timings(Model):
    """Every wait of a workload's life. Defaults are AppWrapper's (appwrapper-fault-tolerance.md, configuration).

    Grace and pause periods are capped by `grace_period_maximum` and by the operator's own maximum; `success_ttl` is
    capped only by the operator's own success TTL (row A14). Where `success_ttl` or `deletion_on_failure_grace_period`
    is none, what is left of the workload stays until somebody cancels it, as far as the operator allows (row J15).
    """

    admission_grace_period: Duration = timedelta(minutes=1)
    warmup_grace_period: Duration = timedelta(minutes=5)
    failure_grace_period: Duration = timedelta(minutes=1)
    retry_pause_period: Duration = timedelta(seconds=90)
    deletion_on_failure_grace_period: Duration | None = timedelta(0)
    forceful_deletion_grace_period: Duration = timedelta(minutes=10)
    success_ttl: Duration | None = timedelta(days=7)
    launch_grace_period: Annotated[Duration | None, Field(exclude_if=lambda value: value is None)] = None
    """How long a pod is borne that its kubelet cannot start and tries again: an image, a volume, an init container.

    None: it is no failure, and the warm-up grace tells (row L16)."""
    submission_timeout: Duration | None = None
    """How long refusals that may pass are borne before a workload that waits in submission fails; none: for ever.

    Time in which the API server did not answer does not count (row S10)."""


class Limits(Model):
    """What the operator allows, whatever a submission asks for (row A14)."""

    grace_period_maximum: Duration = timedelta(hours=24)
    success_ttl_maximum: Duration | None = None

    def clamp(self, timings: Timings) -> Timings:
        """Return the timings with each grace and pause capped, and the TTL capped by the operator's own."""
        top = self.grace_period_maximum
        graces = (
            timings.admission_grace_period,
            timings.warmup_grace_period,
            timings.failure_grace_period,
            timings.retry_pause_period,
            timings.deletion_on_failure_grace_period or timedelta(0),
            timings.forceful_deletion_grace_period,
            timings.launch_grace_period or timedelta(0),
        )
        if max(graces) <= top and self.success_ttl_maximum is None:
            return timings  # As nearly always, and asked for at every step.
        ttl, held, launch = timings.success_ttl, timings.deletion_on_failure_grace_period, timings.launch_grace_period
        if self.success_ttl_maximum is not None:
            ttl = min(ttl, self.success_ttl_maximum) if ttl is not None else self.success_ttl_maximum
        return Timings(
            admission_grace_period=min(timings.admission_grace_period, top),
            warmup_grace_period=min(timings.warmup_grace_period, top),
            failure_grace_period=min(timings.failure_grace_period, top),
            retry_pause_period=min(timings.retry_pause_period, top),
            deletion_on_failure_grace_period=None if held is None else min(held, top),
            forceful_deletion_grace_period=min(timings.forceful_deletion_grace_period, top),
            success_ttl=ttl,
            launch_grace_period=None if launch is None else min(launch, top),
            submission_timeout=timings.submission_timeout,
        )


class Action(Model):
    """What to do with a failure: restart a unit and charge a budget, fail the workload, or let it be."""

    kind: ActionKind = ActionKind.RESTART
    unit: Scope = Scope.WORKLOAD
    """What is restarted: the whole workload, or only the component that the failure is of (row U7).

    Member is the same for a component that is itself a pod; where a controller makes the pods, they are its to
    replace. A failure that is of no one component restarts the workload, whatever stands here."""
    charge: str | None = "restart"
    grace: bool = True
    """Whether the failure grace period is waited out first (document: elided where no controller would heal it)."""
    avoid: NodeAvoidance = NodeAvoidance.NEVER
    """What becomes of the node of a failure that its rule rules, once the workload is made again."""
    limit: Annotated[int | None, Field(ge=0, le=1_000_000, exclude_if=lambda value: value is None)] = None
    """How often its rule may act before the workload fails, beside any budget; none: as often as that lets it (J19).

    Counted over all attempts. A budget that it charges and that health renews renews it too."""
    pause: Annotated[Duration | None, Field(exclude_if=lambda value: value is None)] = None
    """How long the next attempt waits once this one is gone, instead of the retry pause; where a component is restarted
    alone, how long that waits after the grace."""
    requeue: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the workload goes back to its queue and lets go of its quota, instead of being made again in its place:
    it keeps its submission time, and is admitted in a later cycle than that in which it came back (rows L22 to L27)."""

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
    """Which failures a rule speaks of. An empty field matches anything."""

    classes: tuple[FailureClass, ...] = ()
    scopes: tuple[Scope, ...] = ()
    reasons: tuple[Reason | str, ...] = ()
    exit_codes: tuple[ExitCode, ...] = ()
    exit_codes_except: tuple[ExitCode, ...] = ()
    """Matches a failure that has an exit code, and not one of these."""
    message_pattern: str | None = None
    components: tuple[str, ...] = ()

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
    match: Match = Match()
    action: Action = Action()

    @model_validator(mode="after")
    def _name_is_plain(self) -> Self:
        if not _RULE_NAME.fullmatch(self.name):
            raise ValueError(f"rule name {self.name!r}: expected {_RULE_NAME.pattern}")
        return self


class Budget(Model):
    """How often something may happen before the workload fails."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    limit: Annotated[int, Field(ge=0, le=1_000_000)] | None
    """None: as often as it takes."""
    scope: Scope = Scope.WORKLOAD
    """Whose budget it is: the workload's over all attempts, or each member's own, anew in each attempt."""
    reset_after: Duration | None = None
    """How long the workload must have been healthy without a break for what was used to be forgiven; none: never.

    Time in which the watch could not see does not count as health (row U10)."""
    maximum: Annotated[int | None, Field(ge=0, exclude_if=lambda value: value is None)] = None
    """The highest limit that it may be given; none: any (row L24)."""
    renewal: Annotated[Renewal, Field(exclude_if=lambda value: value is Renewal.NEVER)] = Renewal.NEVER
    """When what was used is forgiven, whatever health does."""
    exceeded: Annotated[Reason, Field(exclude_if=lambda value: value is Reason.RETRY_LIMIT_EXCEEDED)] = (
        Reason.RETRY_LIMIT_EXCEEDED
    )
    """Why the workload is said to have failed once it is used up and charged again."""

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
    """Which pods of a living attempt are made again, alone, by deleting and creating their component (row S9).

    A component that has a controller replaces its own pods: here only the end of the component itself counts.
    """

    failed: bool = False
    completed: bool = False
    deleted: bool = False
    charge: str | None = None
    """The member budget that each replacement is charged to; a changed configuration charges nothing."""
    backoff: Duration = timedelta(seconds=10)
    """Pause before a failed or completed pod is made again: none the first time, then this, doubled up to 5 minutes."""


class Exclusion(Model):
    """How many nodes a workload avoids, and for how long (row U9)."""

    limit: Annotated[int, Field(ge=0, le=32)] = 3
    """Of nodes blamed for the workload's own failures: the oldest is let back for a newer one, so that a workload that
    fails everywhere avoids no more. A node that somebody else found broken is not counted."""
    expiry: Duration = timedelta(hours=24)
    """How long a node is avoided after its last failure."""


class Success(Model):
    """What ends a workload as Succeeded: components that are complete (row J12)."""

    operator: SuccessOperator = SuccessOperator.ALL
    """All of them, or any one."""
    components: tuple[str, ...] = ()
    """Empty: all of the workload's; for Any, those that bring pods or say themselves that they are complete."""


class Deletion(Model):
    """What is deleted when, where that is not the whole workload."""

    at_end: AtEnd = AtEnd.ALL
    """What stays, once it has ended, until its time is over: all of it, or what is not active any more (row J12)."""
    suspend: Annotated[SuspendMode, Field(exclude_if=lambda value: value is SuspendMode.DELETE)] = SuspendMode.DELETE
    """Whether a suspension deletes all of it, or suspends its objects where they are (row J14).

    In place only what has been created whole can be suspended, and only where each component that brings pods is a Job;
    all else is deleted."""
    termination_grace: Annotated[Duration | None, Field(exclude_if=lambda value: value is None)] = None
    """What its pods have between TERM and KILL where their template does not say, in whole seconds; none: what
    Kubernetes gives them, 30 s (row L18)."""

    @field_validator("termination_grace")
    @classmethod
    def _in_whole_seconds(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and (value < timedelta(seconds=1) or value % timedelta(seconds=1)):
            raise ValueError(f"{format_duration(value)}: expected whole seconds, at least 1s")
        return value


def _as_ever(value: object) -> bool:
    """Whether a field that came later says nothing: then it is not written, and an older release reads the rest."""
    return value is None or value in (Success(), Deletion())


class Policy(Model):
    """A workload's whole failure policy. Rules are tried in order; `default` ends the list."""

    profile: Word = "manifests"
    timings: Timings = Timings()
    rules: Annotated[tuple[Rule, ...], Field(max_length=64)] = ()
    default: Action = Action()
    budgets: tuple[Budget, ...] = (Budget(name="restart", limit=3),)
    interrupted_create: InterruptedCreate = InterruptedCreate.ADOPT
    refused_create: RefusedCreate = RefusedCreate.FAIL
    replacement: Replacement = Replacement()
    """For each component that has none of its own."""
    exclusion: Exclusion = Exclusion()
    success: Success = Field(default=Success(), exclude_if=_as_ever)
    deletion: Deletion = Field(default=Deletion(), exclude_if=_as_ever)
    own_failure_grace: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the document itself gives the failure grace: then it ends during a Job's own back-off too (row D22)."""

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
        """Refuse a replacement that is charged to no budget of a member.

        Raises:
            ValueError: naming the charge and the budgets that are allowed.
        """
        members = sorted(budget.name for budget in self.budgets if budget.scope is Scope.MEMBER)
        if replacement.charge is not None and replacement.charge not in members:
            raise ValueError(f"replacement.charge {replacement.charge!r}: expected one of {members}, of scope Member")

    def budget(self, name: str) -> Budget:
        """Return a budget by its name (which validation has shown to exist)."""
        return next(budget for budget in self.budgets if budget.name == name)
