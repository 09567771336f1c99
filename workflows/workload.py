"""One workload, one workflow: it carries out what `holdfast.policy` decides, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import Priority, RawValue, SearchAttributeKey, SearchAttributeUpdate
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
    from holdfast.model.spec.policy import POLICIES
    from holdfast.model.spec.sensitive import reruns_init
    from holdfast.policy.attempt.checkpoint import CheckpointAsk, check_ask, is_conflict, is_of_earlier
    from holdfast.policy.attempt.park import begins_suspended
    from holdfast.policy.loop.change import (
        ComponentsChange,
        PolicyChange,
        changed,
        check_change,
        check_changeable,
        differing,
        reconfigured,
        resizes,
    )
    from holdfast.policy.loop.fold import fold
    from holdfast.policy.loop.measures import Counted, Lasted, is_over, measures, moments, spent
    from holdfast.policy.loop.results import refusal
    from holdfast.policy.loop.submission import identity, submitted, unknown_to_0_1
    from holdfast.policy.loop.turn import Begin, Continue, Leave, Rest, landed, turn
    from holdfast.policy.sides.gang import GangScale, check_scale, scaled, unsized
    from holdfast.policy.sides.probe import probed
    from holdfast.policy.sides.progress import followed, is_stalled
    from holdfast.policy.status.explain import explain_of, markdown, status_of
    from holdfast.policy.status.ledger import Moment, Tally
    from holdfast.policy.values import events
    from holdfast.policy.values.addressee import misdirected
    from holdfast.policy.values.displayed import displayed
    from holdfast.policy.values.edit import edit
    from holdfast.policy.values.events import RequeueRequest
    from holdfast.policy.verdicts.strip import StripRequest, check_strip
    from holdfast.policy.verdicts.walltime import WalltimeExtension, check_extension, extended, extension
    from holdfast.workflows import patches
    from holdfast.workflows.clock import Clock, asked_at, task_time
    from holdfast.workflows.entity import Timer, read, refuse_memory
    from holdfast.workflows.operations.aside import Aside
    from holdfast.workflows.operations.dispatch import RETRY, call_of, follow_of, probe_of
    from holdfast.workflows.operations.gang import Meetings
    from holdfast.workflows.operations.notify import GraphSide, QueueSide
    from holdfast.workflows.operations.rehearsal import refused, rehearse

_KEYWORD = SearchAttributeKey.for_keyword
_PHASE, _REASON = _KEYWORD(names.SA_PHASE), _KEYWORD(names.SA_REASON)
_SUBMITTED = SearchAttributeKey.for_bool(names.SA_SUBMITTED)
_ATTEMPT = SearchAttributeKey.for_int(names.SA_ATTEMPT)
_RESTARTS = SearchAttributeKey.for_int(names.SA_RESTARTS)

MEMO_CAUSES = 3


@workflow.defn(name=names.WORKLOAD_WORKFLOW)
class WorkloadWorkflow:
    """Runs one workload, from its submission until none of its objects are left."""

    @workflow.init
    def __init__(self, document: Any, carried: State | None = None) -> None:
        """Read the document; `run` reports its errors, because Temporal would retry a constructor that raises."""
        self._misplaced = self._problem = refuse_memory("carried", carried, rebuilt=False)
        self._clock = Clock()
        self._inbox: list[events.Event] = []
        self._handle: workflow.ActivityHandle[Any] | None = None
        self._probe = Aside(lambda attempt, said: events.ProbeEnded(attempt, said.failure, dict(said.failing)))
        self._steps = Aside(lambda attempt, said: events.StepsRead(attempt, said.record, said.failure))
        self._timer = Timer()
        self._shown: tuple[Phase, int, bool] | None = None
        self._changing = asyncio.Lock()
        self._meetings = Meetings(continued=carried is not None)
        self._graph_side = GraphSide()
        self._queue_side = QueueSide()
        self._document: Any = document
        self._uid = ""
        self._state: State | None = None
        self._spec: Workload | None = None
        if self._misplaced:
            return
        begun = workflow.info().start_time
        self._tally = Tally(begun)
        self._state = carried
        self._spec, self._problem = read(Workload, document)
        if isinstance(document, dict) and "policy" in document:
            # The SDK keeps the arguments for as long as the workflow is in its cache.
            document["policy"] = POLICIES.same(document["policy"])
        if self._spec is None:
            return
        self._uid = self._spec.uid or workflow.info().first_execution_run_id
        if carried is not None:
            self._tally.take([Moment(begun, self._spec, carried)])
        else:
            self._state = submitted(self._spec, self._clock.now())

    @workflow.run
    async def run(self, document: Any, carried: State | None = None) -> Status:
        """Run the workload to its end.

        Args:
            document: the workload (`holdfast schema`), as one JSON document.
            carried: the state of the previous run; refused unless this run continues one (row X3).

        Returns:
            The final status of a workload that Succeeded or was Cancelled, once none of its objects are left.

        Raises:
            ApplicationError: type `InvalidWorkload` before anything is created, `WorkloadFailed` at the end of a
                failed workload, with its status as detail.
        """
        if self._spec is None or self._state is None:
            if carried is not None and not self._misplaced:
                # It was valid at the start. A release that cannot read it must not end it, so the task is retried.
                raise RuntimeError(f"this release cannot read a workload that is under way: {self._problem}")
            raise ApplicationError(self._problem, type=names.ERROR_INVALID_WORKLOAD, non_retryable=True)
        waits = workflow.patched(names.PATCH_WAITS)
        resets = waits or workflow.patched(names.PATCH_RESETS)
        creates = resets or workflow.patched(names.PATCH_CREATES)
        self._state = edit(self._state, creates_at_once=creates, resets_at_once=resets, shows_waits=waits)
        if self._state.asked is not None:  # A run of before 0.3 does not say.
            self._state = edit(self._state, kueue_admits=self._spec.kueue_admits)
        if begins_suspended(self._spec, edit(self._state, begins_suspended=True)):
            self._state = edit(self._state, begins_suspended=workflow.patched(names.PATCH_SLEEPS))
        if carried is None and not creates and (field := unknown_to_0_1(self._spec)):
            raise ApplicationError(
                f"{field}: needs release 0.2 of all workers, and this one runs beside an earlier release, or may be "
                "replaced by one again (compatible_with): submit it once the upgrade is complete",
                type=names.ERROR_INVALID_WORKLOAD,
                non_retryable=True,
            )
        if carried is None and waits and self._spec.sensitive:
            for path, wrong in reruns_init(self._spec.components):
                raise ApplicationError(f"{path}{wrong}", type=names.ERROR_INVALID_WORKLOAD, non_retryable=True)
        while True:
            # An update may have replaced the document.
            now, spec = self._clock.now(), self._spec
            state = self._take_in(self._state, now)
            spec = self._spec
            if workflow.cancellation_reason() is not None and not state.intent.cancel:
                # A cancellation can get lost when an activity completes in the same task.
                state = fold(state, events.Cancelled("cancelled through Temporal"), now)
            taken = turn(spec, state, now, full=self._full())
            before = self._state
            self._measure(measures(spec, before, state, taken.taken, now))
            self._tally.take(moments(spec, state, taken.taken, taken.state, now))
            ends = isinstance(taken.act, Continue | Leave)
            if ends or is_over(before, taken.state):
                self._measure(spent(spec, self._tally, now))
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

    # --- wake-ups

    def _woken(self) -> bool:
        return (
            bool(self._inbox)
            or (self._handle is not None and self._handle.done())
            or self._timer.is_due
            or self._probe.woken()
            or self._steps.woken()
            or self._meetings.woken()
            or self._graph_side.woken()
            or self._queue_side.woken()
        )

    def _take_in(self, state: State, now: datetime) -> State:
        """Fold pending events into the state: signals first, then the operation's end, as the SDK delivers them."""
        inbox, self._inbox = self._inbox, []
        # The queue received the workload's message before it sent the orders in the inbox.
        for event in (*self._queue_side.ended(), *inbox):
            state = fold(state, event, now)
        self._timer.take()
        for event in (*self._probe.ended(), *self._steps.ended()):
            state = fold(state, event, now)
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
                workflow.logger.warning("an operation failed unexpectedly and is begun again", exc_info=error)
            return landed(state, events.OperationInterrupted(), now)
        # Before this patch, such answers counted for the request that was made since.
        if is_of_earlier(state, result) and workflow.patched(patches.ANSWERS):
            result = events.OperationInterrupted()
        return landed(state, result, now)

    def _measure(self, found: Iterable[Counted | Lasted]) -> None:
        """Record what happened in this turn; replay records nothing."""
        for one in found:
            match one:
                case Counted(name, about, labels):
                    workflow.metric_meter().create_counter(name, about).add(1, labels)
                case Lasted(name, about, span, labels):
                    meter = workflow.metric_meter()
                    meter.create_histogram_timedelta(name, about, "duration").record(span, labels)

    def _count_preemption(self, span: timedelta) -> None:
        """Record the time from a preemption's request until all was proven gone (row U8); replay records nothing."""
        histogram = workflow.metric_meter().create_histogram_timedelta(
            names.METRIC_PREEMPTION, "From the wish to preempt a workload until all of it was proven gone.", "duration"
        )
        if self._spec is not None:
            histogram.record(span, {"cluster": self._spec.cluster, "queue": self._spec.queue})

    def _count_conflict(self, spec: Workload) -> None:
        """Count a walltime that ended while pods were saving their state (rows L19, L20); replay counts nothing."""
        counter = workflow.metric_meter().create_counter(
            names.METRIC_WALLTIME_CONFLICT, "Walltimes that were over while pods were saving their state."
        )
        counter.add(1, {"cluster": spec.cluster, "queue": spec.queue})

    # --- activities

    def _start(self, spec: Workload, state: State, why: str, now: datetime) -> None:
        call = call_of(spec, state, self._uid, now)
        self._handle = workflow.start_activity(
            call.activity,
            call.argument,
            task_queue=call.queue,
            result_type=call.result_type,
            start_to_close_timeout=call.start_to_close,
            heartbeat_timeout=call.heartbeat,
            retry_policy=RETRY,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=why[:200],
            priority=Priority(priority_key=call.priority),
        )

    def _ask(self, spec: Workload, state: State) -> None:
        """Have the living attempt's pods asked whether they serve, and how far they are (rows L28, P1)."""
        full = self._full()
        number = probed(spec, state)
        self._probe.follow(
            number, lambda: probe_of(spec, state, self._uid), f"asking attempt {number} whether it serves", full=full
        )
        number = followed(spec, state)
        # Before this patch, nobody followed the steps of a workload that had been told to stand still.
        if number is not None and is_stalled(state) and not workflow.patched(patches.WITHDRAWN):
            number = None
        self._steps.follow(
            number, lambda: follow_of(spec, state, self._uid), f"following the steps of attempt {number}", full=full
        )

    async def _silenced(self) -> None:
        """Stop what asks the pods and wait for its results; then wait for messages to others to be delivered."""
        for aside in (self._probe, self._steps):
            while aside.busy:
                aside.cancel()
                try:
                    await workflow.wait_condition(aside.settled)
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
        """Continue as new with the same state, so that the history stays bounded."""
        await self._handlers_finished()
        await self._silenced()
        await self._handlers_finished()  # One may have been accepted meanwhile.
        if self._state is None:
            return
        state = self._take_in(self._state, self._clock.now())
        # As it is: it may have entries that another SDK wrote, and this one cannot read.
        memo = {name: RawValue(payload) for name, payload in workflow.info().raw_memo.items()}
        workflow.continue_as_new(args=[self._document, edit(state, runs=state.runs + 1)], memo=memo)

    async def _handlers_finished(self) -> None:
        """Wait until all updates have finished; a cancellation meanwhile goes to the inbox, and the wait goes on."""
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

    # --- what users see

    def _show(self, spec: Workload, state: State, now: datetime) -> None:
        """Update search attributes and memo. They cost history, so only once per phase."""
        state = displayed(state)
        number = state.attempt.number if state.attempt is not None else 0
        is_submitted = state.attempt is not None and state.attempt.stage is Stage.SUBMITTED
        # Before this patch, no change of this column alone was written, between the phases Resuming and Running.
        column = is_submitted and (state.creates_at_once or workflow.patched(patches.SUBMITTED))
        shown = (state.phase, number, column)
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
        # Search attributes are carried to a new run; before 0.3, what a run had written to its memo was not.
        if first and names.MEMO_UID not in workflow.info().raw_memo:
            memo = identity(spec, self._uid)
        if first:
            # A run of before 0.3 left the first run's memo, and the components may have changed since.
            memo[names.MEMO_SPEC_HASH] = spec.spec_hash()
        workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType] - the SDK's own generics
        if first or state.phase is not Phase.RESUMING:
            status = status_of(spec, state, now, self._uid)
            status = edit(status, causes=status.causes[-MEMO_CAUSES:])
            workflow.upsert_memo({**memo, names.MEMO_STATUS: status.model_dump(mode="json", by_alias=True)})

    # --- signals, queries and updates

    @workflow.signal(name=names.SIGNAL_SUSPEND, description="Remove it until proven gone, then wait for resume")
    def suspend(self, reason: str = "", uid: str = "") -> None:
        """Delete its resources, prove them gone, release its quota, and wait for `resume` (row A11).

        Like every request, it may name the uid of a submission: a later submission then does not act on it (row D46).
        """
        self._wish(names.SIGNAL_SUSPEND, events.Suspended(reason), uid)

    @workflow.signal(name=names.SIGNAL_PREEMPT, description="Give its place to another: as suspend, uncharged")
    def preempt(self, reason: str = "", within: float | None = None, uid: str = "") -> None:
        """Suspend it to make room for another workload; never a failure, and charged to no budget (row U8).

        A workload that can save its state is asked to do so first (row L32), for at most `within` seconds, if given.
        """
        self._wish(names.SIGNAL_PREEMPT, events.Suspended(reason, preempted=True, within=within), uid)

    @workflow.signal(name=names.SIGNAL_RESUME, description="Take a suspension back: begin the next attempt")
    def resume(self, reason: str = "", uid: str = "") -> None:
        """Undo a suspension or preemption; budgets stay as they are."""
        self._wish(names.SIGNAL_RESUME, events.Resumed(reason), uid)

    @workflow.signal(name=names.SIGNAL_CANCEL, description="Delete it: remove all of it until proven gone, then end")
    def cancel(self, reason: str = "", uid: str = "", phases: list[Phase] | None = None) -> None:
        """Delete the workload: remove everything until proven gone, then end (row A16).

        With `phases`, it takes effect only while the workload is in one of them (row D53).
        """
        self._wish(names.SIGNAL_CANCEL, events.Cancelled(reason, phases=tuple(phases or ())), uid)

    @workflow.signal(name=names.SIGNAL_RETRY, description="Try again now: skip a pause, revive a failed one")
    def retry(self, reason: str = "", uid: str = "") -> None:
        """Skip the retry pause, or restart a failed workload that is still held, with its budgets renewed."""
        self._wish(names.SIGNAL_RETRY, events.Retried(reason), uid)

    @workflow.signal(name=names.SIGNAL_OBSERVE, description="A snapshot from the cluster's watch")
    def observe(self, observation: Observation) -> None:
        """Take in a snapshot. It only wakes the workflow, which looks for itself before anything destructive."""
        if observation.workload_uid == self._uid:
            self._inbox.append(events.Observed(observation))

    @workflow.signal(name=names.SIGNAL_REQUEUE, description="Tell of a failure of its nodes: its rules decide")
    def requeue(self, request: RequeueRequest) -> None:
        """Take in a request to go back to the queue; it counts once for each expected requeue count (row L25)."""
        self._wish(names.SIGNAL_REQUEUE, events.RequeueAsked(request), request.uid)

    @workflow.signal(name=names.SIGNAL_GANG, description="Tell what the gang of an attempt came to")
    def gang(self, outcome: GangOutcome) -> None:
        """Take in the gang's outcome: it succeeded, it failed, or the workload must make good a loss (T1, T4, T9)."""
        if outcome.workload_uid == self._uid:
            self._inbox.append(events.GangTold(outcome))

    @workflow.signal(name=names.SIGNAL_GRAPH, description="Whether its graph lets it begin, or ends it")
    def graph(self, order: GraphOrder) -> None:
        """Take in an order from the graph (row L31)."""
        if order.workload_uid == self._uid:
            self._inbox.append(events.GraphOrdered(order))

    @workflow.signal(name=names.SIGNAL_QUEUE, description="Whether its queue lets it in")
    def queue(self, order: QueueOrder) -> None:
        """Take in an order from the queue (row L9)."""
        if order.again or order.uid == self._uid:
            self._inbox.append(events.QueueOrdered(order))

    def _wish(self, signal: str, wish: events.Event, uid: str) -> None:
        """Take in a request, or record why it is not meant for this submission."""
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
        """Record that a signal was dropped (`decoding`)."""
        self._inbox.append(events.NotUnderstood(signal, why))

    @workflow.query(name=names.QUERY_STATUS, description="Phase, attempt, budgets, conditions, causes")
    def status(self) -> Status | None:
        """Return the status."""
        if self._spec is None or self._state is None:
            return None
        return status_of(self._spec, self._state, task_time(), self._uid, asked_at())

    def current_details(self) -> str:
        """Return what Temporal's UI shows of it (`describing`)."""
        explanation = self.explain()
        return markdown(explanation) if explanation is not None else ""

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
        """Change components in place; only those that differ are made again (row S8).

        Returns their names, once no operation makes them from the old document any more. A change that the API server
        would refuse, or that it cannot be asked about, has no effect.
        """
        if self._spec is None or self._state is None:
            raise ApplicationError("the workload is invalid", type=names.ERROR_INVALID_WORKLOAD)
        try:
            if workflow.patched(patches.REHEARSED):
                # One at a time: each change is rehearsed against the result of the previous one.
                async with self._changing:
                    await self._rehearse(change)
                    again = self._reconfigure(change)
            else:
                again = self._reconfigure(change)
        except ValueError as error:
            raise refused(str(error)) from None
        if again:
            operation, making = self._state.operation, self._handle
            makes = operation is not None and (operation.is_creating or operation.kind is OperationKind.REPLACE)
            if makes and making is not None:
                await workflow.wait_condition(making.done)
        return again

    async def _rehearse(self, change: ComponentsChange) -> None:
        """Check by a dry run that the API server accepts a change; meanwhile the workload goes on, and may end."""
        assert self._spec is not None
        assert self._state is not None
        check_changeable(self._state)
        after = self._changed(change)
        again = differing(self._spec, after)
        if again:
            await rehearse(after, self._state, self._uid, again)
            check_changeable(self._state)

    def _reconfigure(self, change: ComponentsChange) -> tuple[str, ...]:
        """Put a change in force, and return the names of the components to make again."""
        assert self._spec is not None
        before, self._spec = self._spec, self._changed(change)
        again = differing(before, self._spec)
        if self._spec != before:
            self._document = self._spec.model_dump(mode="json", by_alias=True)
            workflow.upsert_memo({names.MEMO_SPEC_HASH: self._spec.spec_hash()})
        if again:
            self._inbox.append(events.Reconfigured(again, change.note))
        return again

    def _changed(self, change: ComponentsChange) -> Workload:
        assert self._spec is not None
        # Before this patch, a change with another number of members was refused.
        if resizes(self._spec, change) and not workflow.patched(patches.SIZED):
            raise ValueError("components: expected as many members of its gang as it has now")
        return reconfigured(self._spec, change)

    @workflow.update(name=names.UPDATE_CHECKPOINT, description="Save its state now, and run on")
    def checkpoint(self, request: CheckpointAsk) -> int:
        """Ask its pods to save their state while it runs on, and return the request's number (rows L32, J3)."""
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
        """Resize its gang, for this attempt and all later ones; returns the new size (row T6)."""
        if self._spec is None or self._state is None:
            raise ApplicationError("the workload is invalid", type=names.ERROR_INVALID_WORKLOAD)
        after = scaled(self._spec, self._state, change)
        assert after.gang is not None
        if self._resize(after):
            self._inbox.append(events.GangScaled(after.gang, change.note))
        return {"min": after.gang.min, "max": after.gang.max}

    def _resize(self, after: Workload) -> bool:
        """Put a document with another gang size in force; return whether it differs from the current one."""
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
        check_scale(self._spec, self._state, change)

    @workflow.update(name=names.UPDATE_EXTEND, description="Let it run longer than its walltime said")
    def extend_walltime(self, change: WalltimeExtension) -> Status:
        """Extend the walltime of a workload that is under way; returns its status, with the new deadline (row L18)."""
        if self._spec is None or self._state is None:
            raise ApplicationError("the workload is invalid", type=names.ERROR_INVALID_WORKLOAD)
        total = extension(self._spec, self._state, change)
        # Applied at once, so that another request in the same task is checked against what is left to extend.
        self._state = extended(self._state, total)
        self._inbox.append(events.WalltimeExtended(total, change.note))
        return status_of(self._spec, self._state, self._clock.now(), self._uid)

    @extend_walltime.validator
    def _check_extension(self, change: WalltimeExtension) -> None:
        self._own(change.uid)
        if self._spec is None or self._state is None:
            raise ApplicationError("the workload is invalid", type=names.ERROR_INVALID_WORKLOAD)
        check_extension(self._spec, self._state, change)

    @workflow.update(name=names.UPDATE_STRIP, description="Take finalizers off what a forced removal cannot remove")
    def strip_finalizers(self, request: StripRequest) -> None:
        """Remove the finalizers from the objects left of an attempt that is being forcefully deleted (row U2)."""
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
        check_change(self._spec, self._state, change)

    @update_policy.validator
    def _check_policy(self, change: PolicyChange) -> None:
        self._own(change.uid)
        if self._state is None:
            raise ApplicationError("the workload is invalid", type=names.ERROR_INVALID_WORKLOAD)
        changed(self._state.policy, change)
