"""Prepares an attempt: runs every check that can refuse it, ensures its anchor and owner exist, and may create it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast import formats, names
from holdfast.activities.kube.client import (
    AlreadyExists,
    Conflict,
    KubeError,
    NotFound,
    Object,
    Unreachable,
)
from holdfast.activities.kube.priority import BEGINNING
from holdfast.activities.kube.raw import mapping, mappings
from holdfast.activities.objects.attempts import attempts_of, refuse_revived
from holdfast.activities.objects.make import lost_of, ref_of
from holdfast.activities.objects.rehearse import rehearse
from holdfast.activities.operations.create import create_under
from holdfast.activities.operations.report import applied, apply_report, write_over
from holdfast.activities.site.anchor import (
    asked_of,
    creator_of,
    is_marked,
    is_ours,
    key_of,
    labels_of,
    marking,
    may_change,
    release_anchor,
    sequence_of,
)
from holdfast.activities.site.anchoring import ensure_anchor
from holdfast.activities.site.field_paths import written
from holdfast.activities.site.permissions import until_permitted
from holdfast.activities.site.site import (
    Pulse,
    Site,
    as_retryable_errors,
    conflict,
    is_broken_off,
    persist,
    refused,
    tries,
)
from holdfast.errors import HoldfastError
from holdfast.model import FailureClass, ObjectRef, PodSet, Report
from holdfast.model.calls.cluster import AnchorInput, Created, CreateInput, Prepared, PrepareInput, Target
from holdfast.policy.values.edit import edit

_WAIT_SECONDS = 0.5


async def prepare(site: Site, given: PrepareInput) -> Prepared:
    """Ensure the anchor and this attempt's owner exist; if given what to create, create it (record 0065).

    Raises:
        ApplicationError: of type `ClusterMismatch` or `ClusterUnreachable` (retried), `Refused` or `ObjectConflict`.
    """
    objects: list[ObjectRef] = []
    async with as_retryable_errors(), Pulse() as pulse:
        try:
            await site.precedence.give_way(BEGINNING)
            if given.create is None:
                return await _prepare(site, given, pulse)
            if tries() > 1:
                return await _take_over(site, given, given.create, pulse)
            return await _prepare_and_create(site, given, given.create, pulse, objects)
        except asyncio.CancelledError:
            if not (given.hands_over and is_broken_off()):
                raise
            made = Created(objects=tuple(objects), broken_off=True) if objects else None
            return Prepared(cluster_uid="", owner_uid="", borne=pulse.borne, broken_off=True, created=made)
        except ApplicationError as error:
            if error.non_retryable and given.attempt == 1 and given.target.anchor is None:
                await _withdraw(site, given)
            raise


async def _prepare(site: Site, given: PrepareInput, pulse: Pulse, report: Report | None = None) -> Prepared:
    """Run all checks, and make what does not exist yet; `report` is written instead of that of the input, if given."""
    anchor = await _check_and_anchor(site, given, pulse)
    return await _make_owner(site, given, pulse, anchor, report or given.report)


async def _make_owner(site: Site, given: PrepareInput, pulse: Pulse, anchor: Object, report: Report) -> Prepared:
    sequence = sequence_of(given.target, anchor)
    later, shown = await applied(site, given.target, report)
    # From this report on, the resource shows that it holds quota; what it asks for is read from that version (row F8).
    anchor = dict(shown or anchor)
    if later and given.create is not None:
        return _prepared(site, given, pulse, anchor)
    pod_sets = _pod_sets(given.target, anchor)
    owner = await _ensure_owner(site, given, anchor, pulse)
    prepared = _prepared(site, given, pulse, anchor, owner["metadata"]["uid"])
    sequence = max(sequence, given.report.sequence)
    return prepared.model_copy(update={"sequence": sequence, "pod_sets": pod_sets})


async def _prepare_and_create(
    site: Site, given: PrepareInput, create: CreateInput, pulse: Pulse, objects: list[ObjectRef]
) -> Prepared:
    """Prepare, and create unless another may have taken over; append each object to `objects` once it exists.

    The report comes before the owner, so that the anchor never denies what exists; a new anchor denies nothing yet, and
    has its first report with the mark. The mark comes after the owner, only on an anchor that shows no later report. A
    removal first writes a report of a higher sequence; so does whoever takes over and finds no mark. So an owner under
    which something is created is always found; one made too late stays empty.
    """
    begun = _Clocks()
    tries_at_once = _is_tried_at_once(given, create)
    anchor = await _check_and_anchor(site, given, pulse, rehearses=not tries_at_once)
    if _owner_begun(given, anchor):
        return await _take_over(site, given, create, pulse)  # Temporal counts the tries of a reset activity anew.
    if not begun.surely_alone():
        # A removal that found no anchor could have no report on it.
        if tries_at_once:
            await rehearse(site, _as_placed(given, anchor))
        return await _make_owner(site, given, pulse, anchor, given.report)
    is_new = sequence_of(given.target, anchor) < 0 and given.report.is_status_alone
    later, shown = (0, anchor) if is_new else await applied(site, given.target, given.report)
    if later or shown is None:
        return _prepared(site, given, pulse, shown or anchor)
    owner = await persist(pulse, "making the owner", lambda: _ensure_owner(site, given, anchor, pulse))
    uid = owner["metadata"]["uid"]
    marked = await persist(pulse, "marking the anchor", lambda: _mark_begun(site, given, shown, uid))
    prepared = _prepared(site, given, pulse, marked or shown, uid)
    if marked is None:
        # Creation follows as another activity, which does not rehearse.
        if tries_at_once:
            await rehearse(site, _as_placed(given, anchor))
        return prepared
    patience = site.grace(create.patience) if create.patience is not None else None
    completed = create.model_copy(
        update={
            "owner_uid": uid,
            "components": create.components or given.components,
            "patience": patience,
        }
    )
    ended = names.ANNOTATION_ENDED in mapping(owner["metadata"].get("annotations"))
    created = await create_under(site, completed, pulse, objects, None if ended else owner)
    if tries_at_once and _is_refused(created):
        await _refuse_or_go_on(site, _as_placed(given, anchor), ref_of(owner, names.API_VERSION, names.ATTEMPT_KIND))
    return prepared.model_copy(update={"created": created})


def _is_tried_at_once(given: PrepareInput, create: CreateInput) -> bool:
    """Whether creation itself tells whether the API server takes the workload: one object, which exists or does not.

    If it is refused, a rehearsal names the fields, and the workload is withdrawn. Of several objects some would exist.
    """
    return len(given.components) == 1 and given.components[0].copies is None and not create.claims


def _is_refused(created: Created) -> bool:
    """Whether the API server has refused an object for good."""
    failure = created.failure
    return failure is not None and failure.cls is FailureClass.LAUNCH and not created.exhausted


async def _refuse_or_go_on(site: Site, given: PrepareInput, owner: ObjectRef) -> None:
    """Withdraw a workload whose one object was refused for good; return if that would not be refused again.

    Raises:
        ApplicationError: of type `Refused`, naming each field.
    """
    try:
        await rehearse(site, given)
    except ApplicationError:
        await _withdraw(site, given, owner)
        raise


class _Clocks:
    """Tells whether this try is surely the only one: nobody takes over before its heartbeats have failed for long."""

    def __init__(self) -> None:
        self._wall, self._loop = datetime.now(UTC), asyncio.get_running_loop().time()

    def surely_alone(self) -> bool:
        """Whether less than half a heartbeat timeout has passed, by whichever clock has advanced furthest.

        Temporal's own start counts too: the worker may have stood still before this began.
        """
        info = activity.info() if activity.in_activity() else None
        if info is None or info.heartbeat_timeout is None:
            return True
        now, passed = datetime.now(UTC), timedelta(seconds=asyncio.get_running_loop().time() - self._loop)
        return max(passed, now - self._wall, now - info.started_time) < info.heartbeat_timeout / 2


async def _take_over(site: Site, given: PrepareInput, create: CreateInput, pulse: Pulse) -> Prepared:
    """Prepare an attempt that an earlier try may have begun to create; leave what is missing to its creation.

    If the anchor has the mark, that try's owner existed. Where it is gone, its pods may still run: nothing is created
    beside them, and the attempt is lost. If it has not, it never will once a report of a higher sequence is written.
    """
    await site.confirm(given.target)
    fence = given.report.model_copy(update={"sequence": create.report_submitted.sequence})
    anchor = await _fenced(site, given, fence)
    begun = _owner_begun(given, anchor)
    if anchor is not None and sequence_of(given.target, anchor) > fence.sequence:
        why = "another operation has reported since its preparation began: the attempt is replaced whole"
        return _prepared(site, given, pulse, anchor, begun, Created(interrupted=why))
    await apply_report(site, given.target, given.report if begun else fence)  # Its Events may be missing.
    owner = await _find_owner(site, given)
    living = owner if owner is not None and "deletionTimestamp" not in owner["metadata"] else None
    uid = living["metadata"]["uid"] if living is not None else ""
    if begun and uid != begun:
        name = f"{given.target.namespace}/{given.target.attempt_name(given.attempt)}"
        lost = lost_of(create, f"attempt {name} is gone or being deleted, and nobody has asked for that")
        return _prepared(site, given, pulse, anchor, begun, Created(failure=lost))
    if not uid or anchor is None:
        return await _prepare(site, given, pulse, fence)
    # What could refuse the attempt has been checked: a refusal now would leave what exists.
    return _prepared(site, given, pulse, anchor, uid)


async def _mark_begun(site: Site, given: PrepareInput, anchor: Mapping[str, Any] | None, uid: str) -> Object | None:
    """Mark the anchor, which then shows the report, that creation begins; return it with the mark.

    None if it shows a later report, or has the mark of another try, or its definition is of before there were marks.
    """
    while anchor is not None and is_ours(site, given.target, anchor):
        if sequence_of(given.target, anchor) > given.report.sequence or _owner_begun(given, anchor) not in {"", uid}:
            return None
        try:
            mark = {"begun": f"{given.report.sequence}/{uid}"}
            marked = await write_over(site, given.target, anchor, given.report, mark)
        except (Conflict, NotFound):
            anchor = await site.kube.find(*key_of(given.target))
        else:
            site.known.keep(given.target, marked)
            return marked if _owner_begun(given, marked) else None
    return None


def _owner_begun(given: PrepareInput, anchor: Mapping[str, Any] | None) -> str:
    """Return the uid of the owner under which a try of this operation began to create, by its mark on the anchor."""
    status = mapping((anchor or {}).get("status"))
    sequence, _, uid = str(status.get("begun", "")).partition("/")
    return uid if sequence == str(given.report.sequence) else ""


async def _fenced(site: Site, given: PrepareInput, fence: Report) -> Object | None:
    """Return the anchor once it has the mark of the earlier try, or keeps it from that; None without one."""
    while True:
        anchor = await site.kube.find(*key_of(given.target))
        if anchor is None or not await may_change(site, given.target, anchor):
            return None
        if _owner_begun(given, anchor) or sequence_of(given.target, anchor) > given.report.sequence:
            return anchor
        with suppress(Conflict):
            await write_over(site, given.target, anchor, fence)


def _prepared(
    site: Site,
    given: PrepareInput,
    pulse: Pulse,
    anchor: Mapping[str, Any] | None,
    owner_uid: str = "",
    created: Created | None = None,
) -> Prepared:
    return Prepared(
        sequence=sequence_of(given.target, anchor) if anchor is not None else 0,
        cluster_uid=site.cluster_uid,
        anchor_uid=anchor["metadata"]["uid"] if anchor is not None else "",
        owner_uid=owner_uid,
        limits=site.limits,
        borne=pulse.borne,
        asked=asked_of(given.target, anchor) if anchor is not None else None,
        creator=creator_of(given.target, anchor) if anchor is not None else "",
        created=created,
    )


async def _withdraw(site: Site, given: PrepareInput, owner: ObjectRef | None = None) -> None:
    """Delete this owner, under which nothing is, and the anchor of a first attempt that has shown no wait.

    Where another owner exists, nothing is deleted. The anchor goes first: the collector takes the owner with it.
    """
    target = given.target
    try:
        uids = {one["metadata"]["uid"] for one in await attempts_of(site, target)}
        if uids - ({owner.uid} if owner is not None else set()):
            return
        if given.attempt == 1 and not given.anchored:
            await release_anchor(site, target, delete=True)
        if owner is not None:
            await site.kube.delete(owner.api_version, owner.kind, owner.name, target.namespace, uid=owner.uid)
    except Unreachable:
        raise  # Then all of this is tried again.
    except KubeError:
        return  # What was refused stays refused; this was only tidying up.


async def _check_and_anchor(site: Site, given: PrepareInput, pulse: Pulse, *, rehearses: bool = True) -> Object:
    """Run every check that can refuse the attempt; return its anchor, which is made if there is none."""
    await site.confirm(given.target)
    _check_names(given)
    await until_permitted(site, given, pulse)
    # At the first attempt there is most likely no anchor: making it says so. Every attempt is owned by one.
    expected = given.attempt > 1 or given.anchored or given.target.anchor is not None
    if expected:
        await refuse_revived(site, given.target, given.attempt)
    if given.target.anchor is None:
        if rehearses:
            await rehearse(site, given)
        contents = AnchorInput(plan=given.plan, spec_hash=given.spec_hash)
        anchor, is_made = await ensure_anchor(site, given.target, contents, pulse, expected=expected)
        if not (expected or is_made):
            await refuse_revived(site, given.target, given.attempt)
        return anchor
    resource = await _resource(site, given)
    if rehearses:
        await rehearse(site, _as_placed(given, resource))
    return resource


def _as_placed(given: PrepareInput, resource: Object) -> PrepareInput:
    """Return it with the components as they are to be created: an admission policy may ask for a pod set's labels."""
    placed = _pod_sets(given.target, resource)
    whole = tuple(edit(one, pod_sets=placed[one.name]) if one.name in placed else one for one in given.components)
    return given.model_copy(update={"components": whole})


