"""Settings given as text, by annotation or by `--set`: their names, their values, and how they apply."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from holdfast import names
from holdfast.errors import InvalidWorkload, Problem, problems_of
from holdfast.formats.mounts import read_mounts
from holdfast.formats.text import Json, documents
from holdfast.model import (
    Action,
    ActionKind,
    Bounded,
    Budget,
    Checkpoint,
    CheckpointProtocol,
    Policy,
    Progress,
    ProgressSource,
    RestartMode,
    Rule,
    Timings,
    Workload,
    format_duration,
    parse_duration,
)
from holdfast.model.base import Model
from holdfast.model.spec.policy import DEFAULT_RULE
from holdfast.profiles.rules import LAUNCH, POD_RESTARTED, RESTART

RETRIES_MAXIMUM = 1_000_000

TIMING_NAMES: Final[Mapping[str, str]] = {info.alias or name: name for name, info in Timings.model_fields.items()}
"""Names of the waits in documents (`failureGracePeriod`), mapped to their names in the model."""

NEVER: Final = "never"
_MAY_BE_NEVER: Final = {"success_ttl", "deletion_on_failure_grace_period", "launch_grace_period", "submission_timeout"}

_OTHERS: Final[Mapping[str, str]] = {
    "profile": "profile",
    "retryLimit": "retry_limit",
    "launchLimit": "launch_limit",
    "restartBudgetResetAfter": "restart_budget_reset_after",
    "launchBudgetResetAfter": "launch_budget_reset_after",
    "restartMode": "restart_mode",
    "ruleLimits": "rule_limits",
    "rulePauses": "rule_pauses",
    "queue": "queue",
    "priority": "priority",
    "runAs": "run_as",
    "suspend": "suspend",
    "allowMissingKinds": "allow_missing_kinds",
    "sensitive": "sensitive",
    "walltime": "walltime",
    "walltimeExtendableTo": "extendable_to",
    "mounts": "mounts",
}
_CHECKPOINT: Final[Mapping[str, str]] = {
    "checkpoint": "protocol",
    "checkpointPort": "port",
    "checkpointPath": "path",
    "checkpointTimeout": "timeout",
    "checkpointExtension": "extension",
    "checkpointOnUnresponsive": "on_unresponsive",
    "checkpointComponents": "components",
}
"""Names of the checkpoint settings, mapped to fields of `Checkpoint`."""
_PROGRESS: Final[Mapping[str, str]] = {
    "progress": "source",
    "progressPort": "port",
    "progressPath": "path",
    "progressComponents": "components",
    "progressPeriod": "period",
    "progressBound": "bound",
    "progressMultiple": "multiple",
    "progressMinimum": "minimum",
    "progressFirstStep": "first_step",
    "progressPhaseBound": "phase_bound",
    "progressPoisonLimit": "poison_limit",
    "progressExecutions": "executions",
}
"""Names of the progress settings, mapped to fields of `Progress`."""


class _Group(NamedTuple):
    """Settings that together make one field of the workload."""

    model: type[Model]
    names: Mapping[str, str]
    """The settings, mapped to fields of the model; the first one is required by all others."""
    first: type[StrEnum]
    """The values of the first setting."""


_GROUPS: Final[Mapping[str, _Group]] = {
    "checkpoint": _Group(Checkpoint, _CHECKPOINT, CheckpointProtocol),
    "progress": _Group(Progress, _PROGRESS, ProgressSource),
}
"""The groups, by their field of the workload."""
_GROUP_OF: Final = {name: field for field, group in _GROUPS.items() for name in group.names}
NAMES: Final = (*TIMING_NAMES, *_OTHERS, *_GROUP_OF)
"""Names of all settings."""

_LIMITS: Final[Mapping[str, str]] = {"retryLimit": RESTART, "launchLimit": LAUNCH}
_RESETS: Final[Mapping[str, str]] = {"restartBudgetResetAfter": RESTART, "launchBudgetResetAfter": LAUNCH}
_BOUNDS: Final[Mapping[str, str]] = {"walltime": "walltime", "extendable_to": "walltimeExtendableTo"}
_RULES: Final[Mapping[str, str]] = {"ruleLimits": "limit", "rulePauses": "pause"}
"""Settings given per rule, `{oom: 2}`, mapped to fields of the rules' actions."""

OF_A_POLICY: Final = frozenset({*TIMING_NAMES, *_LIMITS, *_RESETS, *_RULES, "restartMode", "profile"})
"""Names of the settings that are a policy's; others are the workload's."""
_SPELLINGS: Final[Mapping[str, str]] = {"successTTL": "successTtl"}


