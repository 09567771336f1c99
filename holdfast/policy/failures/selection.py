"""Which failures travel in a snapshot, where not all of them can: chosen by the rules that judge them (row D16)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from holdfast.model import Action, ActionKind, Failure, Policy, Scope
from holdfast.model.spec.policy import DEFAULT_RULE
from holdfast.model.spec.selection import Selection
from holdfast.policy.failures.rules import Ruling, first_match

_AT_ONCE = Action(kind=ActionKind.FAIL, charge=None, grace=False)


def selection_of(policy: Policy) -> Selection:
    """Return what a snapshot needs to know of a policy."""
    return Selection(
        rules=tuple(rule.model_copy(update={"action": _bare(rule.action)}) for rule in policy.rules),
        default=_bare(policy.default),
        needed=policy.success.components,
    )


def _bare(action: Action) -> Action:
    return Action(kind=action.kind, charge=None, grace=action.grace)


def select(failures: Iterable[Failure], most: int, selection: Selection | None = None) -> tuple[Failure, ...]:
    """Return the failures that travel, at most so many, the earliest first.

    The first to travel is the first failure of each rule that acts, in the order in which rulings decide: many that a
    rule ignores must not hide another that decides. A verdict of a component that success needs acts too, whatever its
    rule says (row J19). Then come the first of each rule and component, the first of each kind of failure, those of
    components before those of pods, and the rest.

    Args:
        failures: all that were found.
        most: how many travel.
        selection: the rules; None where they are not known, as of an attempt that an earlier release began.
    """
    rest = sorted(failures, key=Failure.order)
    if len(rest) <= most:
        return tuple(rest)
    tiers = _Tiers()
    if selection is not None:
        rulings = _rulings(selection, rest)
        # Where success is out of reach by it, the workload fails at once, whatever grace the rule has.
        acting = [one._replace(action=_AT_ONCE) if _is_final(selection, one) else one for one in rulings]
        deciding = sorted((one for one in acting if one.action.kind is not ActionKind.IGNORE), key=Ruling.order)
        tiers.add((_cause(one), one.failure) for one in deciding)
        tiers.add(((_cause(one), one.failure.scope, one.failure.component), one.failure) for one in deciding)
    components = [one for one in rest if one.scope is not Scope.MEMBER]
    tiers.add(((one.component, *_kind(one)), one) for one in components)
    tiers.add((_kind(one), one) for one in rest if one.scope is Scope.MEMBER)
    chosen = tiers.first(rest, most)
    return tuple(one for one in rest if id(one) in chosen)


class _Tiers:
    """Failures by rank: of each tier the first of each group."""

    def __init__(self) -> None:
        self._ranked: dict[int, None] = {}

    def add(self, groups: Iterable[tuple[Hashable, Failure]]) -> None:
        """Rank the first failure of each group below all that are ranked already."""
        first: dict[Hashable, Failure] = {}
        for group, failure in groups:
            first.setdefault(group, failure)
        self._ranked |= dict.fromkeys(id(one) for one in first.values())

    def first(self, rest: Iterable[Failure], most: int) -> frozenset[int]:
        """Return the identities of the first so many, filled up with the rest."""
        every = dict.fromkeys((*self._ranked, *(id(one) for one in rest)))
        return frozenset(list(every)[:most])


def _rulings(selection: Selection, failures: Iterable[Failure]) -> list[Ruling]:
    """Return a ruling for each failure. Those that differ in nothing that a rule reads are judged once."""
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
    """Whether a rule ignores the verdict of a component that success may need."""
    failure = ruling.failure
    return (
        ruling.action.kind is ActionKind.IGNORE
        and ruling.rule != DEFAULT_RULE
        and failure.scope is Scope.COMPONENT
        and (not selection.needed or failure.component in selection.needed)
    )


def _cause(ruling: Ruling) -> Hashable:
    return ruling.rule if ruling.action is not _AT_ONCE else None


def _kind(failure: Failure) -> tuple[Hashable, ...]:
    return (failure.cls, failure.reason, failure.codes)
