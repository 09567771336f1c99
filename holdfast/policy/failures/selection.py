"""Selects the failures that a snapshot carries when it cannot hold all, by the rules that judge them (row D16)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from holdfast.model import Action, ActionKind, Failure, Policy, Scope
from holdfast.model.spec.policy import DEFAULT_RULE
from holdfast.model.spec.selection import Selection
from holdfast.policy.failures.rules import Ruling, first_match, in_order, is_default, is_verdict

_AT_ONCE = Action(kind=ActionKind.FAIL, charge=None, grace=False)


def selection_of(policy: Policy) -> Selection:
    """Return the parts of a policy that a snapshot needs to select failures."""
    return Selection(
        rules=tuple(rule.model_copy(update={"action": _bare(rule.action)}) for rule in policy.rules),
        default=_bare(policy.default),
        needed=policy.success.components,
    )


def _bare(action: Action) -> Action:
    return Action(kind=action.kind, charge=None, grace=action.grace)


def select(failures: Iterable[Failure], most: int, selection: Selection | None = None) -> tuple[Failure, ...]:
    """Return the failures that the snapshot carries, at most `most`, the earliest first.

    The failure that decides has the highest priority, with those that place it. Then comes the first failure of each
    rule that acts, in the order in which rulings decide: many ignored failures must not hide one that decides. The
    failure of a component that success needs counts as acting, whatever its rule says (row J19). Then come the first
    of each rule and component, then the first of each kind of failure, components before pods, and then the rest.

    Args:
        failures: all failures found.
        most: the most failures to return.
        selection: the rules; None if they are not known, as for an attempt that an earlier release began.
    """
    rest = sorted(failures, key=Failure.order)
    if len(rest) <= most:
        return tuple(rest)
    tiers = _Tiers()
    if selection is not None:
        rulings = _rulings(selection, rest)
        # A failure that puts success out of reach fails the workload at once, whatever grace its rule has.
        acting = [one._replace(action=_AT_ONCE) if _is_final(selection, one) else one for one in rulings]
        deciding = _deciding(selection, acting)
        # Whether success really is out of reach depends on what else is there: so also what decides if it is not.
        for order in (deciding, _deciding(selection, rulings)):
            tiers.add((id(one), one.failure) for one in _placing(order))
        tiers.add((_cause(one), one.failure) for one in deciding)
        tiers.add(((_cause(one), one.failure.scope, one.failure.component), one.failure) for one in deciding)
    components = [one for one in rest if one.scope is not Scope.MEMBER]
    tiers.add(((one.component, *_kind(one)), one) for one in components)
    tiers.add((_kind(one), one) for one in rest if one.scope is Scope.MEMBER)
    chosen = tiers.first(rest, most)
    return tuple(one for one in rest if id(one) in chosen)


class _Tiers:
    """Failures by rank: each tier holds the first failure of each group."""

    def __init__(self) -> None:
        self._ranked: dict[int, None] = {}

    def add(self, groups: Iterable[tuple[Hashable, Failure]]) -> None:
        """Rank the first failure of each group below all ranked failures."""
        first: dict[Hashable, Failure] = {}
        for group, failure in groups:
            first.setdefault(group, failure)
        self._ranked |= dict.fromkeys(id(one) for one in first.values())

    def first(self, rest: Iterable[Failure], most: int) -> frozenset[int]:
        """Return the ids of the first `most` failures: the ranked ones, then the rest."""
        every = dict.fromkeys((*self._ranked, *(id(one) for one in rest)))
        return frozenset(list(every)[:most])


def _deciding(selection: Selection, found: Iterable[Ruling]) -> list[Ruling]:
    return in_order(selection.rules, (one for one in found if one.action.kind is not ActionKind.IGNORE))


def _placing(deciding: Sequence[Ruling]) -> list[Ruling]:
    """Return the ruling that decides, and those without which it might not: a death has its place by its verdict's."""
    component = deciding[0].failure.component if deciding else ""
    verdict = next((one for one in deciding if is_verdict(one) and one.failure.component == component), None)
    return [*deciding[:1], *([verdict] if verdict is not None else ()), *sorted(deciding, key=Ruling.order)[:1]]


def _rulings(selection: Selection, failures: Iterable[Failure]) -> list[Ruling]:
    """Return a ruling for each failure. Failures that are equal in all that rules read are judged once."""
    known: dict[Hashable, tuple[str, Action]] = {}
    found: list[Ruling] = []
    for one in failures:
        key = (one.cls, one.scope, one.reason, one.component, one.codes, one.message)
        if key not in known:
            rule = first_match(selection.rules, one)
            known[key] = (rule.name, rule.action) if rule is not None else (DEFAULT_RULE, selection.default)
        found.append(Ruling(one, *known[key]))
    return found


def _is_final(selection: Selection, ruling: Ruling) -> bool:
    """Whether a rule ignores the failure of a component that success may need."""
    failure = ruling.failure
    return (
        ruling.action.kind is ActionKind.IGNORE
        and not is_default(selection.rules, ruling.rule)
        and failure.scope is Scope.COMPONENT
        and (not selection.needed or failure.component in selection.needed)
    )


def _cause(ruling: Ruling) -> Hashable:
    return ruling.rule if ruling.action is not _AT_ONCE else None


def _kind(failure: Failure) -> tuple[Hashable, ...]:
    return (failure.cls, failure.reason, failure.codes)