async def _find_owner(site: Site, given: PrepareInput) -> Object | None:
    """Return this attempt's owner, if it exists."""
    name = given.target.attempt_name(given.attempt)
    owner = await site.kube.find(names.API_VERSION, names.ATTEMPT_KIND, name, given.target.namespace)
    ours = owner is not None and mapping(owner.get("spec")).get("workloadUid") == given.target.workload_uid
    return owner if ours else None


def _check_names(given: PrepareInput) -> None:
    seen: dict[tuple[str, str, str], str] = {}
    for index, component in enumerate(given.plan):
        for name in component.object_names:
            key = (component.api_version, component.kind, name)
            if key in seen:
                place = written(given, index, "template.metadata.name")
                raise refused(f"{place}: components {seen[key]} and {component.name} are both {component.kind} {name}")
            seen[key] = component.name


async def _resource(site: Site, given: PrepareInput) -> Object:
    """Return the custom resource that represents the workload, marked as ours so that it is deleted last."""
    target, key = given.target, key_of(given.target)
    what = f"{key[1]} {target.namespace}/{target.name}"
    if key[:2] not in formats.RESOURCES:
        kinds = ", ".join(f"{kind} of {api_version}" for api_version, kind in formats.RESOURCES)
        raise refused(f"{what} of {key[0]} stands for no workload: expected {kinds}")
    while True:
        found = await site.kube.find(*key)
        if found is None or found["metadata"]["uid"] != target.workload_uid:
            raise conflict(f"{what} of uid {target.workload_uid} is not there any more")
        if not is_ours(site, target, found):
            manager = mapping(found.get("spec")).get("managedBy")
            raise conflict(
                f"{what} is not run by this installation: expected spec.managedBy {site.managed_by!r} and no "
                f"{names.ATTEMPT_KIND} that owns it, found {manager!r}"
            )
        if not is_marked(target.workload_uid, found):
            if "deletionTimestamp" in found["metadata"]:
                raise conflict(f"{what} is being deleted, and its finalizer was removed")
            try:
                found = await site.kube.patch(
                    *key,
                    uid=found["metadata"]["uid"],
                    resource_version=found["metadata"]["resourceVersion"],
                    patch=marking(site.installation, target.workload_uid, target.shard, found),
                )
            except (Conflict, NotFound):
                continue  # It has changed since it was read.
        site.known.keep(target, found)
        return found


