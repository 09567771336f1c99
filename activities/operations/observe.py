"""The live look: reads one attempt by quorum reads, and retries until the API server answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from holdfast import names
from holdfast.activities.facts import refused_pods, unprepared
from holdfast.activities.facts.components import is_pod
from holdfast.activities.facts.nodes import STRANDED, NodeMark
from holdfast.activities.facts.objects import ObjectFacts, component_facts, object_facts
from holdfast.activities.facts.pod_waits import groups
from holdfast.activities.facts.pods import PodFacts, pod_facts
from holdfast.activities.facts.snapshot import ENDED, selection_in, summarize
from holdfast.activities.kube.client import Forbidden, UnknownKind, Unreachable
from holdfast.activities.kube.owners import named
from holdfast.activities.kube.raw import mapping, time_of
from holdfast.activities.nodes.marks import LEASE
from holdfast.activities.objects.ancestry import ancestry
from holdfast.activities.objects.attempts import attempts_of, others
from holdfast.activities.objects.copies import read_objects
from holdfast.activities.operations.report import apply_report
from holdfast.activities.site.anchor import asked_of, is_ours, is_standing, key_of
from holdfast.activities.site.site import Pulse, Site, as_retryable_errors, only_its_kind, persist
from holdfast.model import FailureClass, Quiet
from holdfast.model.calls.cluster import Observation, ObserveInput, PlannedComponent

LEASES_ASKED = 32
"""Above this number of nodes, all leases of the cluster are listed in one request."""


async def observe(site: Site, given: ObserveInput) -> Observation:
    """Return what the cluster holds of an attempt now.

    Raises:
        ApplicationError: of type `ClusterMismatch`.
    """
    site.check(given.target)
    with site.precedence.looks.one():
        async with as_retryable_errors(), Pulse() as pulse:
            if not given.decides:
                await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report))
            seen = await persist(pulse, "looking at the cluster", lambda: look(site, given))
            # When many workloads lose their nodes together, their decisions would wait for each other's status writes.
            untold = given.decides and _is_confirmed(given, seen)
            if given.decides and not untold:
                await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report))
            return seen.model_copy(update={"blind": site.blind(pulse.blind), "untold": untold})


def _is_confirmed(given: ObserveInput, seen: Observation) -> bool:
    """Whether a look found failures to decide on at once; False if an earlier report still waits to be written."""
    return bool(seen.failures) and seen.quietest is None and given.report.before is None


async def look(site: Site, given: ObserveInput) -> Observation:
    """Read everything once, in an order that makes the result trustworthy.

    Pods come first: nothing here is older than the revision in the result. The owner comes before the components: if it
    says that all were created, a component that is not found afterwards is gone, not still to be created. A component
    that is itself a pod is taken from the list of pods if it is there.
    """
    target, kube = given.target, site.kube
    # One shared read serves many workloads that lost their nodes together.
    pods = await site.gathered.listed("v1", "Pod", target.namespace, target.workload_uid, _pod_and_component)
    at = datetime.now(UTC)
    owner_name = target.attempt_name(given.attempt)
    anchor, owners = await asyncio.gather(
        kube.find(*key_of(target)),
        attempts_of(site, target),
    )
    owner = next((one for one in owners if one["metadata"]["name"] == owner_name), None)
    unseen, unserved = set[str](), set[str]()
    uids = {given.owner_uid, owner["metadata"]["uid"] if owner is not None else ""} - {""}
    bare = {facts.name: thing for facts, thing in pods.items if thing is not None and uids & {*thing.owner_uids}}
    found = await asyncio.gather(*(_component(site, given, one, bare, unseen, unserved) for one in given.plan))
    objects = dict(zip((one.name for one in given.plan), found, strict=True))
    seen_pods = await unprepared.with_event_reasons(kube, [facts for facts, _ in pods.items], given.attempt, at)
    own = {one["metadata"]["uid"] for one in owners} | {given.owner_uid} - {""}
    own |= {thing.uid for each in found for thing in each if thing is not None and own & {*thing.owner_uids}}
    chains = await ancestry(site, target, given.plan, (pod.controller for pod in seen_pods), own)
    site.between.learn(target.namespace, given.plan, chains.between)
    foreign = [pod for pod in seen_pods if chains.is_foreign(pod.controller)]
    seen_pods = [pod for pod in seen_pods if not chains.is_foreign(pod.controller)]
    marks = await _marks(site, [pod for pod in seen_pods if pod.attempt == given.attempt])
    if anchor is not None and not is_ours(site, target, anchor):
        anchor = None
    if anchor is not None and not site.known.has(target):
        site.known.keep(target, anchor)  # After a restart, the next write need not read it again.
    owned = object_facts(owner) if owner else None
    seen = summarize(
        workload_uid=target.workload_uid,
        attempt=given.attempt,
        owner_uid=given.owner_uid,
        plan=given.plan,
        anchor=object_facts(anchor) if anchor else None,
        owner=owned,
        objects={one.name: objects[one.name][0] for one in given.plan if one.copies is None},
        copies={one.name: objects[one.name] for one in given.plan if one.copies is not None},
        pods=seen_pods,
        at=at,
        live=True,
        revision=pods.version,
        unseen=unseen,
        unserved=unserved,
        marks=marks,
        selection=selection_in(owner) if owner else None,
    )
    # Only an application failure raises the question whether a node is gone unnoticed (`policy.fate`).
    unsure = given.leases and any(failure.cls is FailureClass.APP for failure in seen.failures)
    quietest = await _quietest(site, seen_pods, given.attempt) if unsure else None
    absent = {name: view.absent for name, view in seen.components.items() if view.absent}
    # A look that a decision waits for reads no more than it needs: many such looks run when nodes are lost.
    if absent and not given.decides and owned is not None and owned.submitted and not owned.suspended:
        events = await refused_pods.events_of(kube, target.namespace)
        refused = refused_pods.words(events, given.plan, owned.created or at)
        ours = [pod for pod in seen_pods if pod.attempt == given.attempt]
        seen = seen.model_copy(update={"waiting": groups(ours, refused, absent, at)})
    return seen.model_copy(
        update={
            "anchor_found": anchor is not None and is_standing(target, anchor),
            "asked": asked_of(target, anchor) if anchor is not None else None,
            "foreign": named(pod.controller for pod in foreign),
            "owner_submitted": owned.submitted if owned else None,
            "quietest": quietest,
            "others": others(owners, {pod.attempt for pod in seen_pods}, given.attempt),
        }
    )


async def _marks(site: Site, pods: Sequence[PodFacts]) -> dict[str, NodeMark]:
    """Return the marks of the nodes that these pods are on, by node; empty if nodes may not be read."""
    there = sorted({pod.node for pod in pods if pod.node and pod.state in STRANDED})
    try:
        # Read the first node alone: if that is forbidden, the others are too.
        found = [await site.gathered.find("v1", "Node", name) for name in there[:1]]
        found += await asyncio.gather(*(site.gathered.find("v1", "Node", name) for name in there[1:]))
    except Forbidden:
        return {}
    marks = {name: site.marks.of(node) for name, node in zip(there, found, strict=True) if node is not None}
    return {name: mark for name, mark in marks.items() if mark is not None}


async def _quietest(site: Site, pods: Sequence[PodFacts], attempt: int) -> Quiet | None:
    """Return the node with the oldest lease, of those with living pods of an attempt; None if no lease can be read."""
    there = sorted({pod.node for pod in pods if pod.node and pod.attempt == attempt and pod.state not in ENDED})
    try:
        if len(there) > LEASES_ASKED:
            found = (await site.kube.list(*LEASE, names.NODE_LEASES))["items"]
        else:
            found = await asyncio.gather(*(site.gathered.find(*LEASE, name, names.NODE_LEASES) for name in there))
    except Forbidden:
        return None
    renewed = {one["metadata"]["name"]: time_of(mapping(one.get("spec")).get("renewTime")) for one in found if one}
    heard = [(at, name) for name, at in renewed.items() if at is not None and name in there]
    if not heard:
        return None
    at, name = min(heard)
    return Quiet(node=name, renewed=at, down_at=at + site.silence.usual, lost_at=at + site.silence.sensitive)


def _pod_and_component(raw: Mapping[str, Any]) -> tuple[PodFacts, ObjectFacts | None]:
    """Return what a look needs of a pod, and of the component that it is itself if an attempt owns it."""
    facts = pod_facts(raw)
    is_bare = facts.controller is not None and facts.controller.kind == names.ATTEMPT_KIND
    return facts, _bare_pod(raw) if is_bare else None


_bare_pod: Final = component_facts("v1", "Pod")


async def _component(
    site: Site,
    given: ObserveInput,
    component: PlannedComponent,
    bare: Mapping[str, ObjectFacts],
    unseen: set[str],
    unserved: set[str],
) -> list[ObjectFacts | None]:
    """Return the object under each planned name; add the component to `unseen` if only its kind cannot be read.

    `bare` holds the listed pods that the attempt owns, by name: those are not read again.

    If the cluster does not serve its kind, add it to `unserved` too: nothing is known of it then (row D24).

    Raises:
        Unreachable: if the API server does not answer other reads either.
    """
    target = given.target
    if is_pod(component) and bare.keys() >= {*component.object_names}:
        return [bare[name] for name in component.object_names]
    facts = component_facts(component.api_version, component.kind)
    for _ in range(2):
        try:
            return await read_objects(site, target, component, given.attempt, facts)
        except UnknownKind:
            unserved.add(component.name)
            break
        except Forbidden:
            break
        except Unreachable as error:
            await only_its_kind(site, target, error)
    unseen.add(component.name)
    return [None] * len(component.object_names)
