"""What the watch has seen: anchors, attempts, components, pods and marked nodes, found again by workload. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from holdfast import names
from holdfast.activities.facts.components import UNSEEN, failures_said, says_complete
from holdfast.activities.facts.nodes import Marks, NodeMark
from holdfast.activities.facts.objects import ObjectFacts, object_facts
from holdfast.activities.facts.pods import PodFacts, PodState, pod_facts
from holdfast.activities.facts.snapshot import plan_of, selection_in, summarize
from holdfast.activities.kube.owners import named, of_another
from holdfast.activities.kube.raw import mapping, mappings, version_of
from holdfast.activities.site.anchor import asked_by, is_held
from holdfast.formats.condition import life_in
from holdfast.model import ConditionType, Interval, Observation, Phase, Reason
from holdfast.model.calls.cluster import PlannedComponent
from holdfast.model.observation import Asked
from holdfast.model.spec.selection import Selection
from holdfast.policy.values.edit import edit

Place = tuple[str, str, str, str]
"""Where an object is: API version, kind, namespace, name."""
KindKey = tuple[str, str]
"""A kind as a plan names it: API version and kind."""
POD: KindKey = ("v1", "Pod")


@dataclass(frozen=True, slots=True)
class AnchorSeen:
    """What is kept of an anchor."""

    facts: ObjectFacts
    namespace: str
    workload_uid: str
    workflow_id: str
    attempt: int
    held: bool
    """Whether our finalizer is on it."""
    deployed: bool = False
    """Whether its status says that everything of its attempt exists and nothing is being removed."""

    asked: Asked | None = None
    """What it asks for, where it is the custom resource that the workload came of."""
    over: bool = False
    """Whether its status says how its life has ended."""

    @property
    def deletion_wanted(self) -> bool:
        """Whether somebody deleted it, and not we ourselves."""
        return self.facts.deleting and self.held


@dataclass(frozen=True, slots=True)
class AttemptSeen:
    """What is kept of an attempt's owner object."""

    facts: ObjectFacts
    namespace: str
    workload_uid: str
    workflow_id: str
    number: int
    plan: tuple[PlannedComponent, ...]
    selection: Selection | None = None
    """The rules that judge its failures."""

    def places_of(self, component: PlannedComponent) -> list[Place]:
        """Return where a component's objects are planned to be, by index."""
        kind = (component.api_version, component.kind, self.namespace)
        return [(*kind, name) for name in component.object_names]

    def places(self) -> Iterator[tuple[PlannedComponent, Place]]:
        """Yield each place with its component, which has one for each of its copies."""
        for component in self.plan:
            for place in self.places_of(component):
                yield component, place

    def planned_at(self, place: Place) -> PlannedComponent | None:
        """Return the component of which an object is planned to be in a place."""
        for one in self.plan:
            if (one.api_version, one.kind, self.namespace) == place[:3] and one.has(place[3]):
                return one
        return None

    @property
    def kinds(self) -> set[KindKey]:
        """The kinds of its components."""
        return {(component.api_version, component.kind) for component in self.plan}


@dataclass(frozen=True, slots=True)
class PodSeen:
    """What is kept of a pod; `component` where the pod itself is a component."""

    facts: PodFacts
    component: ObjectFacts | None


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """What is kept of a node: next to nothing of a good one, since there are thousands."""

    name: str
    mark: NodeMark | None
    revision: int = field(compare=False)
    """A heartbeat raises it, and is no change."""


def node_seen(marks: Marks) -> Callable[[Mapping[str, Any]], NodeSeen]:
    """Return what reads a raw node by these marks."""

    def decode(raw: Mapping[str, Any]) -> NodeSeen:
        metadata = mapping(raw.get("metadata"))
        return NodeSeen(str(metadata.get("name", "")), marks.of(raw), version_of(metadata))

    return decode


