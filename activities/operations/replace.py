"""Replacement: removes some components of a living attempt with their pods, proves them gone, and recreates them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from holdfast import names
from holdfast.activities.facts.objects import copy_of, launch_of
from holdfast.activities.kube.client import REFUSED, Conflict, KubeError, NotFound, Object, Unreachable
from holdfast.activities.kube.each import each
from holdfast.activities.kube.raw import one_line
from holdfast.activities.kube.trim import PodTrace, Trace, owned_trace, pod_trace
from holdfast.activities.objects.ancestry import own_pods
from holdfast.activities.objects.copies import make_component, read_objects
from holdfast.activities.objects.make import (
    Outdated,
    OwnerLost,
    Refusal,
    failure_of,
    is_owned,
    living_owner,
    lost_of,
)
from holdfast.activities.operations.report import apply_report
from holdfast.activities.site.deadline import Grace
from holdfast.activities.site.site import Pulse, Site, as_retryable_errors, is_broken_off, persist, user_of
from holdfast.model import Component, Failure, ObjectRef
from holdfast.model.calls.cluster import PlannedComponent, Replaced, ReplaceInput, Target, UnparkInput, planned
from holdfast.model.life.state import STANDSTILL

_POLL_FIRST = 0.1
_POLL_LAST = 2.0
_WHY = 200


async def replace(site: Site, given: ReplaceInput) -> Replaced:
    """Recreate some components (rows S7 to S9), each independently of the others (row D17).

    Raises:
        ApplicationError: of type `ClusterMismatch` or `ClusterUnreachable`, both retried.
    """
    site.check(given.target)
    objects: dict[str, ObjectRef] = {}
    async with as_retryable_errors(), Pulse() as pulse:
        try:
            return await _replace_all(site, given, pulse, objects)
        except asyncio.CancelledError:
            if not (given.parts and is_broken_off()):
                raise
            return Replaced(objects=tuple(objects.values()), borne=pulse.borne, broken_off=True)
        except OwnerLost as lost:
            return Replaced(objects=tuple(objects.values()), failure=lost_of(given, str(lost)))


async def _replace_all(site: Site, given: ReplaceInput, pulse: Pulse, objects: dict[str, ObjectRef]) -> Replaced:
    """Recreate the components, and add each object to `objects` once it exists."""
    await persist(pulse, "looking for the owner", lambda: living_owner(site, given))
    await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report))
    lives = _lives(site, given, pulse, objects)
    try:
        await _ended(lives, parts=given.parts)
    finally:
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
    failure = next((life.result() for life in lives if not life.cancelled() and life.result() is not None), None)
    made = tuple(objects.values())
    if failure is not None:
        return Replaced(objects=made, failure=failure)
    left = tuple(one.name for one in given.components if one.name not in objects)
    if not left:
        await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report_done))
    return Replaced(objects=made, left=left, borne=pulse.borne)


def _lives(
    site: Site, given: ReplaceInput, pulse: Pulse, objects: dict[str, ObjectRef]
) -> list[asyncio.Task[Failure | None]]:
    """Start to recreate each component in a task of its own. Only pods and what they read wait for each other."""
    gone = {one.name: asyncio.Event() for one in given.components}
    made = {one.name: asyncio.Event() for one in given.components}
    readers = {
        one.name: [pods.name for pods in given.components if one.name in pods.config] for one in given.components
    }

    async def live(component: Component) -> Failure | None:
        name = component.name
        # An object that is already gone need not wait for the pods that read it.
        if readers[name] and await persist(pulse, f"looking for {name}", lambda: _is_there(site, given, component)):
            for one in readers[name]:
                await gone[one].wait()
        # Copies do not wait for each other: one that does not go keeps no other from being made again.
        parts = _parts(given, name)
        leaving = [asyncio.ensure_future(_until_gone(site, one, component, pulse)) for one in parts]

        async def again(part: ReplaceInput, left: asyncio.Future[None]) -> ObjectRef:
            await left
            for one in component.config:
                if one in made:
                    await made[one].wait()
            return await _made(site, part, component, pulse)

        making = [asyncio.ensure_future(again(part, left)) for part, left in zip(parts, leaving, strict=True)]
        try:
            await asyncio.gather(*leaving)
            gone[name].set()
            (objects[name], *_) = await asyncio.gather(*making)
        except Refusal as refusal:
            return failure_of(given, component, refusal)
        finally:
            for one in (*leaving, *making):
                one.cancel()
            await asyncio.gather(*leaving, *making, return_exceptions=True)
        made[name].set()
        return None

    return [asyncio.create_task(live(one)) for one in given.components]


def _parts(given: ReplaceInput, name: str) -> list[ReplaceInput]:
    """Return what to recreate of a component, apart where nothing waits for the rest: each of its copies alone."""
    copies = given.copies.get(name)
    if not copies:
        return [given]
    graces = given.copy_graces.get(name, {})
    return [
        given.model_copy(
            update={
                "copies": {**given.copies, name: (index,)},
                "graces": {**given.graces, **({name: graces[index]} if index in graces else {})},
            }
        )
        for index in copies
    ]


async def _ended(lives: Sequence[asyncio.Task[Failure | None]], *, parts: bool) -> None:
    """Wait until all have ended or one has failed; with `parts`, stop also if the rest stand still after the first."""
    left = set(lives)
    while left:
        some = parts and len(left) < len(lives)
        done, left = await asyncio.wait(
            left, timeout=STANDSTILL.total_seconds() if some else None, return_when=asyncio.FIRST_COMPLETED
        )
        if not done or any(life.exception() or life.result() is not None for life in done):
            return


async def _made(site: Site, given: ReplaceInput, component: Component, pulse: Pulse) -> ObjectRef:
    """Create a component; an object of an earlier launch that a late request created meanwhile is removed first."""
    while True:
        try:
            return await make_component(site, given, component, pulse, only=given.copies.get(component.name))
        except Outdated:
            await _until_gone(site, given, component, pulse)


async def _until_gone(site: Site, given: ReplaceInput, component: Component, pulse: Pulse) -> None:
    """Delete a component and wait until it and its pods are proven gone; its next launch is left alone."""
    plan = planned(component, given.target.workload_uid, given.attempt)
    grace, delay = Grace(site.grace(given.graces.get(component.name, given.grace))), _POLL_FIRST
    while True:
        try:
            found = await _old_objects(site, given, plan)
            fresh = [one for one in found if "deletionTimestamp" not in one["metadata"]]
            kept = dict[str, str]()
            if fresh:
                await living_owner(site, given)
                kept = await delete_all(site, given.target, fresh, plan)
            refused = tuple(kept.values())
            pods = await _old_pods(site, given, component)
            if not found and not pods:
                return
            grace.see(kept.keys())
            refused += await force_pods(site, given.target, forceable(pods, refused)) if grace.is_over else ()
            pulse.say(
                f"waiting for {told_of(plan, found, pods)} to go before it is made again", refused[:1], len(refused)
            )
        except Unreachable as error:
            pulse.say(f"removing {plan.kind} {plan.object_name}: the API server does not answer: {error.message}")
            grace.miss()
        await asyncio.sleep(delay)
        delay = min(delay * 1.5, _POLL_LAST)


async def _is_there(site: Site, given: ReplaceInput, component: Component) -> bool:
    return bool(await _old_objects(site, given, planned(component, given.target.workload_uid, given.attempt)))


async def _old_objects(site: Site, given: ReplaceInput, plan: PlannedComponent) -> list[Trace]:
    """Return the objects to delete: ours, of an earlier launch. The same name may be someone else's by now."""
    only = given.copies.get(plan.name)
    found = await read_objects(site, given.target, plan, given.attempt, owned_trace, only)
    indices = only if only is not None else range(len(found))
    return [
        one
        for index, one in zip(indices, found, strict=True)
        if one is not None and is_owned(one, given.owner_uid) and launch_of(one) < launch_in(given, plan.name, index)
    ]