class Given(NamedTuple):
    """One setting as given, and its path."""

    path: str
    name: str
    value: str


@dataclass(slots=True)
class Settings:
    """Parsed settings; a setting that was not given changes nothing."""

    timings: dict[str, timedelta | None] = field(default_factory=dict[str, "timedelta | None"])
    """None: never."""
    profile: str | None = None
    limits: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    """Limits of budgets, by their names; None: no limit."""
    resets: dict[str, timedelta] = field(default_factory=dict[str, timedelta])
    """How long health must last to renew a budget, by budget name."""
    rules: dict[str, Json] = field(default_factory=dict[str, Json])
    """Fields of rules' actions, by the rules' names."""
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the workload itself."""
    groups: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Fields of the workload's checkpoint and progress, by the name of the group."""
    restart_mode: RestartMode | None = None
    bounds: dict[str, timedelta] = field(default_factory=dict[str, timedelta])
    """The walltime, and the longest walltime after extensions."""
    paths: dict[str, str] = field(default_factory=dict[str, str])
    """The path at which each setting was given."""

    def policy(self, policy: Policy) -> Policy:
        """Return the policy with these settings applied."""
        budgets = tuple(
            budget.model_copy(
                update={
                    "limit": self.limits.get(budget.name, budget.limit),
                    "reset_after": self.resets.get(budget.name, budget.reset_after),
                }
            )
            for budget in policy.budgets
        )
        rules = tuple(
            rule.model_copy(update={"action": rule.action.model_copy(update=self.rules.get(rule.name, {}))})
            for rule in policy.rules
        )
        named = any(rule.name == DEFAULT_RULE for rule in rules)
        default = policy.default.model_copy(update={} if named else self.rules.get(DEFAULT_RULE, {}))
        timings = policy.timings.model_copy(update=self.timings)
        changed: dict[str, Any] = {"timings": timings, "budgets": budgets, "rules": rules, "default": default}
        if "failure_grace_period" in self.timings:
            changed["own_failure_grace"] = True
        if self.restart_mode is not None:
            changed["restart_mode"] = self.restart_mode
        if self.restart_mode is RestartMode.IN_PLACE:
            changed["rules"] = _with_pod_restarted(rules, budgets)
        return policy.model_copy(update=changed)

    def rule_problems(self, policy: Policy) -> list[Problem]:
        """Return a problem for each setting of a rule that the policy does not have, or that does not restart."""
        actions: dict[str, Action] = {DEFAULT_RULE: policy.default, **{one.name: one.action for one in policy.rules}}
        restarts = tuple(name for name, action in actions.items() if action.kind is ActionKind.RESTART)
        return [
            Problem(self.paths[setting], "expected the name of a rule that restarts", name, restarts)
            for setting, key in _RULES.items()
            for name, values in self.rules.items()
            if key in values and name not in restarts
        ]

    def problems(self, policy: Policy) -> list[Problem]:
        """Return a problem for each setting that does not fit the policy's budgets; rules apart."""
        known = {budget.name: budget for budget in policy.budgets}
        over = [
            Problem(self.paths[name], f"expected at most {known[budget].maximum}", limit)
            for name, budget in _LIMITS.items()
            if (limit := self.limits.get(budget)) is not None and budget in known and _exceeds(known[budget], limit)
        ]
        given = [(name, budget, self.limits.get(budget)) for name, budget in _LIMITS.items()]
        given += [(name, budget, self.resets.get(budget)) for name, budget in _RESETS.items()]
        return over + [
            Problem(
                self.paths[name],
                f"profile {policy.profile} has no {budget} budget",
                format_duration(value) if isinstance(value, timedelta) else value,
            )
            for name, budget, value in given
            if value is not None and budget not in known
        ]


def _with_pod_restarted(rules: tuple[Rule, ...], budgets: Iterable[Budget]) -> tuple[Rule, ...]:
    """Return the rules, preceded by the one for pods that restart in place.

    The rule for other failed pods may prefer another node, and a pod that restarts in place keeps its own.
    """
    if any(rule.name == POD_RESTARTED.name for rule in rules) or all(one.name != RESTART for one in budgets):
        return rules
    return (POD_RESTARTED, *rules)


def _exceeds(budget: Budget, limit: int) -> bool:
    return budget.maximum is not None and limit > budget.maximum


def read_duration(text: str, path: str, *, floor: bool = False) -> timedelta | Problem:
    """Read a duration; with `floor` a negative one is read as 0, as AppWrapper's limits specify."""
    try:
        if floor and text.strip().startswith("-"):
            parse_duration(text.strip()[1:])
            return timedelta(0)
        return parse_duration(text)
    except ValueError as error:
        return Problem(path, str(error))


