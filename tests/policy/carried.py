"""The operations, carried out against the small cluster one request at a time, as `activities/contract.py` promises.

Each is a generator that yields the request it is about to send: between any two the worker can be killed, and what it
has just sent may still arrive. It returns the event that its end is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from holdfast.model import Failure, FailureClass, Limits, Observation, OperationKind, Phase, Remnant, Report, Scope
from holdfast.model.state import Operation, State
from holdfast.policy.events import CreateDone, PrepareDone, RemoveDone, ReportDone
from holdfast.policy.health import timings
from tests.policy.cluster import (
    FOREGROUND,
    HOLD,
    OURS,
    Cluster,
    ConflictError,
    Kind,
    NotFoundError,
    RefusedError,
    Thing,
)
from tests.policy.cluster import Unreachable as Dark
from tests.policy.weather import Weather, owner_name

T = TypeVar("T")
Request = Callable[[], Any]
Steps = Generator[Request, None, T]
Ended = PrepareDone | CreateDone | RemoveDone | ReportDone | Observation
ANCHOR = "train-llm"


@dataclass(frozen=True, slots=True)
class Given:
    """What an activity is given: as in `workflows/dispatch.py`."""

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

    @classmethod
    def of(cls, state: State, operation: Operation, now: datetime) -> Given:
        attempt = state.attempt
        return cls(
            kind=operation.kind,
            attempt=attempt.number if attempt is not None else 0,
            owner_uid=attempt.owner_uid if attempt is not None else "",
            report=operation.report,
            report_done=operation.report_done or operation.report,
            until=operation.until or now,
            patience=timings(state).admission_grace_period,
            release=operation.releases,
            delete_anchor=operation.releases and (state.outcome is Phase.CANCELLED or state.intent.cancel),
            grace=timings(state).forceful_deletion_grace_period,
        )


class Activities:
    """What a worker does with the cluster."""

    propagation_foreground = True
    uid_preconditions = True

    def __init__(self, cluster: Cluster, weather: Weather) -> None:
        self.cluster = cluster
        self.weather = weather

    def start(self, given: Given) -> Steps[Ended]:
        match given.kind:
            case OperationKind.PREPARE:
                return self.prepare(given)
            case OperationKind.CREATE:
                return self.create(given)
            case OperationKind.OBSERVE:
                return self.observe(given)
            case OperationKind.REMOVE:
                return self.remove(given)
            case OperationKind.FORCE_REMOVE:
                return self.force_remove(given)
            case OperationKind.REPORT:
                return self.report(given)
            case OperationKind.REPLACE:
                raise AssertionError("no profile of these scripts makes components again")

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

    # --- towards running

    def prepare(self, given: Given) -> Steps[PrepareDone]:
        anchor = yield from self._make(Kind.ANCHOR, ANCHOR, "", 0)
        yield from self._report(given.report)
        owner = yield from self._make(Kind.OWNER, owner_name(given.attempt), anchor.uid, given.attempt)
        return PrepareDone("cluster", owner.uid, Limits())

    def _make(self, kind: Kind, name: str, owner: str, attempt: int) -> Steps[Thing]:
        """Make an object, or find that it is there; an owner that is being deleted is waited out."""
        while True:
            try:
                return (yield from self._send(lambda: self.cluster.create(kind, name, owner, attempt)))
            except ConflictError:
                found = yield from self._find(kind, name)
            if found is not None and (kind is Kind.ANCHOR or found.deleting is None):
                found.late = False
                return found

    def create(self, given: Given) -> Steps[CreateDone]:
        if not (yield from self._living_owner(given)):
            return self._lost(given)
        yield from self._report(given.report)
        for component in self.weather.plan:
            borne, last = timedelta(0), self.cluster.now
            while True:
                if not (yield from self._living_owner(given)):
                    return self._lost(given)
                reason = yield from self._create_once(given, component.name)
                if not reason:
                    break
                borne, last = borne + self._seen(last), self.cluster.now
                if borne >= given.patience:
                    return CreateDone((), self._failure(given, reason, component.name))
        if not (yield from self._living_owner(given)):
            return self._lost(given)
        yield from self._send(lambda: self._mark(given))
        yield from self._report(given.report_done)
        return CreateDone((), None)

    def _seen(self, since: datetime) -> timedelta:
        """Return how much of the time since then could be seen."""
        now = self.cluster.now
        dark = sum(
            (max(timedelta(0), min(one.end, now) - max(one.begin, since)) for one in self.cluster.blind()),
            timedelta(0),
        )
        return now - since - dark

    def _create_once(self, given: Given, name: str) -> Steps[str]:
        """Create a component; return why it cannot be created now, or nothing."""

        def request() -> Thing:
            return self.cluster.create(Kind.COMPONENT, name, given.owner_uid, given.attempt, name)

        try:
            yield from self._send(request)
        except RefusedError:
            return "QuotaExceeded"
        except ConflictError:
            found = yield from self._find(Kind.COMPONENT, name)
            if found is None or found.deleting is not None or found.owner != given.owner_uid:
                return "BeingDeleted"
        return ""

    def _living_owner(self, given: Given) -> Steps[bool]:
        owner = yield from self._owner(given)
        return owner is not None and owner.deleting is None

    def _mark(self, given: Given) -> None:
        owner = self.cluster.find(Kind.OWNER, owner_name(given.attempt))
        if owner is not None and owner.uid == given.owner_uid and owner.deleting is None:
            owner.submitted = True
            self.cluster.change(owner)

    def _failure(self, given: Given, reason: str, component: str = "") -> Failure:
        lost = not component
        return Failure(
            cls=FailureClass.MISSING if lost else FailureClass.LAUNCH,
            scope=Scope.WORKLOAD if lost else Scope.COMPONENT,
            reason=reason,
            time=self.cluster.now,
            component=component,
            attempt=given.attempt,
        )

    def _lost(self, given: Given) -> CreateDone:
        return CreateDone((), self._failure(given, "OwnerGone"))

    # --- looking

    def observe(self, given: Given) -> Steps[Observation]:
        yield from self._report(given.report)
        pods = yield from self._send(lambda: self._read_pods(given.attempt))
        return (yield from self._send(lambda: self._read_rest(given, pods)))

    def _read_pods(self, attempt: int) -> Any:
        self.cluster.ask()
        return self.weather.pods_of(attempt)

    def _read_rest(self, given: Given, pods: Any) -> Observation:
        self.cluster.ask()
        return self.weather.summary(given.attempt, given.owner_uid, pods, live=True)

    def report(self, given: Given) -> Steps[ReportDone]:
        yield from self._report(given.report)
        return ReportDone()

    # --- removal

    def remove(self, given: Given) -> Steps[RemoveDone]:
        yield from self._report(given.report)
        while True:
            owner = yield from self._owner(given)
            if owner is not None and owner.deleting is None:
                yield from self._delete(owner, foreground=self.propagation_foreground)
            # A removal that began late gives its pods their grace all the same.
            dying = owner.deleting if owner is not None else None
            passed = dying is None or self._seen(dying) >= given.grace
            left = yield from self._remains(given)
            if not left:
                return (yield from self._conclude(given))
            if self.cluster.now >= given.until and passed:
                return self._give_up(left)

    def force_remove(self, given: Given) -> Steps[RemoveDone]:
        yield from self._report(given.report)
        owner = yield from self._owner(given)
        if owner is not None and owner.deleting is None:
            yield from self._delete(owner, foreground=self.propagation_foreground)
        rounds = 0
        while True:
            left = yield from self._remains(given)
            if not left:
                left = yield from self._remains(given)
            if not left:
                return (yield from self._conclude(given))
            if self.cluster.now >= given.until:
                return self._give_up(left)
            for thing in left:
                last = thing.kind is Kind.OWNER and len(left) == 1
                if thing.kind is Kind.POD or (rounds and (thing.kind is Kind.COMPONENT or last)):
                    yield from self._delete(thing, forced=True)
            rounds += 1

    def _remains(self, given: Given) -> Steps[list[Thing]]:
        """Look for all that may be left: the owner first, pods last, so that an empty answer is a proof."""
        owner = yield from self._owner(given)
        found: list[Thing] = []
        for component in self.weather.plan:
            job = yield from self._find(Kind.COMPONENT, component.name)
            if job is not None and job.attempt == given.attempt:
                found.append(job)
        pods = yield from self._send(self._all_pods)
        return [*found, *pods, *([owner] if owner is not None else [])]

    def _all_pods(self) -> list[Thing]:
        self.cluster.ask()
        return self.cluster.of(Kind.POD)

    def _delete(self, thing: Thing, *, foreground: bool = False, forced: bool = False) -> Steps[None]:
        uid = thing.uid if self.uid_preconditions else ""
        try:
            yield from self._send(
                lambda: self.cluster.delete(thing.kind, thing.name, uid, foreground=foreground, forced=forced)
            )
        except (NotFoundError, ConflictError):
            return

    def _give_up(self, left: list[Thing]) -> RemoveDone:
        remnants = tuple(
            Remnant(
                kind=one.kind,
                name=one.name,
                deleting_since=one.deleting,
                finalizers=tuple(sorted(one.finalizers - {FOREGROUND})),
            )
            for one in sorted(left, key=lambda one: HOLD not in one.finalizers)[:16]
        )
        return RemoveDone(False, remnants, len(left), self.cluster.blind())

    def _conclude(self, given: Given) -> Steps[RemoveDone]:
        blind = self.cluster.blind()
        yield from self._report(given.report_done)
        if given.release:
            for owner in (yield from self._send(lambda: self.cluster.of(Kind.OWNER))):
                yield from self._delete(owner, foreground=True)
            yield from self._send(lambda: self._release(delete=given.delete_anchor))
        return RemoveDone(True, (), 0, blind)

    def _release(self, *, delete: bool) -> None:
        anchor = self.cluster.find(Kind.ANCHOR, ANCHOR)
        if anchor is None:
            return
        self.cluster.unhold(anchor, OURS)
        if delete and anchor.died is None and anchor.deleting is None:
            self.cluster.delete(Kind.ANCHOR, ANCHOR, anchor.uid)