def launch_in(given: ReplaceInput | UnparkInput, component: str, index: int | None) -> int:
    """Return the current launch of a component, or of one of its copies; an object of an earlier one is removed."""
    alone = given.copy_launches.get(component, {}).get(index) if index is not None else None
    return given.launches.get(component, 0) + (alone.launch if alone is not None else 0)


async def _old_pods(site: Site, given: ReplaceInput, component: Component) -> list[PodTrace]:
    if not component.expected_pods:
        return []
    labels = (
        f"{names.LABEL_WORKLOAD_UID}={given.target.workload_uid},{names.LABEL_ATTEMPT}={given.attempt},"
        f"{names.LABEL_COMPONENT}={component.name}"
    )

    only = given.copies.get(component.name)

    def old(pod: Object) -> PodTrace | None:
        index = copy_of(pod)
        if only is not None and index not in only:
            return None
        return pod_trace(pod) if launch_of(pod) < launch_in(given, component.name, index) else None

    pods = (await site.kube.list("v1", "Pod", given.target.namespace, labels=labels, keep=old))["items"]
    plan = planned(component, given.target.workload_uid, given.attempt)
    return await own_pods(site, given.target, (plan,), pods, lambda pod: pod.controller)


async def delete_all(
    site: Site, target: Target, things: Sequence[Mapping[str, Any]], plan: PlannedComponent, *, as_read: bool = False
) -> dict[str, str]:
    """Delete objects as `delete_read` does; return why those that stay may not be deleted, by uid."""
    answers = await each(things, lambda one: delete_read(site, target, one, plan, as_read=as_read))
    return {one["metadata"]["uid"]: why for one, why in zip(things, answers, strict=True) if why}


