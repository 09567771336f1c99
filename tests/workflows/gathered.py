"""A real rendezvous workflow, and agents that do as it says: what their hub would hand on, handed on by the test."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDReusePolicy

from holdfast import names
from holdfast.model.calls.gang import (
    Announced,
    Attach,
    Attached,
    GangBegin,
    GangEnd,
    GangEvict,
    GangSize,
    RendezvousInput,
)
from holdfast.model.gang.orders import GangOutcome, Orders
from holdfast.model.gang.state import Absence, Gang, GangEvent, Listening, Lost, Said
from holdfast.model.gang.status import GangPhase, GangStatus
from holdfast.model.gang.wire import Directive, DirectiveKind, Join, MemberState, Report, WorkerFailure
from holdfast.policy.rendezvous.orders import directives_of

BEGUN = datetime(2026, 1, 31, 12, tzinfo=UTC)
CLUSTER, NAMESPACE = "local", "team-a"


@workflow.defn(name="ToldWorkload", sandboxed=False)
class ToldWorkload:
    """Stands where the workload's workflow would: it keeps what it is told of its gang."""

    def __init__(self) -> None:
        self._told: list[GangOutcome] = []

    @workflow.run
    async def run(self) -> None:
        """Be there until cancelled."""
        await workflow.wait_condition(lambda: False)

    @workflow.signal(name=names.SIGNAL_GANG)
    def gang(self, outcome: GangOutcome) -> None:
        """Be told what the gang came to."""
        self._told.append(outcome)

    @workflow.query
    def told(self) -> list[GangOutcome]:
        """Say what was told."""
        return self._told


