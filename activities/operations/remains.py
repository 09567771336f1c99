"""What is left of an attempt being removed: the proof that it is gone, or a list of what is left and what holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from holdfast import names
from holdfast.activities.facts.node_annotations import word_on
from holdfast.activities.facts.node_taints import is_fenced
from holdfast.activities.kube.client import Forbidden, NotFound, Object, UnknownKind, Unreachable
from holdfast.activities.kube.owners import Ref, controller_of
from holdfast.activities.kube.raw import mapping, mappings, one_line, time_of
from holdfast.activities.kube.trim import PodTrace, Trace, owned_trace
from holdfast.activities.objects.ancestry import ancestry
from holdfast.activities.objects.attempts import attempts_of
from holdfast.activities.objects.claims import CLAIM
from holdfast.activities.objects.copies import read_objects
from holdfast.activities.objects.volume_claims import claims_left
from holdfast.activities.site.site import Site, user_of
from holdfast.model import NodeWord, Remnant
from holdfast.model.calls.cluster import PlannedComponent, RemoveInput

REMNANTS_TOLD = 16
NODES_ASKED = 32
UNREAD_UID = "unknown"
"""Replaces, in a deletion's precondition, the uid of an object that could not be read: no object has it."""
_WHY_MAXIMUM = 200
_UNREAD = "cannot be read"
"""The key under which the placeholder of an unreadable object says why it cannot be read."""
_NONE_REFUSED: Mapping[str, str] = {}
# The garbage collector's own finalizers: they say that it waits for something, but not for what.
_COLLECTOR = frozenset({"foregroundDeletion", "orphan"})
# Kinds that create pods through objects in between, which could still create new pods. None means the parent's version.
# A ReplicaSet carries its pods' labels, and an EndpointSlice those of its Service. What the other kinds create is found
# by its parent.
_BETWEEN: dict[tuple[str, str], tuple[tuple[str | None, str], ...]] = {
    # If left, they send clients of the next attempt's Service, which has the same name, to this one's pods (row L30).
    ("", "Service"): (("discovery.k8s.io/v1", "EndpointSlice"),),
    ("apps", "Deployment"): (("apps/v1", "ReplicaSet"),),
    ("batch", "CronJob"): (("batch/v1", "Job"),),
    ("jobset.x-k8s.io", "JobSet"): (("batch/v1", "Job"),),
    ("ray.io", "RayJob"): ((None, "RayCluster"), ("batch/v1", "Job")),
}
_DIRECT = frozenset({("", "Pod"), ("batch", "Job"), ("apps", "StatefulSet"), ("apps", "ReplicaSet")})
"""Kinds whose controllers create pods directly."""
_LABELLED = frozenset({"EndpointSlice", "ReplicaSet"})


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left, by quorum reads: of the owner first, then components, then the objects in between, and pods last.

    That order makes an empty result a proof: everything that could create a pod was gone before pods were counted.
    """

    owner: Object | None
    components: tuple[tuple[PlannedComponent, Mapping[str, Any]], ...]
    between: tuple[Object, ...]
    pods: tuple[Mapping[str, Any], ...]
    claims: tuple[Object, ...] = ()
    """The workload's own claims that are to go with it (row J22)."""
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why objects may not be deleted, by uid (row X5)."""

    @property
    def gone(self) -> bool:
        """Whether nothing is left."""
        return not (self.owner or self.components or self.between or self.pods or self.claims)

    @property
    def total(self) -> int:
        """How many objects are left; a component that is itself a pod counts once."""
        things = [*(thing for _, thing in self.components), *self.between, *self.pods, *self.claims]
        uids = [thing["metadata"].get("uid", UNREAD_UID) for thing in things]
        return len(set(uids) - {UNREAD_UID}) + uids.count(UNREAD_UID) + (1 if self.owner else 0)


async def find_owner(site: Site, given: RemoveInput) -> Object | None:
    """Return the attempt's owner object if it is ours; with `everything`, the owner of any attempt that is left."""
    if given.everything:
        return next(iter(await attempts_of(site, given.target)), None)
    name = given.target.attempt_name(given.attempt)
    owner = await site.gathered.named(names.API_VERSION, names.ATTEMPT_KIND, name, given.target.namespace)
    return owner if owner is not None and _is_owner(owner, given) else None


