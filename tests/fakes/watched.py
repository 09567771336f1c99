"""A cluster on virtual time, as the watch would see it: for tests of what deserves a signal, and when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from holdfast import names
from holdfast.activities.facts.nodes import Marks
from holdfast.activities.facts.objects import object_facts
from holdfast.activities.facts.workload_key import WorkloadKey
from holdfast.formats.appwrapper import reader
from holdfast.model import Interval, Phase
from holdfast.worker.watch.attention import Attention, Doubt, Send
from holdfast.worker.watch.cache import Cache
from holdfast.worker.watch.seen import KindKey, anchor_seen, attempt_seen, node_seen, pod_seen, resource_seen
from holdfast.worker.watch.signals import Signals

T = TypeVar("T")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
JOB: KindKey = ("batch/v1", "Job")
OWN = "ns"
"""The namespace of the workloads."""


@dataclass
class World:
    """Workloads, `w` by default, of a Job with some pods; signals arrive unless `refuse` says how they fail."""

    rate: float = 200
    cache: Cache = field(default_factory=Cache)
    now: float = 1000.0
    version: int = 100
    sent: list[tuple[float, Send]] = field(default_factory=list)
    refuse: str = ""
    spans: tuple[Interval, ...] = ()
    unseen: frozenset[KindKey] = frozenset()
    settled: bool = True
    listed: bool = True
    plans: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    asked: list[Doubt] = field(default_factory=list)
    """Components that were asked for by name."""
    deletions: list[Doubt] = field(default_factory=list)
    """Anchors that were asked for by name, since they are seen as being deleted."""
    confirms: bool = True
    """Whether a live look finds an anchor being deleted that the watch sees so."""
    namespace: str = OWN
    """Where objects are seen."""

    def __post_init__(self) -> None:
        self.attention = Attention(
            self.cache,
            Signals(self.rate),
            blind=lambda since, _: tuple(span for span in self.spans if span.end > since),
            unseen=lambda: self.unseen,
            settled=lambda _: self.settled,
            listed=lambda: self.listed,
            version=lambda _, __: self.version,
        )

    def time(self) -> datetime:
        return EPOCH + timedelta(seconds=self.now)

    def stamp(self) -> str:
        return self.time().isoformat().replace("+00:00", "Z")

    def next_version(self) -> str:
        self.version += 1
        return str(self.version)

    def key(self, workload: str = "w") -> WorkloadKey:
        return WorkloadKey(self.namespace, workload)

    # The cluster's objects.

    @contextmanager
    def elsewhere(self, namespace: str) -> Iterator[None]:
        """See objects in another namespace, copied there with all they say: only their own uids are others."""
        self.namespace = namespace
        try:
            yield
        finally:
            self.namespace = OWN

    def uid(self, name: str) -> str:
        """Return the uid that the API server gives an object."""
        return name if self.namespace == OWN else f"{self.namespace}/{name}"

    def anchor(
        self,
        workload: str = "w",
        deleting: bool = False,
        finalizers: tuple[str, ...] = (names.FINALIZER,),
        *,
        deployed: bool = False,
        gone: bool = False,
    ) -> None:
        raw: dict[str, Any] = {
            "metadata": {
                "uid": self.uid(f"anchor-{workload}"),
                "name": workload,
                "namespace": self.namespace,
                "resourceVersion": self.next_version(),
                "finalizers": list(finalizers),
                "creationTimestamp": EPOCH.isoformat(),
            },
            "spec": {"workloadUid": workload, "workflowId": f"workload/c/ns/{workload}"},
            "status": {"attempt": 1} | ({"phase": Phase.RUNNING} if deployed else {}),
        }
        if deleting:
            raw["metadata"]["deletionTimestamp"] = self.stamp()
        seen = self._ours(anchor_seen("c")(raw))
        if seen is not None:
            self.touch(self.cache.drop_anchor(seen, self.version) if gone else self.cache.put_anchor(seen))

    def resource(self, workload: str = "w", *, generation: int = 1, suspend: bool = False, **more: Any) -> None:
        """See a custom resource that stands for a workload in its Anchor's place; `more` is of its metadata."""
        raw: dict[str, Any] = {
            "metadata": {
                "uid": self.uid(workload),
                "name": workload,
                "namespace": self.namespace,
                "generation": generation,
                "resourceVersion": self.next_version(),
                "finalizers": [names.FINALIZER],
                "labels": {names.LABEL_WORKLOAD_UID: workload},
                "creationTimestamp": EPOCH.isoformat(),
                **more,
            },
            "spec": {"suspend": suspend, "components": []},
        }
        seen = self._ours(resource_seen((reader.API_VERSION, reader.KIND), "c")(raw))
        if seen is not None:
            self.touch(self.cache.put_anchor(seen))

    def attempt(
        self,
        workload: str = "w",
        number: int = 1,
        *,
        pods: int = 2,
        components: int = 1,
        submitted: bool = True,
        deleting: bool = False,
        gone: bool = False,
        begins_with: int | None = None,
        turn: int = 0,
    ) -> None:
        begins = components if begins_with is None else begins_with
        plan = [
            {
                "name": f"c{index}",
                "apiVersion": "batch/v1",
                "kind": "Job",
                "objectName": f"{workload}-c{index}",
                "expectedPods": pods,
                "status": {"complete": ["Complete"], "failed": ["Failed"]},
            }
            | ({"later": True} if index >= begins else {})
            for index in range(components)
        ]
        raw: dict[str, Any] = {
            "metadata": {
                "uid": self.uid(f"{workload}-a{number}"),
                "name": f"{workload}-a{number}",
                "namespace": self.namespace,
                "resourceVersion": self.next_version(),
                "creationTimestamp": EPOCH.isoformat(),
                "annotations": {names.ANNOTATION_TURN: str(turn)} if turn else {},
            },
            "spec": {
                "workloadUid": workload,
                "workflowId": f"workload/c/ns/{workload}",
                "attempt": number,
                "plan": plan,
            },
            "status": {"submitted": submitted},
        }
        if deleting:
            raw["metadata"]["deletionTimestamp"] = self.stamp()
        seen = self._ours(attempt_seen("c")(raw))
        if seen is not None:
            self.touch(self.cache.drop_attempt(seen, self.version) if gone else self.cache.put_attempt(seen))

    def job(
        self,
        workload: str = "w",
        number: int = 1,
        index: int = 0,
        condition: str = "",
        gone: bool = False,
        uid: str = "",
        launch: int = 0,
    ) -> None:
        facts = object_facts(
            {
                "metadata": {
                    "uid": self.uid(uid or f"{workload}-a{number}-c{index}"),
                    "name": f"{workload}-c{index}",
                    "namespace": self.namespace,
                    "resourceVersion": self.next_version(),
                    "ownerReferences": [{"kind": "Attempt", "uid": f"{workload}-a{number}"}],
                    "labels": {names.LABEL_LAUNCH: str(launch)} if launch else {},
                },
                "status": {"conditions": [{"type": condition, "status": "True", "lastTransitionTime": self.stamp()}]}
                if condition
                else {},
            }
        )
        place = (*JOB, self.namespace, f"{workload}-c{index}")
        self.touch(self.cache.drop_object(place, facts, self.version) if gone else self.cache.put_object(place, facts))

    def pod(
        self,
        name: str,
        phase: str = "Running",
        *,
        workload: str = "w",
        number: int = 1,
        index: int = 0,
        code: int = 1,
        gone: bool = False,
        deleting: bool = False,
        labels: dict[str, str] | None = None,
        status: dict[str, Any] | None = None,
        node: str = "node-1",
    ) -> None:
        raw: dict[str, Any] = {
            "metadata": {
                "uid": self.uid(f"{workload}-{number}-{name}"),
                "name": name,
                "namespace": self.namespace,
                "resourceVersion": self.next_version(),
                "creationTimestamp": EPOCH.isoformat(),
                "labels": {
                    names.LABEL_WORKLOAD_UID: workload,
                    names.LABEL_ATTEMPT: str(number),
                    names.LABEL_COMPONENT: f"c{index}",
                    **(labels or {}),
                },
            },
            "spec": {"nodeName": node},
            "status": {"phase": phase, **(status or {})},
        }
        if deleting:
            raw["metadata"]["deletionTimestamp"] = self.stamp()
        if phase == "Failed":
            terminated = {"exitCode": code, "reason": "Error", "finishedAt": self.stamp()}
            raw["status"]["containerStatuses"] = [{"name": "main", "state": {"terminated": terminated}}]
        seen = pod_seen(raw)
        assert seen is not None
        hot = phase in {"Failed", "Succeeded"} or gone or deleting
        self.touch(self.cache.drop_pod(seen, self.version) if gone else self.cache.put_pod(seen), hot)

    def node(self, name: str = "node-1", label: str = "", *, uid: str = "uid-1", gone: bool = False) -> None:
        raw = {
            "metadata": {"name": name, "uid": uid, "resourceVersion": self.next_version(), "labels": {"health": label}},
        }
        seen = node_seen(Marks(labels=("health=EVICT",)))(raw)
        self.touch(self.cache.drop_node(seen, self.version) if gone else self.cache.put_node(seen))

    def running(self, workload: str = "w", number: int = 1, pods: int = 2) -> None:
        """The usual beginning: anchor, attempt, Job, and all its pods running."""
        self.anchor(workload)
        self.attempt(workload, number, pods=pods)
        self.job(workload, number)
        for index in range(pods):
            self.pod(f"p{index}", workload=workload, number=number)

    def _ours(self, seen: T | None) -> T | None:
        """Return what was decoded; only a copy elsewhere may be none of ours."""
        assert seen is not None or self.namespace != OWN
        return seen

    # The watch.

    def touch(self, workloads: set[WorkloadKey], hot: bool = True) -> None:
        self.attention.changed(workloads, self.now, hot)

    def pass_time(self, seconds: float) -> list[Send]:
        """Let time pass, from one thing due to the next; return what was sent meanwhile."""
        end, before = self.now + seconds, len(self.sent)
        for _ in range(100_000):
            self.attention.look(self.now, self.time())
            self._settle(self.attention.doubts(self.now, 1000))
            for send in self.attention.take(self.now, self.time(), 1000):
                self.sent.append((self.now, send))
                if self.refuse == "closed":
                    self.attention.closed(send)
                elif self.refuse:
                    self.attention.lost(send, self.now)
                else:
                    self.attention.arrived(send, self.now)
            due = self.attention.next_due(self.now)
            if due is None or due > end:
                break
            self.now = max(due, self.now + 1e-6)
        else:
            raise AssertionError("the watch never came to rest")
        self.now = end
        return [send for _, send in self.sent[before:]]

    def _settle(self, doubts: list[Doubt]) -> None:
        self.asked += [doubt for doubt in doubts if not doubt.deletion]
        deletions = [doubt for doubt in doubts if doubt.deletion]
        self.deletions += deletions
        for doubt in deletions:
            seen = self.cache.unconfirmed(doubt.workload)
            assert seen is not None
            self.touch(self.attention.answered(doubt, replace(seen.facts, deleting=self.confirms)))

    def restarted(self) -> World:
        """Another process, that lists the same cluster anew and has only the heartbeat of this one."""
        other = World(rate=self.rate, now=self.now, version=self.version, unseen=self.unseen)
        other.attention.recall(self.attention.digests())
        self.list_into(other.cache)
        other.touch(other.cache.workloads)
        return other

    def list_into(self, cache: Cache) -> None:
        """Show another cache what is there now: nothing of what has gone."""
        for anchor in self.cache._anchors.values():
            cache.put_anchor(anchor)
        for attempts in self.cache._attempts.values():
            for attempt in attempts.values():
                cache.put_attempt(attempt)
        for place, facts in self.cache._objects.items():
            cache.put_object(place, facts)
        for pods in self.cache._pods.values():
            for pod in pods.values():
                cache.put_pod(pod)

    def confirm_asked(self) -> None:
        """Answer what was asked for by name: it is not there."""
        for doubt in self.asked:
            self.touch(self.attention.answered(doubt, None))
        self.asked.clear()
