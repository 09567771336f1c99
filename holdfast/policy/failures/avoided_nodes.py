"""Nodes that are blamed for failures: which to avoid, how many of them, and until when (rows A17, U9)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from holdfast.model import (
    Action,
    ActionKind,
    Attempt,
    ExcludedNode,
    Exclusion,
    Failure,
    FailureClass,
    NodeAvoidance,
    Observation,
    Policy,
    Reason,
    State,
)
from holdfast.policy.failures.rules import Ruling, rule_on
from holdfast.policy.values.edit import edit

MARKED_KEPT = 32
"""The most nodes to keep that no cap applies to: enough for a rack, and few enough to keep the state small."""
WHY_KEPT = 200
NAMES_TOLD = 3

LOSSES = frozenset({Reason.NODE_DOWN, Reason.NODE_STILL_DOWN})
"""The reasons the node monitor reports: a node is Down, and a node is Down for sensitive workloads too."""

Excluded = tuple[ExcludedNode, ...]


def heeded(policy: Policy, attempt: Attempt, failures: Iterable[Failure], *, sensitive: bool = False) -> list[Failure]:
    """Return the observed failures that count.

    A marked node counts only if the policy has a rule for hardware, since its pods still run. It does not count if the
    scheduler chose it although it was to be avoided: another reset, charged to no budget, would end the same way.
    A Down node counts only if the policy has a rule for lost nodes (row L4): otherwise controllers wait for the node,
    as Kubernetes does. A sensitive workload waits for it longer than others.
    """
    spoken = any(FailureClass.HARDWARE in rule.match.classes for rule in policy.rules)
    avoided = {node.name for node in attempt.avoided if node.required}
    told = frozenset[str]()
    if speaks_of_loss(policy):
        told = frozenset({Reason.NODE_STILL_DOWN}) if sensitive else LOSSES
    return [
        one
        for one in failures
        if (one.reason in told if is_loss(one) else one.cls is not FailureClass.HARDWARE)
        or (one.cls is FailureClass.HARDWARE and spoken and one.node not in avoided)
    ]


def leaves_marked(policy: Policy) -> bool:
    """Whether pods of a workload with this policy must leave marked nodes, and so should not be scheduled there.

    That is so where a rule restarts it for a mark, and where one fails it.
    """
    rules = (rule for rule in policy.rules if FailureClass.HARDWARE in rule.match.classes)
    return any(one.action.avoid is NodeAvoidance.REQUIRE or one.action.kind is ActionKind.FAIL for one in rules)


def is_loss(failure: Failure) -> bool:
    """Whether a failure is the node monitor's report of a Down node: nothing was reported of the pod itself."""
    return failure.cls is FailureClass.NODE_LOST and failure.reason in LOSSES


def down_in(seen: Observation | None) -> tuple[str, ...]:
    """Return the Down nodes, as last observed, on which pods of an attempt may still run."""
    failures = seen.failures if seen is not None else ()
    return tuple(sorted({one.node for one in failures if is_loss(one) and not one.off}))


def speaks_of_loss(policy: Policy) -> bool:
    """Whether a rule matches lost nodes as such, and not only pods that were displaced from one."""
    return any(
        FailureClass.NODE_LOST in rule.match.classes
        and (not rule.match.reasons or LOSSES.intersection(rule.match.reasons))
        for rule in policy.rules
    )


def blamed(exclusion: Exclusion, found: Iterable[Ruling], now: datetime) -> Excluded:
    """Return the nodes to avoid for failures seen together, each as the rule for its own failure says."""
    nodes: dict[str, ExcludedNode] = {}
    found = list(found)
    launches = {one.failure.node for one in found if _is_required_launch(one.failure, one.action)}
    # Many at once are not the nodes' fault, as while a registry is away.
    nodes_fault = len(launches) <= exclusion.limit
    for failure, _, action, _ in found:
        if action.avoid is NodeAvoidance.NEVER or not failure.node:
            continue
        node = ExcludedNode(
            name=failure.node,
            since=now,
            until=now + exclusion.expiry,
            why=failure.sentence()[:WHY_KEPT],
            required=_is_required(action),
            marked=failure.cls is FailureClass.HARDWARE,
            budget=(action.charge or "") if nodes_fault and _is_required_launch(failure, action) else "",
        )
        known = nodes.get(node.name)
        nodes[node.name] = node if known is None else _joined(known, node)
    return tuple(nodes.values())