def anchor_seen(raw: Mapping[str, Any]) -> AnchorSeen | None:
    """Return what is kept of an anchor, None if it is none of ours."""
    metadata, spec = mapping(raw.get("metadata")), mapping(raw.get("spec"))
    workload_uid, workflow_id = str(spec.get("workloadUid") or ""), str(spec.get("workflowId") or "")
    if not workload_uid or not workflow_id:
        return None
    status = mapping(raw.get("status"))
    attempt = status.get("attempt")
    return AnchorSeen(
        facts=object_facts(raw),
        namespace=str(metadata.get("namespace", "")),
        workload_uid=workload_uid,
        workflow_id=workflow_id,
        attempt=attempt if isinstance(attempt, int) else 0,
        held=is_held(raw),
        deployed=_is_deployed(str(status.get("phase")), str(status.get("reason")), status),
    )


def resource_seen(kind: KindKey, cluster: str) -> Callable[[Mapping[str, Any]], AnchorSeen | None]:
    """Return what reads a custom resource that stands for a workload; None if it stands for none of ours."""

    def decode(raw: Mapping[str, Any]) -> AnchorSeen | None:
        metadata = mapping(raw.get("metadata"))
        uid, namespace, name = (str(metadata.get(one, "")) for one in ("uid", "namespace", "name"))
        if mapping(metadata.get("labels")).get(names.LABEL_WORKLOAD_UID) != uid:
            return None
        status = mapping(raw.get("status"))
        life = life_in(status)
        return AnchorSeen(
            facts=object_facts(raw),
            namespace=namespace,
            workload_uid=uid,
            workflow_id=names.workflow_id(cluster, namespace, name),
            attempt=life.attempt if life is not None else 0,
            held=is_held(raw),
            deployed=life is not None and _is_deployed(life.phase.value, life.reason, status),
            # A list's items do not say of which kind they are.
            asked=asked_by({**raw, "apiVersion": kind[0], "kind": kind[1]}),
            over=life is not None and life.phase.ended,
        )

    return decode


def _still_in_foreground(known: AnchorSeen | None, seen: AnchorSeen) -> AnchorSeen:
    """Return a custom resource with how it was deleted: the collector takes its own word off as soon as it is done."""
    if known is None or known.asked is None or seen.asked is None or known.facts.uid != seen.facts.uid:
        return seen
    return replace(seen, asked=edit(seen.asked, foreground=True)) if known.asked.foreground else seen


def _is_deployed(phase: str, reason: str, status: Mapping[str, Any]) -> bool:
    """Whether a status says that what was created is there: so what runs, and what is suspended in place."""
    if phase == Phase.RUNNING or reason in {Reason.SUBMITTED, Reason.STARTING}:
        return True
    if phase != Phase.SUSPENDED:
        return False
    told = [one for one in mappings(status.get("conditions")) if one.get("type") == ConditionType.RESOURCES_DEPLOYED]
    return any(one.get("status") in {"True", True} for one in told)


def attempt_seen(raw: Mapping[str, Any]) -> AttemptSeen | None:
    """Return what is kept of an attempt's owner, None if it is none of ours or cannot be read."""
    metadata, spec = mapping(raw.get("metadata")), mapping(raw.get("spec"))
    workload_uid, workflow_id, number = spec.get("workloadUid"), spec.get("workflowId"), spec.get("attempt")
    if not isinstance(workload_uid, str) or not isinstance(workflow_id, str) or not isinstance(number, int):
        return None
    try:
        plan = plan_of(raw)
    except ValidationError:
        return None
    return AttemptSeen(
        facts=object_facts(raw),
        namespace=str(metadata.get("namespace", "")),
        workload_uid=workload_uid,
        workflow_id=workflow_id,
        number=number,
        plan=plan,
        selection=selection_in(raw),
    )


def pod_seen(raw: Mapping[str, Any]) -> PodSeen | None:
    """Return what is kept of a pod, None if it belongs to no workload."""
    facts = pod_facts(raw)
    if not facts.workload_uid:
        return None
    owners = mappings(mapping(raw.get("metadata")).get("ownerReferences"))
    owned = any(owner.get("kind") == names.ATTEMPT_KIND for owner in owners)
    return PodSeen(facts=facts, component=object_facts(raw) if owned else None)


