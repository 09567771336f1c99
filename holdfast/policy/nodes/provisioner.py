"""Requests for nodes' machines: the order in which they run, and what each waits for (row L15). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Set
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from holdfast import names
from holdfast.model.entities.provisioner import (
    OUTCOMES_KEPT,
    PENDING_MAXIMUM,
    FenceAsk,
    FenceNews,
    NodeAction,
    NodeAsk,
    NodeOutcome,
    NodeRequest,
    Progress,
    ProvisionerState,
    Quarantine,
    Result,
    ServiceAway,
)
from holdfast.model.words import shortened
from holdfast.policy.nodes import fences
from holdfast.policy.values.edit import edit

AWAY_FIRST: Final = timedelta(seconds=2)
AWAY_LAST: Final = timedelta(minutes=5)
WAIT_LAST: Final = timedelta(minutes=1)
"""The longest pause between two looks at work that only takes time: pods that leave, a disk that is erased."""
MONITOR: Final = "node monitor"
BY_KEPT: Final = 200
"""Characters kept of the name of whoever asks, so that the mark after it is never cut off."""
_OPPOSITE: Final = {NodeAction.BOOT: NodeAction.POWER_OFF, NodeAction.POWER_OFF: NodeAction.BOOT}


class Plan(NamedTuple):
    """The requests to begin now, and the time until which there is nothing else to do."""

    enlist: tuple[NodeRequest, ...]
    begin: tuple[NodeRequest, ...]
    until: datetime | None
    why: str


# The requests.


def refusal(state: ProvisionerState, ask: NodeAsk, busy: Set[int]) -> str:
    """Return why a request is refused; empty if it is accepted.

    Args:
        state: the current state.
        ask: the request of a user.
        busy: the numbers of the requests that are being worked on right now.
    """
    if not names.DNS_SUBDOMAIN.match(ask.node) or len(ask.node) > 253:
        return f"node: {ask.node!r} is no node's name: expected a DNS subdomain, such as node-7.example.com"
    if ask.pxe and ask.action is not NodeAction.BOOT:
        return f"pxe: expected with {NodeAction.BOOT} alone, found {ask.action}"
    if ask.force and ask.action is not NodeAction.POWER_OFF:
        return f"force: expected with {NodeAction.POWER_OFF} alone, found {ask.action}"
    if ask.action in {NodeAction.RELEASE, NodeAction.FENCED} and not ask.why:
        return f"why: missing: {verb_of(ask.action)} goes by a person's word alone, which is kept with its reason"
    there = [one for one in state.pending if one.node == ask.node]
    if _same(there, ask) is not None:
        return ""
    others = sum(not one.fence for one in state.pending)
    if others >= PENDING_MAXIMUM:
        return f"{others} requests are pending, which is the most: ask again later"
    for one in there:
        where = f"{ask.node}: request {one.number} ({verb_of(one.action)}) is pending"
        if ask.action is NodeAction.BOOT and (one.fence or one.action is NodeAction.FENCED):
            return f"{where}: its pods are moved once its power is off, and then it may be booted"
        if one.action is _OPPOSITE.get(ask.action) or (ask.action, one.action) == (NodeAction.WIPE, NodeAction.RELEASE):
            return f"{where}, which says the opposite: ask again once it is done"
        if ask.action is NodeAction.RELEASE and one.action is NodeAction.WIPE and _is_begun(one, busy):
            return f"{where}, and its drives are being erased: ask again once that is done"
    return ""


def on_request(state: ProvisionerState, ask: NodeAsk, now: datetime) -> tuple[ProvisionerState, NodeRequest]:
    """Return the state after an accepted request, and the request: a pending one, if it asks for the same."""
    same = _same([one for one in state.pending if one.node == ask.node], ask)
    if same is not None:
        return state, same
    if ask.action is NodeAction.RELEASE:
        wipes = [one for one in state.pending if (one.node, one.action) == (ask.node, NodeAction.WIPE)]
        for one in wipes:
            state = _ended(state, one, Result.WITHDRAWN, f"its node was released: {ask.why}", now)
    request = NodeRequest(
        number=state.last + 1,
        node=ask.node,
        action=ask.action,
        at=now,
        why=ask.why,
        # Whoever asks through Temporal may say any name (row X13).
        by=f"{shortened(ask.by, BY_KEPT)} (unverified)" if ask.by else "",
        pxe=ask.pxe,
        force=ask.force,
    )
    return _queued(state, request), request


def _same(there: Iterable[NodeRequest], ask: NodeAsk) -> NodeRequest | None:
    """Return the pending request of a node that asks for the same, or for more."""
    for one in there:
        if one.action is ask.action and one.pxe == ask.pxe and (one.force or one.fence or not ask.force):
            return one
    return None


def fence(state: ProvisionerState, ask: FenceAsk, now: datetime) -> ProvisionerState:
    """Return the state after the node monitor has requested a node's power-off; a repeated request changes nothing.

    Fences have room of their own. If it is used up, a fence that waits for a service that is away yields; else this one
    is turned away, which is counted. The monitor requests either one again, and shows its requests.
    """
    there = next((one for one in state.pending if one.fence and (one.node, one.uid) == (ask.node, ask.uid)), None)
    if there is not None:
        # Another renewal means another silence: progress for the earlier one proves nothing about it.
        anew = edit(there, renewed=ask.renewed, why=ask.why, progress=Progress(), heard=False)
        return state if there.renewed == ask.renewed else _with(state, anew)
    if not names.DNS_SUBDOMAIN.match(ask.node):
        return state
    request = NodeRequest(
        number=state.last + 1,
        node=ask.node,
        action=NodeAction.POWER_OFF,
        at=now,
        why=ask.why,
        by=MONITOR,
        fence=True,
        uid=ask.uid,
        renewed=ask.renewed,
    )
    while not fences.has_room(state, request):
        other = fences.yields(state)
        if other is None:
            return edit(state, turned_away=state.turned_away + 1)
        said = f"{other.service} is away, and others wait: it is asked for again"
        state = _ended(state, other, Result.WITHDRAWN, said, now)
    return _queued(state, request)


def withdrawn(
    state: ProvisionerState, node: str, uid: str, busy: Set[int], now: datetime, *, remembers: bool = True
) -> ProvisionerState:
    """Return the state after a node renewed its lease again: its power is not cut, unless that has begun.

    Args:
        state: the state before.
        node: the node.
        uid: the UID of its object.
        busy: the requests that are being tried: whether they cut the power is not known before their try ends.
        now: the time.
        remembers: whether such a request ends with its try; false in a history that is older than this.
    """
    for one in state.pending:
        if not one.fence or (one.node, one.uid) != (node, uid):
            continue
        if one.number not in busy:
            state = _unless_heard(state, edit(one, heard=True), now)
        elif remembers:
            state = _with(state, edit(one, heard=True))
    return state


def _unless_heard(state: ProvisionerState, request: NodeRequest, now: datetime) -> ProvisionerState:
    """Return the state with a changed request; one whose node was heard again before its power was cut has ended."""
    if request.heard and request.progress.sent is None:
        return _ended(state, request, Result.WITHDRAWN, "the node is heard again", now)
    return _with(state, request)


def _queued(state: ProvisionerState, request: NodeRequest) -> ProvisionerState:
    return edit(state, last=request.number, pending=(*state.pending, request))


def _is_begun(request: NodeRequest, busy: Set[int]) -> bool:
    return request.number in busy or bool(request.progress.ordered)


# The results.


def enlisted(
    state: ProvisionerState, number: int, uid: str, service: str, refused: str, now: datetime
) -> ProvisionerState:
    """Return the state after a node's service was looked up; a node to be wiped is in quarantine from then on."""
    request = _of(state, number)
    if request is None:
        return state
    if refused:
        return _ended(state, request, Result.REFUSED, refused, now)
    request = edit(request, enlisted=True, uid=request.uid or uid, service=service, again=None, tries=0)
    state = _unless_heard(state, request, now)
    if request.action is NodeAction.WIPE:
        note = f', asked for with the note "{request.why}"' if request.why else ""
        since = Quarantine(since=now, why=f"waits for wipe (request {number}{note})")
        return edit(state, quarantined={**state.quarantined, request.node: since})
    return state


