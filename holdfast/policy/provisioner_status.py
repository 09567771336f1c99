"""How a provisioner stands, for people: what waits for what, what is away, what came of the last requests. Pure."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from typing import Final

from holdfast.model import NodeBook, NodeWord
from holdfast.model.provisioner import NodeAction, NodeRequest, ProvisionerState, ProvisionerStatus
from holdfast.policy.provisioner import in_order, verb_of

_SHOWN: Final = 20
_OUTCOMES_SHOWN: Final = 5


def status(state: ProvisionerState, busy: Set[int], now: datetime) -> ProvisionerStatus:
    """Return how a provisioner stands."""
    order = in_order(state)
    return ProvisionerStatus(
        cluster=state.cluster,
        message=_message(state, busy),
        at_once=state.at_once,
        pending=tuple(order),
        waits={one.number: _waits(state, order, one, busy, now) for one in order},
        away=state.away,
        quarantined=state.quarantined,
        outcomes=tuple(reversed(state.outcomes)),
        done=state.done,
    )


def _message(state: ProvisionerState, busy: Set[int]) -> str:
    under_way = sum(one.number in busy for one in state.pending)
    text = f"{len(state.pending)} requests are pending, {under_way} of them under way; {state.done} have ended"
    if state.quarantined:
        text += f"; {len(state.quarantined)} nodes are in quarantine"
    for service, one in sorted(state.away.items()):
        text += f"; {service} is away since {one.since:%m-%d %H:%M:%S} UTC"
    return text


def _waits(
    state: ProvisionerState, order: list[NodeRequest], request: NodeRequest, busy: Set[int], now: datetime
) -> str:
    """Say why a request is not done."""
    said = f" ({request.said})" if request.said else ""
    if request.number in busy:
        return ("is under way" if request.enlisted else "whom to ask is being looked up") + said
    if request.again is not None and request.again > now:
        return f"{request.said}: tried again at {request.again:%H:%M:%S} UTC"
    before = order[: order.index(request)]
    first = next((one for one in before if one.node == request.node), None)
    if first is not None:
        return f"after request {first.number} of the same node ({verb_of(first.action)})"
    away = state.away.get(request.service) if request.action.by_service else None
    if away is not None:
        return f"{request.service} is away: {away.why}: asked again at {away.again:%H:%M:%S} UTC"
    return "it is its turn" if request.enlisted else "whom to ask is to be looked up"


def details(state: ProvisionerState, busy: Set[int], now: datetime) -> str:
    """Return the same in Markdown, for the Temporal UI."""
    shown = status(state, busy, now)
    lines = [f"**{shown.message}**", ""]
    for service, one in sorted(shown.away.items()):
        lines.append(
            f"- `{service}` **does not answer**: {one.why}; asked {one.tries} times, next at {one.again:%H:%M:%S} UTC"
        )
    lines += [
        f"- {one.number}: **{verb_of(one.action)}** `{one.node}`, asked {one.at:%m-%d %H:%M:%S} UTC"
        f"{' by ' if one.by else ''}{one.by}: {shown.waits[one.number]}"
        for one in shown.pending[:_SHOWN]
    ]
    lines += [
        f"- quarantine: `{node}` since {one.since:%m-%d %H:%M:%S} UTC: {one.why}"
        for node, one in sorted(shown.quarantined.items())[:_SHOWN]
    ]
    lines += [
        f"- {one.number}: {verb_of(one.action)} `{one.node}`: {one.result} at {one.ended_at:%m-%d %H:%M:%S} UTC"
        f"{': ' if one.said else ''}{one.said}"
        for one in shown.outcomes[:_OUTCOMES_SHOWN]
    ]
    return "\n".join(lines)


def unfenced(book: NodeBook, told: ProvisionerStatus) -> dict[str, str]:
    """Return the nodes that are to be off before their workloads hear of it, each with what it waits for."""
    found: dict[str, str] = {}
    for record in book.nodes.values():
        if record.word is not NodeWord.FENCING or not record.ours:
            continue
        asked = next((one for one in told.pending if one.fence and one.node == record.name), None)
        ended = next((one for one in told.outcomes if one.fence and one.node == record.name), None)
        if asked is not None:
            why = told.waits[asked.number]
        else:
            why = record.unasked or (f"{ended.result}: {ended.said}" if ended is not None else "it is to be asked for")
        found[record.name] = why
    return found


def pending(state: ProvisionerState) -> dict[NodeAction, int]:
    """Return how many requests are pending, by what they ask."""
    return {action: sum(one.action is action for one in state.pending) for action in NodeAction}