def in_shards(shards: tuple[int, int]) -> Callable[[Mapping[str, Any]], bool]:
    """Return whether a raw object's shard label is among these; an object without one belongs to every watch."""
    first, last = shards

    def ours(raw: Mapping[str, Any]) -> bool:
        shard = str(mapping(mapping(raw.get("metadata")).get("labels")).get(names.LABEL_SHARD, ""))
        return not shard.isdecimal() or first <= int(shard) <= last

    return ours


class Cache:
    """All that the watch holds. Each change returns the workloads it touches."""

    def __init__(self) -> None:
        """Begin empty."""
        self._anchors: dict[str, AnchorSeen] = {}
        self._last: dict[str, AnchorSeen] = {}
        """Anchors that were deleted, until nobody asks for them any more."""
        self._attempts: dict[str, dict[str, AttemptSeen]] = {}
        self._pods: dict[str, dict[str, PodSeen]] = {}
        self._objects: dict[Place, ObjectFacts] = {}
        self._planned: dict[Place, set[str]] = {}
        self._gone: dict[tuple[str, Place], str] = {}
        """Attempts' components that are known to be gone, with the uid of what went; empty where that was not seen."""
        self._ended: dict[tuple[str, Place], ObjectFacts] = {}
        """Attempts' components that are gone, but had said before how they ended."""
        self._revisions: dict[str, int] = {}
        self._marks: dict[str, NodeMark] = {}
        """The marked ones among the nodes."""
        self._refused: dict[str, dict[str, str]] = {}
        """Of workloads whose pods are not all created: why not, by component, as far as Events say it."""
        self.pod_count = 0

    @property
    def workloads(self) -> set[str]:
        """Every workload of which an anchor or an attempt is there."""
        return {*self._anchors, *self._attempts}

    @property
    def attempt_count(self) -> int:
        """How many attempts' owners are there."""
        return sum(len(each) for each in self._attempts.values())

    def anchor(self, workload_uid: str) -> AnchorSeen | None:
        """Return a workload's anchor."""
        return self._anchors.get(workload_uid)

    def last_anchor(self, workload_uid: str) -> AnchorSeen | None:
        """Return the last that was seen of the anchor of a workload that has neither anchor nor attempt any more."""
        return self._last.get(workload_uid) if workload_uid not in self._attempts else None

    def forget(self, workload_uid: str) -> None:
        """Let go of what is kept of an anchor that was deleted."""
        self._last.pop(workload_uid, None)

    def newest(self, workload_uid: str) -> AttemptSeen | None:
        """Return a workload's attempt of the highest number, living or not."""
        return max(self._attempts.get(workload_uid, {}).values(), key=lambda one: one.number, default=None)

    def pods_of(self, workload_uid: str) -> int:
        """Return how many pods of a workload are there."""
        return len(self._pods.get(workload_uid, ()))

    # Changes.

    def put_anchor(self, seen: AnchorSeen) -> set[str]:
        """Remember an anchor."""
        known = self._anchors.get(seen.workload_uid)
        # A second anchor of the same workload cannot be; the newer object is the one that counts.
        if known is None or known.facts.uid == seen.facts.uid or seen.facts.revision > known.facts.revision:
            self._anchors[seen.workload_uid] = _still_in_foreground(known, seen)
            self._last.pop(seen.workload_uid, None)
        return self._touched(seen.workload_uid, seen.facts.revision)

    def drop_anchor(self, seen: AnchorSeen, revision: int) -> set[str]:
        """Forget an anchor."""
        known = self._anchors.get(seen.workload_uid)
        if known is not None and known.facts.uid == seen.facts.uid:
            del self._anchors[seen.workload_uid]
            if revision:  # Without one it may still be there, and only cannot be read any more.
                self._last[seen.workload_uid] = seen
        return self._touched(seen.workload_uid, revision)

    def put_attempt(self, seen: AttemptSeen) -> set[str]:
        """Remember an attempt's owner."""
        self._attempts.setdefault(seen.workload_uid, {})[seen.facts.uid] = seen
        for _, place in seen.places():
            self._planned.setdefault(place, set()).add(seen.workload_uid)
        return self._touched(seen.workload_uid, seen.facts.revision)

    def drop_attempt(self, seen: AttemptSeen, revision: int) -> set[str]:
        """Forget an attempt's owner."""
        attempts = self._attempts.get(seen.workload_uid, {})
        attempts.pop(seen.facts.uid, None)
        if not attempts:
            self._attempts.pop(seen.workload_uid, None)
        still = {place for one in attempts.values() for _, place in one.places()}
        for _, place in seen.places():
            self._gone.pop((seen.facts.uid, place), None)
            self._ended.pop((seen.facts.uid, place), None)
            if place not in still and place in self._planned:
                self._planned[place].discard(seen.workload_uid)
                if not self._planned[place]:
                    del self._planned[place]
        return self._touched(seen.workload_uid, revision)

    def put_pod(self, seen: PodSeen) -> set[str]:
        """Remember a pod."""
        facts = seen.facts
        pods = self._pods.setdefault(facts.workload_uid, {})
        self.pod_count += facts.uid not in pods
        pods[facts.uid] = seen
        touched = self._touched(facts.workload_uid, facts.revision)
        if seen.component is not None:
            touched |= self.put_object((*POD, facts.namespace, facts.name), seen.component)
        return touched

    def drop_pod(self, seen: PodSeen, revision: int) -> set[str]:
        """Forget a pod."""
        facts = seen.facts
        pods = self._pods.get(facts.workload_uid, {})
        self.pod_count -= pods.pop(facts.uid, None) is not None
        if not pods:
            self._pods.pop(facts.workload_uid, None)
        touched = self._touched(facts.workload_uid, revision)
        if seen.component is not None:
            touched |= self.drop_object((*POD, facts.namespace, facts.name), seen.component, revision)
        return touched

    def put_node(self, seen: NodeSeen) -> set[str]:
        """Remember whether a node is marked."""
        if self._marks.get(seen.name) == seen.mark:
            return set()
        if seen.mark is None:
            del self._marks[seen.name]
        else:
            self._marks[seen.name] = seen.mark
        return self._on_node(seen.name, seen.revision)

    def drop_node(self, seen: NodeSeen, revision: int) -> set[str]:
        """Forget a node: it is gone, or cannot be read any more."""
        if self._marks.pop(seen.name, None) is None:
            return set()
        return self._on_node(seen.name, revision)

    def put_refused(self, workload_uid: str, refused: dict[str, str]) -> set[str]:
        """Remember why pods of a workload are not created, by component; nothing forgets it."""
        if self._refused.get(workload_uid, {}) == refused:
            return set()
        if refused:
            self._refused[workload_uid] = refused
        else:
            del self._refused[workload_uid]
        return {workload_uid}

    def put_object(self, place: Place, facts: ObjectFacts) -> set[str]:
        """Remember a component's object."""
        self._objects[place] = facts
        for owner in facts.owner_uids:
            self._gone.pop((owner, place), None)
            self._ended.pop((owner, place), None)
        return self._planners(place, facts.revision)

    def drop_object(self, place: Place, facts: ObjectFacts, revision: int) -> set[str]:
        """Forget a component's object; for the attempt that owned it, it is gone, if that has a version."""
        known = self._objects.get(place)
        if known is not None and known.uid == facts.uid:
            del self._objects[place]
        for owner in facts.owner_uids if revision else ():  # Else it only cannot be read any more.
            self.confirm_gone(owner, place, facts.uid)
            if self._terminal(owner, place, facts):
                self._ended[owner, place] = facts
        return self._planners(place, revision)

    def confirm_gone(self, attempt_uid: str, place: Place, uid: str = "") -> None:
        """Remember that an attempt's component is gone, and not merely not seen yet; with its uid, if that is known."""
        if any(attempt_uid in self._attempts.get(uid, {}) for uid in self._planned.get(place, ())):
            self._gone[attempt_uid, place] = uid or self._gone.get((attempt_uid, place), "")

    # Reading.

    def doubtful(self, attempt: AttemptSeen, unseen: Collection[KindKey] = ()) -> list[tuple[PlannedComponent, Place]]:
        """Return the submitted components that are not in the cache without being known to be gone.

        The streams of two kinds have no common order: an attempt may be seen submitted before its components are.
        """
        if not attempt.facts.submitted or attempt.facts.ended:
            return []
        attempt = self._begun(attempt)
        return [
            (component, place)
            for component, place in attempt.places()
            if (component.api_version, component.kind) not in unseen
            and (attempt.facts.uid, place) not in self._gone
            and ((known := self._objects.get(place)) is None or attempt.facts.uid not in known.owner_uids)
        ]

    def observe(
        self,
        attempt: AttemptSeen,
        at: datetime,
        unseen: Collection[KindKey],
        blind: tuple[Interval, ...],
        version: int = 0,
        unserved: Collection[KindKey] = (),
    ) -> Observation:
        """Return the snapshot of an attempt; `version` is that up to which all it rests on is known.

        What is absent has no version of its own. What went while nobody watched left none here either.
        """
        attempt, uid = self._begun(attempt), attempt.facts.uid
        doubtful = {place for _, place in self.doubtful(attempt, unseen)}
        hidden = {one.name for one in attempt.plan if (one.api_version, one.kind) in unseen}
        anchor = self._anchors.get(attempt.workload_uid)
        single = {one.name: attempt.places_of(one)[0] for one in attempt.plan if one.copies is None}
        objects = {name: self._object(uid, place) for name, place in single.items()}
        copies = {
            one.name: [UNSEEN if place in doubtful else self._object(uid, place) for place in attempt.places_of(one)]
            for one in attempt.plan
            if one.copies is not None
        }
        pods, foreign = self._own_pods(attempt)
        known = [one for one in objects.values() if one is not None]
        known += [one for several in copies.values() for one in several if isinstance(one, ObjectFacts)]
        seen = summarize(
            workload_uid=attempt.workload_uid,
            attempt=attempt.number,
            owner_uid=attempt.facts.uid,
            plan=attempt.plan,
            anchor=anchor.facts if anchor is not None else None,
            asked=anchor.asked if anchor is not None else None,
            owner=attempt.facts,
            objects=objects,
            copies=copies,
            pods=pods,
            at=at,
            # A component may have been seen before the plan that names it.
            revision=max(
                version,
                self.revision(attempt.workload_uid),
                *(one.revision for one in known),
                attempt.facts.revision,
            ),
            blind=blind,
            unseen=hidden | {name for name, place in single.items() if place in doubtful},
            unserved={one.name for one in attempt.plan if (one.api_version, one.kind) in unserved},
            marks=self._marks,
            refused=self._refused.get(attempt.workload_uid, {}),
            selection=attempt.selection,
        )
        if foreign:
            seen = seen.model_copy(update={"foreign": foreign})
        if not seen.missing:
            return seen
        # Which one went is part of the news: the next of its name may go before its coming was told.
        lost = {
            one.name: seen.components[one.name].model_copy(update={"uid": self._went(attempt, one)})
            for one in attempt.plan
            if not seen.components[one.name].found
        }
        return seen.model_copy(update={"components": {**seen.components, **lost}})

    def _own_pods(self, attempt: AttemptSeen) -> tuple[list[PodFacts], tuple[str, ...]]:
        """Return a workload's pods without those that a copy of one of its components made, and whose those are.

        Only a live look follows a longer chain of owners (row D26).
        """
        every = [pod.facts for pod in self._pods.get(attempt.workload_uid, {}).values()]
        standing = {place: self._objects.get(place) for _, place in attempt.places()}
        ours = {facts.uid for facts in standing.values() if facts is not None}
        # One that is not there may have been made anew: its pods are not another's.
        kinds = {(place[0].rpartition("/")[0], place[1]) for place in standing}
        kinds -= {(place[0].rpartition("/")[0], place[1]) for place, facts in standing.items() if facts is None}
        # One that is going may be the last of what stood there before.
        there = [pod for pod in every if pod.state is not PodState.TERMINATING]
        others = [pod for pod in there if of_another(pod.controller, kinds, ours)]
        if not others:
            return every, ()
        away = {pod.uid for pod in others}
        return [pod for pod in every if pod.uid not in away], named(pod.controller for pod in others)

    def stuck_next(self, attempt: AttemptSeen, at: datetime) -> datetime | None:
        """Return when the next of its pods will have waited too long for its node, without any other news."""
        pods = self._pods.get(attempt.workload_uid, {}).values()
        times = (time for pod in pods for time in (pod.facts.stuck_from, pod.facts.waits_from))
        return min((time for time in times if time is not None and time > at), default=None)

    def revision(self, workload_uid: str) -> int:
        """Return the highest version of anything seen of a workload, deletions too."""
        return self._revisions.get(workload_uid, 0)

    def made_since(self, attempt: AttemptSeen) -> list[str]:
        """Return the components of which something was made after the attempt had begun: in their turn, or again."""
        return [
            one.name
            for one in self._begun(attempt).plan
            if one.later or any(self._launch(attempt, place) for place in attempt.places_of(one))
        ]

    def _launch(self, attempt: AttemptSeen, place: Place) -> int:
        there = self._objects.get(place)
        return there.launch if there is not None and attempt.facts.uid in there.owner_uids else 0

    def _begun(self, attempt: AttemptSeen) -> AttemptSeen:
        """Return the attempt without the components whose turn may not have come: nothing of them was ever seen."""
        if not any(one.later for one in attempt.plan):
            return attempt
        begun = [one for one in attempt.plan if not one.later or any(map(self._known(attempt), attempt.places_of(one)))]
        return replace(attempt, plan=tuple(begun))

    def _known(self, attempt: AttemptSeen) -> Callable[[Place], bool]:
        """Return whether an object of the attempt is, or was, in a place."""
        uid = attempt.facts.uid

        def known(place: Place) -> bool:
            there = self._objects.get(place)
            ours = there is not None and uid in there.owner_uids
            return ours or (uid, place) in self._gone or (uid, place) in self._ended

        return known

    def _went(self, attempt: AttemptSeen, component: PlannedComponent) -> str:
        """Return the uid of what went of a component; of copies, a digest of which of them went."""
        gone = {place: self._gone.get((attempt.facts.uid, place)) for place in attempt.places_of(component)}
        if component.copies is None:
            return next(iter(gone.values())) or ""
        which = [f"{place[3]}/{uid}" for place, uid in gone.items() if uid is not None]
        return hashlib.sha256(" ".join(which).encode()).hexdigest()[:16] if which else ""

    def _object(self, attempt_uid: str, place: Place) -> ObjectFacts | None:
        """Return what stands in a place, or else what had ended there: deleted after its end, it is not missing."""
        known = self._objects.get(place)
        if known is not None and attempt_uid in known.owner_uids:
            return known
        return self._ended.get((attempt_uid, place), known)

    def _terminal(self, attempt_uid: str, place: Place, facts: ObjectFacts) -> bool:
        """Whether an attempt's component says that it is complete or has failed."""
        attempts = (self._attempts.get(uid, {}).get(attempt_uid) for uid in self._planned.get(place, ()))
        planned = [attempt.planned_at(place) for attempt in attempts if attempt is not None]
        rules = [one.status for one in planned if one is not None]
        return any(says_complete(rule, facts) or failures_said(rule, facts) for rule in rules)

    def _on_node(self, node: str, revision: int) -> set[str]:
        """Return the workloads with a pod on a node. Marks change seldom, so that no index is kept for this."""
        there = [uid for uid, pods in self._pods.items() if any(pod.facts.node == node for pod in pods.values())]
        return {touched for uid in there for touched in self._touched(uid, revision)}

    def _planners(self, place: Place, revision: int) -> set[str]:
        touched: set[str] = set()
        for workload_uid in self._planned.get(place, ()):
            touched |= self._touched(workload_uid, revision)
        return touched

    def _touched(self, workload_uid: str, revision: int) -> set[str]:
        if not any(workload_uid in held for held in (self._anchors, self._attempts, self._pods)):
            self._revisions.pop(workload_uid, None)  # Nothing of it is left.
            self._refused.pop(workload_uid, None)
            return {workload_uid}
        self._revisions[workload_uid] = max(self._revisions.get(workload_uid, 0), revision)
        return {workload_uid}


def revision_of(raw: Mapping[str, Any]) -> int:
    """Return the version of a raw object or list."""
    return version_of(mapping(raw.get("metadata")))
