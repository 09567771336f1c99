"""A gang on virtual time: agents that do as they are told, and what befalls them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.model.gang.state import (
    Absence,
    Ended,
    Evicted,
    Gang,
    GangEvent,
    GangState,
    Listening,
    Lost,
    Resized,
    Said,
)
from holdfast.model.gang.wire import Directive, DirectiveKind, Join, MemberState, Report, WorkerFailure
from holdfast.policy.rendezvous.rounds import GangDeadline
from holdfast.policy.rendezvous.step import Step, begun, step

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
RUNNING = MemberState.HEALTHY

Decides = Callable[[GangState, list[GangEvent], datetime], Step]


class Meeting:
    """One rendezvous and its agents; `said` are the words that agents have for the hub, gathered as it gathers them."""

    def __init__(self, low: int = 1, high: int = 4, *, decides: Decides = step, **settings: Any) -> None:
        self.now = START
        self.state = begun(Gang(min=low, max=high, **settings), "uid-1", 1, START)
        self.decides = decides
        self.joins: dict[str, Join] = {}
        self.told: dict[str, Directive] = {}
        self.deadlines: tuple[GangDeadline, ...] = ()
        self.rounds: list[tuple[str, ...]] = []
        self.lives = 0

    def tell(self, *events: GangEvent, heard: bool = True) -> Meeting:
        given = [*events, *([Listening(since=START - timedelta(hours=1))] if heard else [])]
        before = self.state.round
        self.state, told, self.deadlines = self.decides(self.state, given, self.now)
        self.told |= told
        if self.state.round != before:
            self.rounds.append(self.state.participants)
        return self

    def wait(self, seconds: float, *, heard: bool = True) -> Meeting:
        self.now += timedelta(seconds=seconds)
        return self.tell(heard=heard)

    def hello(
        self, name: str, *, pod: str = "", workers: int = 1, role: str = "default", index: int | None = None
    ) -> Said:
        """An agent that begins: another incarnation, in its old pod or another one."""
        self.lives += 1
        at = self.now + timedelta(milliseconds=self.lives)
        self.joins[name] = Join(
            member=name,
            pod_uid=pod or f"pod-{name}-{self.lives}",
            attempt=1,
            incarnation=f"i{self.lives}",
            started_at=at,
            role=role,
            local_world_size=workers,
            address=f"10.0.0.{len(self.joins) + 1}",
            port=29500 + self.lives,
            index=index,
        )
        return self.says(name, MemberState.INIT)

    def says(self, name: str, state: MemberState, *, exit_code: int = 1, late: float = 0, round: int = -1) -> Said:
        failures = ()
        if state is MemberState.FAILED:
            failures = (WorkerFailure(local_rank=0, exit_code=exit_code, at=self.now + timedelta(seconds=late)),)
        number = self.state.round if round < 0 else round
        return Said(join=self.joins[name], report=Report(state=state, round=number, failures=failures, since=self.now))

    def join(self, *names: str, **more: Any) -> Meeting:
        return self.tell(*[self.hello(name, **more) for name in names])

    def obey(self) -> Meeting:
        """All agents do what they were told, as long as that leads to something else to be said."""
        for _ in range(8):
            said = [self.says(name, state) for name in self.state.members if (state := self._next(name)) is not None]
            if not said:
                return self
            self.tell(*said)
        raise AssertionError("agents were told one thing after another without end")

    def _next(self, name: str) -> MemberState | None:
        record, kind = self.state.members[name], self.told[name].kind if name in self.told else None
        if record.absent is not None:
            return None
        if kind is DirectiveKind.RUN and record.report.state is MemberState.INIT:
            return RUNNING
        if kind is DirectiveKind.RUN and record.report.round != self.state.round:
            return RUNNING
        return MemberState.INIT if kind is DirectiveKind.REJOIN and not record.ready else None

    def start(self, *names: str, **more: Any) -> Meeting:
        """Members join, and their first round runs."""
        self.join(*names, **more)
        if self.state.round == 0:
            self.wait(self.state.gang.last_call.total_seconds())
        return self.obey()

    def fails(self, name: str, exit_code: int = 1) -> Meeting:
        return self.tell(self.says(name, MemberState.FAILED, exit_code=exit_code))

    def succeeds(self, *names: str) -> Meeting:
        return self.tell(*[self.says(name, MemberState.SUCCEEDED) for name in names])

    def loses(self, name: str, absence: Absence = Absence.GONE) -> Meeting:
        return self.tell(self.loss(name, absence))

    def loss(self, name: str, absence: Absence = Absence.GONE) -> Lost:
        return Lost(member=name, pod_uid=self.joins[name].pod_uid, absence=absence, why="its pod is gone")

    def evicts(self, name: str) -> Meeting:
        return self.tell(Evicted(member=name, why="preempted"))

    def resizes(self, low: int, high: int) -> Meeting:
        return self.tell(Resized(min=low, max=high))

    def ends(self) -> Meeting:
        return self.tell(Ended(why="cancelled"))

    def kind(self, name: str) -> DirectiveKind:
        return self.told[name].kind

    @property
    def kinds(self) -> dict[str, str]:
        return {name: one.kind.value for name, one in sorted(self.told.items())}

    @property
    def left(self) -> dict[str, int]:
        """What restarts each member has left."""
        limit = self.state.gang.max_restarts
        return {name: limit - one.restarts for name, one in sorted(self.state.members.items())}

    @property
    def world(self) -> int:
        """The world size that all that run were told, which must be one."""
        places = [one.assignment for one in self.told.values() if one.assignment is not None]
        (size,) = {one.world_size for one in places}
        return size

    @property
    def ranks(self) -> dict[str, int]:
        return {name: one.assignment.rank for name, one in self.told.items() if one.assignment is not None}
