"""A component's objects, one or many: created a few at a time, and read by list and by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast import names
from holdfast.activities.kube.client import Forbidden, NotFound, Object
from holdfast.activities.kube.each import each
from holdfast.activities.objects.make import make_patiently
from holdfast.activities.site.site import Pulse, Site, user_of
from holdfast.model import Component, ObjectRef
from holdfast.model.calls.cluster import MakeInput, PlannedComponent, Target, copies_ref

R = TypeVar("R")


async def make_component(
    site: Site,
    given: MakeInput,
    component: Component,
    pulse: Pulse,
    waiting_for: str = "",
    *,
    looked: bool = False,
    only: Sequence[int] | None = None,
) -> ObjectRef:
    """Create a component's object, or all its copies, or `only` some, that are not there yet.

    `looked` is as in `make_patiently`.

    Raises:
        Refusal: if it cannot be created, or patience has run out; it names the copy, if there are copies.
        OwnerLost: if the attempt's owner is gone or being deleted.
        Interrupted: if an earlier try created it, and an interrupted creation must be replaced.
        Outdated: if a late request created an earlier launch of it.
    """
    if component.copies is None:
        return await make_patiently(site, given, component, pulse, waiting_for, looked=looked)

    async def make(index: int) -> None:
        await make_patiently(site, given, component, pulse, waiting_for, index)

    await each(range(component.copies) if only is None else only, make)
    return copies_ref(component)


async def read_objects(
    site: Site,
    target: Target,
    plan: PlannedComponent,
    attempt: int,
    keep: Callable[[Object], R],
    only: Sequence[int] | None = None,
    *,
    shared: bool = False,
) -> list[R | None]:
    """Return what `keep` returns for the object under each planned name of a component, by index; by quorum reads.

    Copies are listed by their labels; a copy that is not listed is read by name, since a label can be removed. If
    `only` some copies are asked for, each is read by name, and returned in that order. If it is
    `shared`, the read of a component without copies may be made as one with those of other workloads.

    Raises:
        Forbidden: if an object of one of these names may not be read.
        UnknownKind: if the cluster does not serve that version of the kind.
    """

    async def read(name: str) -> R | None:
        alone = shared and plan.copies is None  # Of copies, which may be thousands, few are read by name at a time.
        found = await site.read_component(target, plan.api_version, plan.kind, name, shared=alone)
        return None if found is None else keep(found)

    if plan.copies is None:
        return [await read(plan.object_name)]
    if only is not None:
        return await each([plan.object_names[index] for index in only], read)
    listed = dict(await _listed(site, target, plan, attempt, lambda one: (one["metadata"]["name"], keep(one))))
    unlisted = [name for name in plan.object_names if name not in listed]
    asked = dict(zip(unlisted, await each(unlisted, read), strict=True))
    return [listed[name] if name in listed else asked[name] for name in plan.object_names]


async def _listed(
    site: Site, target: Target, plan: PlannedComponent, attempt: int, keep: Callable[[Object], tuple[str, R]]
) -> list[tuple[str, R]]:
    """Return a component's objects that its labels find; empty if they may not be listed."""
    labels = (
        f"{names.LABEL_WORKLOAD_UID}={target.workload_uid},{names.LABEL_ATTEMPT}={attempt},"
        f"{names.LABEL_COMPONENT}={plan.name}"
    )
    for user in (user_of(target), ""):
        try:
            listed = await site.kube.list(
                plan.api_version, plan.kind, target.namespace, labels=labels, keep=keep, impersonate=user
            )
        except Forbidden:
            continue
        except NotFound:
            return []
        return listed["items"]
    return []
