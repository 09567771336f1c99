"""The live look: one attempt by quorum reads, tried until the API server answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from holdfast import names
from holdfast.activities.facts import refused_pods, unprepared
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
from holdfast.activities.site.site import Pulse, Site, persist, told
from holdfast.model import FailureClass, Quiet
from holdfast.model.calls.cluster import Observation, ObserveInput, PlannedComponent

LEASES_ASKED = 32
"""Beyond so many nodes all leases of the cluster are listed at once."""


async def observe(site: Site, given: ObserveInput) -> Observation:
    """Return what the cluster holds of an attempt now.

    Raises:
        ApplicationError: of type `ClusterMismatch`.
    """
    site.check(given.target)
    with site.precedence.looking():
        async with told(), Pulse() as pulse:
            if not given.decides:
                await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report))
            seen = await persist(pulse, "looking at the cluster", lambda: look(site, given))
            # Many workloads that lost their nodes together would wait for each other's writes to be decided on.
            untold = given.decides and _is_confirmed(given, seen)
            if given.decides and not untold:
                await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report))
            return seen.model_copy(update={"blind": site.blind(pulse.blind), "untold": untold})


def _is_confirmed(given: ObserveInput, seen: Observation) -> bool:
    """Whether a look has found what a decision follows from at once; what is left to be told is so only once."""
    return bool(seen.failures) and seen.quietest is None and given.report.before is None


async def look(site: Site, given: ObserveInput) -> Observation:
    """Read everything once, in the order in which it can be trusted.

    Pods first: nothing here is older than the version given for it. The owner before the components: where it says that
    all were created, one that is not found afterwards is gone and not still to come.
    """
    target, kube = given.target, site.kube
    # Of many workloads that lost their nodes together, in one read.
    pods = await site.gathered.listed("v1", "Pod", target.namespace, target.workload_uid, pod_facts)
    at = datetime.now(UTC)
    owner_name = names.attempt_name(target.name, given.attempt)
    anchor, owners = await asyncio.gather(
        kube.find(*key_of(target)),
        attempts_of(site, target),
    )
    owner = next((one for one in owners if one["metadata"]["name"] == owner_name), None)
    unseen, unserved = set[str](), set[str]()
    found = await asyncio.gather(*(_component(site, given, one, unseen, unserved) for one in given.plan))
    objects = dict(zip((one.name for one in given.plan), found, strict=True))
    seen_pods = await unprepared.told(kube, pods.items, given.attempt, at)
    own = {one["metadata"]["uid"] for one in owners} | {given.owner_uid} - {""}
    own |= {thing.uid for each in found for thing in each if thing is not None and own & {*thing.owner_uids}}
    chains = await ancestry(site, target, given.plan, (pod.controller for pod in seen_pods), own)
    site.between.learn(given.plan, chains.between)
    foreign = [pod for pod in seen_pods if chains.is_foreign(pod.controller)]
    seen_pods = [pod for pod in seen_pods if not chains.is_foreign(pod.controller)]
    marks = await _marks(site, [pod for pod in seen_pods if pod.attempt == given.attempt])
    if anchor is not None and not is_ours(target, anchor):
        anchor = None
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
    # Whether a node has gone that nobody has missed yet is only asked of an application's failure (`policy.fate`).
    unsure = given.leases and any(failure.cls is FailureClass.APP for failure in seen.failures)
    quietest = await _quietest(site, seen_pods, given.attempt) if unsure else None
    absent = {name: view.absent for name, view in seen.components.items() if view.absent}
    # A look that a decision waits for does not wait for more than it needs: many are made when nodes are lost.
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
    """Return the marked ones of the nodes that these pods are on; none where nodes may not be read."""
    there = sorted({pod.node for pod in pods if pod.node and pod.state in STRANDED})
    try:
        # The first alone: where it is forbidden, the others are too.
        found = [await site.kube.find("v1", "Node", name) for name in there[:1]]
        found += await asyncio.gather(*(site.kube.find("v1", "Node", name) for name in there[1:]))
    except Forbidden:
        return {}
    marks = {name: site.marks.of(node) for name, node in zip(there, found, strict=True) if node is not None}
    return {name: mark for name, mark in marks.items() if mark is not None}


async def _quietest(site: Site, pods: Sequence[PodFacts], attempt: int) -> Quiet | None:
    """Return the node with living pods of an attempt whose lease is the oldest; None where none has one to be read."""
    there = sorted({pod.node for pod in pods if pod.node and pod.attempt == attempt and pod.state not in ENDED})
    try:
        if len(there) > LEASES_ASKED:
            found = (await site.kube.list(*LEASE, names.NODE_LEASES))["items"]
        else:
            found = await asyncio.gather(*(site.kube.find(*LEASE, name, names.NODE_LEASES) for name in there))
    except Forbidden:
        return None
    renewed = {one["metadata"]["name"]: time_of(mapping(one.get("spec")).get("renewTime")) for one in found if one}
    heard = [(at, name) for name, at in renewed.items() if at is not None and name in there]
    if not heard:
        return None
    at, name = min(heard)
    return Quiet(node=name, renewed=at, down_at=at + site.silence)


async def _component(
    site: Site, given: ObserveInput, component: PlannedComponent, unseen: set[str], unserved: set[str]
) -> list[ObjectFacts | None]:
    """Return what stands under each planned name; note a component as unseen if it cannot be read and others can.

    Where the cluster does not serve its kind, that is noted too: nothing is known of it then (row D24).

    Raises:
        Unreachable: if the API server does not answer other reads either.
    """
    target = given.target
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
            if error.status in (401, 429):
                raise  # It does not know us, or asks for patience: that is no matter of the kind.
            # The server went away just now, or this kind's own server or webhook is away: another read tells which.
            await site.kube.find("v1", "Namespace", target.namespace)
    unseen.add(component.name)
    return [None] * len(component.object_names)
