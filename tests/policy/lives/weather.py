"""What happens in the small cluster by itself: the collector, controllers and nodes act late, or not; the watch tells.

Each method is one small step, taken when the script says so; none of them knows what Holdfast wants.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.activities.facts.objects import ObjectFacts, TrueCondition
from holdfast.activities.facts.pods import PodFacts, PodState
from holdfast.activities.facts.snapshot import summarize
from holdfast.model import FailureClass, Observation, Workload
from holdfast.model.calls.cluster import PlannedComponent
from holdfast.policy.failures.selection import selection_of
from tests.fakes.ledger import FOREGROUND, HOLD, Cluster, Hand, Kind, Thing

UID = "uid"
"""The workload's."""
NODES = 2


class Weather:
    """Everything in the cluster but its API server."""

    def __init__(self, cluster: Cluster, spec: Workload) -> None:
        self.cluster = cluster
        self.spec = spec
        self.expected = {one.name: one.expected_pods for one in spec.components}
        """By component, over all its copies."""
        self.selection = selection_of(spec.policy)
        self.plan = tuple(
            PlannedComponent(
                name=one.name,
                api_version="batch/v1",
                kind="Job",
                object_name=one.name,
                expected_pods=one.expected_pods,
                status=one.status,
                copies=one.copies,
            )
            for one in spec.components
        )
        self.graph: set[str] = set()
        """What the collector knows of: its graph is in memory, and lags."""
        self.dead_nodes: set[int] = set()
        self.replaces = True
        """Whether a controller brings back a pod that failed, or gives its component up."""
        self.mail: list[Observation] = []
        """What the watch has told and the workflow has not been given yet."""
        self._pods = 0

    @contextmanager
    def _as(self, hand: Hand) -> Iterator[None]:
        kept, self.cluster.hand = self.cluster.hand, hand
        try:
            yield
        finally:
            self.cluster.hand = kept

    # --- the collector

    def collector_learns(self) -> None:
        """The collector's graph catches up."""
        self.graph = set(self.cluster.alive)

    def collector_acts(self) -> bool:
        """The collector deletes what has lost its owner, and finishes foreground deletions, by what it knows."""
        cluster, acted = self.cluster, False
        known = [cluster.alive[uid] for uid in sorted(self.graph) if uid in cluster.alive]
        with self._as(Hand.COLLECTOR):
            for thing in known:
                if thing.died is None and thing.owner and thing.owner not in cluster.alive and thing.deleting is None:
                    cluster.delete(thing.kind, thing.name, thing.uid)
                    acted = True
            for thing in known:
                if FOREGROUND in thing.finalizers:
                    acted = self._foreground(thing, known) or acted
        return acted

    def _foreground(self, thing: Thing, known: list[Thing]) -> bool:
        left = [one for one in known if one.owner == thing.uid and one.died is None]
        fresh = [one for one in left if one.deleting is None]
        for one in fresh:
            self.cluster.delete(one.kind, one.name, one.uid, foreground=one.kind is Kind.COMPONENT)
        if not left:
            self.cluster.unhold(thing, FOREGROUND)
        return bool(fresh) or not left

    # --- controllers

    def controllers_act(self, *, lagging: bool = False) -> bool:
        """Controllers make the pods that are wanted; one that lags has not seen yet that its component is to go."""
        acted = False
        with self._as(Hand.CONTROLLER):
            for job in self.cluster.of(Kind.COMPONENT):
                job.noticed = job.noticed or (job.deleting is not None and not lagging)
                job.asleep = job.asleep or (job.suspended and not lagging)
                if job.asleep and not job.noticed and not job.verdict:
                    acted = self._sleeps(job) or acted
                elif not job.noticed and not job.verdict:
                    acted = self._sync(job) or acted
        return acted

    def _sync(self, job: Thing) -> bool:
        pods = [one for one in self.cluster.of(Kind.POD) if one.owner == job.uid]
        active = [one for one in pods if not one.finished and one.deleting is None]
        done = [one for one in pods if one.state is PodState.SUCCEEDED]
        failed = [one for one in pods if one.state is PodState.FAILED and one.deleting is None]
        wanted = self._planned(job.component).pods_each - len(active) - len(done)
        ending = [one for one in pods if not one.finished and one.deleting is not None]
        if failed and not self.replaces:
            # It gives up: its other pods go, and only then it says so.
            for one in active:
                self.cluster.delete(one.kind, one.name, one.uid)
            if not active and not ending:
                job.verdict = "Failed"
                self.cluster.change(job)
            return bool(active) or not ending
        if wanted <= 0 and not active and not ending:
            job.verdict = "Complete"
            self.cluster.change(job)
            return True
        for _ in range(wanted):
            self._pods += 1
            name = f"{job.component}-{self._pods}"
            pod = self.cluster.create(Kind.POD, name, job.uid, job.attempt, job.component)
            pod.node = self._pods % NODES
        return wanted > 0

    def _sleeps(self, job: Thing) -> bool:
        """A suspended Job's pods are deleted, and none is made."""
        active = [
            one for one in self.cluster.of(Kind.POD) if one.owner == job.uid and not one.finished and not one.deleting
        ]
        for pod in active:
            self.cluster.delete(pod.kind, pod.name, pod.uid)
        return bool(active)

    def _planned(self, component: str) -> PlannedComponent:
        return next(one for one in self.plan if one.name == component)

    # --- nodes

    def nodes_act(self) -> bool:
        """Nodes start what is to run and end what is to go."""
        acted = False
        for pod in self.cluster.of(Kind.POD):
            if pod.node in self.dead_nodes:
                continue
            if pod.deleting is not None and not pod.stubborn:
                acted = self._ends(pod) or acted
            elif pod.deleting is None and pod.state is PodState.PENDING:
                pod.state = PodState.RUNNING
                self.cluster.change(pod)
                acted = True
        return acted

    def _ends(self, pod: Thing) -> bool:
        """A process that is told to end says 143; then its pod goes, unless a finalizer holds it."""
        if not pod.finished:
            pod.state, pod.exit_code, pod.failed_at = PodState.FAILED, 143, self.cluster.now
            self.cluster.change(pod)
            return True
        if pod.finalizers or pod.died is not None:
            return False
        self.cluster.let_go(pod)
        return True

    def node_dies(self, node: int) -> None:
        self.dead_nodes.add(node)

    def node_controller_acts(self) -> list[Thing]:
        """Pods of dead nodes are evicted; they stay until they are forced or their node comes back."""
        found = [
            pod for pod in self.cluster.of(Kind.POD) if pod.node in self.dead_nodes and pod.deleting is None
        ]  # fmt: skip
        with self._as(Hand.NODE):
            for pod in found:
                self.cluster.delete(pod.kind, pod.name, pod.uid)
        return found

    # --- processes

    def running(self) -> list[Thing]:
        return [
            one for one in self.cluster.of(Kind.POD) if one.state is PodState.RUNNING and one.deleting is None
        ]  # fmt: skip

    def lacking(self, attempt: int) -> list[str]:
        """Return the components of an attempt that have not all their pods, and are not complete."""
        pods = [one for one in self.cluster.of(Kind.POD, attempt) if one.deleting is None]
        well = [(one.component, one.copy) for one in pods if one.state in {PodState.RUNNING, PodState.SUCCEEDED}]
        done = {
            (one.component, one.copy)
            for one in self.cluster.of(Kind.COMPONENT, attempt)
            if one.verdict == "Complete" or (one.verdict and one.copy is not None)
        }
        lacking = [
            one.name
            for one in self.plan
            for copy in (range(one.copies) if one.copies is not None else (None,))
            if well.count((one.name, copy)) < one.pods_each and (one.name, copy) not in done
        ]
        return list(dict.fromkeys(lacking))

    def ends(self, pod: Thing, exit_code: int) -> None:
        """A pod's processes end by themselves."""
        pod.state = PodState.FAILED if exit_code else PodState.SUCCEEDED
        pod.exit_code, pod.failed_at = exit_code, self.cluster.now if exit_code else None
        self.cluster.change(pod)

    # --- people

    def person_deletes(self, thing: Thing) -> None:
        with self._as(Hand.PERSON):
            self.cluster.delete(thing.kind, thing.name, thing.uid, foreground=thing.kind is Kind.COMPONENT)

    def person_holds(self, thing: Thing) -> None:
        """A finalizer is put on an object; the API server takes none on one that is being deleted."""
        if thing.deleting is None:
            thing.finalizers.add(HOLD)
            self.cluster.change(thing)

    def lift(self) -> None:
        for thing in list(self.cluster.alive.values()):
            thing.stubborn = False
            if HOLD in thing.finalizers:
                self.cluster.unhold(thing, HOLD)

    # --- what is seen

    def pods_of(self, attempt: int) -> tuple[list[PodFacts], int]:
        """Return the pods of an attempt, and the version this is true of."""
        facts = [_pod(one) for one in self.cluster.of(Kind.POD, attempt)]
        return facts, self.cluster.version

    def summary(
        self, attempt: int, owner_uid: str, pods: tuple[list[PodFacts], int], *, live: bool
    ) -> Observation:  # fmt: skip
        """Return the snapshot of an attempt, with pods that were read before."""
        cluster = self.cluster
        found = cluster.named.get((Kind.OWNER, owner_name(attempt)))
        jobs = {
            one.name: [_seen(cluster.named.get((Kind.COMPONENT, name))) for name in one.object_names]
            for one in self.plan
        }
        anchors = cluster.of(Kind.ANCHOR)
        facts, version = pods
        return summarize(
            workload_uid=UID,
            attempt=attempt,
            owner_uid=owner_uid,
            plan=self.plan,
            anchor=_object(anchors[0]) if anchors else None,
            owner=_object(found) if found else None,
            objects={one.name: jobs[one.name][0] for one in self.plan if one.copies is None},
            copies={one.name: jobs[one.name] for one in self.plan if one.copies is not None},
            pods=facts,
            at=cluster.now,
            live=live,
            revision=version,
            blind=cluster.blind(),
            selection=self.selection,
        )

    def watch_tells(self) -> None:
        """The watch sees the latest attempt and tells of it; the snapshot waits until the script delivers it."""
        if self.cluster.dark_since is not None:
            return
        owners = [one for one in self.cluster.all if one.kind is Kind.OWNER]
        if owners:
            # That one has gone is told too.
            latest = max(owners, key=lambda one: (one.attempt, one.born))
            self.mail.append(self.summary(latest.attempt, latest.uid, self.pods_of(latest.attempt), live=False))

    # --- the end

    def heals(self) -> None:
        """Whatever was wrong with the cluster is put right."""
        self.cluster.get_light()
        self.cluster.refusing = False
        self.dead_nodes.clear()
        self.lift()

    def settles(self) -> None:
        """Collector, controllers and nodes do all they can, at once."""
        for _ in range(100):
            self.collector_learns()
            acted = [self.collector_acts(), self.controllers_act(), self.nodes_act()]
            if not any(acted):
                return
        raise AssertionError("the cluster does not come to rest")


