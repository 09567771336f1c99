"""A workload that waits until its graph admits it, and the messages it sends to that graph (row L31)."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import Phase, Reason, State, Workload
from holdfast.model.entities.graph import GraphNews, GraphOrder
from holdfast.model.words import shortened
from holdfast.policy.attempt.settle import enter
from holdfast.policy.status.report import conditions, quota_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import GraphMissing, GraphOrdered, GraphTold
from holdfast.policy.values.record import cause


def waiting(spec: Workload) -> str:
    """Return what a workload waits for when it is submitted; empty if nothing."""
    return f"it waits for its graph, {spec.graph.graph}" if spec.graph is not None else ""


def after_sending(spec: Workload, news: GraphNews, *, missed: bool) -> GraphTold | GraphMissing:
    """Return the event after a message to the graph; the message of an ended workload counts as sent in any case."""
    if not missed or news.outcome is not None or spec.graph is None:
        return GraphTold(news, waiting(spec))
    return GraphMissing(f"its graph, {spec.graph.graph}, is not there: submit the graph's file; it is looked for again")


def on_graph_message(state: State, event: GraphOrdered | GraphTold | GraphMissing, now: datetime) -> State:
    """Return the state after a message between a workload and its graph. An admission is never withdrawn."""
    match event:
        case GraphOrdered(order):
            return _ordered(state, order, now)
        case GraphTold(news, waits):
            return edit(state, graph_told=news, blocked=waits if state.blocked and waits else state.blocked)
        case GraphMissing(why):
            return edit(state, blocked=shortened(why)) if state.blocked else state


def _ordered(state: State, order: GraphOrder, now: datetime) -> State:
    if order.admit:
        if not state.blocked:
            return state
        return cause(edit(state, blocked=""), Reason.QUEUED, order.why, now)
    if state.intent.cancel or state.outcome is not None:
        return state
    intent = edit(state.intent, cancel=True, cancel_reason=order.reason, note=shortened(order.why))
    return cause(edit(state, intent=intent), order.reason, order.why, now)


def counted_out(state: State) -> bool:
    """Whether its graph may rely on no pod of it running, so that nothing may start the workload again.

    After a failed workload's pods are cleared, other workloads of its graph may run because it failed.
    """
    attempt = state.attempt
    return state.graph_told is not None and state.outcome is not None and attempt is not None and attempt.cleared


def told_why(state: State, now: datetime) -> State:
    """Show why a workload has not begun: what it waits for, or that it waits no more."""
    if state.attempt is not None or state.outcome is not None or state.intent.suspend or state.intent.cancel:
        return state
    if state.blocked and (state.phase, state.message) != (Phase.PENDING, state.blocked):
        return enter(state, Phase.PENDING, Reason.BLOCKED, state.blocked, now)
    if not state.blocked and state.reason is Reason.BLOCKED:
        return enter(state, Phase.PENDING, Reason.QUEUED, "its graph lets it begin", now)
    return state


def owed(spec: Workload, state: State, uid: str) -> GraphNews | None:
    """Return the message that a workload still owes its graph; None if the graph knows, or if there is no graph.

    The message says that the workload exists, its outcome, and whether it has released everything in the cluster.
    """
    if spec.graph is None:
        return None
    outcome = state.outcome
    released = outcome is not None and not quota_of(conditions(spec, state))
    news = GraphNews(item=spec.graph.item, workload_uid=uid, outcome=outcome, released=released)
    return news if news != state.graph_told else None