def _pod_sets(target: Target, anchor: Object) -> dict[str, tuple[PodSet, ...]]:
    """Return where an attempt's pods run, as set by its admission (row F4)."""
    if target.anchor is None:
        return {}
    try:
        return formats.pod_sets(anchor)
    except HoldfastError as error:
        raise refused(str(error)) from None


async def _ensure_owner(site: Site, given: PrepareInput, anchor: Object, pulse: Pulse) -> Object:
    """Return this attempt's owner, and create it if there is none; wait for one that is being deleted to go."""
    target, kube = given.target, site.kube
    name = target.attempt_name(given.attempt)
    key = (names.API_VERSION, names.ATTEMPT_KIND, name, target.namespace)
    while True:
        try:
            return await kube.create(_owner(site, given, anchor))
        except AlreadyExists:
            owner = await kube.find(*key)
        if owner is None:
            continue
        ours = mapping(owner.get("spec")).get("workloadUid") == target.workload_uid
        if "deletionTimestamp" in owner["metadata"]:
            finalizers = ", ".join(owner["metadata"].get("finalizers") or ())
            pulse.say(f"waiting for the old attempt {name} to go{f' (finalizers {finalizers})' if finalizers else ''}")
        elif ours:
            return owner
        elif _orphaned(target, owner, anchor):
            pulse.say(f"waiting for attempt {name} of an earlier workload to be collected")
        else:
            raise conflict(
                f"attempt {target.namespace}/{name} belongs to workload {mapping(owner.get('spec')).get('workloadUid')}"
            )
        await asyncio.sleep(_WAIT_SECONDS)