def not_enlisted(state: ProvisionerState, number: int, why: str, now: datetime) -> ProvisionerState:
    """Return the state after that lookup failed: it is tried again."""
    request = _of(state, number)
    return state if request is None else _unless_heard(state, _later(request, why, now, WAIT_LAST), now)


def begun(state: ProvisionerState, number: int, now: datetime) -> ProvisionerState:
    """Return the state after work on a request has begun."""
    request = _of(state, number)
    return state if request is None else _with(state, edit(request, begun=request.begun or now))


def on_try_ended(
    state: ProvisionerState,
    number: int,
    result: Result,
    said: str,
    progress: Progress,
    now: datetime,
    *,
    reached: bool = False,
    off_since: datetime | None = None,
    renewed: str = "",
) -> ProvisionerState:
    """Return the state after a try has had a result.

    Args:
        state: the state before.
        number: the number of the request.
        result: the result of the try.
        said: the result as a text.
        progress: the progress of the action.
        now: the time.
        reached: whether the service has answered.
        off_since: since when a node that is off is known to be off.
        renewed: for a fence, the last renewal before the silence that the try was for.
    """
    request = _of(state, number)
    if request is None:
        return state
    is_earlier = request.fence and bool(renewed) and renewed != request.renewed
    if reached:
        state = edit(state, away={key: one for key, one in state.away.items() if key != request.service})
    request = edit(request, progress=Progress() if is_earlier else progress)
    if is_earlier and result is not Result.AWAY:  # The node renewed meanwhile, and is silent again.
        return _unless_heard(state, edit(request, tries=0, again=None), now)
    if result is Result.WAITS:
        return _unless_heard(state, _later(request, said, now, WAIT_LAST), now)
    if result is Result.AWAY:
        state = _unless_heard(state, edit(request, said=said, tries=request.tries + 1), now)
        return edit(state, away={**state.away, request.service: _away(state.away.get(request.service), said, now)})
    if result is Result.DONE and (request.fence or request.action is NodeAction.FENCED):
        state = _fenced(state, request, said, off_since or now, renewed or request.renewed, now)
    return _ended(state, request, result, said, now)


