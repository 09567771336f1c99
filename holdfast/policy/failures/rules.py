"""Rules: which one matches a failure, and which failure decides. The first match wins; the default comes last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.model import Action, ActionKind, Failure, FailureClass, Match, Policy, Rule, Scope
from holdfast.model.pattern import compiled
from holdfast.model.spec.policy import DEFAULT_RULE

NO_PROGRESS_RULE = "no-progress"
"""The name of what is done with a stall that no rule names."""
SKEW = timedelta(seconds=2)
"""How much the clocks of two machines of a cluster may differ."""
_DEATHS = frozenset({FailureClass.APP, FailureClass.NODE_LOST, FailureClass.LAUNCH})
"""The classes of a pod's own end that may be behind its component's failure."""
_DEFAULT_ASKS = -1
"""How specific the default is: less than any rule."""


class Ruling(NamedTuple):
    """The rule and the action that the policy has for one failure."""

    failure: Failure
    rule: str
    action: Action
    lost: str = ""
    """A message that the failure puts success out of reach, so that the workload fails; else empty."""

    def order(self) -> tuple[bool, tuple[datetime, bool, str, str]]:
        """Return the sort key: failures without a grace come first, then the earliest; ties go by name."""
        return (self.action.grace or self.failure.stuck, self.failure.order())


def matches(match: Match, failure: Failure) -> bool:
    """Whether a rule matches this failure. Empty fields match anything; patterns are unanchored."""
    if match.classes and failure.cls not in match.classes:
        return False
    if match.scopes and failure.scope not in match.scopes:
        return False
    if match.reasons and failure.reason not in match.reasons:
        return False
    if match.components and failure.component not in match.components:
        return False
    # Any container of a pod may decide, as in the AppWrapper controller.
    if match.exit_codes and not any(code in match.exit_codes for code in failure.codes):
        return False
    if match.exit_codes_except and all(code in match.exit_codes_except for code in failure.codes):
        return False
    return match.message_pattern is None or compiled(match.message_pattern).search(failure.message) is not None


def rule_on(policy: Policy, failure: Failure) -> Ruling:
    """Return the ruling of the first matching rule on a failure, or of the default.

    Only a rule that names the class NoProgress decides on such a failure; else the workload is restarted: whoever
    declares that its steps are followed wants that, whatever the profile does with what it does not know (row P2).
    """
    if failure.cls is FailureClass.NO_PROGRESS:
        naming = [rule for rule in policy.rules if failure.cls in rule.match.classes]
        rule = first_match(naming, failure)
        if rule is None:
            return Ruling(failure, NO_PROGRESS_RULE, _on_stall(policy))
        return Ruling(failure, rule.name, rule.action)
    rule = first_match(policy.rules, failure)
    return Ruling(failure, DEFAULT_RULE, policy.default) if rule is None else Ruling(failure, rule.name, rule.action)


def is_default(rules: Iterable[Rule], name: str) -> bool:
    """Whether a ruling of this name is the default's; a document may call a rule of its own `default`."""
    return name == DEFAULT_RULE and all(one.name != name for one in rules)


def title_of(rule: str) -> str:
    """Return how a rule is named in a sentence: `rule failed-pods`, or `default rule` if no other matches."""
    return "default rule" if rule == DEFAULT_RULE else f"rule {rule}"


def first_match(rules: Iterable[Rule], failure: Failure) -> Rule | None:
    """Return the first rule that matches a failure; None if only the default applies."""
    return next((rule for rule in rules if matches(rule.match, failure)), None)


def action_of(policy: Policy, rule: str) -> Action:
    """Return the action of the rule of this name; the default's if there is none."""
    usual = _on_stall(policy) if rule == NO_PROGRESS_RULE else policy.default
    return next((one.action for one in policy.rules if one.name == rule), usual)


def rulings(policy: Policy, failures: Iterable[Failure], *, of_nodes: bool = True) -> list[Ruling]:
    """Return a ruling for each failure, the deciding one first; `of_nodes` as in `in_order`."""
    return in_order(policy.rules, (rule_on(policy, failure) for failure in failures), of_nodes=of_nodes)


def in_order(rules: Sequence[Rule], found: Iterable[Ruling], *, of_nodes: bool = True) -> list[Ruling]:
    """Return rulings, made by these rules, in the order in which they decide.

    A pod's death and its component's failure are one failure if their times differ by no more than the clocks of the
    pod's node and of the controller may. The more specific rule decides that failure. If both rules are equally
    specific, the pod's own death decides (row D20).

    Args:
        rules: the rules that made the rulings.
        found: the rulings.
        of_nodes: whether a pod that its node has lost, or could not start, has died as well. Runs of earlier releases
            go on as they began.
    """
    rulings = sorted(found, key=Ruling.order)
    verdicts = [one for one in rulings if is_verdict(one)]
    if not verdicts:
        return rulings
    deaths: dict[str, list[Ruling]] = {}
    for one in rulings:
        if _is_death(one) and (of_nodes or one.failure.cls is FailureClass.APP):
            deaths.setdefault(one.failure.component, []).append(one)
    asks = {one.name: _specificity(one.match) for one in reversed(rules)}
    groups = [_one_failure(asks, one, deaths.get(one.failure.component, ())) for one in verdicts]
    place = {id(one): group for group in groups for one in group}
    result: dict[int, Ruling] = {}
    for one in rulings:
        # A group takes the place of its first member.
        result |= {id(each): each for each in place.get(id(one), (one,)) if id(each) not in result}
    return list(result.values())


def _on_stall(policy: Policy) -> Action:
    """Return what is done with a stall that no rule names."""
    usual = Action(grace=False)
    charged = any(one.name == usual.charge for one in policy.budgets)
    return usual if charged else Action(grace=False, charge=None)


def is_verdict(ruling: Ruling) -> bool:
    """Whether it is on a component's own failure, and acts on it."""
    acts = ruling.action.kind is not ActionKind.IGNORE
    return acts and ruling.failure.scope is Scope.COMPONENT and ruling.failure.cls is FailureClass.APP


def _is_death(ruling: Ruling) -> bool:
    acts = ruling.action.kind is not ActionKind.IGNORE
    failure = ruling.failure
    return acts and failure.scope is Scope.MEMBER and failure.cls in _DEATHS and not failure.stuck


def _one_failure(asks: Mapping[str, int], verdict: Ruling, deaths: Iterable[Ruling]) -> list[Ruling]:
    """Return a component's ruling and those on the pod deaths that may be behind it, in deciding order.

    Args:
        asks: how specific each rule is; a rule that is not in it is the default.
        verdict: the component's ruling.
        deaths: the rulings on deaths of its pods.
    """
    behind = [one for one in deaths if _is_behind(one, verdict)]
    own = asks.get(verdict.rule, _DEFAULT_ASKS)
    first = [one for one in behind if asks.get(one.rule, _DEFAULT_ASKS) >= own]
    return [*first, verdict, *(one for one in behind if asks.get(one.rule, _DEFAULT_ASKS) < own)]


def _is_behind(ruling: Ruling, verdict: Ruling) -> bool:
    death, said = ruling.failure, verdict.failure
    return abs(death.time - said.time) <= SKEW and ruling.action.grace == verdict.action.grace


def _specificity(match: Match) -> int:
    """Return how many conditions a match has besides class and scope."""
    asks = (match.exit_codes, match.exit_codes_except, match.reasons, match.components, match.message_pattern)
    return sum(1 for one in asks if one)
