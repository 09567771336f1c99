"""What is left of an attempt that is to go: the proof that it is gone, or a list of what is not and what holds it."""

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
from holdfast.activities.site.site import Site, user_of
from holdfast.model import NodeWord, Remnant
from holdfast.model.calls.cluster import PlannedComponent, RemoveInput

REMNANTS_TOLD = 16
NODES_ASKED = 32
UNREAD_UID = "unknown"
"""Stands in a deletion's precondition for the uid of an object that could not be read: nothing has it."""
_WHY_MAXIMUM = 200
_UNREAD = "cannot be read"
"""Where an object that stands for one that cannot be read says why."""
_NONE_REFUSED: Mapping[str, str] = {}
# The collector's own: they say that something else is waited for, never what.
_COLLECTOR = frozenset({"foregroundDeletion", "orphan"})
# Kinds whose pods come of objects in between, which could still make new pods; None stands for the parent's version.
# A ReplicaSet carries its pods' labels, an EndpointSlice those of its Service. What the others bring forth is known by
# its parent.
_BETWEEN: dict[tuple[str, str], tuple[tuple[str | None, str], ...]] = {
    # They would send clients of the next attempt's Service, which has the same name, to pods of this one (row L30).
    ("", "Service"): (("discovery.k8s.io/v1", "EndpointSlice"),),
    ("apps", "Deployment"): (("apps/v1", "ReplicaSet"),),
    ("batch", "CronJob"): (("batch/v1", "Job"),),
    ("jobset.x-k8s.io", "JobSet"): (("batch/v1", "Job"),),
    ("ray.io", "RayJob"): ((None, "RayCluster"), ("batch/v1", "Job")),
}
_DIRECT = frozenset({("", "Pod"), ("batch", "Job"), ("apps", "StatefulSet"), ("apps", "ReplicaSet")})
"""Kinds whose controllers make pods with nothing in between."""
_LABELLED = frozenset({"EndpointSlice", "ReplicaSet"})


@dataclass(frozen=True, slots=True)
class Remains:
    """What was found left, by quorum reads: the owner first, then components, then what stands between, pods last.

    That order makes an empty answer a proof: whoever could have made a pod was gone before pods were counted.
    """

    owner: Object | None
    components: tuple[tuple[PlannedComponent, Mapping[str, Any]], ...]
    between: tuple[Object, ...]
    pods: tuple[Mapping[str, Any], ...]
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of those that may not be deleted by force, by their uids: why (row X5)."""

    @property
    def gone(self) -> bool:
        """Whether nothing is left."""
        return not (self.owner or self.components or self.between or self.pods)

    @property
    def total(self) -> int:
        """How many objects are left; a component that is itself a pod is one of them."""
        things = [*(thing for _, thing in self.components), *self.between, *self.pods]
        uids = [thing["metadata"].get("uid", UNREAD_UID) for thing in things]
        return len(set(uids) - {UNREAD_UID}) + uids.count(UNREAD_UID) + (1 if self.owner else 0)


async def find_owner(site: Site, given: RemoveInput) -> Object | None:
    """Return the attempt's owner object, if the one under its name is ours; or that of any attempt there still is."""
    if given.everything:
        return next(iter(await attempts_of(site, given.target)), None)
    name = names.attempt_name(given.target.name, given.attempt)
    owner = await site.kube.find(names.API_VERSION, names.ATTEMPT_KIND, name, given.target.namespace)
    return owner if owner is not None and _is_owner(owner, given) else None


async def find_owner_gathered(site: Site, given: RemoveInput) -> Object | None:
    """Return what `find_owner` does, by a read shared with others that look at the same time.

    It is found by its label: that it is not there is to be proven by its name.
    """
    owners = await attempts_of(site, given.target)
    if given.everything:
        return next(iter(owners), None)
    name = names.attempt_name(given.target.name, given.attempt)
    return next((one for one in owners if one["metadata"]["name"] == name and _is_owner(one, given)), None)


def _is_owner(owner: Object, given: RemoveInput) -> bool:
    if given.owner_uid and owner["metadata"]["uid"] != given.owner_uid:
        return False
    return mapping(owner.get("spec")).get("workloadUid") == given.target.workload_uid


