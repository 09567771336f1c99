"""Resizes a living gang: its Job's pods, the plan on its owner, and its rendezvous (rows T6, T10, T13)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from temporalio import activity
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.kube.client import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Object,
    Unreachable,
    WebhookFailed,
)
from holdfast.activities.kube.raw import mapping, mappings
from holdfast.activities.kube.trim import lean
from holdfast.activities.objects.copies import read_objects
from holdfast.activities.objects.inject_gang import size
from holdfast.activities.objects.make import is_owned
from holdfast.activities.site.closed import unserved, withdrawn
from holdfast.activities.site.site import RETRY_FIRST, RETRY_LAST, Pulse, Site, as_retryable_errors, user_of
from holdfast.activities.site.updates import update
from holdfast.model.calls.cluster import PlannedComponent, Scaled, ScaleInput
from holdfast.model.calls.gang import GangSize
from holdfast.model.calls.plan import sources_of

Tell = Callable[[ScaleInput], Awaitable[str | None]]
"""Tells the rendezvous its gang's size, and returns why the rendezvous refuses it; may be repeated."""

_ENDS: Final = ("Complete", "Failed")


class _Refused(Exception):
    """The cluster or the rendezvous refuses the size, now and later."""


async def resize_rendezvous(given: ScaleInput) -> str:
    """Tell the rendezvous its gang's size; return why it refuses, empty if it accepts.

    A rendezvous that does not exist needs no size.
    """
    target = given.target
    place = names.rendezvous_id(target.cluster, target.namespace, target.name)
    handle = activity.client().get_workflow_handle(place)
    try:
        await update(handle, names.UPDATE_RESIZE, GangSize(min=given.min, max=given.max), returns=GangSize)
    except WorkflowUpdateFailedError as error:
        return str(error.cause)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    return ""


async def scale(site: Site, given: ScaleInput, tell: Tell) -> Scaled:
    """Resize a gang's Job and its rendezvous; both, or neither (rows T6, D40).

    A dry run first asks the API server whether the Job may have the size. Then the rendezvous is resized, before the
    Job: new members find their place in it, and surplus members leave it in order. After a refusal, both have their old
    size.

    Args:
        site: the cluster.
        given: the request.
        tell: resizes the rendezvous.

    Raises:
        ApplicationError: of type `ClusterMismatch` or `ClusterUnreachable`, both retried.
    """
    site.check(given.target)
    changed = given.again or (activity.in_activity() and activity.info().attempt > 1)
    if why := unserved(site, given.target.namespace):
        if changed:  # Part of it may be done: a worker that serves the namespace goes on.
            raise ApplicationError(why, type=names.ERROR_UNREACHABLE)
        return Scaled(done=False, refused=why)
    async with as_retryable_errors(), Pulse() as pulse:
        try:
            await _until_done(pulse, given, lambda: _sized(site, given, dry_run=True))
            changed = True
            pulse.say(f"telling the rendezvous: {given.min} to {given.max} members")
            if why := await tell(given):
                raise _Refused(f"its rendezvous: {why}")
            await _until_done(pulse, given, lambda: _carried_out(site, given))
        except _Refused as refused:
            if changed:
                await _put_back(site, given, tell, pulse)
            return Scaled(done=False, refused=str(refused))
    return Scaled(done=True)


async def _until_done(pulse: Pulse, given: ScaleInput, once: Callable[[], Awaitable[bool]]) -> None:
    """Call `once` until it is done: an object that changed meanwhile is read again, and an outage is waited out."""
    plan, delay = _plan_of(given), RETRY_FIRST
    while True:
        try:
            if await once():
                return
        except Unreachable as error:
            pulse.say(f"resizing {plan.kind} {plan.object_name}: the API server does not answer: {error.message}")
        await asyncio.sleep(delay)
        delay = min(delay * 2, RETRY_LAST)


async def _carried_out(site: Site, given: ScaleInput) -> bool:
    return await _sized(site, given) and await _planned(site, given)


async def _put_back(site: Site, given: ScaleInput, tell: Tell, pulse: Pulse) -> None:
    """Restore the old size of what was already changed."""
    if given.was is None:
        return
    least = given.was.min
    plan = tuple(
        one.model_copy(update={"expected_pods": least}) if one.name == given.component else one for one in given.plan
    )
    before = given.model_copy(
        update={"min": least, "max": given.was.max, "pods": given.was.pods, "plan": plan, "was": None}
    )
    pulse.say("the new size was refused: putting back what was changed")
    await tell(before)
    with contextlib.suppress(_Refused):  # Then it has its old size, or nobody may change it.
        await _until_done(pulse, before, lambda: _carried_out(site, before))


def _plan_of(given: ScaleInput) -> PlannedComponent:
    return next(one for one in given.plan if one.name == given.component)


async def _planned(site: Site, given: ScaleInput) -> bool:
    """Write the new plan to the attempt's owner, where observers read what to expect of the attempt."""
    name = given.target.attempt_name(given.attempt)
    owner = await site.kube.find(names.API_VERSION, names.ATTEMPT_KIND, name, given.target.namespace)
    if owner is None or owner["metadata"]["uid"] != given.owner_uid or "deletionTimestamp" in owner["metadata"]:
        return True  # It is gone or being deleted: its plan no longer matters.
    plan = [one.model_dump(mode="json", by_alias=True) for one in given.plan]
    if mapping(owner.get("spec")).get("plan") == plan:
        return True
    return await _patched(site, given, owner, {"spec": {"plan": plan}}, ours=True)


async def _sized(site: Site, given: ScaleInput, *, dry_run: bool = False) -> bool:
    found = await read_objects(site, given.target, _plan_of(given), given.attempt, lean)
    jobs = [one for one in found if one is not None and is_owned(one, given.owner_uid) and not _is_over(one)]
    wanted, sources = size(given.pods), sources_of(given.data, {given.component})
    late = [one for one in jobs if {key: one["spec"].get(key) for key in wanted} != wanted]
    for one in late:
        grows = given.pods > int(one["spec"].get("parallelism") or 0)
        if grows and (closed := await withdrawn(site, given.target, one, sources)):
            raise _Refused(closed.why)
    done = [await _patched(site, given, one, {"spec": dict(wanted)}, dry_run=dry_run) for one in late]
    return all(done)


def _is_over(job: Object) -> bool:
    conditions = mappings(mapping(job.get("status")).get("conditions"))
    ended = {one.get("type") for one in conditions if one.get("status") == "True"}
    return "deletionTimestamp" in job["metadata"] or bool(ended.intersection(_ENDS))


async def _patched(
    site: Site, given: ScaleInput, found: Object, patch: Object, *, ours: bool = False, dry_run: bool = False
) -> bool:
    """Patch an object at the version that was read; return False if the caller must try again."""
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
            dry_run=dry_run,
        )
    except (Conflict, NotFound, WebhookFailed):
        return False
    except (Forbidden, Invalid) as error:
        if "RBAC: " in error.message:  # The authorizer has not read a role yet.
            return False
        raise _Refused(f"{found['kind']} {metadata['name']}: {error.message}") from None
    return True
