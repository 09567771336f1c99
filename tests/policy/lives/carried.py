"""The operations, carried out against the small cluster as `holdfast/model/calls/cluster.py` promises."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from holdfast.activities.facts.pods import PodState
from holdfast.model import Answers, Observation, OperationKind, Remnant, Report
from holdfast.model.calls.barrier import Lifted
from holdfast.model.calls.cluster import (
    Checkpointed,
    Cleared,
    Parked,
    Removed,
    Reported,
    Reset,
    Unparked,
)
from holdfast.model.calls.operations import Result
from holdfast.model.calls.stage import Staged
from holdfast.model.life.data import DataSet
from holdfast.policy.attempt.checkpoint import is_over
from holdfast.policy.loop.advance import decisions
from holdfast.policy.loop.promise import is_repeated
from holdfast.policy.loop.turn import landed
from holdfast.policy.values.decision import Restart
from holdfast.policy.values.edit import edit
from tests.fakes.ledger import FOREGROUND, HOLD, OURS, REFUSES, ConflictError, Kind, NotFoundError, Thing
from tests.policy.laws.laws import Law, require
from tests.policy.lives.hands import ANCHOR, Given, Steps
from tests.policy.lives.making import Making
from tests.policy.lives.weather import owner_name

Ended = Result | Observation


class Activities(Making):
    """What a worker does with the cluster."""

    def start(self, given: Given, tries: int = 1) -> Steps[Ended]:
        match given.kind:
            case OperationKind.PREPARE:
                return self.prepare(given, tries)
            case OperationKind.STAGE:
                return self.stage()
            case OperationKind.CREATE:
                return self.create(given, tries)
            case OperationKind.REPLACE:
                return self.replace(given)
            case OperationKind.CLEAR:
                return self.clear(given)
            case OperationKind.BARRIER:
                return self.barrier(given)
            case OperationKind.PARK:
                return self.park(given)
            case OperationKind.UNPARK:
                return self.unpark(given)
            case OperationKind.CHECKPOINT:
                return self.checkpoint(given)
            case OperationKind.OBSERVE:
                return self.observe(given)
            case OperationKind.RESET:
                return self.reset(given, tries)
            case OperationKind.REMOVE:
                return self.remove(given)
            case OperationKind.FORCE_REMOVE:
                return self.force_remove(given)
            case OperationKind.REPORT:
                return self.report(given)

    # --- data sets

    def stage(self) -> Steps[Staged]:
        """Find the store away every other minute; what was staged before lies in the cache, but not always."""
        yield from self._send(lambda: None)
        if self.cluster.now.minute % 2 and self.cluster.now.second % 3:
            return Staged(away="the store does not answer", fetched=self.cluster.now.second % 2)
        return Staged(sets=(DataSet(mount="corpus", digest="d" * 64, files=1, bytes=5),))

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
        seen = self.weather.summary(given.attempt, given.owner_uid, pods, live=True)
        anchors = self.cluster.of(Kind.ANCHOR)
        owner = self.cluster.named.get((Kind.OWNER, owner_name(given.attempt)))
        with_pods = {one.attempt for one in self.cluster.of(Kind.POD)}
        others = {
            one.attempt
            for one in self.cluster.of(Kind.OWNER)
            if one.attempt != given.attempt and one.deleting is None and (one.submitted or one.attempt in with_pods)
        }
        return edit(
            seen,
            anchor_found=any(OURS in one.finalizers for one in anchors),
            owner_submitted=owner.submitted if owner is not None else None,
            others=tuple(sorted(others)),
        )

    def report(self, given: Given) -> Steps[Reported]:
        if given.operation.anchors:
            yield from self._make(Kind.ANCHOR, ANCHOR, "", 0)
        yield from self._report(given.report)
        return Reported(anchored=given.operation.anchors)

    # --- clearing

    def clear(self, given: Given) -> Steps[Cleared]:
        """Delete what has not ended, and prove it gone; what has ended stays."""
        yield from self._report(given.report)
        yield from self._send(lambda: self._mark_ended(given))
        begun = self.cluster.now
        while True:
            going: list[Thing] = []
            kept: list[str] = []
            for name in (each for one in self.weather.plan for each in one.object_names):
                found = yield from self._find(Kind.COMPONENT, name)
                if found is None or found.owner != given.owner_uid:
                    continue
                if found.verdict and found.deleting is None:
                    kept.append(found.uid)
                    continue
                going.append(found)
                if found.deleting is None:
                    version = found.version
                    with suppress(NotFoundError, ConflictError):
                        yield from self._send(lambda thing=found, at=version: self._delete_as_read(thing, at))
            pods = [one for one in (yield from self._send(self._all_pods)) if one.attempt == given.attempt]
            pods = [one for one in pods if one.owner not in kept]
            if not going and not pods:
                yield from self._report(given.report_done)
                return Cleared(done=True)
            for pod in pods if self._seen(begun) > given.grace else ():
                yield from self._delete(pod, forced=True)
            if self.cluster.now >= given.until:
                return Cleared(done=False)

    def _mark_ended(self, given: Given) -> None:
        owner = self.cluster.find(Kind.OWNER, owner_name(given.attempt))
        if owner is not None and owner.uid == given.owner_uid:
            owner.ended = True
            self.cluster.change(owner)

    def _delete_as_read(self, thing: Thing, version: int) -> None:
        found = self.cluster.find(thing.kind, thing.name)
        if found is not None and found.version == version:
            self.cluster.delete(thing.kind, thing.name, thing.uid, foreground=True)

    # --- checkpoints

    def checkpoint(self, given: Given) -> Steps[Checkpointed]:
        """Ask the pods that run to save, and look at what they say until nothing is left to wait for."""
        request = given.request
        assert request is not None
        yield from self._report(given.report)
        while True:
            late = self.cluster.now >= given.until
            pods = [one for one in (yield from self._send(self._all_pods)) if one.attempt == given.attempt]
            running = [one for one in pods if one.state is PodState.RUNNING and one.deleting is None]
            for pod in running:
                if pod.asked != request.number:
                    with suppress(NotFoundError, ConflictError):
                        yield from self._send(lambda pod=pod: self.cluster.asks(pod, request.number))
            known = [one for one in running if one.asked == request.number]
            places = {one.saved for one in known if one.saved and one.saved != REFUSES}
            done = [one for one in known if one.saved in places]
            failed = sum(one.saved == REFUSES for one in known)
            answers = Answers(
                at=self.cluster.now,
                running=len(running),
                done=len(done),
                silent=len(running) - len(done) - failed,
                failed=failed,
                finished=sum(one.state is PodState.SUCCEEDED for one in pods),
                uri=min(places) if len(places) == 1 else "",
                disagree=len(places) > 1,
            )
            if late or is_over(answers, request.running, request.finished, request.members):
                return Checkpointed(answers=answers, blind=self.cluster.blind())

    # --- suspension in place

    def barrier(self, given: Given) -> Steps[Lifted]:
        yield from self._report(given.report)
        return Lifted(done=True)

    def park(self, given: Given) -> Steps[Parked]:
        """Suspend what is unfinished, and prove that no pod of it is left."""
        yield from self._report(given.report)
        begun = self.cluster.now
        while True:
            owner = yield from self._owner(given)
            if owner is None or owner.deleting is not None:
                return Parked(done=False, refused="its owner is gone")
            if owner.turn > given.turn:
                return Parked(done=False, turn=owner.turn)
            if owner.turn < given.turn:
                yield from self._turn(owner, given.turn)
                continue
            awake = False
            for thing in (yield from self._unfinished(given)):
                fresh = thing.deleting is None
                if fresh and (thing.turn != given.turn or not thing.suspended):
                    yield from self._turn(thing, given.turn, suspended=True)
                awake = awake or not (fresh and thing.turn == given.turn and thing.asleep)
            pods = yield from self._send(self._all_pods)
            pods = [one for one in pods if one.attempt == given.attempt and not one.finished]
            if not awake and not pods:
                break
            for pod in pods if self._seen(begun) > given.grace else ():
                yield from self._delete(pod, forced=True)
        yield from self._turn(owner, given.turn, parked=given.turn)
        yield from self._report(given.report_done)
        return Parked(done=True)

    def unpark(self, given: Given) -> Steps[Unparked]:
        """Resume what is unfinished of some components."""
        yield from self._report(given.report)
        while True:
            owner = yield from self._owner(given)
            if owner is None or owner.deleting is not None:
                return Unparked(done=False, refused="its owner is gone")
            if owner.turn > given.turn:
                return Unparked(done=False, turn=owner.turn)
            if owner.turn < given.turn:
                yield from self._turn(owner, given.turn)
                continue
            left = [one for one in (yield from self._unfinished(given)) if one.component in given.resuming]
            left = [one for one in left if one.deleting is None and (one.turn != given.turn or one.suspended)]
            if not left:
                break
            for thing in left:
                yield from self._turn(thing, given.turn, suspended=False)
        yield from self._report(given.report_done)
        return Unparked(done=True)

    def _turn(self, thing: Thing, turn: int, *, suspended: bool | None = None, parked: int = 0) -> Steps[None]:
        version = thing.version
        with suppress(NotFoundError, ConflictError):
            yield from self._send(lambda: self.cluster.turn(thing, version, turn, suspended=suspended, parked=parked))

    def _unfinished(self, given: Given) -> Steps[list[Thing]]:
        found: list[Thing] = []
        for name in (each for one in self.weather.plan for each in one.object_names):
            job = yield from self._find(Kind.COMPONENT, name)
            ours = job is not None and job.owner == given.owner_uid
            if ours and job is not None and not job.verdict:
                found.append(job)
        return found

    # --- reset

    def reset(self, given: Given, tries: int) -> Steps[Reset]:
        """Look, and go on to the removal if the look repeats the promise; the anchor decides between tries."""
        operation = given.operation
        assert operation.restart is not None
        assert operation.removal is not None
        removal = replace(given, report=operation.removal.report, report_done=operation.removal.report_done)
        mark = f"{given.attempt}/{given.owner_uid}/{removal.report.sequence}/{operation.restart.at.isoformat()}"
        begun, seen = False, None
        if operation.settles or tries > 1:
            anchor = yield from self._find(Kind.ANCHOR, ANCHOR)
            begun = anchor is not None and anchor.removal == mark
        if not begun:
            pods = yield from self._send(lambda: self._read_pods(given.attempt))
            seen = yield from self._send(lambda: self._read_rest(given, pods))
            now = self.cluster.now
            repeated = is_repeated(self.weather.spec, given.memory, operation.restart, seen, operation.since, now)
            if not operation.settles:
                self._judge_promise(given, seen, repeated=repeated)
            if repeated and not operation.settles:
                begun = yield from self._send(lambda: self._mark_removal(mark, removal.report))
            elif (yield from self._send(lambda: self._fence_removal(mark, given.report))):
                begun, seen = True, None
        if operation.settles or not begun:
            return Reset(confirmed=begun, seen=seen)
        return Reset(confirmed=True, seen=seen, removed=(yield from self._removed(removal, {})))

    def _judge_promise(self, given: Given, seen: Observation, *, repeated: bool) -> None:
        """Check that the carried memory decides as the whole state would, had the workflow only looked."""
        whole, operation, now = given.state, given.operation, self.cluster.now
        assert operation.restart is not None
        full = is_repeated(
            self.weather.spec, edit(whole, operation=None), operation.restart, seen, operation.since, now
        )
        require(full == repeated, Law.REPLAY, f"the carried memory says {repeated}, the whole state {full}")
        if not repeated:
            return
        looking = edit(operation, kind=OperationKind.OBSERVE, restart=None, removal=None)
        looked = landed(edit(whole, operation=looking), seen, now)
        decision = next(decisions(self.weather.spec, looked, now)).decision
        same = isinstance(decision, Restart) and (decision.rule, decision.charge, decision.failure.cls) == (
            operation.restart.rule,
            operation.restart.charge,
            operation.restart.failure.cls,
        )
        require(same, Law.REPLAY, f"the activity repeats {operation.restart}, the workflow would decide {decision}")

    def _mark_removal(self, mark: str, report: Report) -> bool:
        """Mark the anchor that the removal begins, unless a later report is there; return whether it has the mark."""
        anchor = self.cluster.find(Kind.ANCHOR, ANCHOR)
        if anchor is None:
            return False
        if self._shown(anchor) < report.sequence:
            anchor.removal = mark
        return anchor.removal == mark

    def _fence_removal(self, mark: str, report: Report) -> bool:
        """Return whether an earlier try has begun the removal; if not, keep late ones from it by a report."""
        anchor = self.cluster.find(Kind.ANCHOR, ANCHOR)
        begun = anchor is not None and anchor.removal == mark
        if not begun:
            self.cluster.apply(ANCHOR, report)
        return begun

    # --- removal

    def remove(self, given: Given) -> Steps[Removed]:
        """Delete the attempt and prove it gone; what its pods save meanwhile is told."""
        followed: dict[str, Thing] = {}
        done = yield from self._removed(given, followed)
        request = given.request
        if request is None or request.conflict is None:
            return done
        asked = [one for one in followed.values() if one.asked == request.number]
        places = {one.saved for one in asked if one.saved not in {"", REFUSES}}
        good = [one for one in asked if one.saved in places]
        answers = Answers(
            at=self.cluster.now,
            running=len(followed),
            done=len(good),
            silent=len(followed) - len(good),
            uri=min(places) if len(places) == 1 else "",
            disagree=len(places) > 1,
        )
        return edit(done, answers=answers)

    def _removed(self, given: Given, followed: dict[str, Thing]) -> Steps[Removed]:
        yield from self._report(given.report)
        dying: datetime | None = None
        while True:
            if given.request is not None and given.request.conflict is not None:
                pods = [one for one in (yield from self._send(self._all_pods)) if one.attempt == given.attempt]
                followed |= {one.uid: one for one in pods if one.state is PodState.RUNNING}
            owner = yield from self._any_owner(given)
            if owner is not None and owner.deleting is None:
                yield from self._delete(owner, foreground=self.propagation_foreground)
            # A removal that began late gives its pods their grace all the same.
            dying = owner.deleting if owner is not None else dying
            passed = dying is None or self._seen(dying) >= given.grace
            left = yield from self._remains(given)
            if not left:
                return (yield from self._conclude(given))
            if self.cluster.now >= given.until and passed:
                return self._give_up(left)

    def force_remove(self, given: Given) -> Steps[Removed]:
        yield from self._report(given.report)
        owner = yield from self._any_owner(given)
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
            for thing in left:
                if self.may_strip(given, thing) and thing.deleting is not None and HOLD in thing.finalizers:
                    yield from self._strip(thing)
            rounds += 1

    def may_strip(self, given: Given, thing: Thing) -> bool:
        return given.strips and thing.kind in {Kind.POD, Kind.COMPONENT}

    def _strip(self, thing: Thing) -> Steps[None]:
        version = thing.version
        with suppress(NotFoundError, ConflictError):
            yield from self._send(lambda: self.cluster.strip(thing.kind, thing.name, thing.uid, version, HOLD))

    def _give_up(self, left: list[Thing]) -> Removed:
        remnants = tuple(
            Remnant(
                kind=one.kind,
                name=one.name,
                deleting_since=one.deleting,
                finalizers=tuple(sorted(one.finalizers - {FOREGROUND})),
            )
            for one in sorted(left, key=lambda one: HOLD not in one.finalizers)[:16]
        )
        return Removed(gone=False, remnants=remnants, remnants_total=len(left), blind=self.cluster.blind())

    def _conclude(self, given: Given) -> Steps[Removed]:
        blind = self.cluster.blind()
        yield from self._report(given.report_done)
        if given.release:
            for owner in (yield from self._send(lambda: self.cluster.of(Kind.OWNER))):
                yield from self._delete(owner, foreground=True)
            yield from self._send(lambda: self._release(delete=given.delete_anchor))
        return Removed(gone=True, blind=blind)

    def _release(self, *, delete: bool) -> None:
        anchor = self.cluster.find(Kind.ANCHOR, ANCHOR)
        if anchor is None:
            return
        self.cluster.unhold(anchor, OURS)
        if delete and anchor.died is None and anchor.deleting is None:
            self.cluster.delete(Kind.ANCHOR, ANCHOR, anchor.uid)