def _is_required(action: Action) -> bool:
    return action.avoid is NodeAvoidance.REQUIRE


def _is_required_launch(failure: Failure, action: Action) -> bool:
    return failure.cls is FailureClass.LAUNCH and _is_required(action)


def blamed_for(policy: Policy, failures: Iterable[Failure], now: datetime) -> Excluded:
    """Return the nodes to avoid for these failures."""
    return blamed(policy.exclusion, (rule_on(policy, failure) for failure in failures), now)


def exclude(state: State, blame: Excluded, now: datetime) -> tuple[State, str]:
    """Return the state with the blamed nodes recorded, and a message on which of them are avoided from now on."""
    if not state.shows_waits:  # Runs of earlier releases go on as they began.
        blame = tuple(edit(node, budget="") for node in blame)
    excluded = remembered(state.excluded, blame, state.policy.exclusion, now)
    new = {node.name for node in blame}
    return edit(state, excluded=excluded), without(tuple(node for node in excluded if node.name in new))


def remembered(excluded: Excluded, blame: Excluded, exclusion: Exclusion, now: datetime) -> Excluded:
    """Return the nodes to avoid from now on, with expiry and cap applied and the one blamed last at the end."""
    kept = {node.name: node for node in excluded}
    for node in blame:
        known = kept.pop(node.name, None)
        kept[node.name] = node if known is None or known.until <= now else _joined(node, known)
    return standing(tuple(kept.values()), exclusion, now)


def standing(excluded: Excluded, exclusion: Exclusion, now: datetime) -> Excluded:
    """Return the nodes that are still avoided: neither expired nor released for a newer one.

    The policy's cap applies to nodes that only this workload's own failures blame. Marked nodes were marked by others:
    releasing one for a newer one would lead to an endless loop of resets that are charged to no budget. One that could
    not start a pod is not tried again until the budget of such tries is renewed (row L16).
    """
    live = [node for node in excluded if node.until > now]
    marked = [node.name for node in live if node.marked]
    launches = [node.name for node in live if node.budget and not node.marked]
    own = [node.name for node in live if not (node.marked or node.budget)]
    caps = ((own, exclusion.limit), (launches, MARKED_KEPT), (marked, MARKED_KEPT))
    back = {name for names, most in caps for name in names[: max(0, len(names) - most)]}
    return tuple(node for node in live if node.name not in back)


def renewed(excluded: Excluded, budget: str) -> Excluded:
    """Return the nodes to avoid after a budget is renewed: the cap applies to those again that it has kept."""
    return tuple(edit(node, budget="") if node.budget == budget else node for node in excluded)


def _joined(first: ExcludedNode, second: ExcludedNode) -> ExcludedNode:
    """Return the combined exclusion of one node by two failures: the stricter of both, with the first's reason."""
    return edit(
        first,
        until=max(first.until, second.until),
        required=first.required or second.required,
        marked=first.marked or second.marked,
        budget=first.budget or second.budget,
    )


def without(nodes: Excluded) -> str:
    """Return where pods will not go: `must avoid node-7`, `avoids node-8 if it can`; empty if anywhere."""
    must = [node.name for node in nodes if node.required]
    may = [node.name for node in nodes if not node.required]
    parts = [f"must avoid {_listed(must)}"] if must else []
    parts += [f"avoids {_listed(may)} if it can"] if may else []
    return " and ".join(parts)


def in_full(nodes: Excluded) -> str:
    """Return a message on until when each node is avoided, and why."""
    said = [
        f"{'must avoid' if node.required else 'avoids'} {node.name} until {_when(node.until)}"
        f"{'' if node.required else ' if it can'} ({node.why})"
        for node in sorted(nodes, key=lambda node: not node.required)[:NAMES_TOLD]
    ]
    more = len(nodes) - len(said)
    return "; ".join(said) + (f"; and {more} more" if more else "")


def room_needed(nodes: Excluded) -> str:
    """Return a hint for when only the avoided nodes have room; empty if no node is excluded for certain."""
    must = [node for node in nodes if node.required]
    if not must:
        return ""
    first = min(must, key=lambda node: node.until)
    return (
        f"if no other node has room, make some; {first.name} is let back in attempts begun after {_when(first.until)}"
    )


def _listed(names: list[str]) -> str:
    more = len(names) - NAMES_TOLD
    return ", ".join(names[:NAMES_TOLD]) + (f" and {more} more" if more > 0 else "")


def _when(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
