"""The workflow where the members of an elastic gang meet: it carries out what the pure policy decides (rows T1-T14)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from holdfast import names
    from holdfast.model.calls.gang import (
        Announced,
        Attach,
        Attached,
        GangBegin,
        GangEnd,
        GangEvict,
        GangSize,
        HubInput,
        RendezvousInput,
        RendezvousMemory,
    )
    from holdfast.model.gang.orders import GangOutcome, Orders
    from holdfast.model.gang.state import MEMBERS_MAXIMUM, Ended, Evicted, GangEvent, GangState, Resized
    from holdfast.model.gang.status import GangPhase, GangStatus
    from holdfast.policy.rendezvous.figures import figures
    from holdfast.policy.rendezvous.orders import holders, orders
    from holdfast.policy.rendezvous.outcome import details, outcome, status
    from holdfast.policy.rendezvous.rounds import deadlines
    from holdfast.policy.rendezvous.step import begun, step
    from holdfast.policy.values.edit import edit
    from holdfast.workflows.clock import task_time
    from holdfast.workflows.entity import Entity, Message, refuse_memory, send, serve, stop

KEPT: Final = timedelta(days=1)
"""How long a closed rendezvous waits for its workload to end the attempt; the workload may be terminated."""


@workflow.defn(name=names.RENDEZVOUS_WORKFLOW)
class Rendezvous(Entity):
    """Receives a gang's events from its hub, decides its rounds, and tells its workload the outcome."""

    @workflow.init
    def __init__(self, input: RendezvousInput) -> None:
        """Remember the gang; take over the state of the previous run."""
        super().__init__()
        self._given = _begin_of(input)
        self._problem = refuse_memory("memory", input.memory)
        memory = None if self._problem else input.memory
        self._state = memory.state if memory is not None else _nobody(self._given, self._clock.now())
        self._generation = memory.generation if memory is not None else 0
        self._outcome = memory.outcome if memory is not None else None
        self._over = memory.over if memory is not None else None
        self._kept: datetime | None = None
        self._settled: datetime | None = None
        self._inbox: list[GangBegin | GangEnd] = []
        self._hub: asyncio.Task[None] | None = None
        self._served = ""
        self._moved = False

    @workflow.run
    async def run(self, input: RendezvousInput) -> None:
        """Serve the gang until its attempt has ended.

        Raises:
            ActivityError: if its hub fails with an error that is not retried; Temporal retries any other for ever.
            ApplicationError: type `InvalidInput`, before anything begins, if it was started with a foreign memory.
        """
        if self._problem:
            raise self._refused(names.ERROR_INVALID_INPUT)
        while True:
            self._advance()
            if self._outcome is not None:
                await self._tell(self._outcome)
                continue
            now = self._clock.now()
            if self._is_over(now) or self._length.is_enough:
                break
            await self._keep_served()
            self._set_timer(now)
            await workflow.wait_condition(self._is_woken)
        await stop(self._hub)
        await workflow.wait_condition(workflow.all_handlers_finished)
        now = self._clock.now()
        self._take_in(now)
        if not self._is_over(now):
            workflow.continue_as_new(self._next())

    # --- signals, updates and queries

    def current_details(self) -> str:
        """Return what Temporal's UI shows of it (`describing`)."""
        return details(self._state)

    @workflow.signal(name=names.SIGNAL_ATTEMPT, description="An attempt of the workload has begun")
    def attempt(self, begin: GangBegin) -> None:
        """Begin a new gang, for the next attempt of its workload."""
        self._inbox.append(begin)

    @workflow.signal(name=names.SIGNAL_END, description="An attempt of the workload ends: all members are to finish")
    def end(self, end: GangEnd) -> None:
        """Close the rendezvous, for the workload's own reasons."""
        self._inbox.append(end)

    @workflow.update(name=names.UPDATE_ATTACH, description="A hub begins to serve the gang")
    def attach(self, given: Attach) -> Attached:
        """Hand the current orders to a new hub; from now on, the events of an earlier hub are refused."""
        self._advance()
        self._generation += 1
        return Attached(
            generation=self._generation,
            workload_uid=self._given.workload_uid,
            gang=self._state.gang,
            orders=self._orders(0),
            holders=holders(self._state),
        )

    @attach.validator
    def _check_attach(self, given: Attach) -> None:
        """Make the SDK refuse what it cannot decode: without a validator it would accept it, and fail the task."""

    @workflow.update(name=names.UPDATE_ANNOUNCE, description="What is new of the gang, by its hub")
    def announce(self, given: Announced) -> Orders:
        """Take in the hub's events; returns the orders to members that the hub does not have yet."""
        self._advance(given.events)
        return self._orders(given.seen)

    @announce.validator
    def _check_announce(self, given: Announced) -> None:
        if given.generation != self._generation or given.attempt != self._state.attempt:
            raise ApplicationError(
                f"said by hub {given.generation} of attempt {given.attempt}, while {self._generation} of attempt "
                f"{self._state.attempt} serves: attach again",
                type=names.ERROR_STALE_HUB,
                non_retryable=True,
            )

    @workflow.update(name=names.UPDATE_RESIZE, description="Give the gang another size")
    def resize(self, size: GangSize) -> GangSize:
        """Resize the gang from now on: it grows with new members, and shrinks by the pods that its Job drops."""
        self._advance((Resized(min=size.min, max=size.max),))
        return size

    @resize.validator
    def _check_resize(self, size: GangSize) -> None:
        self._check_open()
        if self._state.phase is GangPhase.FINISHING:
            raise _refused("a member has succeeded: the gang keeps its size until the others have")
        if size.min > size.max:
            raise _refused(f"min: {size.min}: expected at most max, {size.max}")
        most = MEMBERS_MAXIMUM - self._state.gang.spares
        if size.max > most:
            raise _refused(f"max: {size.max}: expected at most {most}, beside {self._state.gang.spares} spares")

    @workflow.update(name=names.UPDATE_EVICT, description="Have a member leave the gang")
    def evict(self, given: GangEvict) -> None:
        """Make a member leave: TERM, the grace, KILL; the rendezvous stays open, and a replacement joins (row T13)."""
        self._advance((Evicted(member=given.member, why=given.why or "evicted"),))

    @evict.validator
    def _check_evict(self, given: GangEvict) -> None:
        self._check_open()
        one = self._state.members.get(given.member)
        if one is None or one.absent is not None:
            raise _refused(f"member: {given.member}: expected one that is there")

    @workflow.query(name=names.QUERY_ORDERS, description="What members are to do, as far as a revision does not say it")
    def orders(self, seen: int) -> Orders:
        """Return the current orders; this costs no history, so that a hub may ask now and then."""
        return self._orders(seen)

    @workflow.query(name=names.QUERY_STATUS, description="Where the gang stands, and what happens next")
    def status(self) -> GangStatus:
        """Return the gang's status."""
        return status(self._state, self._given.workload_uid, task_time(), self._generation)

    # --- decisions and their effects

    def _orders(self, seen: int) -> Orders:
        return edit(orders(self._state, seen), ending=self._over is not None)

    def _advance(self, events: Sequence[GangEvent] = ()) -> None:
        """Take in pending signals first, then the events and the time."""
        now = self._clock.now()
        self._take_in(now)
        if events or self._settled != now:
            self._step(events, now)

    def _step(self, events: Sequence[GangEvent], now: datetime) -> None:
        open_before = self._state.closed is None
        self._state = step(self._state, events, now).state
        self._settled, self._moved = now, True
        if open_before and self._state.closed is not None:
            self._outcome = outcome(self._state, self._given.workload_uid, now)
            how = figures(self._state).ended
            if how is not None:
                meter = workflow.metric_meter()
                meter.create_counter(names.METRIC_GANG_RUN, "How gangs ended.").add(1, {"how": how})

    def _take_in(self, now: datetime) -> None:
        inbox, self._inbox = self._inbox, []
        for one in inbox:
            if isinstance(one, GangBegin):
                self._begin(one, now)
            elif one.workload_uid == self._given.workload_uid and one.attempt >= self._state.attempt:
                self._step((Ended(why=one.why or "its attempt ends"),), now)
                self._over = self._over or now + self._state.gang.keep_alive
        self._timer.take()

    def _begin(self, begin: GangBegin, now: datetime) -> None:
        if begin.is_later(self._given):
            self._given = begin
            # Revisions go on, so that no directive of an earlier attempt is mistaken for one of this attempt.
            self._state = edit(_nobody(begin, now), revision=self._state.revision + 1)
            self._over = self._kept = self._outcome = self._settled = None

    def _is_over(self, now: datetime) -> bool:
        return any(at is not None and now >= at for at in (self._over, self._kept))

    async def _tell(self, ended: GangOutcome) -> None:
        self._outcome = None
        await send(Message(self._given.workflow_id, names.SIGNAL_GANG, ended))

    def _is_woken(self) -> bool:
        left = self._hub is not None and self._hub.done()
        return bool(self._inbox) or self._moved or self._timer.is_due or left or self._length.is_enough

    def _set_timer(self, now: datetime) -> None:
        """Set the one timer to the next deadline; a deadline that has passed waits for a message from the hub."""
        self._moved = False
        due = [(one.at, one.why) for one in deadlines(self._state) if one.at > now]
        if self._over is not None:
            due.append((self._over, "the rendezvous is over: its attempt has ended"))
        elif self._state.phase is GangPhase.CLOSED:
            self._kept = self._kept or now + KEPT
            due.append((self._kept, "nobody has ended the attempt of a gang that is closed"))
        until, why = min(due, default=(None, ""))
        self._timer.set(until, why, now)

    def _check_open(self) -> None:
        if self._state.closed is not None:
            raise _refused(f"the rendezvous is closed: {self._state.closed.value}: {self._state.why}")

    async def _keep_served(self) -> None:
        """Keep one hub serving the gang of the current workload."""
        if self._hub is not None and self._hub.done():
            await self._hub  # A hub ends by itself only if it cannot go on.
            self._hub = None
        if self._served != self._given.workload_uid:
            await stop(self._hub)
            self._hub = None
        if self._hub is None:
            self._served, self._hub = self._given.workload_uid, asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        given = self._given
        await serve(
            names.ACTIVITY_GANG_HUB,
            HubInput(
                cluster=given.cluster,
                cluster_uid=given.cluster_uid,
                namespace=given.namespace,
                workload=given.workload,
                workload_uid=given.workload_uid,
                workflow_id=workflow.info().workflow_id,
            ),
            queue=names.queue_gangs(given.cluster),
            summary=f"serving the gang of {given.workload}: agents announce themselves here",
        )

    def _next(self) -> RendezvousInput:
        memory = RendezvousMemory(
            state=self._state, generation=self._generation, outcome=self._outcome, over=self._over
        )
        return RendezvousInput(**dict(self._given), memory=memory)


def _begin_of(given: GangBegin) -> GangBegin:
    return GangBegin(**{name: getattr(given, name) for name in GangBegin.model_fields})


def _nobody(given: GangBegin, now: datetime) -> GangState:
    return begun(given.gang, given.run_id, given.attempt, now)


def _refused(message: str) -> ApplicationError:
    return ApplicationError(message, type=names.ERROR_REFUSED, non_retryable=True)
