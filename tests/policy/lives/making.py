"""Preparing, creating and making again, carried out against the small cluster one request at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.model import Failure, FailureClass, Limits, OperationKind, Report, Scope
from holdfast.model.calls.cluster import Created, PlannedComponent, Prepared, Replaced
from holdfast.model.life.state import STANDSTILL
from holdfast.policy.values.edit import edit
from tests.fakes.ledger import ConflictError, Hand, Kind, RefusedError, Thing
from tests.fakes.ledger import Unreachable as Dark
from tests.policy.lives.hands import ANCHOR, Given, Hands, Steps
from tests.policy.lives.weather import owner_name

OWNER_GONE = "OwnerGone"
INTERRUPTED = "Interrupted"


class Making(Hands):
    """The operations that lead to a running attempt."""

    def prepare(self, given: Given, tries: int) -> Steps[Prepared]:
        if not given.creates:
            return (yield from self._prepare(given, given.report))
        if tries > 1:
            return (yield from self._take_over(given))
        anchor = yield from self._make(Kind.ANCHOR, ANCHOR, "", 0)
        if anchor.begun[0] == given.report.sequence:
            return (yield from self._take_over(given))
        yield from self._report(given.report)
        prepared = Prepared(cluster_uid="cluster", owner_uid="", limits=Limits(), sequence=self._shown(anchor))
        if prepared.sequence != given.report.sequence:
            return prepared
        owner = yield from self._make(Kind.OWNER, owner_name(given.attempt), anchor.uid, given.attempt)
        prepared = edit(prepared, owner_uid=owner.uid)
        if not (yield from self._send(lambda: self._mark_begun(given.report, owner.uid))):
            return prepared
        created = yield from self.create(replace(given, owner_uid=owner.uid), tries)
        return edit(prepared, created=created)

    def _prepare(self, given: Given, report: Report) -> Steps[Prepared]:
        anchor = yield from self._make(Kind.ANCHOR, ANCHOR, "", 0)
        sequence = self._shown(anchor)
        yield from self._report(report)
        if given.creates and self._shown(anchor) > report.sequence:
            return Prepared(cluster_uid="cluster", owner_uid="", limits=Limits(), sequence=self._shown(anchor))
        owner = yield from self._make(Kind.OWNER, owner_name(given.attempt), anchor.uid, given.attempt)
        return Prepared(cluster_uid="cluster", owner_uid=owner.uid, limits=Limits(), sequence=sequence)

    def _take_over(self, given: Given) -> Steps[Prepared]:
        """Keep an earlier try from creating; find what it has made, or that it has made nothing and never will."""
        fence = edit(given.report, sequence=given.report_done.sequence)
        shown, begun = yield from self._send(lambda: self._fenced(given.report, fence))
        prepared = Prepared(cluster_uid="cluster", owner_uid=begun, limits=Limits(), sequence=shown)
        if shown > fence.sequence:
            return edit(prepared, created=Created(interrupted="another operation has reported"))
        owner = yield from self._find(Kind.OWNER, owner_name(given.attempt))
        living = owner if owner is not None and owner.deleting is None else None
        if begun and (living is None or living.uid != begun):
            return edit(prepared, created=self._lost(given))
        if living is None or shown < 0:
            return (yield from self._prepare(given, fence))
        return edit(prepared, owner_uid=living.uid)

    def _mark_begun(self, report: Report, owner: str) -> bool:
        """Mark the anchor that creation begins, if it still shows the report and has no other try's mark."""
        self.cluster.ask()
        anchor = self.cluster.named.get((Kind.ANCHOR, ANCHOR))
        if anchor is None or self._shown(anchor) != report.sequence:
            return False
        sequence, begun = anchor.begun
        if sequence == report.sequence and begun != owner:
            return False
        anchor.begun = (report.sequence, owner)
        return True

    def _fenced(self, report: Report, fence: Report) -> tuple[int, str]:
        """Return the sequence that the anchor shows, and the owner by its mark; without one, write over the report."""
        anchor = self.cluster.find(Kind.ANCHOR, ANCHOR)
        if anchor is None:
            return -1, ""
        sequence, owner = anchor.begun
        begun = owner if sequence == report.sequence else ""
        if not begun and self._shown(anchor) <= report.sequence:
            self.cluster.apply(ANCHOR, fence)
        return self._shown(anchor), begun

    def _shown(self, anchor: Thing) -> int:
        return anchor.report.sequence if anchor.report is not None else 0

    def _make(self, kind: Kind, name: str, owner: str, attempt: int) -> Steps[Thing]:
        """Make an object, or find that it is there; an owner that is being deleted is waited out."""
        while True:
            try:
                return (yield from self._send(lambda: self.cluster.create(kind, name, owner, attempt)))
            except ConflictError:
                found = yield from self._find(kind, name)
            if found is not None and (kind is Kind.ANCHOR or found.deleting is None):
                found.late = found.late and self.cluster.hand is Hand.LATE
                return found

    def create(self, given: Given, tries: int) -> Steps[Created]:
        owner = yield from self._owner(given)
        if owner is None or owner.deleting is not None:
            return self._lost(given)
        # A request that came late may have made the owner, and it is the attempt's all the same.
        owner.late = owner.late and self.cluster.hand is Hand.LATE
        if given.replaces_interrupted and owner.submitted:
            yield from self._report(given.report_done)
            return Created()
        if given.replaces_interrupted and tries > 1:
            return Created(interrupted="it was interrupted")
        yield from self._report(given.report)
        for component, copy in self._objects():
            if component.name in given.waiting:
                continue
            reason = yield from self._create_patiently(given, component, copy)
            if reason == INTERRUPTED:
                return Created(interrupted="it was there already, half-made")
            if reason:
                failure = self._failure(given, reason, component.name)
                return Created(failure=failure, exhausted=reason != OWNER_GONE)
        if not (yield from self._living_owner(given)):
            return self._lost(given)
        yield from self._send(lambda: self._mark(given))
        yield from self._report(given.report_done)
        return Created()

    def replace(self, given: Given) -> Steps[Replaced]:
        """Make some components of a living attempt again, each as soon as its own old one is gone."""
        if not (yield from self._living_owner(given)):
            return Replaced(failure=self._failure(given, OWNER_GONE))
        yield from self._report(given.report)
        left, begun, borne, moved = list(given.again), self.cluster.now, timedelta(0), None
        last = begun
        while left:
            for name in tuple(left):
                gone = yield from self._gone(given, name, begun)
                reason = ("" if gone else "still there") if gone is not None else OWNER_GONE
                if gone:
                    reason = yield from self._create_all(given, name)
                if not reason:
                    left.remove(name)
                    moved = self.cluster.now
                elif reason == OWNER_GONE or (gone and borne >= given.patience):
                    return Replaced(failure=self._failure(given, reason, name if reason != OWNER_GONE else ""))
            borne, last = borne + self._seen(last), self.cluster.now
            if left and moved is not None and self.cluster.now - moved >= STANDSTILL:
                return Replaced(left=tuple(left))
        yield from self._report(given.report_done)
        return Replaced()

    def _create_all(self, given: Given, name: str) -> Steps[str]:
        """Create a component, or all its copies, once; return why one cannot be created now, or nothing."""
        for component, copy in self._objects():
            if component.name == name:
                if not (yield from self._living_owner(given)):
                    return OWNER_GONE
                reason = yield from self._create_once(given, component, copy)
                if reason:
                    return reason
        return ""

    def _objects(self) -> list[tuple[PlannedComponent, int | None]]:
        """Return every object that is to be: each component, or each copy of it."""
        plan = self.weather.plan
        return [(one, copy) for one in plan for copy in (range(one.copies) if one.copies is not None else (None,))]

    def _gone(self, given: Given, name: str, begun: datetime) -> Steps[bool | None]:
        """Delete what is old of a component; return whether it is gone, None where the attempt's owner is."""
        launch = given.launches[name]
        left: list[Thing] = []
        for each in next(one for one in self.weather.plan if one.name == name).object_names:
            old = yield from self._find(Kind.COMPONENT, each)
            if old is None or old.owner != given.owner_uid or old.launch >= launch:
                continue
            left.append(old)
            if old.deleting is None:
                if not (yield from self._living_owner(given)):
                    return None
                yield from self._delete(old, foreground=True)
        pods = yield from self._send(lambda: self._old_pods(given.attempt, name, launch))
        for pod in pods if self._seen(begun) > given.grace else ():
            yield from self._delete(pod, forced=True)
        return not left and not pods

    def _old_pods(self, attempt: int, name: str, launch: int) -> list[Thing]:
        self.cluster.ask()
        return [one for one in self.cluster.of(Kind.POD, attempt) if one.component == name and one.launch < launch]

    def _create_patiently(self, given: Given, component: PlannedComponent, copy: int | None) -> Steps[str]:
        """Create a component, or one copy of it, bearing what may pass; return why it cannot be created, or nothing."""
        borne, last = timedelta(0), self.cluster.now
        while True:
            if not (yield from self._living_owner(given)):
                return OWNER_GONE
            reason = yield from self._create_once(given, component, copy)
            borne, last = borne + self._seen(last), self.cluster.now
            if reason in {"", INTERRUPTED} or borne >= given.patience:
                return reason

    def _create_once(self, given: Given, component: PlannedComponent, copy: int | None) -> Steps[str]:
        """Create a component; return why it cannot be created now, or nothing."""
        name = component.object_names[copy or 0]

        def request() -> Thing:
            launch, owner, of = given.launches.get(component.name, 0), given.owner_uid, component.name
            return self.cluster.create(Kind.COMPONENT, name, owner, given.attempt, of, launch, copy)

        sends = 0
        try:
            while True:
                yield request
                sends += 1
                try:
                    request()
                    return ""
                except Dark:
                    continue
        except RefusedError:
            return "QuotaExceeded"
        except ConflictError:
            found = yield from self._find(Kind.COMPONENT, name)
            if found is None or found.deleting is not None or found.owner != given.owner_uid:
                return "BeingDeleted"
            if given.replaces_interrupted and given.kind is OperationKind.CREATE and sends == 1:
                return INTERRUPTED
            if found.late and self.cluster.hand is not Hand.LATE:
                found.late = False  # A request that came late made it, and it is the attempt's all the same.
                self.cluster.change(found)
        return ""

    def _living_owner(self, given: Given) -> Steps[bool]:
        owner = yield from self._owner(given)
        return owner is not None and owner.deleting is None and not owner.ended

    def _mark(self, given: Given) -> None:
        owner = self.cluster.find(Kind.OWNER, owner_name(given.attempt))
        if owner is not None and owner.uid == given.owner_uid and owner.deleting is None:
            owner.submitted = True
            self.cluster.change(owner)

    def _failure(self, given: Given, reason: str, component: str = "") -> Failure:
        lost = reason == OWNER_GONE
        return Failure(
            cls=FailureClass.MISSING if lost else FailureClass.LAUNCH,
            scope=Scope.WORKLOAD if lost else Scope.COMPONENT,
            reason=reason,
            time=self.cluster.now,
            component="" if lost else component,
            attempt=given.attempt,
        )

    def _lost(self, given: Given) -> Created:
        return Created(failure=self._failure(given, OWNER_GONE))