def owner_among(owners: Sequence[Object], given: RemoveInput) -> Object | None:
    """Return what `find_owner` does, from the owners that the workload's label finds; only a read by name is proof."""
    if given.everything:
        return next(iter(owners), None)
    name = given.target.attempt_name(given.attempt)
    return next((one for one in owners if one["metadata"]["name"] == name and _is_owner(one, given)), None)


def _is_owner(owner: Object, given: RemoveInput) -> bool:
    """Whether an object under the owner's name is of this workload; a late worker may have made one of another uid."""
    return mapping(owner.get("spec")).get("workloadUid") == given.target.workload_uid


async def find_remains(site: Site, given: RemoveInput) -> Remains:
    """Find everything that an attempt may have left."""
    owner = await find_owner(site, given)
    owner_uids = {given.owner_uid, owner["metadata"]["uid"] if owner else ""} - {""}
    found = await asyncio.gather(*(_find_component(site, given, one) for one in given.plan))
    components = tuple(
        (component, thing)
        for component, things in zip(given.plan, found, strict=True)
        for thing in things
        if thing is not None and _is_ours(component, thing, given, owner_uids)
    )
    ours = {one.uid for one in given.objects if one.uid} | {thing["metadata"]["uid"] for _, thing in components}
    ours |= owner_uids
    learned = site.between.learn(given.target.namespace, given.plan, ())
    while True:
        between = await find_between(site, given, components, learned)
        pods = await site.gathered.of("v1", "Pod", given.target.namespace, given.target.workload_uid)
        made_by = [*map(_made_by, pods), *map(controller_of, between)]
        if any(made_by):  # Their owners may be of another attempt.
            ours |= {one["metadata"]["uid"] for one in await attempts_of(site, given.target)}
        chains = await ancestry(site, given.target, given.plan, made_by, ours)
        # The pods name the objects in between, which may be of a kind that was not looked for yet (row D27).
        more = learned | site.between.learn(given.target.namespace, given.plan, chains.between)
        if more == learned:
            return Remains(
                owner=owner,
                components=components,
                between=tuple(one for one in between if not chains.is_foreign(controller_of(one))),
                pods=tuple(one for one in pods if not chains.is_foreign(_made_by(one))),
                claims=await claims_left(site, given),
            )
        learned = more


async def learn_between(site: Site, given: RemoveInput) -> None:
    """Learn from the pods, before they are gone, which kinds stand between them and components of unfamiliar kinds.

    Raises:
        Unreachable: if the API server does not answer.
    """
    if all(_type(one) in _DIRECT or _type(one) in _BETWEEN for one in given.plan):
        return
    pods = await site.gathered.of("v1", "Pod", given.target.namespace, given.target.workload_uid)
    ours = {one.uid for one in given.objects if one.uid} | {given.owner_uid} - {""}
    chains = await ancestry(site, given.target, given.plan, map(_made_by, pods), ours)
    site.between.learn(given.target.namespace, given.plan, chains.between)


def _made_by(pod: Mapping[str, Any]) -> Ref | None:
    return pod.controller if isinstance(pod, PodTrace) else controller_of(pod)


def _labels(given: RemoveInput) -> str:
    return f"{names.LABEL_WORKLOAD_UID}={given.target.workload_uid}"


async def find_between(
    site: Site,
    given: RemoveInput,
    components: tuple[tuple[PlannedComponent, Mapping[str, Any]], ...],
    learned: Set[tuple[str, str]],
) -> tuple[Object, ...]:
    """Return the objects that components created and that create pods, as far as they may be read.

    `learned` holds kinds that pods name as their owners, in addition to those known for some components.
    """
    parents = {one.uid for one in given.objects if one.uid} | {thing["metadata"]["uid"] for _, thing in components}
    known = {pair for one in given.plan for pair in _kinds_between(one)}
    found: list[Object] = []
    while True:
        fresh = [
            thing
            for kind in sorted(known | set(learned))  # Also kinds of components: those themselves are parents.
            for thing in await _children(site, given, kind, parents, "" if kind in known else user_of(given.target))
        ]
        found += fresh
        uids = {thing["metadata"]["uid"] for thing in fresh} - {UNREAD_UID}
        # Objects of the known kinds create pods. Objects of other kinds may create objects that do.
        if not uids or not learned - known:
            return tuple(found)
        parents |= uids


