"""What a worker's hands have in common: what they are given, and how each request is sent.

An operation is a generator that yields the request it is about to send: between any two the worker can be killed, and
what it has just sent may still arrive. It returns the event that its end is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from holdfast.model import CheckpointRequest, InterruptedCreate, OperationKind, Phase, RefusedCreate, Report
from holdfast.model.life.state import Operation, State
from holdfast.policy.attempt.health import timings
from holdfast.policy.loop.promise import memory_of
from tests.fakes.ledger import Cluster, ConflictError, Kind, NotFoundError, Thing
from tests.fakes.ledger import Unreachable as Dark
from tests.policy.lives.weather import Weather, owner_name

T = TypeVar("T")
Request = Callable[[], Any]
Steps = Generator[Request, None, T]
ANCHOR = "train-llm"
EVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Given:
    """What an activity is given: as in `workflows/operations/dispatch.py`."""

    kind: OperationKind
    attempt: int
    owner_uid: str
    report: Report
    report_done: Report
    until: datetime
    patience: timedelta
    release: bool
    delete_anchor: bool
    grace: timedelta
    replaces_interrupted: bool
    again: tuple[str, ...]
    waiting: tuple[str, ...]
    launches: Mapping[str, int]
    strips: bool
    turn: int
    resuming: tuple[str, ...]
    creates: bool
    operation: Operation
    memory: State
    state: State
    request: CheckpointRequest | None = None

    @classmethod
    def of(cls, state: State, operation: Operation, now: datetime) -> Given:
        attempt, waits = state.attempt, timings(state)
        endless = state.policy.refused_create is RefusedCreate.WAIT and waits.submission_timeout is None
        bounded = waits.submission_timeout if state.policy.refused_create is RefusedCreate.WAIT else None
        return cls(
            kind=operation.kind,
            attempt=attempt.number if attempt is not None else 0,
            owner_uid=attempt.owner_uid if attempt is not None else "",
            report=operation.report,
            report_done=operation.report_done or operation.report,
            until=operation.until or (EVER if operation.kind is OperationKind.CLEAR else now),
            patience=timedelta.max if endless else bounded or waits.admission_grace_period,
            release=operation.releases,
            delete_anchor=operation.releases and (state.outcome is Phase.CANCELLED or state.intent.cancel),
            grace=waits.forceful_deletion_grace_period,
            replaces_interrupted=state.policy.interrupted_create is InterruptedCreate.REPLACE,
            again=attempt.replacing if attempt is not None else (),
            waiting=attempt.waiting if attempt is not None else (),
            launches=operation.launches,
            strips=operation.strips,
            turn=attempt.turns if attempt is not None else 0,
            resuming=attempt.resuming if attempt is not None else (),
            creates=operation.creates,
            operation=operation,
            memory=memory_of(state),
            state=state,
            request=state.checkpoint,
        )


class Hands:
    """What every operation does with the cluster."""

    propagation_foreground = True
    uid_preconditions = True

    def __init__(self, cluster: Cluster, weather: Weather) -> None:
        self.cluster = cluster
        self.weather = weather

    def _send(self, request: Callable[[], T]) -> Steps[T]:
        """Send a request until it is answered."""
        while True:
            yield request
            try:
                return request()
            except Dark:
                continue

    def _report(self, report: Report) -> Steps[None]:
        yield from self._send(lambda: self.cluster.apply(ANCHOR, report))

    def _find(self, kind: Kind, name: str) -> Steps[Thing | None]:
        return (yield from self._send(lambda: self.cluster.find(kind, name)))

    def _owner(self, given: Given) -> Steps[Thing | None]:
        """Return the attempt's owner, if what is under its name is ours."""
        found = yield from self._find(Kind.OWNER, owner_name(given.attempt))
        return found if found is not None and given.owner_uid in {"", found.uid} else None

    def _any_owner(self, given: Given) -> Steps[Thing | None]:
        """Return the attempt's owner, also one that a late worker has made in the place of what is gone."""
        return (yield from self._find(Kind.OWNER, owner_name(given.attempt)))

    def _remains(self, given: Given) -> Steps[list[Thing]]:
        """Look for all that may be left: the owner first, pods last, so that an empty answer is a proof."""
        owner = yield from self._any_owner(given)
        found: list[Thing] = []
        for name in (each for one in self.weather.plan for each in one.object_names):
            job = yield from self._find(Kind.COMPONENT, name)
            if job is not None and job.attempt == given.attempt:
                found.append(job)
        pods = yield from self._send(self._all_pods)
        return [*found, *pods, *([owner] if owner is not None else [])]

    def _all_pods(self) -> list[Thing]:
        self.cluster.ask()
        return self.cluster.of(Kind.POD)

    def _seen(self, since: datetime) -> timedelta:
        """Return how much of the time since then could be seen."""
        now = self.cluster.now
        dark = sum(
            (max(timedelta(0), min(one.end, now) - max(one.begin, since)) for one in self.cluster.blind()),
            timedelta(0),
        )
        return now - since - dark

    def _delete(self, thing: Thing, *, foreground: bool = False, forced: bool = False) -> Steps[None]:
        uid = thing.uid if self.uid_preconditions else ""
        try:
            yield from self._send(
                lambda: self.cluster.delete(thing.kind, thing.name, uid, foreground=foreground, forced=forced)
            )
        except (NotFoundError, ConflictError):
            return