async def delete_read(
    site: Site, target: Target, thing: Mapping[str, Any], plan: PlannedComponent, *, as_read: bool = False
) -> str:
    """Delete an object by its uid, with its dependents; with `as_read`, only at the version that was read.

    Returns:
        Why it may not be deleted; empty if it is being deleted, is gone or has changed.
    """
    metadata = thing["metadata"]
    try:
        await site.kube.delete(
            plan.api_version,
            plan.kind,
            metadata["name"],
            target.namespace,
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"] if as_read else "",
            propagation="Foreground",
            impersonate=user_of(target),
        )
    except (NotFound, Conflict):
        return ""
    except REFUSED as error:
        return _refusal(plan.kind, metadata["name"], error)
    return ""


REFUSED_TOLD = 4
"""How many objects and pods that may not be deleted are named, ahead of the list of what is left."""


def forceable(pods: Sequence[Mapping[str, Any]], refused: Collection[str]) -> list[Mapping[str, Any]]:
    """Return which pods of a component may be forced; `refused`: why objects of it may not be deleted, if any. Pure.

    Such an object would make others in place of pods that nobody else deletes.
    """
    return [pod for pod in pods if not refused or "deletionTimestamp" in pod["metadata"]]


async def force_pods(site: Site, target: Target, pods: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Delete pods with no grace period; a pod that a finalizer holds stays, and is reported as left.

    Returns:
        Why pods may not be deleted, a message for each.
    """
    refused: list[str] = []
    for pod in pods:
        metadata = pod["metadata"]
        if metadata.get("deletionGracePeriodSeconds") == 0:
            continue
        try:
            await site.kube.delete(
                "v1",
                "Pod",
                metadata["name"],
                target.namespace,
                uid=metadata["uid"],
                grace_period=0,
                impersonate=user_of(target),
            )
        except Unreachable:
            raise
        except REFUSED as error:
            refused.append(_refusal("Pod", metadata["name"], error))
        except KubeError:
            continue
    return tuple(refused)


def _refusal(kind: str, name: str, error: KubeError) -> str:
    return f"{kind} {name} may not be deleted: {one_line(error.message, _WHY)}"


def told_of(plan: PlannedComponent, found: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]) -> str:
    """Describe what is left of a component, and which finalizers hold it."""
    held = sorted(
        {
            name
            for thing in (*found, *pods)
            for name in thing["metadata"].get("finalizers") or ()
            if name != "foregroundDeletion"
        }
    )
    what = f"{plan.kind} {plan.object_name}"
    if plan.copies is not None:
        what = f"{len(found)} of {plan.copies} copies of {what}"
    text = what + (f" and {len(pods)} Pod" if pods and plan.kind != "Pod" else "")
    return text + (f" (finalizers {', '.join(held)})" if held else "")