async def _children(
    site: Site, given: RemoveInput, of: tuple[str, str], parents: Set[str], user: str
) -> Sequence[Object]:
    """Return the objects of a kind that the parents own, or that carry the workload's label.

    A claim counts by its owner alone: the workload's own claims, which outlive an attempt, carry the label (row J22).
    """
    api_version, kind = of
    labels = _labels(given) if kind in _LABELLED else ""
    workload_uid = None if of == CLAIM else given.target.workload_uid

    def child(item: Object) -> Trace | None:
        return owned_trace(item) if is_child(item, workload_uid, parents) else None

    try:
        listed = await site.kube.list(
            api_version, kind, given.target.namespace, labels=labels, keep=child, impersonate=user
        )
    except Forbidden:
        # The worker may see what the workload's own account may not.
        return await _children(site, given, of, parents, "") if user else []
    except NotFound:
        return []
    except Unreachable as error:
        return [{"kind": kind, "apiVersion": api_version, **_unread(given, "of its own", error.message)}]
    return [{"kind": kind, "apiVersion": api_version, **item} for item in listed["items"]]


def is_child(thing: Mapping[str, Any], workload_uid: str | None, parents: Set[str]) -> bool:
    """Whether an object was created by a component, and is not itself one. Pure.

    It is owned by one of the parents or, unless `workload_uid` is None, has the workload's label.
    """
    metadata = mapping(thing.get("metadata"))
    if metadata.get("uid") in parents:
        return False
    if parents & {str(one.get("uid")) for one in mappings(metadata.get("ownerReferences"))}:
        return True
    return workload_uid is not None and mapping(metadata.get("labels")).get(names.LABEL_WORKLOAD_UID) == workload_uid


def _type(component: PlannedComponent) -> tuple[str, str]:
    return (component.api_version.rpartition("/")[0], component.kind)


def _kinds_between(component: PlannedComponent) -> list[tuple[str, str]]:
    between = [(version or component.api_version, kind) for version, kind in _BETWEEN.get(_type(component), ())]
    # A claim that is deleted with its StatefulSet is owned by it; a claim that is kept has no owner (row D25).
    return [*between, CLAIM] if component.claims else between


async def _find_component(
    site: Site, given: RemoveInput, component: PlannedComponent
) -> Sequence[Mapping[str, Any] | None]:
    """Return the object under each planned name. An object that can no longer be read is not proven gone.

    The reads of owner and pods, around this one, show whether the API server answers at all. A custom kind may be
    unreadable (it lacks its conversion webhook), and must not keep the rest from being seen.
    """
    try:
        return await read_objects(site, given.target, component, given.attempt, owned_trace, shared=True)
    except UnknownKind as error:
        # An object that was created may still exist; one that never was cannot be created now.
        refs = [one for one in given.objects if (one.kind, one.name) == (component.kind, component.object_name)]
        return [_unread(given, component.object_name, error.message, one.uid or UNREAD_UID) for one in refs]
    except (Forbidden, Unreachable) as error:
        made = _uids_made(given, component)
        return [_unread(given, component.object_name, error.message, made[0] if made else UNREAD_UID)]


def _uids_made(given: RemoveInput, component: PlannedComponent) -> list[str]:
    """Return the uid of the object created for a component, if it is recorded; for copies it is not."""
    of_name = (one for one in given.objects if (one.kind, one.name) == (component.kind, component.object_name))
    return [one.uid for one in of_name if one.uid]


def _unread(given: RemoveInput, name: str, why: str, uid: str = UNREAD_UID) -> Object:
    """Return a placeholder for an object of ours that cannot be read."""
    labels = {names.LABEL_WORKLOAD_UID: given.target.workload_uid, names.LABEL_ATTEMPT: str(given.attempt)}
    metadata = {"name": name, "namespace": given.target.namespace, "labels": labels, "uid": uid}
    return {"metadata": metadata, _UNREAD: one_line(why, _WHY_MAXIMUM)}


