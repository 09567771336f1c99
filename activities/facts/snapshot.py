"""Builds an `Observation` from what the cluster holds of one attempt. Pure: the live look and the watch both use it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from holdfast.activities.facts.components import UNSEEN, Look, Unseen, view_of, view_of_copies, view_of_unserved
from holdfast.activities.facts.nodes import NodeMark
from holdfast.activities.facts.objects import ObjectFacts
from holdfast.activities.facts.pod_waits import groups
from holdfast.activities.facts.pods import PodFacts, PodState
from holdfast.activities.kube.raw import mapping, mappings
from holdfast.model import ComponentView, Failure, Interval, Observation
from holdfast.model.calls.cluster import PlannedComponent
from holdfast.model.observation import FAILURES_MAXIMUM, Asked
from holdfast.model.shared import Shared
from holdfast.model.spec.selection import Selection
from holdfast.policy.failures.selection import select

_SELECTIONS = Shared()
ENDED = frozenset({PodState.SUCCEEDED, PodState.FAILED})


def plan_of(owner: Mapping[str, Any]) -> tuple[PlannedComponent, ...]:
    """Return the plan an attempt's owner object carries."""
    return tuple(PlannedComponent.model_validate(entry) for entry in mappings(mapping(owner.get("spec")).get("plan")))


def selection_in(owner: Mapping[str, Any]) -> Selection | None:
    """Return the rules that an attempt's owner object carries; None if it has none, or none that can be read."""
    try:
        return _SELECTIONS(mapping(owner.get("spec"))["selection"], Selection.model_validate)
    except (KeyError, ValidationError):
        return None


def summarize(
    *,
    workload_uid: str,
    attempt: int,
    owner_uid: str,
    plan: Sequence[PlannedComponent],
    anchor: ObjectFacts | None,
    owner: ObjectFacts | None,
    objects: Mapping[str, ObjectFacts | None],
    copies: Mapping[str, Sequence[ObjectFacts | Unseen | None]] = MappingProxyType({}),
    pods: Iterable[PodFacts],
    at: datetime,
    live: bool = False,
    epoch: int = 0,
    revision: int | None = None,
    blind: tuple[Interval, ...] = (),
    unseen: Collection[str] = (),
    unserved: Collection[str] = (),
    marks: Mapping[str, NodeMark] = MappingProxyType({}),
    refused: Mapping[str, str] = MappingProxyType({}),
    selection: Selection | None = None,
    asked: Asked | None = None,
) -> Observation:
    """Return the snapshot of one attempt.

    Args:
        workload_uid: the uid of the workload.
        attempt: the number of the attempt; pods of another attempt or workload are ignored.
        owner_uid: the uid of the owner object that this attempt was created under; empty takes the one that is found.
        plan: the attempt's components.
        anchor: the workload's anchor, None where there is none.
        owner: the attempt's owner object, None where there is none.
        objects: each component's object under its planned name, by component; None or absent where there is none.
        copies: the objects of each component with copies, by index; `UNSEEN` for one that is assumed to exist.
        pods: pods that carry the workload's uid.
        at: when this was seen.
        live: whether it was seen by quorum reads.
        epoch: restorations of the cluster so far.
        revision: the version up to which all that is given is current; None takes the highest version in it, which is
            right only for a reader that applies all changes in order.
        blind: when the observer could not see.
        unseen: components whose kind the observer does not read: they are assumed to exist.
        unserved: those of them whose kind the cluster does not serve: nothing is known of them.
        marks: the nodes that are marked as bad, by name.
        refused: why pods of a component cannot be created, by component.
        selection: the rules that judge the failures; None where they are not known.
        asked: what the custom resource that represents the workload asks for, if there is one.
    """
    ours = [pod for pod in pods if pod.workload_uid == workload_uid and pod.attempt == attempt]
    if owner is not None and owner_uid and owner.uid != owner_uid:
        owner = None
    owner_uid = owner_uid or (owner.uid if owner else "")
    by_component: dict[str, list[PodFacts]] = {}
    for pod in ours:
        by_component.setdefault(pod.component, []).append(pod)
    look = Look(attempt=attempt, owner=owner, at=at, marks=marks)

    def standing(found: ObjectFacts | Unseen | None, name: str) -> ObjectFacts | Unseen | None:
        if isinstance(found, ObjectFacts) and owner_uid not in found.owner_uids:
            found = None
        return UNSEEN if found is None and name in unseen else found

    views: dict[str, ComponentView] = {}
    failures: list[Failure] = []
    stuck: list[Failure] = []
    for component in plan:
        pods_of, name = by_component.get(component.name, ()), component.name
        if name in unserved:
            seen = view_of_unserved(component, pods_of)
        elif component.copies is None:
            seen = view_of(component, standing(objects.get(name), name), pods_of, look)
        else:
            places = copies.get(name) or [None] * component.copies
            seen = view_of_copies(component, [standing(one, name) for one in places], pods_of, look)
        views[name] = seen.view.model_copy(update={"awaited": True}) if component.awaited else seen.view
        failures += seen.failures
        stuck += seen.stuck
    if revision is None:
        every = (one for several in copies.values() for one in several if isinstance(one, ObjectFacts))
        known = [one.revision for one in (anchor, owner, *objects.values(), *every) if one is not None]
        revision = max([*known, *(pod.revision for pod in ours)], default=0)
    return Observation(
        workload_uid=workload_uid,
        attempt=attempt,
        owner_uid=owner_uid,
        at=at,
        live=live,
        epoch=epoch,
        revision=revision,
        owner_found=owner is not None,
        owner_deleting=owner is not None and owner.deleting,
        parked=owner is not None and owner.parked,
        anchor_deleting=anchor is not None and anchor.deleting,
        components=views,
        unplanned=sum(pod.state not in ENDED for name in by_component.keys() - views for pod in by_component[name]),
        failures=select(failures, FAILURES_MAXIMUM, selection),
        failures_total=len(failures),
        stuck=select(stuck, FAILURES_MAXIMUM, selection),
        waiting=groups(ours, refused, {name: view.absent for name, view in views.items()}, at),
        asked=asked,
        blind=blind,
    )
