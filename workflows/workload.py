"""One workload, one workflow: it carries out what `holdfast.policy` decides, and nothing else."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from holdfast import names
    from holdfast.model import (
        Explanation,
        Observation,
        Operation,
        OperationKind,
        Phase,
        Policy,
        Stage,
        State,
        Status,
        Workload,
    )
    from holdfast.model.entities.graph import GraphOrder
    from holdfast.model.entities.queue import QueueOrder
    from holdfast.model.gang.orders import GangOutcome
    from holdfast.policy.attempt.checkpoint import CheckpointAsk, check_ask, is_conflict
    from holdfast.policy.loop.change import (
        ComponentsChange,
        PolicyChange,
        changed,
        check_changeable,
        differing,
        reconfigured,
    )
    from holdfast.policy.loop.fold import fold
    from holdfast.policy.loop.results import refusal
    from holdfast.policy.loop.submission import submitted
    from holdfast.policy.loop.turn import Begin, Continue, Leave, Rest, landed, turn
    from holdfast.policy.sides.gang import GangScale, scaled, unsized
    from holdfast.policy.sides.probe import probed
    from holdfast.policy.status.explain import explain_of, markdown, status_of
    from holdfast.policy.values import events
    from holdfast.policy.values.addressee import misdirected
    from holdfast.policy.values.edit import edit
    from holdfast.policy.values.events import RequeueRequest
    from holdfast.policy.verdicts.strip import StripRequest, check_strip
    from holdfast.policy.verdicts.walltime import WalltimeExtension, extended, extension
    from holdfast.workflows.clock import Clock, asked_at, task_time
    from holdfast.workflows.entity import Timer, read
    from holdfast.workflows.operations.dispatch import HEARTBEAT, RETRY, call_of, probe_of
    from holdfast.workflows.operations.gang import Meetings
    from holdfast.workflows.operations.notify import GraphSide, QueueSide
    from holdfast.workflows.operations.rehearsal import refused, rehearse

_KEYWORD = SearchAttributeKey.for_keyword
_PHASE, _REASON = _KEYWORD(names.SA_PHASE), _KEYWORD(names.SA_REASON)
_SUBMITTED = SearchAttributeKey.for_bool(names.SA_SUBMITTED)
_ATTEMPT = SearchAttributeKey.for_int(names.SA_ATTEMPT)
_RESTARTS = SearchAttributeKey.for_int(names.SA_RESTARTS)

MEMO_CAUSES = 3
_PATCH_SUBMITTED = "submitted-is-a-column"
_PATCH_REHEARSED = "changes-are-rehearsed"
_MAKING = {OperationKind.CREATE, OperationKind.REPLACE}


@workflow.defn(name=names.WORKLOAD_WORKFLOW)
class WorkloadWorkflow:
    """A workload's life, from its submission until nothing of it is left."""

    @workflow.init
    def __init__(self, document: Any, carried: State | None = None) -> None:
        """Read the document; what is wrong with it is told by `run`, since a constructor's error would be retried."""
        self._problem = ""
        self._clock = Clock()
        self._inbox: list[events.Event] = []
        self._handle: workflow.ActivityHandle[Any] | None = None
        self._probe: workflow.ActivityHandle[Any] | None = None
        self._probed: int | None = None
        self._timer = Timer()
        self._shown: tuple[Phase, int, bool] | None = None
        self._changing = asyncio.Lock()
        self._meetings = Meetings(continued=carried is not None)
        self._graph_side = GraphSide()
        self._queue_side = QueueSide()
        self._document: Any = document
        self._uid = ""
        self._state: State | None = carried
        self._spec, self._problem = read(Workload, document)
        if self._spec is None:
            return
        self._uid = self._spec.uid or workflow.info().first_execution_run_id
        if carried is None:
            self._state = submitted(self._spec, self._clock.now())

    @workflow.run
    async def run(self, document: Any, carried: State | None = None) -> Status:
        """Live the workload's life.

        Args:
            document: the workload (`holdfast schema`), as one JSON document.
            carried: the memory of the run before, when this one continues it.

        Returns:
            The final status, when it Succeeded or was Cancelled and nothing of it is left.

        Raises:
            ApplicationError: type `InvalidWorkload` before anything is created, `WorkloadFailed` at the end of a
                failed workload, with its status as detail.
        """
        if self._spec is None or self._state is None:
            if carried is not None:
                # It was valid when it began: this release must not end what it cannot read, so the task is retried.
                raise RuntimeError(f"this release cannot read a workload that is under way: {self._problem}")
            raise ApplicationError(self._problem, type=names.ERROR_INVALID_WORKLOAD, non_retryable=True)
        while True:
            # An update may have put another configuration in its place.
            now, spec = self._clock.now(), self._spec
            state = self._take_in(self._state, now)
            spec = self._spec
            if workflow.cancellation_reason() is not None and not state.intent.cancel:
                # A cancellation can be swallowed when an activity completes in the same task.
                state = fold(state, events.Cancelled("cancelled through Temporal"), now)
            taken = turn(spec, state, now, full=self._full())
            state = taken.state
            if is_conflict(state) and not is_conflict(self._state):
                self._count_conflict(spec)
            self._state = state
            self._show(spec, state, now)
            self._ask(spec, state)
            self._meetings.follow(spec, state, self._uid)
            self._graph_side.follow(spec, state, self._uid)
            self._queue_side.follow(spec, state, self._uid)
            match taken.act:
                case Begin(why):
                    self._start(spec, state, why, now)
                    self._timer.set(None, "", now)
                case Rest(until, why, breaks):
                    if breaks and self._handle is not None:
                        self._handle.cancel()
                    self._timer.set(until, why, now)
                case Continue():
                    await self._continue()
                case Leave() if self._meetings.busy or self._graph_side.busy or self._queue_side.busy:
                    self._timer.set(None, "", now)
                case Leave(outcome):
                    await self._handlers_finished()
                    return self._end(spec, state, outcome)
            try:
                await workflow.wait_condition(self._woken)
            except asyncio.CancelledError:
                self._inbox.append(events.Cancelled("cancelled through Temporal"))

    # --- what wakes it

    def _woken(self) -> bool:
        return (
            bool(self._inbox)
            or (self._handle is not None and self._handle.done())
            or self._timer.is_due
            or (self._probe is not None and self._probe.done())
            or self._meetings.woken()
            or self._graph_side.woken()
            or self._queue_side.woken()
        )

    def _take_in(self, state: State, now: datetime) -> State:
        """Fold in what has come: signals first, then the end of the operation, as the SDK delivers them."""
        inbox, self._inbox = self._inbox, []
        # What its queue has heard it heard before it said what is in the inbox.
        for event in (*self._queue_side.ended(), *inbox):
            state = fold(state, event, now)
        self._timer.take()
        if self._probe is not None and self._probe.done():
            probe, self._probe = self._probe, None
            state = self._answered(state, probe, now)
        for event in (*self._meetings.ended(), *self._graph_side.ended()):
            if isinstance(event, events.GangUnsized) and self._spec is not None:
                self._resize(unsized(self._spec, state, event))
            state = fold(state, event, now)
        handle, operation = self._handle, state.operation
        if handle is not None and handle.done() and operation is not None:
            self._handle = None
            asked = state.preempted_at
            state = self._ended(state, operation, handle, now)
            if asked is not None and state.preempted_at is None:
                self._count_preemption(now - asked)
        return state

    def _ended(self, state: State, operation: Operation, handle: workflow.ActivityHandle[Any], now: datetime) -> State:
        try:
            result = handle.result()
        except (ActivityError, asyncio.CancelledError) as error:
            cause = error.cause if isinstance(error, ActivityError) else None
            if isinstance(cause, ApplicationError):
                refused = refusal(operation, cause.type or "", cause.message, cause.details)
                if refused is not None:
                    return landed(state, refused, now)
            if not isinstance(error, asyncio.CancelledError) and not isinstance(cause, CancelledError):
                workflow.logger.warning("an operation ended by itself and is begun again", exc_info=error)
            return landed(state, events.OperationInterrupted(), now)
        return landed(state, result, now)

    def _answered(self, state: State, probe: workflow.ActivityHandle[Any], now: datetime) -> State:
        """Fold in how the asking of pods has ended; one that ended otherwise is begun again (row L28)."""
        try:
            said = probe.result()
        except (ActivityError, asyncio.CancelledError):
            return state
        return fold(state, events.ProbeEnded(self._probed or 0, said.failure, dict(said.failing)), now)

    def _count_preemption(self, span: timedelta) -> None:
        """Count how long it took from a preemption's wish until all was proven gone (row U8); not again on replay."""
        histogram = workflow.metric_meter().create_histogram_timedelta(
            names.METRIC_PREEMPTION, "From the wish to preempt a workload until all of it was proven gone.", "duration"
        )
        if self._spec is not None:
            histogram.record(span, {"cluster": self._spec.cluster, "queue": self._spec.queue})

    def _count_conflict(self, spec: Workload) -> None:
        """Count that a walltime was over while pods were saving their state (rows L19, L20); not again on replay."""
        counter = workflow.metric_meter().create_counter(
            names.METRIC_WALLTIME_CONFLICT, "Walltimes that were over while pods were saving their state."
        )
        counter.add(1, {"cluster": spec.cluster, "queue": spec.queue})

    # --- what it carries out

    def _start(self, spec: Workload, state: State, why: str, now: datetime) -> None:
        call = call_of(spec, state, self._uid, now)
        self._handle = workflow.start_activity(
            call.activity,
            call.argument,
            task_queue=call.queue,
            result_type=call.result_type,
            start_to_close_timeout=call.start_to_close,
            heartbeat_timeout=HEARTBEAT,
            retry_policy=RETRY,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=why[:200],
        )

    def _ask(self, spec: Workload, state: State) -> None:
        """Have the pods of the attempt that lives asked, by one activity however long that takes (row L28)."""
        number = probed(spec, state)
        if self._probe is not None and number != self._probed:
            self._probe.cancel()
            self._probe = None
        if number is None or self._probe is not None or self._full():
            return
        call = probe_of(spec, state, self._uid)
        self._probed = number
        self._probe = workflow.start_activity(
            call.activity,
            call.argument,
            task_queue=call.queue,
            result_type=call.result_type,
            start_to_close_timeout=call.start_to_close,
            heartbeat_timeout=HEARTBEAT,
            retry_policy=RETRY,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=f"asking attempt {number} whether it serves",
        )

    async def _silenced(self) -> None:
        """Wait until nobody is asked any more, and what was counted has been handed over; and a rendezvous was told."""
        while self._probe is not None and not self._probe.done():
            self._probe.cancel()
            try:
                await workflow.wait_condition(self._probe.done)
            except asyncio.CancelledError:
                self._inbox.append(events.Cancelled("cancelled through Temporal"))
        while not self._said_all():
            try:
                await workflow.wait_condition(self._said_all)
            except asyncio.CancelledError:
                self._inbox.append(events.Cancelled("cancelled through Temporal"))

    def _said_all(self) -> bool:
        return self._meetings.silent() and self._graph_side.silent() and self._queue_side.silent()

    def _full(self) -> bool:
        return workflow.info().is_continue_as_new_suggested()

    async def _continue(self) -> None:
        """Begin a new run with the same memory, so that no history grows for ever."""
        await self._handlers_finished()
        await self._silenced()
        if self._state is None:
            return
        state = self._take_in(self._state, self._clock.now())
        workflow.continue_as_new(args=[self._document, edit(state, runs=state.runs + 1)])

    async def _handlers_finished(self) -> None:
        """Wait until no update is under way; a cancellation meanwhile is kept, and ends nothing before its time."""
        while True:
            try:
                return await workflow.wait_condition(workflow.all_handlers_finished)
            except asyncio.CancelledError:
                self._inbox.append(events.Cancelled("cancelled through Temporal"))

    def _end(self, spec: Workload, state: State, outcome: Phase) -> Status:
        status = status_of(spec, state, self._clock.now(), self._uid)
        if outcome is Phase.FAILED:
            raise ApplicationError(
                f"{spec.name} failed: {state.message}",
                status,
                type=names.ERROR_WORKLOAD_FAILED,
                non_retryable=True,
            )
        if outcome is Phase.CANCELLED and workflow.cancellation_reason() is not None:
            raise asyncio.CancelledError
        return status

    # --- what it shows

    def _show(self, spec: Workload, state: State, now: datetime) -> None:
        """Keep list columns, memo and current details true. Columns and memo cost history, so only per phase."""
        explanation = explain_of(spec, state, now)
        workflow.set_current_details(markdown(explanation))
        number = state.attempt.number if state.attempt is not None else 0
        is_submitted = state.attempt is not None and state.attempt.stage is Stage.SUBMITTED
        # Before this patch the column was not written by itself, between the phases Resuming and Running.
        shown = (state.phase, number, is_submitted and workflow.patched(_PATCH_SUBMITTED))
        if self._shown == shown:
            return
        first, self._shown = self._shown is None, shown
        updates: list[SearchAttributeUpdate[Any]] = [
            _PHASE.value_set(state.phase.value),
            _REASON.value_set(state.reason.value),
            _SUBMITTED.value_set(is_submitted),
            _ATTEMPT.value_set(number),
            _RESTARTS.value_set(state.restarts),
        ]
        memo: dict[str, Any] = {}
        if first and workflow.info().typed_search_attributes.get(_KEYWORD(names.SA_NAME)) is None:
            updates += [
                _KEYWORD(names.SA_CLUSTER).value_set(spec.cluster),
                _KEYWORD(names.SA_NAMESPACE).value_set(spec.namespace),
                _KEYWORD(names.SA_NAME).value_set(spec.name),
                _KEYWORD(names.SA_KIND).value_set(spec.source.kind),
                _KEYWORD(names.SA_QUEUE).value_set(spec.queue),
            ]
            memo = {names.MEMO_UID: self._uid, names.MEMO_KIND: spec.source.kind}
            if spec.checkpoint is not None:
                memo[names.MEMO_SAVES] = True
            if spec.queued:
                memo[names.MEMO_QUEUED] = True
        if first:
            # A new run begins with the memo of the very first one, and the components may have been changed since.
            memo[names.MEMO_SPEC_HASH] = spec.spec_hash()
        workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType] - the SDK's own generics
        if first or state.phase is not Phase.RESUMING:
            status = status_of(spec, state, now, self._uid)
            status = edit(status, causes=status.causes[-MEMO_CAUSES:])
            workflow.upsert_memo({**memo, names.MEMO_STATUS: status.model_dump(mode="json", by_alias=True)})

    # --- what it is told

    @workflow.signal(name=names.SIGNAL_SUSPEND, description="Remove it until proven gone, then wait for resume")
    def suspend(self, reason: str = "", uid: str = "") -> None:
        """Delete its resources, prove them gone, release its quota, and wait for `resume` (row A11).

        As each wish, it may name the uid that it is meant for: then no later submission takes it (row D46).
        """
        self._wish(names.SIGNAL_SUSPEND, events.Suspended(reason), uid)

    @workflow.signal(name=names.SIGNAL_PREEMPT, description="Give its place to another: as suspend, uncharged")
    def preempt(self, reason: str = "", within: float | None = None, uid: str = "") -> None:
        """Give its place to another workload. As `suspend`; never a failure, charged to no budget (row U8).

        What saves its state is asked to do so first (row L32), and waited for at most `within` seconds, if given.
        """
        self._wish(names.SIGNAL_PREEMPT, events.Suspended(reason, preempted=True, within=within), uid)

    @workflow.signal(name=names.SIGNAL_RESUME, description="Take a suspension back: begin the next attempt")
    def resume(self, reason: str = "", uid: str = "") -> None:
        """Take a suspension or preemption back; budgets stay as they are."""
        self._wish(names.SIGNAL_RESUME, events.Resumed(reason), uid)

    @workflow.signal(name=names.SIGNAL_CANCEL, description="Delete it: remove all of it until proven gone, then end")
    def cancel(self, reason: str = "", uid: str = "", phases: list[Phase] | None = None) -> None:
        """Delete the workload: remove everything until proven gone, then end (row A16).

        With `phases` it holds only while the workload is in one of them (row D53).
        """
        self._wish(names.SIGNAL_CANCEL, events.Cancelled(reason, phases=tuple(phases or ())), uid)

    @workflow.signal(name=names.SIGNAL_RETRY, description="Try again now: skip a pause, revive a failed one")
    def retry(self, reason: str = "", uid: str = "") -> None:
        """Skip the retry pause, or begin a failed workload that is still held anew with its budgets renewed."""
        self._wish(names.SIGNAL_RETRY, events.Retried(reason), uid)

    @workflow.signal(name=names.SIGNAL_OBSERVE, description="A snapshot from the cluster's watch")
    def observe(self, observation: Observation) -> None:
        """Take in a snapshot. It only wakes: before anything destructive the workflow looks for itself."""
        if observation.workload_uid == self._uid:
            self._inbox.append(events.Observed(observation))

    @workflow.signal(name=names.SIGNAL_REQUEUE, description="Tell of a failure of its nodes: its rules decide")
    def requeue(self, request: RequeueRequest) -> None:
        """Take in that a workload must go back to its queue: once for each requeue count that is expected (row L25)."""
        self._wish(names.SIGNAL_REQUEUE, events.RequeueAsked(request), request.uid)

    @workflow.signal(name=names.SIGNAL_GANG, description="Tell what the gang of an attempt came to")
    def gang(self, outcome: GangOutcome) -> None:
        """Take in what its rendezvous says: it has succeeded, it has failed, a loss is the workload's (T1, T4, T9)."""
        if outcome.workload_uid == self._uid:
            self._inbox.append(events.GangTold(outcome))

    @workflow.signal(name=names.SIGNAL_GRAPH, description="Whether its graph lets it begin, or ends it")
    def graph(self, order: GraphOrder) -> None:
        """Take in what its graph says of it (row L31)."""
        if order.workload_uid == self._uid:
            self._inbox.append(events.GraphOrdered(order))

    @workflow.signal(name=names.SIGNAL_QUEUE, description="Whether its queue lets it in")
    def queue(self, order: QueueOrder) -> None:
        """Take in what its queue says of it (row L9)."""
        if order.again or order.uid == self._uid:
            self._inbox.append(events.QueueOrdered(order))

    def _wish(self, signal: str, wish: events.Event, uid: str) -> None:
        """Take in what somebody wishes, if this is the submission that it is meant for."""
        why = misdirected(uid, self._uid)
        self._inbox.append(events.NotUnderstood(signal, why) if why else wish)

    def _own(self, uid: str) -> None:
        """Check that an update is meant for this submission.

        Raises:
            ApplicationError: if not.
        """
        why = misdirected(uid, self._uid)
        if why:
            raise refused(why)

    def unfit(self, signal: str, why: str) -> None:
        """Keep that a signal was let fall (`fitting`)."""
        self._inbox.append(events.NotUnderstood(signal, why))

    @workflow.query(name=names.QUERY_STATUS, description="Phase, attempt, budgets, conditions, causes")
    def status(self) -> Status | None:
        """Return the status."""
        if self._spec is None or self._state is None:
            return None
        return status_of(self._spec, self._state, task_time(), self._uid, asked_at())

    @workflow.query(name=names.QUERY_EXPLAIN, description="Why it is where it is, and what happens next")
    def explain(self) -> Explanation | None:
        """Return the explanation."""
        if self._spec is None or self._state is None:
            return None
        return explain_of(self._spec, self._state, task_time(), asked_at())

    @workflow.update(name=names.UPDATE_POLICY, description="Change waits and budget limits from now on")
    def update_policy(self, change: PolicyChange) -> Policy:
        """Change waits and budget limits of a workload that is under way; returns the policy in force."""
        if self._state is None:
            raise ApplicationError("the workload is invalid", type=names.ERROR_INVALID_WORKLOAD)
        policy = changed(self._state.policy, change)
        self._state = edit(self._state, policy=policy)
        self._inbox.append(events.PolicyChanged(policy, change.note))
        return policy

    @workflow.update(name=names.UPDATE_COMPONENTS, description="Change what components are made of, in place")
    async def update_components(self, change: ComponentsChange) -> tuple[str, ...]:
        """Change what components are made of; those that differ are made again, alone (row S8).

        Returns their names, once nothing is made any more of what they were before. What the API server would refuse,
        or cannot be asked about, changes nothing.
        """
        if self._spec is None or self._state is None:
            raise ApplicationError("the workload is invalid", type=names.ERROR_INVALID_WORKLOAD)
        try:
            if workflow.patched(_PATCH_REHEARSED):
                # One after the other: each is rehearsed on what the one before it has left.
                async with self._changing:
                    await self._rehearse(change)
                    again = self._reconfigure(change)
            else:
                again = self._reconfigure(change)
        except ValueError as error:
            raise refused(str(error)) from None
        if again:
            operation, making = self._state.operation, self._handle
            if operation is not None and operation.kind in _MAKING and making is not None:
                await workflow.wait_condition(making.done)
        return again

    async def _rehearse(self, change: ComponentsChange) -> None:
        """Have the API server say that it would take a change; the workload's life goes on meanwhile, and may end."""
        assert self._spec is not None
        assert self._state is not None
        check_changeable(self._state)
        after = reconfigured(self._spec, change)
        again = differing(self._spec, after)
        if again:
            await rehearse(after, self._state, self._uid, again)
            check_changeable(self._state)

    def _reconfigure(self, change: ComponentsChange) -> tuple[str, ...]:
        """Put a change in force, and return what is to be made again for it."""
        assert self._spec is not None
        before, self._spec = self._spec, reconfigured(self._spec, change)
        again = differing(before, self._spec)
        if self._spec != before:
            self._document = self._spec.model_dump(mode="json", by_alias=True)
            workflow.upsert_memo({names.MEMO_SPEC_HASH: self._spec.spec_hash()})
        if again:
            self._inbox.append(events.Reconfigured(again, change.note))
        return again

    @workflow.update(name=names.UPDATE_CHECKPOINT, description="Save its state now, and run on")
    def checkpoint(self, request: CheckpointAsk) -> int:
        """Have its pods save their state while it runs on, and return the request's number (rows L32, J3)."""
        if self._spec is None or self._state is None:
            raise ApplicationError("the workload is invalid", type=names.ERROR_INVALID_WORKLOAD)
        self._inbox.append(events.CheckpointAsked(request.note))
        return self._state.checkpoint.number + 1 if self._state.checkpoint is not None else 1

    @checkpoint.validator
    def _check_checkpoint(self, request: CheckpointAsk) -> None:
        self._own(request.uid)
        if self._spec is None or self._state is None:
            raise ApplicationError("the workload is invalid", type=names.ERROR_INVALID_WORKLOAD)
        check_ask(self._spec, self._state)

    @workflow.update(name=names.UPDATE_SCALE, description="Give its gang another size while it runs")
    def scale(self, change: GangScale) -> dict[str, int]:
        """Give its gang another size, from now on and for all attempts to come; returns that size (row T6)."""
        if self._spec is None or self._state is None:
            raise ApplicationError("the workload is invalid", type=names.ERROR_INVALID_WORKLOAD)
        after = scaled(self._spec, self._state, change)
        assert after.gang is not None
        if self._resize(after):
            self._inbox.append(events.GangScaled(after.gang, change.note))
        return {"min": after.gang.min, "max": after.gang.max}

    def _resize(self, after: Workload) -> bool:
        """Put a document with another size in force; return whether it is another."""
        if after == self._spec:
            return False
        self._spec = after
        self._document = after.model_dump(mode="json", by_alias=True)
        workflow.upsert_memo({names.MEMO_SPEC_HASH: after.spec_hash()})
        return True

    @scale.validator
    def _check_scale(self, change: GangScale) -> None:
        self._own(change.uid)
        if self._spec is None or self._state is None:
            raise ApplicationError("the workload is invalid", type=names.ERROR_INVALID_WORKLOAD)
        scaled(self._spec, self._state, change)

    @workflow.update(name=names.UPDATE_EXTEND, description="Let it run longer than its walltime said")
    def extend_walltime(self, change: WalltimeExtension) -> Status:
        """Extend the walltime of a workload that is under way; returns its status, with the new deadline (row L18)."""
        if self._spec is None or self._state is None:
            raise ApplicationError("the workload is invalid", type=names.ERROR_INVALID_WORKLOAD)
        total = extension(self._spec, self._state, change)
        # At once, so that whoever else asks in the same moment is judged by what is left to extend.
        self._state = extended(self._state, total)
        self._inbox.append(events.WalltimeExtended(total, change.note))
        return status_of(self._spec, self._state, self._clock.now(), self._uid)

    @extend_walltime.validator
    def _check_extension(self, change: WalltimeExtension) -> None:
        self._own(change.uid)
        if self._spec is None or self._state is None:
            raise ApplicationError("the workload is invalid", type=names.ERROR_INVALID_WORKLOAD)
        extension(self._spec, self._state, change)

    @workflow.update(name=names.UPDATE_STRIP, description="Take finalizers off what a forced removal cannot remove")
    def strip_finalizers(self, request: StripRequest) -> None:
        """Take the finalizers off what is left of an attempt that is being forced out (row U2)."""
        self._inbox.append(events.StripAsked(request.note))

    @strip_finalizers.validator
    def _check_strip(self, request: StripRequest) -> None:
        self._own(request.uid)
        if self._state is None:
            raise ApplicationError("the workload is invalid", type=names.ERROR_INVALID_WORKLOAD)
        check_strip(self._state)

    @update_components.validator
    def _check_components(self, change: ComponentsChange) -> None:
        self._own(change.uid)
        if self._spec is None or self._state is None:
            raise ApplicationError("the workload is invalid", type=names.ERROR_INVALID_WORKLOAD)
        check_changeable(self._state)
        reconfigured(self._spec, change)

    @update_policy.validator
    def _check_policy(self, change: PolicyChange) -> None:
        self._own(change.uid)
        if self._state is None:
            raise ApplicationError("the workload is invalid", type=names.ERROR_INVALID_WORKLOAD)
        changed(self._state.policy, change)
