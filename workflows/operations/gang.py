"""The calls of a workload's workflow for its elastic gang, beside the one operation under way. No decisions.

There are three: open the rendezvous for an attempt, tell it that an attempt ends, and resize the gang. A run that
continues another one repeats them, with the same result (decision record 0030).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, CancelledError, FailureError
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from holdfast import names
    from holdfast.model import Attempt, State, Workload
    from holdfast.model.calls.cluster import Scaled, ScaledFrom, ScaleInput, planned
    from holdfast.model.calls.gang import GangBegin, GangEnd
    from holdfast.model.gang.state import Gang
    from holdfast.policy.sides.gang import beginning, parting, resizing, size_of
    from holdfast.policy.values import events
    from holdfast.workflows.operations.dispatch import HEARTBEAT, RETRY, data_of, target_of

_BEGIN_LIMIT = timedelta(seconds=30)
_SCALE_LIMIT = timedelta(minutes=5)


class Meetings:
    """The calls under way for a workload's gang; at most one of each kind."""

    def __init__(self, *, continued: bool = False) -> None:
        """Start with no calls; `continued` says whether an earlier run of this workload may have begun some."""
        self._begin: tuple[int, workflow.ActivityHandle[None]] | None = None
        self._part: tuple[int, asyncio.Task[None]] | None = None
        self._scale: tuple[int, Gang, str, workflow.ActivityHandle[Scaled]] | None = None
        self._broken_off = continued
        """Whether a resize of this attempt was cancelled: its changes are undone if the next resize is refused."""
        self._breaking = False
        """Whether the resize under way was cancelled."""

    def woken(self) -> bool:
        """Whether a call has ended whose result is not taken in yet."""
        under_way = [one[-1] for one in (self._begin, self._part, self._scale) if one is not None]
        return any(one.done() for one in under_way)

    @property
    def busy(self) -> bool:
        """Whether a message to the rendezvous is under way."""
        return self._begin is not None or self._part is not None

    def ended(self) -> list[events.Event]:
        """Return the events of the calls that have ended."""
        found: list[events.Event] = []
        if self._begin is not None and self._begin[1].done():
            # Even if the call failed, the rendezvous may know of the attempt: so it must be told of its end, too.
            found.append(events.GangBegun(self._begin[0]))
            self._begin = None
        if self._part is not None and self._part[1].done():
            found.append(events.GangParted(self._part[0]))
            self._part = None
        if self._scale is not None and self._scale[-1].done():
            number, gang, members, handle = self._scale
            self._scale, self._breaking = None, False
            found += self._resized(number, gang, members, handle)
        return found

    def follow(self, spec: Workload, state: State, uid: str) -> None:
        """Begin the calls that are due, and cancel those that are no longer needed."""
        if spec.gang is None:
            return
        if self._begin is not None and (state.attempt is None or beginning(state) is None):
            self._begin[1].cancel()
        attempt = beginning(state)
        if attempt is not None and self._begin is None:
            self._begin = (attempt.number, self._begun(spec, state, attempt, uid))
        attempt = parting(state)
        if attempt is not None and self._part is None and self._begin is None:
            self._part = (attempt.number, asyncio.create_task(self._parted(spec, state, attempt, uid)))
        attempt = resizing(spec, state)
        if self._scale is not None and (attempt is None or self._scale[1] != spec.gang):
            if not (state.shows_waits and self._breaking):  # Once: the next one waits until this one has ended.
                self._scale[-1].cancel()
            self._broken_off = self._breaking = True
        elif attempt is not None and self._scale is None:
            assert spec.members is not None
            handle = self._scaled(spec, state, attempt, spec.gang, uid)
            self._scale = (attempt.number, spec.gang, spec.members.name, handle)

    def silent(self) -> bool:
        """Whether the next run would repeat every call under way."""
        return self._part is None or self._part[1].done()

    def _begun(self, spec: Workload, state: State, attempt: Attempt, uid: str) -> workflow.ActivityHandle[None]:
        assert attempt.meeting is not None
        given = GangBegin(
            cluster=spec.cluster,
            cluster_uid=state.cluster_uid,
            namespace=spec.namespace,
            workload=spec.name,
            workload_uid=uid,
            workflow_id=spec.workflow_id,
            # By Temporal's clock: the clocks of two submitters need not agree.
            submitted_at=workflow.info().workflow_start_time,
            attempt=attempt.number,
            gang=attempt.meeting.gang,
        )
        return self._act(
            names.ACTIVITY_BEGIN_GANG,
            given,
            None,
            names.queue_cluster(spec.cluster),
            _BEGIN_LIMIT,
            None,
            f"opening the rendezvous for attempt {attempt.number}: {size_of(attempt.meeting.gang)}",
        )

    async def _parted(self, spec: Workload, state: State, attempt: Attempt, uid: str) -> None:
        place = names.rendezvous_id(spec.cluster, spec.namespace, spec.name)
        why = state.message[:200]
        end = GangEnd(workload_uid=uid, attempt=attempt.number, why=why)
        try:
            handle: workflow.ExternalWorkflowHandle[Any] = workflow.get_external_workflow_handle(place)
            await handle.signal(names.SIGNAL_END, end)
        except FailureError as error:
            # There is no such rendezvous, or no longer: nobody waits for this message.
            workflow.logger.info("no rendezvous was told that attempt %s ends: %s", attempt.number, error)

    def _scaled(
        self, spec: Workload, state: State, attempt: Attempt, gang: Gang, uid: str
    ) -> workflow.ActivityHandle[Scaled]:
        assert spec.members is not None
        assert attempt.meeting is not None
        kept = attempt.meeting.gang
        given = ScaleInput(
            target=target_of(spec, state, uid),
            attempt=attempt.number,
            owner_uid=attempt.owner_uid,
            plan=tuple(planned(one, uid, attempt.number) for one in spec.components),
            component=spec.members.name,
            min=gang.min,
            max=gang.max,
            pods=gang.pods,
            was=ScaledFrom(min=kept.min, max=kept.max, pods=kept.pods),
            again=self._broken_off,
            data=data_of(spec, state),
        )
        return self._act(
            names.ACTIVITY_SCALE,
            given,
            Scaled,
            names.queue_wait(spec.cluster),
            _SCALE_LIMIT,
            HEARTBEAT,
            f"resizing attempt {attempt.number}: {size_of(gang)}",
            # Two at once would undo each other. In a run of an earlier release the next one does not wait.
            waits=state.shows_waits,
        )

    @staticmethod
    def _act(
        name: str,
        given: Any,
        result: Any,
        queue: str,
        limit: timedelta,
        beat: timedelta | None,
        summary: str,
        *,
        waits: bool = False,
    ) -> Any:
        cancelled = ActivityCancellationType
        return workflow.start_activity(
            name,
            given,
            task_queue=queue,
            result_type=result,
            start_to_close_timeout=limit,
            heartbeat_timeout=beat,
            retry_policy=RETRY,
            cancellation_type=cancelled.WAIT_CANCELLATION_COMPLETED if waits else cancelled.TRY_CANCEL,
            summary=summary,
        )

    def _resized(
        self, number: int, gang: Gang, members: str, handle: workflow.ActivityHandle[Scaled]
    ) -> list[events.Event]:
        try:
            done = handle.result()
        except asyncio.CancelledError:
            return []
        except ActivityError as error:
            if isinstance(error.cause, CancelledError):
                return []
            done = Scaled(done=False, refused=str(error.cause or error))
        self._broken_off = False
        if done.done:
            return [events.GangResized(number, gang, members)]
        return [events.GangUnsized(number, gang, done.refused)]
