"""Another size for a living gang: its Job's pods, what is expected of it, its rendezvous (rows T6, T10, T13)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from temporalio import activity
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.contract import PlannedComponent, Scaled, ScaleInput
from holdfast.activities.copies import read_objects
from holdfast.activities.gang_contract import GangSize
from holdfast.activities.inject_gang import size
from holdfast.activities.kept import lean
from holdfast.activities.kube import Conflict, Forbidden, Invalid, NotFound, Object, Unreachable
from holdfast.activities.make import is_owned
from holdfast.activities.raw import mapping, mappings
from holdfast.activities.site import RETRY_FIRST, RETRY_LAST, Pulse, Site, told, user_of
from holdfast.activities.updates import update

Tell = Callable[[ScaleInput], Awaitable[None]]
"""Tells the rendezvous its gang's size; may be repeated."""

_ENDS: Final = ("Complete", "Failed")


class _Refused(Exception):
    """The cluster will not have it so, now or later."""


async def resize_rendezvous(given: ScaleInput) -> None:
    """Tell the rendezvous its gang's size. One that is not there, or closed, has no use for it."""
    target = given.target
    place = names.rendezvous_id(target.cluster, target.namespace, target.name)
    handle = activity.client().get_workflow_handle(place)
    try:
        await update(handle, names.UPDATE_RESIZE, GangSize(min=given.min, max=given.max), returns=GangSize)
    except WorkflowUpdateFailedError as error:
        activity.logger.info("the rendezvous keeps its size: %s", error.cause)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


async def scale(site: Site, given: ScaleInput, tell: Tell) -> Scaled:
    """Give the Job of a gang its pods, and its rendezvous its size.

    The rendezvous is told first: those who come find their place in it, and those that are too many leave it in order.

    Args:
        site: the cluster.
        given: what is asked for.
        tell: how the rendezvous is told.

    Raises:
        ApplicationError: of type `ClusterMismatch` or `ClusterUnreachable`, both retried.
    """
    site.check(given.target)
    plan = next(one for one in given.plan if one.name == given.component)
    async with told(), Pulse() as pulse:
        pulse.say(f"telling the rendezvous: {given.min} to {given.max} members")
        await tell(given)
        delay = RETRY_FIRST
        while True:
            try:
                if await _planned(site, given) and await _sized(site, given, plan):
                    return Scaled(done=True)
            except _Refused as refused:
                return Scaled(done=False, refused=str(refused))
            except Unreachable as error:
                pulse.say(f"resizing {plan.kind} {plan.object_name}: the API server does not answer: {error.message}")
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_LAST)


async def _planned(site: Site, given: ScaleInput) -> bool:
    """Say on the attempt's owner what is expected of it from now on, for whoever watches it."""
    name = names.attempt_name(given.target.name, given.attempt)
    owner = await site.kube.find(names.API_VERSION, names.ATTEMPT_KIND, name, given.target.namespace)
    if owner is None or owner["metadata"]["uid"] != given.owner_uid or "deletionTimestamp" in owner["metadata"]:
        return True  # It is on its way out: what is expected of it does not matter any more.
    plan = [one.model_dump(mode="json", by_alias=True) for one in given.plan]
    if mapping(owner.get("spec")).get("plan") == plan:
        return True
    return await _patched(site, given, owner, {"spec": {"plan": plan}}, ours=True)


async def _sized(site: Site, given: ScaleInput, plan: PlannedComponent) -> bool:
    found = await read_objects(site, given.target, plan, given.attempt, lean)
    jobs = [one for one in found if one is not None and is_owned(one, given.owner_uid) and not _is_over(one)]
    wanted = size(given.pods)
    late = [one for one in jobs if {key: one["spec"].get(key) for key in wanted} != wanted]
    done = [await _patched(site, given, one, {"spec": dict(wanted)}) for one in late]
    return all(done)


def _is_over(job: Object) -> bool:
    conditions = mappings(mapping(job.get("status")).get("conditions"))
    ended = {one.get("type") for one in conditions if one.get("status") == "True"}
    return "deletionTimestamp" in job["metadata"] or bool(ended.intersection(_ENDS))


async def _patched(site: Site, given: ScaleInput, found: Object, patch: Object, *, ours: bool = False) -> bool:
    """Change an object in the version in which it was read; false where it has changed meanwhile."""
    metadata = found["metadata"]
    try:
        await site.kube.patch(
            found["apiVersion"],
            found["kind"],
            metadata["name"],
            given.target.namespace,
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"],
            patch=patch,
            impersonate="" if ours else user_of(given.target),
        )
    except (Conflict, NotFound):
        return False
    except (Forbidden, Invalid) as error:
        raise _Refused(f"{found['kind']} {metadata['name']}: {error.message}") from None
    return True
