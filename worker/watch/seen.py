"""What the watch keeps of each object: decoded from raw JSON, small, and None if it is not ours. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Any

from pydantic import ValidationError

from holdfast import formats, names
from holdfast.activities.facts.nodes import Marks, NodeMark
from holdfast.activities.facts.objects import ObjectFacts, object_facts
from holdfast.activities.facts.pods import PodFacts, pod_facts
from holdfast.activities.facts.snapshot import plan_of, selection_in
from holdfast.activities.facts.workload_key import WorkloadKey, own_name
from holdfast.activities.kube.raw import mapping, mappings, version_of
from holdfast.activities.site.anchor import asked_by, is_held
from holdfast.formats.condition import life_in
from holdfast.model import ConditionType, Phase, Reason
from holdfast.model.calls.cluster import PlannedComponent
from holdfast.model.observation import Asked
from holdfast.model.spec.selection import Selection
from holdfast.policy.values.edit import edit

Place = tuple[str, str, str, str]
"""Identifies an object: API version, kind, namespace, name."""
KindKey = tuple[str, str]
"""A kind as a plan names it: API version and kind."""
POD: KindKey = ("v1", "Pod")
ANCHOR: KindKey = (names.API_VERSION, names.ANCHOR_KIND)


@dataclass(frozen=True, slots=True)
class AnchorSeen:
    """The fields kept of an anchor."""

    facts: ObjectFacts
    namespace: str
    workload_uid: str
    workflow_id: str
    attempt: int
    held: bool
    """Whether it has our finalizer."""
    deployed: bool = False
    """Whether its status says that all objects of its attempt exist and none is being removed."""

    asked: Asked | None = None
    """Its request, if it is the custom resource that the workload was made from."""
    over: bool = False
    """Whether its status says how the workload ended."""
    kind: KindKey = ANCHOR

    @property
    def key(self) -> WorkloadKey:
        """The workload that it represents."""
        return WorkloadKey(self.namespace, self.workload_uid)

    @property
    def place(self) -> Place:
        """Where to read it."""
        return (*self.kind, self.namespace, self.facts.name)

    @property
    def undeleted(self) -> AnchorSeen:
        """The same anchor as if it was not being deleted."""
        asked = self.asked
        if asked is not None:
            # The API server counts a deletion as a generation: without it, nothing may be new.
            generation = max(1, asked.generation - 1)
            asked = edit(asked, deleting=False, foreground=False, generation=generation)
        return replace(self, facts=replace(self.facts, deleting=False), asked=asked)

    @property
    def deletion_wanted(self) -> bool:
        """Whether someone other than Holdfast deleted it."""
        return self.facts.deleting and self.held


@dataclass(frozen=True, slots=True)
class AttemptSeen:
    """The fields kept of an attempt's owner object."""

    facts: ObjectFacts
    namespace: str
    workload_uid: str
    workflow_id: str
    number: int
    plan: tuple[PlannedComponent, ...]
    selection: Selection | None = None
    """The rules that judge its failures."""

    @property
    def key(self) -> WorkloadKey:
        """The workload that it belongs to."""
        return WorkloadKey(self.namespace, self.workload_uid)

    def places_of(self, component: PlannedComponent) -> list[Place]:
        """Return the planned places of a component's objects, by index."""
        kind = (component.api_version, component.kind, self.namespace)
        return [(*kind, name) for name in component.object_names]

    def places(self) -> Iterator[tuple[PlannedComponent, Place]]:
        """Yield each place with its component; a component has one place for each of its copies."""
        for component in self.plan:
            for place in self.places_of(component):
                yield component, place

    def planned_at(self, place: Place) -> PlannedComponent | None:
        """Return the component that plans an object at a place."""
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
    """The fields kept of a pod; `component` is set if the pod itself is a component."""

    facts: PodFacts
    component: ObjectFacts | None

    @property
    def key(self) -> WorkloadKey:
        """The workload that it counts for: of its own namespace, whatever its labels say."""
        return WorkloadKey(self.facts.namespace, self.facts.workload_uid)


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """The fields kept of a node: almost none of a good one, because there are thousands."""

    name: str
    uid: str
    mark: NodeMark | None
    revision: int = field(compare=False)
    """A heartbeat raises it without being a change."""


def node_seen(marks: Marks) -> Callable[[Mapping[str, Any]], NodeSeen]:
    """Return a function that reads a raw node by these marks."""

    def decode(raw: Mapping[str, Any]) -> NodeSeen:
        metadata = mapping(raw.get("metadata"))
        name, uid = str(metadata.get("name", "")), str(metadata.get("uid", ""))
        return NodeSeen(name, uid, marks.of(raw), version_of(metadata))

    return decode