class Gathering:
    """One rendezvous; what is told of its members is gathered as their hub gathers it."""

    def __init__(self, client: Client, name: str, low: int = 1, high: int = 4, **settings: Any) -> None:
        self.client = client
        self.name = name
        self.gang = Gang(min=low, max=high, **settings)
        self.handle: WorkflowHandle[Any, None]
        self.workload: WorkflowHandle[Any, None]
        self.generation = 0
        self.revision = 0
        self.attempt = 1
        self.orders: Orders
        self.joins: dict[str, Join] = {}
        self.states: dict[str, tuple[MemberState, int]] = {}
        self.told: dict[str, Directive] = {}
        self.lives = 0

    def begin(self, attempt: int = 1, uid: str = "uid-1", later: float = 0) -> GangBegin:
        return GangBegin(
            cluster=CLUSTER,
            namespace=NAMESPACE,
            workload=self.name,
            workload_uid=uid,
            workflow_id=f"told/{self.name}",
            submitted_at=BEGUN + timedelta(seconds=later),
            attempt=attempt,
            gang=self.gang,
        )

    async def open(self) -> Gathering:
        self.workload = await self.client.start_workflow(
            "ToldWorkload", id=f"told/{self.name}", task_queue=names.QUEUE_WORKFLOWS
        )
        await self.signal_attempt(self.begin())
        return await self.attach()

    async def signal_attempt(self, begin: GangBegin) -> None:
        """As the activity `begin_gang` does."""
        self.attempt = begin.attempt
        self.handle = await self.client.start_workflow(
            names.RENDEZVOUS_WORKFLOW,
            RendezvousInput(**dict(begin)),
            id=names.rendezvous_id(CLUSTER, NAMESPACE, self.name),
            task_queue=names.QUEUE_WORKFLOWS,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            start_signal=names.SIGNAL_ATTEMPT,
            start_signal_args=[begin],
        )
        self.handle = self.client.get_workflow_handle(self.handle.id)

    async def attach(self) -> Gathering:
        attached = await self.handle.execute_update(names.UPDATE_ATTACH, Attach(hub="test"), result_type=Attached)
        self.generation, self.attempt = attached.generation, attached.orders.attempt
        self.told = {}
        self._take(attached.orders)
        return self

    async def tell(self, *events: GangEvent, heard: bool = True) -> Gathering:
        given = [*events, *([Listening(since=BEGUN - timedelta(days=9))] if heard else [])]
        announced = Announced(generation=self.generation, attempt=self.attempt, seen=self.revision, events=tuple(given))
        self._take(await self.handle.execute_update(names.UPDATE_ANNOUNCE, announced, result_type=Orders))
        return self

    async def ask(self) -> Orders:
        """As the hub does now and then."""
        self._take(await self.handle.query(names.QUERY_ORDERS, self.revision, result_type=Orders))
        return self.orders

    def _take(self, orders: Orders) -> None:
        self.orders, self.revision = orders, orders.revision
        self.told |= directives_of(orders, self.gang.heartbeat)

    def hello(self, name: str, *, workers: int = 1, role: str = "default") -> Said:
        self.lives += 1
        self.joins[name] = Join(
            member=name,
            pod_uid=f"pod-{name}-{self.lives}",
            attempt=self.attempt,
            incarnation=f"i{self.lives}",
            started_at=BEGUN + timedelta(milliseconds=self.lives),
            role=role,
            local_world_size=workers,
            address=f"10.0.0.{len(self.joins) + 1}",
            port=29500 + self.lives,
        )
        return self.says(name, MemberState.INIT, round=0)

    def says(self, name: str, state: MemberState, *, round: int | None = None, exit_code: int = 1) -> Said:
        number = self.states[name][1] if round is None else round
        self.states[name] = (state, number)
        failures = ()
        if state is MemberState.FAILED:
            failures = (WorkerFailure(local_rank=0, exit_code=exit_code, at=BEGUN),)
        return Said(join=self.joins[name], report=Report(state=state, round=number, failures=failures, since=BEGUN))

    async def join(self, *names_: str, **more: Any) -> Gathering:
        return await self.tell(*[self.hello(name, **more) for name in names_])

    async def obey(self) -> Gathering:
        """All agents do what they were told, as long as that leads to something else to be said."""
        for _ in range(8):
            said = [one for name in self.states if (one := self._does(name)) is not None]
            if not said:
                return self
            await self.tell(*said)
        raise AssertionError("agents were told one thing after another without end")

    def _does(self, name: str) -> Said | None:
        directive, (state, number) = self.told[name], self.states[name]
        if directive.kind is DirectiveKind.RUN and directive.assignment is not None:
            if number != directive.assignment.round:
                return self.says(name, MemberState.HEALTHY, round=directive.assignment.round)
        elif directive.kind is DirectiveKind.REJOIN and state is not MemberState.INIT:
            return self.says(name, MemberState.INIT)
        return None

    async def fails(self, name: str, exit_code: int = 1) -> Gathering:
        return await self.tell(self.says(name, MemberState.FAILED, exit_code=exit_code))

    async def succeeds(self, *names_: str) -> Gathering:
        return await self.tell(*[self.says(name, MemberState.SUCCEEDED) for name in names_])

    async def loses(self, name: str, absence: Absence = Absence.GONE) -> Gathering:
        self.states.pop(name)
        return await self.tell(Lost(member=name, pod_uid=self.joins[name].pod_uid, absence=absence, why="gone"))

    async def evicts(self, name: str) -> None:
        await self.handle.execute_update(names.UPDATE_EVICT, GangEvict(member=name, why="preempted"))

    async def resizes(self, low: int, high: int) -> None:
        await self.handle.execute_update(names.UPDATE_RESIZE, GangSize(min=low, max=high))

    async def ends(self, attempt: int | None = None) -> None:
        end = GangEnd(workload_uid="uid-1", attempt=attempt or self.attempt, why="cancelled")
        await self.handle.signal(names.SIGNAL_END, end)

    async def status(self) -> GangStatus:
        return await self.handle.query(names.QUERY_STATUS, result_type=GangStatus)

    async def outcome(self) -> GangOutcome:
        """What the workload was told, which must be one thing."""
        for _ in range(1200):
            said = await self.workload.query("told", result_type=list[GangOutcome])
            if said:
                (one,) = said
                return one
            await asyncio.sleep(0.05)
        raise AssertionError(f"the workload was told nothing: {await self.status()}")

    async def runs(self, round: int) -> Gathering:
        """Wait until a round runs, which somebody else has begun (a deadline, an update of people)."""
        for _ in range(1200):
            orders = await self.ask()
            if orders.phase is GangPhase.RUNNING and any(
                one.assignment is not None and one.assignment.round == round for one in self.told.values()
            ):
                return await self.obey()
            await asyncio.sleep(0.05)
        raise AssertionError(f"round {round} did not begin: {await self.status()}")

    @property
    def kinds(self) -> dict[str, str]:
        return {name: one.kind.value for name, one in sorted(self.told.items())}

    @property
    def world(self) -> int:
        (size,) = {one.assignment.world_size for one in self.told.values() if one.assignment is not None}
        return size

    @property
    def ranks(self) -> list[int]:
        return sorted(one.assignment.rank for one in self.told.values() if one.assignment is not None)