def read_retry_limit(text: str, path: str, most: int = RETRIES_MAXIMUM) -> int | Problem:
    """Read a number of retries."""
    if not re.fullmatch(r"\+?[0-9]{1,10}", text.strip()) or int(text) > most:
        return Problem(path, f"expected a whole number from 0 to {most}", text)
    return int(text)


def read_reset(text: str, path: str) -> timedelta | Problem:
    """Read how long health must last to renew a budget: more than 0, or every failure would renew it."""
    span = read_duration(text, path)
    if isinstance(span, timedelta) and not span:
        return Problem(path, "expected more than 0s; leave it out for a budget that counts for ever", text)
    return span


def read_rules(text: str, key: str, path: str) -> dict[str, Json] | Problem:
    """Read values given by rule name: `{oom: 2}` or `{oom: 10m}`, YAML or JSON."""
    try:
        (found,) = documents(text)
    except (InvalidWorkload, ValueError):
        return Problem(
            path, "expected rules by their names, as in {oom: %s}" % ("2" if key == "limit" else "10m"), text
        )
    rules: dict[str, Json] = {}
    for name, value in found.content.items():
        one = read_retry_limit(str(value), path) if key == "limit" else read_duration(str(value), path)
        if isinstance(one, Problem):
            return Problem(path, f"{name}: {one.message}", one.value)
        rules[str(name)] = {key: one}
    return rules


def known_name(name: str) -> str | None:
    """Return a setting's canonical name, or None if there is no such setting."""
    spelled = _SPELLINGS.get(name, name)
    return spelled if spelled in NAMES else None


def unhyphenated(name: str) -> str | None:
    """Return the setting that a name with hyphens means, as `retry-limit` means `retryLimit`; None if it means none."""
    first, *others = name.split("-")
    return known_name(first + "".join(one[:1].upper() + one[1:] for one in others)) if others else None


def nearest(name: str) -> str | None:
    """Return the setting with the most similar name, or None."""
    return next(iter(difflib.get_close_matches(name, [*NAMES, *_SPELLINGS], n=1, cutoff=0.75)), None)


def read_settings(given: Iterable[Given]) -> tuple[Settings, list[Problem]]:
    """Read settings given by name; an unknown, malformed or contradictory setting is a problem."""
    settings = Settings()
    problems: list[Problem] = []
    seen: dict[str, Given] = {}
    for one in given:
        name = known_name(one.name)
        if name is None:
            near = nearest(one.name)
            hint = f"; did you mean {near}?" if near else ""
            problems.append(Problem(one.path, f"is no setting{hint}", allowed=NAMES))
            continue
        earlier = seen.setdefault(name, one)
        if earlier.value != one.value:
            problems.append(Problem(one.path, f"contradicts {earlier.path}, which is {earlier.value!r}", one.value))
            continue
        problem = _set(settings, name, one)
        if problem is not None:
            problems.append(problem)
    for group in settings.groups:
        problems += _read_group(settings, group)
    problems += _bounded(settings)
    return settings, problems


def _read_group(settings: Settings, name: str) -> list[Problem]:
    """Build one field of the workload from its group of settings, and return the problems."""
    group, given = _GROUPS[name], settings.groups[name]
    written = {field: info.alias or field for field, info in group.model.model_fields.items()}
    first, needed = next(iter(group.names.items()))
    if needed not in given:
        path = next(settings.paths[one] for one in group.names if one in settings.paths)
        return [Problem(path, f"is only for what sets {name}, too", allowed=tuple(group.first))]
    # One that is missing belongs beside the first one.
    before, _, after = settings.paths[first].rpartition(first)
    places = {written[field]: settings.paths.get(one, before + one + after) for one, field in group.names.items()}
    try:
        settings.fields[name] = group.model.model_validate(given)
    except ValidationError as error:
        return relocated(problems_of(error, group.model), {**places, "": places[written[needed]]})
    settings.paths[f"{name}.components"] = settings.paths.get(f"{name}Components", settings.paths[first])
    return []


def _bounded(settings: Settings) -> list[Problem]:
    """Build the lifecycle from the walltime settings; a contradiction between them is a problem."""
    given = {name: settings.bounds[name] for name in ("walltime", "extendable_to") if name in settings.bounds}
    if not given:
        return []
    try:
        settings.fields["lifecycle"] = Bounded.model_validate(given)
    except ValidationError as error:
        path = settings.paths[_BOUNDS[next(reversed(given))]]
        return [Problem(path, one.message, one.value) for one in problems_of(error, Bounded)]
    return []