def anchor_seen(cluster: str) -> Callable[[Mapping[str, Any]], AnchorSeen | None]:
    """Return a function that reads an anchor; it returns None if it is not ours, or is a copy in another place."""

    def decode(raw: Mapping[str, Any]) -> AnchorSeen | None:
        metadata, spec = mapping(raw.get("metadata")), mapping(raw.get("spec"))
        workload_uid, workflow_id = str(spec.get("workloadUid") or ""), str(spec.get("workflowId") or "")
        namespace = _namespace(metadata)
        name = own_name(workflow_id, cluster, namespace)
        if not workload_uid or not name or metadata.get("name") != names.anchor_name(name):
            return None
        status = mapping(raw.get("status"))
        attempt = status.get("attempt")
        return AnchorSeen(
            facts=object_facts(raw),
            namespace=namespace,
            workload_uid=intern(workload_uid),
            workflow_id=workflow_id,
            attempt=attempt if isinstance(attempt, int) else 0,
            held=is_held(raw),
            deployed=_is_deployed(str(status.get("phase")), str(status.get("reason")), _says_deployed(status)),
        )

    return decode


def resource_seen(kind: KindKey, cluster: str) -> Callable[[Mapping[str, Any]], AnchorSeen | None]:
    """Return a function that reads a workload's custom resource; it returns None if the workload is not ours."""
    form = formats.RESOURCES[kind]

    def decode(raw: Mapping[str, Any]) -> AnchorSeen | None:
        metadata = mapping(raw.get("metadata"))
        uid, namespace, name = str(metadata.get("uid", "")), _namespace(metadata), str(metadata.get("name", ""))
        if mapping(metadata.get("labels")).get(names.LABEL_WORKLOAD_UID) != uid:
            return None
        status = mapping(raw.get("status"))
        life = life_in(status)
        return AnchorSeen(
            facts=object_facts(raw),
            namespace=namespace,
            workload_uid=intern(uid),
            workflow_id=names.workflow_id(cluster, namespace, name, kind[1]),
            attempt=life.attempt if life is not None else 0,
            held=is_held(raw),
            deployed=life is not None and _is_deployed(life.phase.value, life.reason, form.is_deployed(status)),
            # Items of a list do not carry their kind.
            asked=asked_by({**raw, "apiVersion": kind[0], "kind": kind[1]}),
            over=life is not None and life.phase.ended,
            kind=kind,
        )

    return decode


def _namespace(metadata: Mapping[str, Any]) -> str:
    """Return an object's namespace; the objects of one namespace share the string."""
    return intern(str(metadata.get("namespace", "")))


def _is_deployed(phase: str, reason: str, in_place: bool) -> bool:
    """Whether a status says that the created objects exist: running workloads, and those suspended in place."""
    if phase == Phase.RUNNING or reason in {Reason.SUBMITTED, Reason.STARTING}:
        return True
    return phase == Phase.SUSPENDED and in_place


def _says_deployed(status: Mapping[str, Any]) -> bool:
    told = [one for one in mappings(status.get("conditions")) if one.get("type") == ConditionType.RESOURCES_DEPLOYED]
    return any(one.get("status") in {"True", True} for one in told)


def attempt_seen(cluster: str) -> Callable[[Mapping[str, Any]], AttemptSeen | None]:
    """Return a function that reads an attempt's owner; it returns None if it is not ours, or cannot be parsed."""

    def decode(raw: Mapping[str, Any]) -> AttemptSeen | None:
        metadata, spec = mapping(raw.get("metadata")), mapping(raw.get("spec"))
        workload_uid, workflow_id, number = spec.get("workloadUid"), spec.get("workflowId"), spec.get("attempt")
        if not isinstance(workload_uid, str) or not isinstance(workflow_id, str) or not isinstance(number, int):
            return None
        namespace = _namespace(metadata)
        if not own_name(workflow_id, cluster, namespace):
            return None
        try:
            plan = plan_of(raw)
        except ValidationError:
            return None
        return AttemptSeen(
            facts=object_facts(raw),
            namespace=namespace,
            workload_uid=intern(workload_uid),
            workflow_id=workflow_id,
            number=number,
            plan=plan,
            selection=selection_in(raw),
        )

    return decode


def pod_seen(raw: Mapping[str, Any]) -> PodSeen | None:
    """Return the fields kept of a pod; None if it belongs to no workload."""
    facts = pod_facts(raw)
    if not facts.workload_uid:
        return None
    owners = mappings(mapping(raw.get("metadata")).get("ownerReferences"))
    owned = any(owner.get("kind") == names.ATTEMPT_KIND for owner in owners)
    return PodSeen(facts=facts, component=object_facts(raw) if owned else None)


def in_shards(shards: tuple[int, int]) -> Callable[[Mapping[str, Any]], bool]:
    """Return a test whether a raw object's shard label is in this range; an object without one is in every range."""
    first, last = shards

    def ours(raw: Mapping[str, Any]) -> bool:
        shard = str(mapping(mapping(raw.get("metadata")).get("labels")).get(names.LABEL_SHARD, ""))
        return not shard.isdecimal() or first <= int(shard) <= last

    return ours


def revision_of(raw: Mapping[str, Any]) -> int:
    """Return the version of a raw object or list."""
    return version_of(mapping(raw.get("metadata")))
