"""Observes a cluster on virtual time, with the functions that read and summarize a real one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast.activities.facts.pods import NOT_PREPARED, PodFacts
from holdfast.activities.facts.snapshot import summarize
from holdfast.model import Observation, Remnant
from holdfast.model.calls.cluster import planned
from holdfast.policy.failures.selection import selection_of
from holdfast.policy.values.edit import edit
from holdfast.simulation.cluster.objects import UID, Pod

if TYPE_CHECKING:
    from holdfast.simulation.cluster.world import World

REMNANTS_TOLD: Final = 16


def observe(world: World, attempt: int, *, live: bool) -> Observation:
    """Return a snapshot of an attempt, from the same function that summarizes a real cluster."""
    world.revision += 1
    owner = world.owners.get(attempt)
    there = [one for one in world.spec.components if not one.after or (attempt, one.name) in world.begun]
    plan = [planned(component, UID, attempt) for component in there]
    found = {one.name: world.of(attempt, one.name) for one in plan if one.copies is None}
    copies = {
        one.name: [world.of(attempt, one.name, index) for index in range(one.copies)]
        for one in plan
        if one.copies is not None
    }
    uid = owner.uid if owner is not None else f"owner-{attempt}"
    seen = summarize(
        workload_uid=UID,
        attempt=attempt,
        owner_uid=uid,
        plan=plan,
        anchor=None,
        owner=owner.facts(world.revision) if owner is not None else None,
        objects={name: thing.facts(uid, world.revision) if thing else None for name, thing in found.items()},
        copies={
            name: [one.facts(uid, world.revision) if one else None for one in several]
            for name, several in copies.items()
        },
        pods=[_read(world, pod, live=live) for pod in world.pods if pod.thing.attempt == attempt],
        at=world.clock.now,
        live=live,
        revision=world.revision,
        blind=world.blindness(),
        marks={**world.down, **world.broken},
        selection=selection_of(world.spec.policy),
    )
    return edit(seen, owner_submitted=owner.submitted if owner is not None else None)


def _read(world: World, pod: Pod, *, live: bool) -> PodFacts:
    """Return the facts of a pod; only a live read also reads its Events, which say why it is not prepared."""
    facts = pod.facts(world.revision)
    if live and facts.reason == NOT_PREPARED and pod.launch is not None:
        return replace(facts, reason=pod.launch.reason)
    return facts


def remnants(world: World, attempt: int) -> tuple[tuple[Remnant, ...], int]:
    """Return the remaining objects of an attempt, pods held by a finalizer first, and their total number."""
    pods = sorted((pod for pod in world.pods if pod.thing.attempt == attempt), key=lambda pod: not pod.finalizer)
    bare = {pod.thing for pod in pods if pod.thing.component.bare}
    things = [one for one in world.things if one.attempt == attempt and one not in bare]
    owner = world.owners.get(attempt)
    found = [
        Remnant(
            kind="Pod",
            name=pod.name,
            deleting_since=pod.deleting,
            finalizers=(pod.finalizer,) if pod.finalizer else (),
            node=pod.node,
            unreachable=pod.node in world.lost,
        )
        for pod in pods
    ]
    found += [Remnant(kind=one.plan.kind, name=one.name, deleting_since=one.deleting) for one in things]
    if owner is not None:
        found.append(Remnant(kind="Attempt", name=owner.uid, deleting_since=owner.deleting))
    return tuple(found[:REMNANTS_TOLD]), len(found)