async def find_remains(site: Site, given: RemoveInput) -> Remains:
    """Look for everything an attempt may have left."""
    owner = await find_owner(site, given)
    owner_uid = given.owner_uid or (owner["metadata"]["uid"] if owner else "")
    found = await asyncio.gather(*(_find_component(site, given, one) for one in given.plan))
    components = tuple(
        (component, thing)
        for component, things in zip(given.plan, found, strict=True)
        for thing in things
        if thing is not None and _is_ours(component, thing, given, owner_uid)
    )
    ours = {one.uid for one in given.objects if one.uid} | {thing["metadata"]["uid"] for _, thing in components}
    ours |= {owner_uid, *(one["metadata"]["uid"] for one in await attempts_of(site, given.target))} - {""}
    learned = site.between.learn(given.plan, ())
    while True:
        between = await _find_between(site, given, components, learned)
        pods = await site.gathered.of("v1", "Pod", given.target.namespace, given.target.workload_uid)
        made_by = [*map(_made_by, pods), *map(controller_of, between)]
        chains = await ancestry(site, given.target, given.plan, made_by, ours)
        # What stands between is told by the pods themselves, and may be of a kind that was not looked for (row D27).
        more = site.between.learn(given.plan, chains.between)
        if more == learned:
            return Remains(
                owner=owner,
                components=components,
                between=tuple(one for one in between if not chains.is_foreign(controller_of(one))),
                pods=tuple(one for one in pods if not chains.is_foreign(_made_by(one))),
            )
        learned = more


async def learn_between(site: Site, given: RemoveInput) -> None:
    """Learn from the pods, before they go, which kinds stand between them and components of kinds little is known of.

    Raises:
        Unreachable: if the API server does not answer.
    """
    if all(_type(one) in _DIRECT or _type(one) in _BETWEEN for one in given.plan):
        return
    pods = await site.gathered.of("v1", "Pod", given.target.namespace, given.target.workload_uid)
    ours = {one.uid for one in given.objects if one.uid} | {given.owner_uid} - {""}
    chains = await ancestry(site, given.target, given.plan, map(_made_by, pods), ours)
    site.between.learn(given.plan, chains.between)


def _made_by(pod: Mapping[str, Any]) -> Ref | None:
    return pod.controller if isinstance(pod, PodTrace) else controller_of(pod)


def _labels(given: RemoveInput) -> str:
    return f"{names.LABEL_WORKLOAD_UID}={given.target.workload_uid}"


async def _find_between(
    site: Site,
    given: RemoveInput,
    components: tuple[tuple[PlannedComponent, Mapping[str, Any]], ...],
    learned: Set[tuple[str, str]],
) -> tuple[Object, ...]:
    """Return what components have brought forth that brings forth pods, as far as it may be read.

    `learned` are kinds that pods have named as their owners, beside those that are known of some components.
    """
    parents = {one.uid for one in given.objects if one.uid} | {thing["metadata"]["uid"] for _, thing in components}
    known = {pair for one in given.plan for pair in _kinds_between(one)}
    planned = {(one.api_version, one.kind) for one in given.plan}
    found: list[Object] = []
    while True:
        fresh = [
            thing
            for kind in sorted(known | (set(learned) - planned))
            for thing in await _children(site, given, kind, parents, "" if kind in known else user_of(given.target))
        ]
        found += fresh
        uids = {thing["metadata"]["uid"] for thing in fresh} - {UNREAD_UID}
        # Of the kinds that are known what is found brings forth pods; of others it may bring forth what does.
        if not uids or not learned - known:
            return tuple(found)
        parents |= uids


async def _children(
    site: Site, given: RemoveInput, of: tuple[str, str], parents: Set[str], user: str
) -> Sequence[Object]:
    """Return the objects of a kind that some parents have brought forth, or that bear the workload's label."""
    api_version, kind = of
    labels = _labels(given) if kind in _LABELLED else ""

    def child(item: Object) -> Trace | None:
        return owned_trace(item) if is_child(item, given.target.workload_uid, parents) else None

    try:
        listed = await site.kube.list(
            api_version, kind, given.target.namespace, labels=labels, keep=child, impersonate=user
        )
    except Forbidden:
        # What the workload's own account may not see the worker may.
        return await _children(site, given, of, parents, "") if user else []
    except NotFound:
        return []
    except Unreachable as error:
        return [{"kind": kind, "apiVersion": api_version, **_unread(given, "of its own", error.message)}]
    return [{"kind": kind, "apiVersion": api_version, **item} for item in listed["items"]]


def is_child(thing: Mapping[str, Any], workload_uid: str, parents: Set[str]) -> bool:
    """Whether an object was brought forth by a component, and is none itself. Pure."""
    metadata = mapping(thing.get("metadata"))
    if metadata.get("uid") in parents:
        return False
    if parents & {str(one.get("uid")) for one in mappings(metadata.get("ownerReferences"))}:
        return True
    return mapping(metadata.get("labels")).get(names.LABEL_WORKLOAD_UID) == workload_uid


def _type(component: PlannedComponent) -> tuple[str, str]:
    return (component.api_version.rpartition("/")[0], component.kind)


def _kinds_between(component: PlannedComponent) -> list[tuple[str, str]]:
    between = [(version or component.api_version, kind) for version, kind in _BETWEEN.get(_type(component), ())]
    # Claims that are to go with their StatefulSet are owned by it; those that are kept are nobody's (row D25).
    return [*between, CLAIM] if component.claims else between


