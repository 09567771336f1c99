"""The seven invariants of the design, judged by the cluster's own ledger and never by what the engine says of itself.

What the engine says is what is judged: the charges it made, the statuses it told, the objects it had made and deleted.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.activities.facts.pods import PodState
from holdfast.model import (
    After,
    ConditionType,
    InterruptedCreate,
    Observation,
    OperationKind,
    Phase,
    Policy,
    Reason,
    Report,
    StartStatus,
    State,
    Workload,
)
from holdfast.model.calls.cluster import Created, Prepared, Removed, Replaced, Reset, Unparked
from holdfast.policy.attempt.order import without
from holdfast.policy.status.explain import status_of
from holdfast.policy.values.events import Observed, PolicyChanged, Retried, StripAsked, Suspended
from holdfast.policy.values.steps import End, Sleep
from holdfast.profiles.rules import RESTART
from tests.fakes.ledger import HOLD, Cluster, Deletion, Hand, Kind, Thing
from tests.policy.laws.laws import AT_ONCE, WORDS, Law, Record, number_of, require
from tests.policy.lives.flow import Flow


class Oracle:
    """Sees everything that happens to one workload."""

    def __init__(self, spec: Workload, cluster: Cluster) -> None:
        self.spec = spec
        self.cluster = cluster
        self.records: dict[int, Record] = {}
        self.policies: list[Policy] = [spec.policy]
        self.told_at = cluster.now
        """Until when the workflow knows what was dark."""
        self.whole = spec.policy.interrupted_create is InterruptedCreate.REPLACE
        self.tries = 1
        """Which try of its operation the worker makes."""
        self.retried = False
        self.whole_ones: set[str] = set()
        """Places of whole checkpoints."""
        self.asked: set[int] = set()
        """Attempts whose finalizers a person wants taken off."""
        self.free = {"owner gone"} if RESTART not in {one.name for one in spec.policy.budgets} else set[str]()
        """What is made good without a charge."""
        cluster.on_create.append(self.created)
        cluster.on_change.append(self.changed)
        cluster.on_delete.append(self.deleted)
        cluster.on_report.append(self.reported)
        cluster.on_strip.append(self.stripped)
        cluster.on_refuse.append(lambda attempt: self._harmed(attempt, "not created"))

    def of(self, attempt: int) -> Record:
        return self.records.setdefault(attempt, Record())

    def _harmed(self, attempt: int, how: str) -> None:
        self.of(attempt).harm.setdefault(how, self.cluster.now)

    def there(self, attempt: int | None = None) -> list[Thing]:
        """Return what is there of attempts, but for what came of a request that was under way when its worker died."""
        return [
            one
            for one in self.cluster.alive.values()
            if one.kind is not Kind.ANCHOR and not one.late and attempt in {None, one.attempt}
        ]

    # --- what happens in the cluster

    def created(self, thing: Thing) -> None:
        if thing.late or thing.kind is Kind.ANCHOR:
            return
        record = self.of(thing.attempt)
        for other in self.there():
            both = f"{other} is there when {thing} comes"
            require(other.attempt == thing.attempt, Law.EXCLUSIVE, both)
        if thing.kind is Kind.COMPONENT:
            first = not thing.launch and not self._after(thing.component)
            fills = self.whole and self.tries > 1 and first and self.cluster.hand is Hand.HOLDFAST
            require(not fills, Law.WHOLE, f"{thing} is made by try {self.tries} of one submission")
            self._launched(thing, record)
        if thing.kind is Kind.OWNER:
            last = self.of(thing.attempt - 1)
            free = last.harm.keys() & self.free
            explained = thing.attempt == 1 or last.charges or last.excused or free
            require(explained, Law.BUDGET, f"attempt {thing.attempt} begins, and nothing says why {last} ended")
            return
        if thing.kind is Kind.COMPONENT:
            record.created = thing.created
        told = self._told()
        for condition in (ConditionType.RESOURCES_DEPLOYED, ConditionType.QUOTA_RESERVED):
            require(told.get(condition, False), Law.RELEASE, f"{thing} comes while {condition} is told false: {told}")

    def _launched(self, thing: Thing, record: Record) -> None:
        """A component comes: alone of its kind, and if it had been there before, only because something befell it."""
        for other in self.there(thing.attempt):
            both = f"{other} is there when {thing} comes"
            again = other.component == thing.component and other.launch == thing.launch and other.copy != thing.copy
            require(again or other.component != thing.component or other is thing, Law.EXCLUSIVE, both)
        for after in self._after(thing.component):
            came = (after.component, after.status) in record.came
            require(came, Law.ORDER, f"{thing} comes, and {after.component} is not {after.status}: {record.came}")
        siblings = [one for one in self.there(thing.attempt) if one.component == thing.component and one is not thing]
        befell = thing.component in record.ill or not thing.launch or siblings
        require(befell, Law.OWN_DELETION, f"{thing} is made again, and nothing befell it")
        record.ill.discard(thing.component)

    def _after(self, component: str) -> tuple[After, ...]:
        return next(one.after for one in self.spec.components if one.name == component)

    def changed(self, thing: Thing) -> None:
        if thing.kind not in {Kind.COMPONENT, Kind.POD}:
            return
        record = self.of(thing.attempt)
        if thing.deleting is None:
            if thing.state is PodState.FAILED:
                self._harmed(thing.attempt, "pod failed")
            if thing.verdict == "Failed":
                self._harmed(thing.attempt, "component failed")
                record.ill.add(thing.component)
        self._count(thing.attempt, record)

    def _count(self, attempt: int, record: Record) -> None:
        jobs = [one for one in self.cluster.of(Kind.COMPONENT, attempt) if not one.late]
        done = [one for one in jobs if one.verdict == "Complete"]
        well = {PodState.RUNNING, PodState.SUCCEEDED}
        pods = [one for one in self.cluster.of(Kind.POD, attempt) if one.state in well and one.deleting is None]
        # A copy that has failed is no reason to wait for its pods; whether it is one to act is for the rules.
        over = {(one.component, one.copy) for one in jobs if one in done or (one.verdict and one.copy is not None)}
        ready, complete = set[str](), set[str]()
        for component in self.spec.components:
            name, every = component.name, (None,) if component.copies is None else range(component.copies)
            each = component.expected_pods // len(every) if every else 0
            of = [one.copy for one in pods if one.component == name]
            if all(of.count(copy) >= each or (name, copy) in over for copy in every):
                ready.add(name)
            if len([one for one in done if one.component == name]) == len(every):
                complete.add(name)
        record.came |= {(name, StartStatus.READY) for name in ready | complete}
        record.came |= {(name, StartStatus.COMPLETE) for name in complete}
        everything = {one.name for one in self.spec.components}
        record.complete = record.complete or complete == everything
        record.ready = record.ready or everything <= ready | self.later(attempt)

    def later(self, attempt: int) -> set[str]:
        """Return the components of an attempt that nobody expects yet: they wait for others to be complete."""
        record = self.of(attempt)
        return {
            one.name
            for one in self.spec.components
            for after in one.after
            if after.status is StartStatus.COMPLETE and (after.component, after.status) not in record.came
        }

    def deleted(self, deletion: Deletion) -> None:
        thing = deletion.thing
        record = self.of(thing.attempt)
        if thing.kind is Kind.OWNER and record.deleted is None:
            record.deleted = deletion.at
        if not deletion.hand.ours:
            if deletion.hand in {Hand.PERSON, Hand.NODE} and thing.deleting is None:
                self._harmed(thing.attempt, f"{WORDS[thing.kind]} gone")
                if thing.kind is Kind.COMPONENT:
                    record.ill.add(thing.component)
            return
        record.removing = record.removing or thing.kind is Kind.OWNER
        require(deletion.uid, Law.IDENTITY, f"{thing} is deleted by its name alone")
        if thing.kind is Kind.OWNER and not deletion.forced:
            require(
                deletion.foreground, Law.EXCLUSIVE, f"{thing} is deleted in the background: what it owns outlives it"
            )
        if "owner gone" in record.harm:
            return  # When somebody else deleted it, its removal had no beginning of its own.
        if deletion.forced and not record.forced and deletion.hand is Hand.HOLDFAST and record.deleted is not None:
            record.forced = True
            grace = min(one.timings.forceful_deletion_grace_period for one in self.policies)
            seen = self.visible(record.deleted)
            require(seen >= grace, Law.BLIND, f"{thing} is forced after {seen} of sight, and has {grace} to go")

    def stripped(self, thing: Thing) -> None:
        late = thing.late or self.cluster.hand is Hand.LATE
        require(
            thing.attempt in self.asked or (late and self.asked),
            Law.ASKED,
            f"{thing} loses its finalizer, and nobody asked for it",
        )
        ours = f"{thing} loses a finalizer that is not the workload's to lose"
        require(thing.kind in {Kind.POD, Kind.COMPONENT}, Law.ASKED, ours)
        require(thing.deleting is not None, Law.ASKED, f"{thing} loses its finalizer, and is not being deleted")

    def reported(self, anchor: Thing, report: Report) -> None:
        told = {one.type: one.status for one in report.conditions}
        there = [one for one in self.there() if one.kind in {Kind.COMPONENT, Kind.POD}]
        if not told[ConditionType.RESOURCES_DEPLOYED]:
            require(not there, Law.RELEASE, f"{report.phase}: told gone, but {[str(one) for one in there]}")
        if not told[ConditionType.QUOTA_RESERVED]:
            # What is suspended and known to be so holds nothing, once its pods are gone.
            holding = [one for one in there if not one.finished and not one.verdict and not one.asleep]
            require(not holding, Law.RELEASE, f"{report.phase}: quota released, but {[str(one) for one in holding]}")

    def _told(self) -> dict[ConditionType, bool]:
        anchors = self.cluster.of(Kind.ANCHOR)
        report = anchors[0].report if anchors else None
        return {one.type: one.status for one in report.conditions} if report is not None else {}

    def visible(self, since: datetime, until: datetime | None = None) -> timedelta:
        """Return how long the cluster could be seen since then, as far as the workflow can know."""
        dark = timedelta(0)
        for span in self.cluster.blind():
            begin, end = max(span.begin, since), min(span.end, self.told_at, until or self.told_at)
            dark += max(end - begin, timedelta(0))
        return (until or self.cluster.now) - since - dark

    # --- what the engine makes of it

    def task_done(self, before: State, flow: Flow) -> None:
        """Judge a workflow task."""
        task, after = flow.task, flow.state
        if before.operation is not None and before.operation.creates:
            self.of(number_of(before)).prepared = True  # It can be seen before its preparation has ended.
        if task is not None:
            for event in task.inbox:
                match event:
                    case Observed(observation):
                        self._given(observation, task.now)
                        known = observation.attempt <= number_of(before) or after.held or after.intent.cancel
                        require(known, Law.SIGHT, f"attempt {observation.attempt} was seen, and is not known of")
                    case Suspended():
                        self.of(number_of(before)).excused = True
                    case Retried():
                        self.retried = True
                    case StripAsked():
                        self.asked.add(number_of(before))
                    case PolicyChanged(policy):
                        self.policies.append(policy)
                    case _:
                        pass
            match task.ended:
                case Observation():
                    self._given(task.ended, task.now)
                case Created(interrupted=interrupted) if interrupted:
                    why = f"attempt {number_of(before)} is made anew, and nobody interrupted it"
                    require(flow.tries > 1, Law.BUDGET, why)
                    self.of(number_of(before)).excused = True
                case Replaced() | Unparked():
                    self.of(number_of(before)).told = None
                case Prepared():
                    self.of(number_of(before)).prepared = True
                case Reset(confirmed=confirmed, seen=seen):
                    record = self.of(number_of(before))
                    if seen is not None:
                        self._given(seen, task.now)
                    elif confirmed:
                        record.short = True  # Whoever looked died: what it saw is lost, and what it decided is not.
                    record.reset, self.told_at = confirmed, flow.result_at
                case Removed(gone=gone, remnants=remnants):
                    self.told_at = flow.result_at
                    if not gone and any(HOLD in one.finalizers for one in remnants):
                        self._names_what_holds(after)
                case _:
                    pass
        self._judge_saved(before, after)
        if _resets(after) and not _resets(before):
            record = self.of(number_of(after))
            record.policy, record.promised_at = after.policy, self.cluster.now
        self._judge_charges(before, after)
        self._judge_phase(before, after, flow)
        if task is not None and any(isinstance(one, Observed) for one in task.inbox):
            self._judge_sight(after, task.now)

    def _given(self, seen: Observation, now: datetime) -> None:
        """Note what the workflow has been told of an attempt."""
        record = self.of(seen.attempt)
        self.told_at = max(self.told_at, seen.at)
        newest = record.told is None or seen.revision >= record.told.revision
        short = seen.pods.ready < self.spec.expected_pods and not seen.complete
        well = not seen.failures and not short
        if seen.live:
            record.short = short
        if record.unwell is None and (seen.failures or (short and record.ready)):
            record.unwell = now
        elif well and newest:
            record.unwell = None
        if newest and record.prepared:
            record.told = seen

    def _judge_saved(self, before: State, after: State) -> None:
        """Check what is taken for a whole checkpoint, and that attempts go on from nothing else."""
        begun, saved = after.attempt, after.saved
        if begun is not None and begun.resume_from:
            require(begun.resume_from in self.whole_ones, Law.SAVED, f"{begun.resume_from} was never whole")
        if saved is None or saved == before.saved:
            return
        asked = self.cluster.asked.get((saved.attempt, saved.number), [])
        there = [one for one in asked if one.asked == saved.number]
        # Whoever has ended well needs to save nothing, were it asked in time or not.
        of_attempt = [one for one in self.cluster.all if one.kind is Kind.POD and one.attempt == saved.attempt]
        ended = [one for one in of_attempt if one.state is PodState.SUCCEEDED]
        good = [*ended, *(one for one in there if one.saved == saved.uri and one not in ended)]
        running = [one for one in there if one.died is None and one.state is PodState.RUNNING and one.deleting is None]
        lacks = [str(one) for one in running if one.saved != saved.uri]
        require(not lacks, Law.SAVED, f"{saved.uri} is taken for whole, and {lacks} have not saved it")
        request = after.checkpoint
        enough = request is not None and len(good) >= request.running
        require(enough, Law.SAVED, f"{saved.uri} is taken for whole, and only {len(good)} have saved it: {request}")
        self.whole_ones.add(saved.uri)

    def _judge_charges(self, before: State, after: State) -> None:
        charged = sum(after.used.values()) - sum(before.used.values())
        number = number_of(before)
        record = self.of(number)
        if charged < 0 or (before.outcome is Phase.FAILED and after.outcome is None):
            require(self.retried, Law.BUDGET, "it begins anew with new budgets, and nobody asked for it")
            record.excused = True
        if charged > 0:
            ours = f"attempt {number} is charged once its deletion is under way"
            require(record.reset or not record.removing, Law.OWN_DELETION, ours)
            record.charges += charged
            require(record.charges == 1, Law.BUDGET, f"attempt {number} is charged {record.charges} times")
            # A limit that is lowered while a reset is under way holds from the next decision on.
            promised = record.policy if record.reset else None
            for budget in (promised or after.policy).budgets:
                used = after.used.get(budget.name, 0)
                more = used > before.used.get(budget.name, 0)
                within = not more or budget.limit is None or used <= budget.limit
                require(within, Law.BUDGET, f"{budget.name}: {used} of {budget.limit}")
        failed = after.outcome is Phase.FAILED and before.outcome is not Phase.FAILED
        if failed and after.reason is Reason.WALLTIME_EXCEEDED:
            until = before.attempt.walltime_until if before.attempt is not None else None
            over = until is not None and self.cluster.now >= until
            require(over, Law.SIGHT, f"attempt {number} is ended by its walltime before {until}")
            failed = False
        if charged > 0 or failed:
            self._judge_reason(number, record)

    def _judge_reason(self, number: int, record: Record) -> None:
        """Check that something befell the attempt, by no hand of ours, and that its grace was waited out in sight."""
        require(record.harm or record.short, Law.OWN_DELETION, f"attempt {number} is failed, and nothing befell it")
        if record.harm.keys() & AT_ONCE:
            return
        grace = min(one.timings.failure_grace_period for one in self.policies)
        admission = min(one.timings.admission_grace_period for one in self.policies)
        # The time of a removal that had begun when it was decided is no grace.
        until = record.promised_at if record.reset else None
        begun = [min(since, until or since) for since in (record.unwell, *record.harm.values()) if since]
        unwell = any(self.visible(since, until) >= grace for since in begun)
        waited = record.created is not None and self.visible(record.created, until) >= admission + grace
        require(
            unwell or waited,
            Law.BLIND,
            f"attempt {number} is failed for {sorted(record.harm) or 'lateness'}, told at "
            f"{record.unwell}, now {self.cluster.now}, dark {self.cluster.blind()}: its grace has not passed in sight",
        )

    def _judge_phase(self, before: State, after: State, flow: Flow) -> None:
        number = number_of(after)
        record = self.of(number)
        if after.phase is Phase.RUNNING and before.phase is not Phase.RUNNING:
            require(record.ready, Law.SIGHT, f"attempt {number} is told to run, and its pods never did")
        if after.outcome is Phase.SUCCEEDED and before.outcome is None:
            require(record.complete, Law.SIGHT, f"attempt {number} is told complete, and it never was")
        match flow.step:
            case End():
                left = [str(one) for one in self.there()]
                require(not left, Law.RELEASE, f"it ends, and leaves {left}")
            case Sleep() if flow.work is None and after.operation is None:
                removing = after.phase in {Phase.RESETTING, Phase.SUSPENDING, Phase.TERMINATING}
                left = [str(one) for one in self.there()]
                require(not (removing and left), Law.PROGRESS, f"{after.phase}: nobody removes {left}")
            case _:
                pass

    def _names_what_holds(self, after: State) -> None:
        report = after.operation.report if after.operation is not None else None
        if report is not None:
            told = [one.message for one in report.conditions]
            require(any(HOLD in one for one in told), Law.PROGRESS, f"{HOLD} holds what is to go: {told}")

    def _judge_sight(self, after: State, now: datetime) -> None:
        told = self.of(number_of(after)).told
        if _resets(after):
            return  # Its removal may have begun: what is seen of it is dropped until that is known.
        if told is None or after.outcome is not None or after.phase not in {Phase.RESUMING, Phase.RUNNING}:
            return
        if after.attempt is not None:
            if after.attempt.parking is not None:
                return  # Its pods are known to be gone, whatever was seen of them last.
            if any(self._after(name) for name in after.attempt.replacing):
                return  # What was seen before it is made for the first time does not count it.
            told = without(told, after.attempt.waiting)
        shown = status_of(self.spec, after, now, "uid").pods
        require(
            shown == told.pods, Law.SIGHT, f"attempt {told.attempt} was seen as {told.pods}, and is shown as {shown}"
        )


def _resets(state: State) -> bool:
    return state.operation is not None and state.operation.kind is OperationKind.RESET