async def remnants_of(site: Site, remains: Remains) -> tuple[Remnant, ...]:
    """Return what is left and what holds it: at most 16, first what a foreign finalizer or a refusal holds.

    The owner goes last, and is told last unless it is what may not be deleted.
    """
    asked = sorted({node_of(pod) for pod in remains.pods if node_of(pod)})[:NODES_ASKED]
    answers = await asyncio.gather(*(_is_silent(site, node) for node in asked))
    silent = {node for node, dark in zip(asked, answers, strict=True) if dark}
    # There may be thousands: choose the few to report first.

    def is_held(thing: Mapping[str, Any]) -> bool:
        metadata = thing["metadata"]
        return bool(foreign_finalizers(metadata)) or metadata.get("uid") in remains.refused

    left = sorted(_left(remains), key=lambda one: not is_held(one[1]))[:REMNANTS_TOLD]
    told = [_remnant(kind, thing, node, node in silent, remains.refused) for kind, thing, node in left]
    if remains.owner is not None:
        first = remains.owner["metadata"].get("uid") in remains.refused
        told.insert(0 if first else len(told), _remnant(names.ATTEMPT_KIND, remains.owner, refused=remains.refused))
    return tuple(told[:REMNANTS_TOLD])


def _left(remains: Remains) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield each object that is left, except the owner, with its kind and, for a pod, its node."""
    yield from (("Pod", pod, node_of(pod)) for pod in remains.pods)
    pods = {pod["metadata"].get("uid") for pod in remains.pods}
    things = ((component.kind, thing) for component, thing in remains.components)
    yield from ((kind, thing, "") for kind, thing in things if thing["metadata"].get("uid") not in pods)
    yield from ((thing["kind"], thing, "") for thing in remains.between)
    yield from ((CLAIM[1], thing, "") for thing in remains.claims)


def _is_ours(component: PlannedComponent, thing: Mapping[str, Any], given: RemoveInput, owner_uids: Set[str]) -> bool:
    """Whether the object under a planned name is this attempt's: by its owner, its uid, or its labels."""
    metadata = mapping(thing["metadata"])
    if owner_uids & {str(one.get("uid")) for one in mappings(metadata.get("ownerReferences"))}:
        return True
    if metadata.get("uid") in _uids_made(given, component):
        return True
    labels = mapping(metadata.get("labels"))
    if labels.get(names.LABEL_WORKLOAD_UID) != given.target.workload_uid:
        return False
    return given.everything or labels.get(names.LABEL_ATTEMPT) == str(given.attempt)


def _remnant(
    kind: str,
    thing: Mapping[str, Any],
    node: str = "",
    silent: bool = False,
    refused: Mapping[str, str] = _NONE_REFUSED,
) -> Remnant:
    metadata = mapping(thing["metadata"])
    name = str(metadata["name"])
    if why := thing.get(_UNREAD):
        name = f"{name}, which cannot be read: {why}"
    elif why := refused.get(metadata.get("uid", "")):
        name = f"{name}, which may not be deleted: {one_line(why, _WHY_MAXIMUM)}"
    return Remnant(
        kind=kind,
        name=name,
        deleting_since=time_of(metadata.get("deletionTimestamp")),
        finalizers=foreign_finalizers(metadata),
        node=node,
        unreachable=silent,
    )


def foreign_finalizers(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the finalizers that hold an object, without the garbage collector's own. Pure."""
    return tuple(one for one in metadata.get("finalizers") or () if one not in _COLLECTOR)


def node_of(pod: Mapping[str, Any]) -> str:
    """Return the node that a raw pod is on, empty for none. Pure."""
    return str(mapping(pod.get("spec")).get("nodeName") or "")


async def nodes_down(site: Site, nodes: Set[str]) -> set[str]:
    """Return which of the nodes this installation's monitor has found Down."""
    asked = sorted(nodes - {""})[:NODES_ASKED]
    try:
        found = await asyncio.gather(*(site.gathered.find("v1", "Node", name) for name in asked))
    except (Forbidden, Unreachable):
        return set()
    silent = {NodeWord.DOWN, NodeWord.LOST}
    return {
        name
        for name, node in zip(asked, found, strict=True)
        if node is not None and word_on(node, site.installation)[0] in silent
    }


async def _is_silent(site: Site, node: str) -> bool:
    """Whether a node does not answer, so that a pod's processes may outlive the pod."""
    try:
        found = await site.gathered.find("v1", "Node", node)
    except (Forbidden, Unreachable):
        return False
    if found is None:
        return True
    if is_fenced(found, site.installation):
        return False
    ready = [one for one in mappings(mapping(found.get("status")).get("conditions")) if one.get("type") == "Ready"]
    return not ready or ready[0].get("status") != "True"
