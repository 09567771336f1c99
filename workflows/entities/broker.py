"""The workflow of a cluster's checkpoint broker: each cycle weighs running workloads and asks some to save (L11)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from holdfast import names
    from holdfast.model.calls.broker import AskDone, AskInput, WeighInput
    from holdfast.model.entities.broker import Asked, Broker, BrokerState, BrokerStatus, Weighed
    from holdfast.policy.entities import broker as policy
    from holdfast.workflows import patches
    from holdfast.workflows.entity import Entity, read, refuse_memory, start

CYCLES_MAXIMUM: Final = 200
"""Cycles after which a new run begins."""
_WEIGH_TIMEOUT: Final = timedelta(minutes=5)
_CYCLE_TIMEOUT: Final = timedelta(minutes=6)
"""After this time, retries included, a look counts as failed; the next cycle begins with another one (row D8)."""
_HEARTBEAT: Final = timedelta(seconds=30)
_ASK_TIMEOUT: Final = timedelta(seconds=20)
_ASK_RETRY: Final = RetryPolicy(maximum_attempts=3)


@workflow.defn(name=names.BROKER_WORKFLOW)
class CheckpointBroker(Entity):
    """Runs a cluster's checkpoint broker until a person ends it."""

    @workflow.init
    def __init__(self, document: Any, carried: BrokerState | None = None) -> None:
        """Read the document; `run` reports its errors, because Temporal would retry a constructor that raises."""
        super().__init__()
        self._state: BrokerState | None = None
        self._over = ""
        self._changed = False
        self._problem = refuse_memory("carried", carried)
        if self._problem:
            return
        if carried is not None:
            self._state = carried
            return
        broker, self._problem = read(Broker, document)
        if broker is not None:
            self._state = policy.begun(broker)

    @workflow.run
    async def run(self, document: Any, carried: BrokerState | None = None) -> BrokerStatus:
        """Ask running workloads to save their state when that is worth its cost, until the broker is ended.

        Args:
            document: the operator's configuration (`Broker`), as one JSON document.
            carried: the state of the previous run; refused unless this run continues one (row X3).

        Returns:
            Its status at the end.

        Raises:
            ApplicationError: type `InvalidBroker`, before anything begins.
        """
        if self._state is None:
            raise self._refused(names.ERROR_INVALID_BROKER)
        first = self._state.cycle
        while not self._over:
            self._changed = False
            await self._cycle(self._state)
            if self._over:
                break
            if self._state.cycle - first >= CYCLES_MAXIMUM or self._length.is_enough:
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(args=[document, self._state])
            try:
                await workflow.wait_condition(
                    lambda: bool(self._over) or self._changed,
                    timeout=self._state.broker.every,
                    timeout_summary="until all that run are weighed again",
                )
            except TimeoutError:
                continue
            except asyncio.CancelledError:
                self._over = "cancelled through Temporal"
        return policy.status(self._state)

    async def _cycle(self, state: BrokerState) -> None:
        try:
            seen = await start(
                names.ACTIVITY_WEIGH,
                WeighInput(broker=state.broker, refused=state.refused),
                Weighed,
                queue=names.queue_cluster(state.broker.cluster),
                within=_WEIGH_TIMEOUT,
                in_all=_CYCLE_TIMEOUT,
                heartbeat=_HEARTBEAT,
                summary="listing running workloads and their unsaved work",
            )
        except ActivityError:
            return  # The next cycle weighs them.
        except asyncio.CancelledError:
            self._over = "cancelled through Temporal"
            return
        assert self._state is not None
        if self._state.broker != state.broker:
            return  # The configuration has changed since: all are weighed by the new one.
        self._state, asked = policy.looked(self._state, seen, self._clock.now())
        await asyncio.gather(*(self._ask(one) for one in asked))

    async def _ask(self, one: Asked) -> None:
        assert self._state is not None
        try:
            done = await start(
                names.ACTIVITY_ASK,
                AskInput(workload=one.workload, note=f"the broker: {one.why}"),
                AskDone,
                queue=names.queue_cluster(self._state.broker.cluster),
                within=_ASK_TIMEOUT,
                retry=_ASK_RETRY,
                summary=f"{policy.name_of(one.workload)}: {one.why}",
            )
        except ActivityError as error:
            done = AskDone(why=str(error.cause or error))
        except asyncio.CancelledError:
            self._over = "cancelled through Temporal"
            return
        if not done.number:
            workflow.logger.info("%s takes no request now: %s", one.workload, done.why)
            self._state = policy.refused(self._state, one, self._clock.now())

    def current_details(self) -> str:
        """Return what Temporal's UI shows of it (`describing`)."""
        return policy.details(self._state) if self._state is not None else ""

    @workflow.signal(name=names.SIGNAL_CANCEL, description="Ask nobody any more, and end")
    def cancel(self, reason: str = "") -> None:
        """Ask no more workloads, and end; requests under way go on."""
        self._over = reason or "a person asked for it"

    @workflow.update(name=names.UPDATE_CONFIGURE, description="Change its cycle, its numbers, how many save at once")
    def configure(self, broker: Broker) -> BrokerStatus:
        """Change the configuration from now on; all running workloads are weighed again at once.

        A broker that was to end goes on: it may still be in a cycle, and a user who configures it wants it to exist.
        """
        assert self._state is not None
        if self._over and workflow.patched(patches.REVOKED):
            self._over = ""
        self._state, self._changed = policy.configured(self._state, broker), True
        return policy.status(self._state)

    @configure.validator
    def _check_configuration(self, broker: Broker) -> None:
        self._check_document(broker, names.ERROR_INVALID_BROKER)

    @workflow.query(name=names.QUERY_STATUS, description="Who is due, who saves, whom it asked last and why")
    def status(self) -> BrokerStatus | None:
        """Return its status; None before it has begun."""
        return None if self._state is None else policy.status(self._state)
