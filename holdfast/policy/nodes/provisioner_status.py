"""The status of a provisioner, for people: what waits for what, what is away, the last results. Pure."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from typing import Final

from holdfast.model import NodeBook, NodeWord
from holdfast.model.entities.provisioner import NodeAction, NodeRequest, ProvisionerState, ProvisionerStatus
from holdfast.model.words import counted, escaped
from holdfast.policy.nodes.fence import FENCES_AT_ONCE
from holdfast.policy.nodes.fences import Places
from holdfast.policy.nodes.provisioner import in_order, verb_of

_SHOWN: Final = 20
_OUTCOMES_SHOWN: Final = 5


def status(state: ProvisionerState, busy: Set[int], now: datetime) -> ProvisionerStatus:
    """Return the status of a provisioner."""
    order = in_order(state)
    first: dict[str, NodeRequest] = {}
    for one in order:
        first.setdefault(one.node, one)
    places = Places(state, busy)
    return ProvisionerStatus(
        cluster=state.cluster,
        message=_message(state, busy),
        at_once=state.at_once,
        pending=tuple(order),
        waits={one.number: _waits(state, first[one.node], places, one, busy, now) for one in order},
        away=state.away,
        quarantined=state.quarantined,
        outcomes=tuple(reversed(state.outcomes)),
        done=state.done,
    )


def _message(state: ProvisionerState, busy: Set[int]) -> str:
    """Return what is amiss, then counts, between semicolons: the command line prints one a line."""
    under_way = sum(one.number in busy for one in state.pending)
    fences = sum(one.fence for one in state.pending)
    waited = f" ({counted(fences, 'is a power-off', 'are power-offs')} that pods wait for)" if fences else ""
    facts = [
        f"{service} has not answered since {one.since:%Y-%m-%d %H:%M:%S} UTC"
        for service, one in sorted(state.away.items())
    ]
    if state.turned_away:
        asked = counted(state.turned_away, "power-off that was asked for has", "power-offs that were asked for have")
        facts.append(f"{asked} found no room so far: asked for again")
    facts.append(f"requests: {len(state.pending)} pending{waited}, {under_way} under way, {state.done} ended")
    if state.quarantined:
        facts.append(f"{counted(len(state.quarantined), 'node')} in quarantine")
    return "; ".join(facts)


def _waits(
    state: ProvisionerState,
    first: NodeRequest,
    places: Places,
    request: NodeRequest,
    busy: Set[int],
    now: datetime,
) -> str:
    """Say why a request is not done yet."""
    said = f" ({request.said})" if request.said else ""
    if request.number in busy:
        return ("is under way" if request.enlisted else "its provisioning service is being looked up") + said
    if request.again is not None and request.again > now:
        return f"{request.said}; next try at {request.again:%H:%M:%S} UTC"
    if first is not request:
        return f"after request {first.number} of the same node ({verb_of(first.action)})"
    away = state.away.get(request.service) if request.action.by_service else None
    if away is not None:
        return f"{request.service} does not answer: {away.why}; next try at {away.again:%H:%M:%S} UTC"
    if not request.enlisted:
        return "its provisioning service is to be looked up"
    return places.lacks(request) or "its turn has come"


def details(state: ProvisionerState, busy: Set[int], now: datetime) -> str:
    """Return the status in Markdown, for the Temporal UI."""
    shown = status(state, busy, now)
    lines = [f"**{escaped(shown.message)}**", ""]
    for service, one in sorted(shown.away.items()):
        lines.append(
            f"- `{service}` **does not answer**: {escaped(one.why)}; tries: {one.tries}, "
            f"next at {one.again:%H:%M:%S} UTC"
        )
    lines += [
        f"- {one.number}: **{verb_of(one.action)}** `{one.node}`, asked {one.at:%m-%d %H:%M:%S} UTC"
        f"{' by ' if one.by else ''}{escaped(one.by)}: {escaped(shown.waits[one.number])}"
        for one in shown.pending[:_SHOWN]
    ]
    lines += [
        f"- quarantine: `{node}` since {one.since:%m-%d %H:%M:%S} UTC: {escaped(one.why)}"
        for node, one in sorted(shown.quarantined.items())[:_SHOWN]
    ]
    lines += [
        f"- {one.number}: {verb_of(one.action)} `{one.node}`: {one.result} at {one.ended_at:%m-%d %H:%M:%S} UTC"
        f"{': ' if one.said else ''}{escaped(one.said)}"
        for one in shown.outcomes[:_OUTCOMES_SHOWN]
    ]
    return "\n".join(lines)


def unfenced(book: NodeBook, told: ProvisionerStatus) -> dict[str, str]:
    """Return the nodes that must be off before workloads learn that they are Down, each with what it waits for."""
    found: dict[str, str] = {}
    pending = {one.node: told.waits[one.number] for one in told.pending if one.fence}
    ended = {one.node: f"{one.result}: {one.said}" for one in reversed(told.outcomes) if one.fence}
    before = sum(record.word is NodeWord.FENCING and record.asked is not None for record in book.nodes.values())
    for record in book.nodes.values():
        if record.word is not NodeWord.FENCING or not record.ours:
            continue
        if record.asked is None and before >= FENCES_AT_ONCE:
            rest = f"{counted(before, 'other is', 'others are')} asked for before it"
        else:
            rest = "it is to be asked for" if record.asked is None else "it is asked for again"
        found[record.name] = pending.get(record.name) or record.unasked or ended.get(record.name) or rest
    return found


def pending(state: ProvisionerState) -> dict[NodeAction, int]:
    """Return how many requests are pending, by action."""
    return {action: sum(one.action is action for one in state.pending) for action in NodeAction}
