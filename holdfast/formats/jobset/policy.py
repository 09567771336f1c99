"""A JobSet's failure and success policy, as rules and budgets of the model (record 0001)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

from holdfast.formats.jobset.checks import rule_name
from holdfast.formats.jobset.document import FailureAction, RulePart, Shape
from holdfast.model import Action, ActionKind, Policy, RestartMode, Rule, Scope, Timings
from holdfast.profiles.jobset import FAILED_JOB, NO_POLICY, NO_RULE
from holdfast.profiles.rules import FAIL_AT_ONCE, POD_RESTARTED, RESTART

LIMIT_MAXIMUM: Final = 1_000_000
"""A higher limit counts as no limit."""

_QUOTED_OR_ESCAPED: Final = re.compile(r"(?s)\\Q.*?\\E|\\[^Q]")
"""The parts of a pattern that begin with a backslash, but for a quotation that is not closed."""

ACTIONS: Final[dict[FailureAction, Action]] = {
    "FailJobSet": FAIL_AT_ONCE,
    "RestartJobSet": Action(kind=ActionKind.RESTART, charge=RESTART, grace=False),
    "RestartJobSetAndIgnoreMaxRestarts": Action(kind=ActionKind.RESTART, charge=None, grace=False),
    "RestartJob": Action(kind=ActionKind.RESTART, unit=Scope.MEMBER, charge=RESTART, grace=False),
    "RestartJobAndIgnoreMaxRestarts": Action(kind=ActionKind.RESTART, unit=Scope.MEMBER, charge=None, grace=False),
    "RestartReplicatedJob": Action(kind=ActionKind.RESTART, unit=Scope.COMPONENT, charge=RESTART, grace=False),
    "FailJob": Action(kind=ActionKind.IGNORE, charge=None, grace=False),
}
"""The model's action for each action of a document."""


def read_policy(shape: Shape, defaults: Policy) -> Policy:
    """Return the operator's policy with the document's settings applied.

    Without a failure policy the first failed Job fails the set (row J1); with one, a failure that no rule matches
    restarts it (row J5). The operator's own rules keep their place, before the document's.
    """
    spec, failure = shape.spec, shape.spec.failurePolicy
    rules = [rule for rule in defaults.rules if rule.name != NO_POLICY.name]
    if failure is None:
        rules.append(NO_POLICY)
    else:
        if shape.in_place:
            rules.append(POD_RESTARTED)
        rules += [*(_rule(one, index) for index, one in enumerate(failure.rules or ())), NO_RULE]
    most = 0 if failure is None else max(failure.maxRestarts or 0, 0)
    limit = most if most <= LIMIT_MAXIMUM else None
    budgets = tuple(one.model_copy(update={"limit": limit}) if one.name == RESTART else one for one in defaults.budgets)
    timings: dict[str, Any] = {name: getattr(defaults.timings, name) for name in Timings.model_fields}
    if spec.ttlSecondsAfterFinished is not None:
        ttl = timedelta(seconds=spec.ttlSecondsAfterFinished)
        timings.update(success_ttl=ttl, deletion_on_failure_grace_period=ttl)
    values: dict[str, Any] = {name: getattr(defaults, name) for name in Policy.model_fields}
    values.update(rules=tuple(rules), budgets=budgets, timings=Timings(**timings))
    if shape.may_restart_in_place:
        values["restart_mode"] = RestartMode.IN_PLACE
    success = spec.successPolicy
    if success is not None:
        values["success"] = {"operator": success.operator, "components": tuple(success.targetReplicatedJobs or ())}
    return Policy(**values)


def _rule(given: RulePart, index: int) -> Rule:
    pattern = "|".join(f"(?:{_closed(one)})" for one in given.onJobFailureMessagePatterns or ()) or None
    match = FAILED_JOB.model_copy(
        update={
            "reasons": tuple(given.onJobFailureReasons or ()),
            "message_pattern": pattern,
            "components": tuple(given.targetReplicatedJobs or ()),
        }
    )
    return Rule(name=rule_name(given, index), match=match, action=ACTIONS[given.action])


def _closed(pattern: str) -> str:
    r"""Return a pattern with its last quotation closed: RE2 lets an open `\Q` quote all that follows."""
    return pattern + r"\E" if "\\" in _QUOTED_OR_ESCAPED.sub("", pattern) else pattern