def _set(settings: Settings, name: str, given: Given) -> Problem | None:
    if name in TIMING_NAMES:
        if given.value.strip() == NEVER and TIMING_NAMES[name] in _MAY_BE_NEVER:
            settings.timings[TIMING_NAMES[name]] = None
            return None
        duration = read_duration(given.value, given.path)
        if isinstance(duration, Problem):
            return duration
        settings.timings[TIMING_NAMES[name]] = duration
        return None
    if name in _BOUNDS.values():
        span = read_duration(given.value, given.path)
        if isinstance(span, Problem):
            return span
        settings.bounds[_OTHERS[name]] = span
        settings.paths[name] = given.path
        return None
    if name in _LIMITS:
        limit = read_retry_limit(given.value, given.path)
        if isinstance(limit, Problem):
            return limit
        settings.limits[_LIMITS[name]] = limit
        settings.paths[name] = given.path
        return None
    if name in _RESETS:
        span = read_reset(given.value, given.path)
        if isinstance(span, Problem):
            return span
        settings.resets[_RESETS[name]] = span
        settings.paths[name] = given.path
        return None
    if name in _RULES:
        rules = read_rules(given.value, _RULES[name], given.path)
        if isinstance(rules, Problem):
            return rules
        for rule, values in rules.items():
            settings.rules.setdefault(rule, {}).update(values)
        settings.paths[name] = given.path
        return None
    if name in _GROUP_OF:
        group, text = _GROUP_OF[name], given.value.strip()
        one = _GROUPS[group].names[name]
        parts = [part.strip() for part in text.split(",")] if one == "components" else None
        values = settings.groups.setdefault(group, {})
        # A longer number is none that a setting may have, and int() refuses thousands of digits.
        number = int(text) if text.isdecimal() and len(text) <= 18 else text
        values[one] = parts if parts is not None else number
        settings.paths[name] = given.path
        return None
    if name == "mounts":
        mounts = read_mounts(given.value, given.path)
        if isinstance(mounts, Problem):
            return mounts
        settings.fields[name] = mounts
        settings.paths[name] = given.path
        return None
    if name == "restartMode":
        if given.value not in set(RestartMode):
            return Problem(given.path, "is not one of the allowed values", given.value, tuple(RestartMode))
        settings.restart_mode = RestartMode(given.value)
        settings.paths[name] = given.path
        return None
    if name == "profile":
        settings.profile = given.value
        settings.paths[name] = given.path
        return None
    value: Any = given.value
    if name in {"suspend", "allowMissingKinds", "sensitive"}:
        if value not in {"true", "false"}:
            return Problem(given.path, "is not one of the allowed values", value, ("true", "false"))
        value = value == "true"
    elif name == "priority":
        if not re.fullmatch(r"[0-9]{1,3}", value) or int(value) > 10:
            return Problem(given.path, "expected a whole number from 0 to 10", value)
        value = int(value)
    settings.fields[_OTHERS[name]] = value
    settings.paths[name] = given.path
    return None


def overridden(workload: Workload, settings: Settings) -> tuple[Workload, list[Problem]]:
    """Return the workload with settings applied, validated again, and the problems of the result."""
    if settings.profile is not None and settings.profile != workload.policy.profile:
        message = f"is decided by the document: give it there, as {names.GROUP}/profile"
        return workload, [Problem(settings.paths["profile"], message, settings.profile, (workload.policy.profile,))]
    if problems := [*settings.problems(workload.policy), *settings.rule_problems(workload.policy)]:
        return workload, problems
    values: dict[str, Any] = {name: getattr(workload, name) for name in Workload.model_fields}
    values.update(settings.fields, policy=settings.policy(workload.policy))
    try:
        return Workload(**values), []
    except ValidationError as error:
        return workload, relocated(problems_of(error, Workload), settings.paths)


def relocated(problems: Iterable[Problem], places: Mapping[str, str]) -> list[Problem]:
    """Return problems of a model with the document paths of their fields.

    Args:
        problems: The model's problems, with the model's paths.
        places: Maps prefixes of the model's paths to paths in the document.
    """
    moved: list[Problem] = []
    for problem in problems:
        path = problem.path
        for start in sorted(places, key=len, reverse=True):
            if path == start or path.startswith((f"{start}.", f"{start}[")):
                path = places[start] + path[len(start) :]
                break
        moved.append(Problem(path, problem.message, problem.value, problem.allowed))
    return moved
