"""The gangs that this process serves: agents' requests, held until there is news, and the gangs' pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from holdfast import names
from holdfast.activities.facts.workload_key import WorkloadKey
from holdfast.activities.kube.client import Kube, Object
from holdfast.activities.kube.raw import mapping, number_in
from holdfast.model.gang.wire import Announcement, Directive, Join
from holdfast.policy.rendezvous.hub import GangHub
from holdfast.policy.values.edit import edit
from holdfast.worker.gangs.keys import Proof
from holdfast.worker.gangs.limits import Buckets

_OVER: Final = {"Succeeded", "Failed"}
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""The annotation by which the Job controller numbers the pods of an Indexed Job."""
ENDED_MAXIMUM: Final = 65_536


class Stranger(Exception):
    """The calling pod is not of this gang, or not the pod that it claims to be; the message says which."""


class PodSeen(NamedTuple):
    """The fields kept of a pod."""

    name: str
    uid: str
    workload_uid: str
    attempt: int
    ended: str
    """A message how it ended; empty if it has not."""
    node: str = ""
    deleting: bool = False
    """Whether it has a deletion timestamp."""
    completion_index: int | None = None
    """Its index, if it is a pod of an Indexed Job."""


@dataclass(frozen=True, slots=True)
class GangName:
    """Identifies a gang."""

    namespace: str
    workload: str
    workload_uid: str

    @property
    def key(self) -> WorkloadKey:
        """The workload whose gang it is."""
        return WorkloadKey(self.namespace, self.workload_uid)


