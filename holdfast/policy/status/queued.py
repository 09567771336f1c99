"""A workload in an admission queue: when it asks and releases, and its messages to the queue (rows L9, L26, L27)."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import Phase, Reason, Stage, State, Workload
from holdfast.model.entities.queue import QueueNews, QueueOrder, Standing, Turn
from holdfast.model.words import shortened
from holdfast.policy.attempt.requeue import CYCLE
from holdfast.policy.attempt.settle import enter
from holdfast.policy.sides.demand import demand
from holdfast.policy.sides.staging import may_ask
from holdfast.policy.status.report import conditions, quota_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import QueueMissing, QueueOrdered, QueueTold
from holdfast.policy.values.record import cause


def first_turn(spec: Workload) -> Turn | None:
    """Return the turn of a workload in its queue when it is submitted; None if it has no queue."""
    return Turn(says=f"it waits in queue {spec.queue}") if spec.queued else None


def after_sending(spec: Workload, news: QueueNews, *, missed: bool) -> QueueTold | QueueMissing:
    """Return the event after a message to the queue; the message of a released workload counts as sent in any case."""
    if not missed or news.standing is Standing.RELEASED:
        return QueueTold(news)
    remedy = "`holdfast queue apply` brings it back"
    return QueueMissing(f"its queue, {spec.queue}, is not there: {remedy}; it is looked for again")


def on_queue_message(state: State, event: QueueOrdered | QueueTold | QueueMissing, now: datetime) -> State:
    """Return the state after a message between a workload and its queue."""
    turn = state.turn
    if turn is None:
        return state
    match event:
        case QueueOrdered(order):
            return _ordered(state, turn, order, now)
        case QueueTold(news):
            return edit(state, turn=edit(turn, told=news, again=False))
        case QueueMissing(why):
            return edit(state, turn=edit(turn, says=shortened(why)))


def _ordered(state: State, turn: Turn, order: QueueOrder, now: datetime) -> State:
    if order.again:
        return edit(state, turn=edit(turn, told=None, again=True, number=max(turn.number, order.turn)))
    if order.turn != turn.number or not turn.asks or turn.admitted:
        return state
    if not order.admit:
        return edit(state, turn=edit(turn, says=shortened(order.why)))
    # The queue knows that the workload holds quota from now on: the workload sends no message about that.
    heard = edit(turn.told, standing=Standing.HOLDS) if turn.told is not None else None
    says = shortened(order.why)
    state = edit(state, turn=edit(turn, admitted=True, counts=order.counts, begun=False, told=heard, says=says))
    return cause(state, Reason.ADMITTED, order.why, now)


def follow(spec: Workload, state: State, now: datetime) -> State:
    """Ask the queue when a workload would begin, and release its place once nothing of it is left in the cluster.

    A workload that is requeued after a failed attempt releases and asks in one message, as soon as at most a cycle of
    its pause is left, so that no other workload takes its place meanwhile (row L26).
    """
    turn = state.turn
    if turn is None:
        return state
    wants = may_ask(spec, state) and _wants(state, now)
    if turn.admitted:
        holds = quota_of(conditions(spec, state))
        if holds and not turn.begun:
            turn = edit(turn, begun=True)
        elif not holds and (turn.begun or not wants):
            turn = edit(turn, asks=False, admitted=False, begun=False, says=f"it waits in queue {spec.queue}")
    if not turn.admitted and wants and not turn.asks:
        requeued = state.attempt is not None and state.attempt.requeue
        turn = edit(turn, number=turn.number + 1, asks=True, requeued=requeued, says=f"it waits in queue {spec.queue}")
    elif not turn.admitted and turn.asks and not wants:
        turn = edit(turn, asks=False)
    if turn != state.turn:
        state = edit(state, turn=turn)
    return _told_why(state, turn, now)


def _wants(state: State, now: datetime) -> bool:
    """Whether it would begin, or resume from its suspension, if the queue admitted it."""
    attempt, intent = state.attempt, state.intent
    if state.outcome is not None or intent.suspend or intent.cancel or state.blocked or state.held is not None:
        return False
    if attempt is not None and attempt.stage is not Stage.GONE and not attempt.suspended:
        return False
    return state.pause_until is None or intent.retry or state.pause_until - now <= CYCLE


def _told_why(state: State, turn: Turn, now: datetime) -> State:
    """Show why a workload waits, in the phase in which nothing of it is in the cluster."""
    if turn.admitted or not turn.asks:
        intent, waited = state.intent, state.phase is Phase.SUSPENDED and state.reason is Reason.QUEUED
        if state.shows_waits and waited and intent.suspend:
            # It was suspended again while it waited to be resumed in place.
            return enter(state, Phase.SUSPENDED, intent.suspend_reason, intent.why_suspended, now)
        return state
    attempt = state.attempt
    if attempt is not None and attempt.stage is not Stage.GONE:
        return enter(state, state.phase, Reason.QUEUED, turn.says, now) if state.phase is Phase.SUSPENDED else state
    if attempt is not None and attempt.requeued_in is not None and attempt.requeued_in >= state.cycle:
        return state  # Its message says in which cycle it was requeued.
    return enter(state, Phase.PENDING, Reason.QUEUED, turn.says, now)


def owed(spec: Workload, state: State, uid: str) -> QueueNews | None:
    """Return the message that a workload still owes its queue; None if the queue knows, or if there is no queue."""
    turn = state.turn
    if turn is None or not (turn.number or turn.again):
        return None
    standing = Standing.HOLDS if turn.admitted else Standing.ASKS if turn.asks else Standing.RELEASED
    if standing is Standing.RELEASED:
        known = turn.told is not None and turn.told.standing is Standing.RELEASED and turn.told.turn == turn.number
        news = QueueNews(workload=spec.workflow_id, uid=uid, turn=turn.number, standing=standing)
        return None if known else news
    news = QueueNews(
        workload=spec.workflow_id,
        uid=uid,
        turn=turn.number,
        standing=standing,
        # What a run of an earlier release has told its queue stays as it was told.
        demand=demand(spec, spares=state.shows_waits),
        priority=spec.priority,
        submitted_at=spec.submitted_at,
        requeued=turn.requeued,
    )
    return news if news != turn.told else None