def owner_name(attempt: int) -> str:
    return f"train-llm-a{attempt}"


def _seen(thing: Thing | None) -> ObjectFacts | None:
    return _object(thing) if thing is not None else None


def _object(thing: Thing) -> ObjectFacts:
    verdict = (TrueCondition(thing.verdict, "BackoffLimitExceeded", "", None),) if thing.verdict else ()
    return ObjectFacts(
        uid=thing.uid,
        name=thing.name,
        owner_uids=(thing.owner,),
        deleting=thing.deleting is not None,
        created=thing.created,
        submitted=thing.submitted,
        ended=thing.ended,
        suspended=thing.turn % 2 == 1,
        parked=thing.turn % 2 == 1 and thing.parked == thing.turn,
        conditions=verdict,
        revision=thing.version,
    )


def _pod(thing: Thing) -> PodFacts:
    gone = thing.deleting is not None
    return PodFacts(
        uid=thing.uid,
        name=thing.name,
        namespace="default",
        workload_uid=UID,
        attempt=thing.attempt,
        component=thing.component,
        node=f"node-{thing.node}",
        state=PodState.TERMINATING if gone else thing.state,
        created=thing.created,
        revision=thing.version,
        failure_class=FailureClass.APP,
        reason="Error",
        exit_code=thing.exit_code,
        failure_time=thing.failed_at,
        copy=thing.copy,
    )