class Gang:
    """One gang that is served here: its hub, the requests that wait for an answer, and its pods."""

    def __init__(self, name: GangName, kube: Kube) -> None:
        """Start without a hub: no request can be answered yet."""
        self.name = name
        self.hub: GangHub | None = None
        self.wake = asyncio.Event()
        """Set when there is news for the rendezvous."""
        self.behind = False
        """Whether an agent of a later attempt has announced itself."""
        self.pods: dict[str, PodSeen] = {}
        self.ended: dict[str, str] = {}
        """Pods that are proven to be gone or ended, by uid, each with a message how."""
        self._kube = kube
        self._paces: Buckets[str] = Buckets(per_second=20, burst=100)
        """Announcements of each pod: a workload has as many shares as it has pods."""
        self._looks: Buckets[str] = Buckets(per_second=0.2, burst=3)
        """Live reads of each pod that the watch has not seen."""
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    # --- agents

    async def exchange(self, said: Announcement, proof: Proof, accepted: Callable[[str], None]) -> Directive | None:
        """Process an agent's announcement, and return its directive; held for as long as it asked if nothing is new.

        Calls `accepted` with the pod's uid once it is known to be of this gang, before the request is held.
        Returns None if the directive is not known yet.

        Raises:
            Stranger: if the pod is not of this gang, or not the pod that it claims to be.
            Limited: if it announces itself too often.
        """
        self._paces.take(proof.pod_uid, asyncio.get_running_loop().time())
        pod = await self._check(said.join, proof)
        accepted(pod.uid)
        said = edit(said, join=edit(said.join, index=pod.completion_index))
        clock, hub = asyncio.get_running_loop().time, self.hub
        until = clock() + said.wait.total_seconds()
        if hub is None:
            return None
        if hub.hears(said, clock(), datetime.now(UTC)):
            self.wake.set()
        if said.join.attempt > hub.attempt:
            self.behind = True
            self.wake.set()
        while True:
            given = hub.answer(said.join)
            if given is None or given.revision != said.seen or given.ask or clock() >= until:
                return given
            await self._changes(said.join.member, until - clock())
            if self.hub is not hub:
                return None

    def answer(self, members: Iterable[str]) -> None:
        """Answer the waiting requests of these members now."""
        for member in members:
            for one in self._waiting.pop(member, ()):
                if not one.done():
                    one.set_result(None)

    def answer_all(self) -> None:
        """Answer all waiting requests now."""
        self.answer(list(self._waiting))

    async def _changes(self, member: str, seconds: float) -> None:
        one: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(member, set()).add(one)
        try:
            await asyncio.wait({one}, timeout=seconds)
        finally:
            waiting = self._waiting.get(member)
            if waiting is not None:
                waiting.discard(one)
                if not waiting:
                    del self._waiting[member]

    async def _check(self, join: Join, proof: Proof) -> PodSeen:
        """Return the calling pod as the cluster has it: from the watch, or read live if the watch has not seen it.

        Raises:
            Stranger: if it is not of this gang.
            Limited: if it has just been looked for.
        """
        if proof.namespace != self.name.namespace:
            raise Stranger(f"the token is of namespace {proof.namespace}: expected {self.name.namespace}")
        if (proof.pod, proof.pod_uid) != (join.member, join.pod_uid):
            raise Stranger(
                f"the token is of pod {proof.pod} ({proof.pod_uid}): found member {join.member} in pod {join.pod_uid}"
            )
        pod = self.pods.get(proof.pod_uid)
        if pod is None:
            self._looks.take(proof.pod_uid, asyncio.get_running_loop().time(), "the pod has just been looked for")
            raw = await self._kube.find("v1", "Pod", proof.pod, proof.namespace)
            pod = pod_seen(raw) if raw is not None else None
            if pod is not None and pod.uid == proof.pod_uid and pod.workload_uid == self.name.workload_uid:
                self.put(pod)
        if pod is None or pod.uid != proof.pod_uid:
            raise Stranger(f"pod {proof.pod} ({proof.pod_uid}) is gone")
        if pod.workload_uid != self.name.workload_uid:
            raise Stranger(f"pod {proof.pod} is of workload {pod.workload_uid}: expected {self.name.workload_uid}")
        if pod.attempt != join.attempt:
            raise Stranger(f"pod {proof.pod} is of attempt {pod.attempt}: found {join.attempt}")
        return pod

    # --- pods

    def put(self, item: PodSeen) -> None:
        """Handle a new or changed pod."""
        self.pods[item.uid] = item
        if item.ended:
            self._end(item.uid, item.ended)

    def drop(self, item: PodSeen, revision: int) -> None:
        """Handle a pod that is gone, or (revision 0) cannot be read any more, which proves nothing."""
        self.pods.pop(item.uid, None)
        if revision:
            self._end(item.uid, "its pod is gone")

    def gone(self, uid: str) -> None:
        """Record that a live read did not find a pod."""
        self.pods.pop(uid, None)
        self._end(uid, "its pod is gone")

    def _end(self, uid: str, how: str) -> None:
        if len(self.ended) >= ENDED_MAXIMUM:
            self.ended.pop(next(iter(self.ended)))
        self.ended[uid] = how
        self.wake.set()


class Gangs:
    """All gangs that are served in this process, by their workload."""

    def __init__(self) -> None:
        """Start with none."""
        self.served: dict[WorkloadKey, Gang] = {}

    def serves(self, workload_uid: str) -> bool:
        """Whether a gang of a workload with this uid is served here, of whichever namespace."""
        return any(key.uid == workload_uid for key in self.served)


def pod_seen(raw: Object) -> PodSeen | None:
    """Return the fields kept of a pod; None if it has no attempt label."""
    metadata, status = mapping(raw.get("metadata")), mapping(raw.get("status"))
    labels: Any = mapping(metadata.get("labels"))
    attempt = str(labels.get(names.LABEL_ATTEMPT, ""))
    phase = str(status.get("phase") or "")
    if not attempt.isdecimal():
        return None
    return PodSeen(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        workload_uid=str(labels.get(names.LABEL_WORKLOAD_UID, "")),
        attempt=int(attempt),
        ended=f"its pod has {phase.lower()}" if phase in _OVER else "",
        node=str(mapping(raw.get("spec")).get("nodeName") or ""),
        deleting=bool(metadata.get("deletionTimestamp")),
        completion_index=number_in(mapping(metadata.get("annotations")).get(_INDEX)),
    )