def _fenced(
    state: ProvisionerState, request: NodeRequest, said: str, at: datetime, renewed: str, now: datetime
) -> ProvisionerState:
    """Return the state with news for the node monitor; any other fence of this node is done."""
    why = f"powered off by hand: {request.why}" if request.action is NodeAction.FENCED else said
    news = FenceNews(node=request.node, uid=request.uid, at=at, why=why, renewed=renewed)
    for one in state.pending:
        if one.fence and one.node == request.node and one.number != request.number:
            state = _ended(state, one, Result.DONE, why, now)
    return edit(state, news=(*state.news, news))


def _away(before: ServiceAway | None, why: str, now: datetime) -> ServiceAway:
    if before is not None and now < before.again:
        return before  # Several requests had been sent before this was known.
    tries = before.tries + 1 if before is not None else 1
    since = before.since if before is not None else now
    return ServiceAway(since=since, again=now + _delay(tries, AWAY_LAST), tries=tries, why=why)


def _later(request: NodeRequest, said: str, now: datetime, longest: timedelta) -> NodeRequest:
    tries = request.tries + 1 if request.said == said else 1
    return edit(request, tries=tries, said=said, again=now + _delay(tries, longest))


def _delay(tries: int, longest: timedelta) -> timedelta:
    return min(longest, AWAY_FIRST * 2 ** min(12, tries - 1))