async def _find_component(
    site: Site, given: RemoveInput, component: PlannedComponent
) -> Sequence[Mapping[str, Any] | None]:
    """Return what stands under each planned name. What cannot be read any more is not proven gone.

    Whether the API server answers at all is for the reads around this one to say, of owner and pods: a kind of its own
    may lack what it takes to read it (a conversion webhook), and must not keep the rest from being seen.
    """
    try:
        return await read_objects(site, given.target, component, given.attempt, owned_trace)
    except UnknownKind as error:
        # What was made is there still, for all that is known; what never was cannot be made now.
        refs = [one for one in given.objects if (one.kind, one.name) == (component.kind, component.object_name)]
        return [_unread(given, component.object_name, error.message, one.uid or UNREAD_UID) for one in refs]
    except (Forbidden, Unreachable) as error:
        made = _uids_made(given, component)
        return [_unread(given, component.object_name, error.message, made[0] if made else UNREAD_UID)]


def _uids_made(given: RemoveInput, component: PlannedComponent) -> list[str]:
    """Return the uid of the object made for a component, if that is remembered: of copies it is not."""
    of_name = (one for one in given.objects if (one.kind, one.name) == (component.kind, component.object_name))
    return [one.uid for one in of_name if one.uid]


def _unread(given: RemoveInput, name: str, why: str, uid: str = UNREAD_UID) -> Object:
    """Return what stands for an object of ours that cannot be read."""
    labels = {names.LABEL_WORKLOAD_UID: given.target.workload_uid, names.LABEL_ATTEMPT: str(given.attempt)}
    metadata = {"name": name, "namespace": given.target.namespace, "labels": labels, "uid": uid}
    return {"metadata": metadata, _UNREAD: one_line(why, _WHY_MAXIMUM)}


async def remnants_of(site: Site, remains: Remains) -> tuple[Remnant, ...]:
    """Say of what is left what holds it: at most 16, what is held by a foreign finalizer first, the owner last."""
    asked = sorted({node_of(pod) for pod in remains.pods if node_of(pod)})[:NODES_ASKED]
    answers = await asyncio.gather(*(_is_silent(site, node) for node in asked))
    silent = {node for node, dark in zip(asked, answers, strict=True) if dark}
    # Of thousands the few that are told are chosen first.
    left = sorted(_left(remains), key=lambda one: not foreign_finalizers(one[1]["metadata"]))[:REMNANTS_TOLD]
    told = [_remnant(kind, thing, node, node in silent, remains.refused) for kind, thing, node in left]
    if remains.owner is not None:
        told.append(_remnant(names.ATTEMPT_KIND, remains.owner))
    return tuple(told[:REMNANTS_TOLD])


def _left(remains: Remains) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield each thing that is left with its kind, and a pod's node; the owner aside."""
    yield from (("Pod", pod, node_of(pod)) for pod in remains.pods)
    pods = {pod["metadata"].get("uid") for pod in remains.pods}
    things = ((component.kind, thing) for component, thing in remains.components)
    yield from ((kind, thing, "") for kind, thing in things if thing["metadata"].get("uid") not in pods)
    yield from ((thing["kind"], thing, "") for thing in remains.between)


def _is_ours(component: PlannedComponent, thing: Mapping[str, Any], given: RemoveInput, owner_uid: str) -> bool:
    """Whether the object under a planned name is this attempt's: by its owner, its uid, or its labels."""
    metadata = mapping(thing["metadata"])
    if owner_uid and owner_uid in {one.get("uid") for one in mappings(metadata.get("ownerReferences"))}:
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
    """Return the finalizers by which somebody holds an object: those of the collector's own are none. Pure."""
    return tuple(one for one in metadata.get("finalizers") or () if one not in _COLLECTOR)


def node_of(pod: Mapping[str, Any]) -> str:
    """Return the node that a raw pod is on, empty for none. Pure."""
    return str(mapping(pod.get("spec")).get("nodeName") or "")


async def nodes_down(site: Site, nodes: Set[str]) -> set[str]:
    """Return those of some nodes that this installation's monitor has found Down."""
    asked = sorted(nodes - {""})[:NODES_ASKED]
    try:
        found = await asyncio.gather(*(site.kube.find("v1", "Node", name) for name in asked))
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
        found = await site.kube.find("v1", "Node", node)
    except (Forbidden, Unreachable):
        return False
    if found is None:
        return True
    if is_fenced(found, site.installation):
        return False
    ready = [one for one in mappings(mapping(found.get("status")).get("conditions")) if one.get("type") == "Ready"]
    return not ready or ready[0].get("status") != "True"