def _orphaned(target: Target, owner: Mapping[str, Any], anchor: Mapping[str, Any]) -> bool:
    """Whether an owner's anchor is gone: our anchor now has its name, with another uid."""
    return any(
        (reference.get("apiVersion"), reference.get("kind")) == key_of(target)[:2]
        and reference.get("name") == anchor["metadata"]["name"]
        and reference.get("uid") != anchor["metadata"]["uid"]
        for reference in mappings(owner["metadata"].get("ownerReferences"))
    )


def _owner(site: Site, given: PrepareInput, anchor: Mapping[str, Any]) -> Object:
    target = given.target
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.ATTEMPT_KIND,
        "metadata": {
            "name": target.attempt_name(given.attempt),
            "namespace": target.namespace,
            "labels": {
                **labels_of(site.installation, target.workload_uid, target.shard),
                names.LABEL_ATTEMPT: str(given.attempt),
            },
            "annotations": {names.ANNOTATION_WORKLOAD: target.name},
            "ownerReferences": [
                {
                    "apiVersion": key_of(target)[0],
                    "kind": key_of(target)[1],
                    "name": anchor["metadata"]["name"],
                    "uid": anchor["metadata"]["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "workloadUid": target.workload_uid,
            "workflowId": target.workflow_id,
            "attempt": given.attempt,
            "plan": [component.model_dump(mode="json", by_alias=True) for component in given.plan],
        }
        | _selection(given),
    }


def _selection(given: PrepareInput) -> dict[str, Any]:
    if given.selection is None:
        return {}
    return {"selection": given.selection.model_dump(mode="json", by_alias=True, exclude_defaults=True)}