def _ended(state: ProvisionerState, request: NodeRequest, result: Result, said: str, now: datetime) -> ProvisionerState:
    outcome = NodeOutcome(
        number=request.number,
        node=request.node,
        action=request.action,
        result=result,
        asked_at=request.at,
        ended_at=now,
        why=request.why,
        by=request.by,
        said=said,
        fence=request.fence,
    )
    quarantined = dict(state.quarantined)
    there = quarantined.get(request.node)
    if request.action is NodeAction.RELEASE or (result is Result.DONE and request.action is NodeAction.WIPE):
        quarantined.pop(request.node, None)
    elif result is Result.REFUSED and request.action is NodeAction.WIPE and there is not None:
        # Only a person may release a node whose drives may still contain a user's data.
        quarantined[request.node] = edit(there, why=f"its wipe (request {request.number}) has failed: {said}")
    return edit(
        state,
        pending=tuple(one for one in state.pending if one.number != request.number),
        quarantined=quarantined,
        outcomes=(*state.outcomes, outcome)[-OUTCOMES_KEPT:],
        done=state.done + 1,
    )


# What follows.


def plan(state: ProvisionerState, busy: Set[int], now: datetime) -> Plan:
    """Return the requests to begin.

    They begin in the order of their arrival, except that fences go first. Requests for one node run one after the
    other. At most `at_once` run together, and beside them as many fences of each service. Only the first request asks a
    service that is away again.
    """
    enlist: list[NodeRequest] = []
    begin: list[NodeRequest] = []
    waits: list[tuple[datetime, str]] = []
    order = in_order(state)
    nodes = {one.node for one in order if one.number in busy and one.enlisted}
    asks = {one.service for one in order if one.number in busy}
    places = fences.Places(state, busy)
    for one in order:
        if one.number in busy:
            continue
        if one.again is not None and one.again > now:
            waits.append((one.again, f"{one.node}: {verb_of(one.action)} is tried again"))
            nodes.add(one.node)
            continue
        if not one.enlisted:
            if places.look_up():
                enlist.append(one)
            nodes.add(one.node)
            continue
        if one.node in nodes:
            continue
        nodes.add(one.node)
        away = state.away.get(one.service) if one.action.by_service else None
        if away is not None and away.again > now:
            waits.append((away.again, f"{one.service} is asked again"))
            continue
        if (away is not None and one.service in asks) or not places.take(one):
            continue
        asks.add(one.service)
        begin.append(one)
    first = min(waits, default=None)
    return Plan(tuple(enlist), tuple(begin), first[0] if first else None, first[1] if first else "")


def in_order(state: ProvisionerState) -> list[NodeRequest]:
    """Return the pending requests in the order in which they begin.

    Requests that need no service come first, since a person's statement must not wait for a service that is away.
    Fences of the node monitor come next.
    """
    return sorted(state.pending, key=lambda one: (one.action.by_service, not one.fence, one.number))


def on_news_delivered(state: ProvisionerState, news: FenceNews) -> ProvisionerState:
    """Return the state after news was delivered to the node monitor, or there is no monitor."""
    return edit(state, news=tuple(one for one in state.news if one != news))


def _of(state: ProvisionerState, number: int) -> NodeRequest | None:
    return next((one for one in state.pending if one.number == number), None)


def _with(state: ProvisionerState, request: NodeRequest) -> ProvisionerState:
    pending = tuple(request if one.number == request.number else one for one in state.pending)
    return edit(state, pending=pending)


def verb_of(action: NodeAction) -> str:
    """Return the name of an action, for people."""
    return {
        NodeAction.BOOT: "boot",
        NodeAction.WIPE: "wipe",
        NodeAction.POWER_OFF: "power off",
        NodeAction.RELEASE: "release",
        NodeAction.FENCED: "powered off by hand",
    }[action]
