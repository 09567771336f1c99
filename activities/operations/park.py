"""Suspension in place: suspends Jobs and proves that they have no pods; resumes them with their new placement (J14).

Each suspension and each resumption is a turn with a number. The attempt's owner and each Job carry the number once the
turn is taken. Every change names the version that was read, and every unfinished Job is changed. So a late request, of
a worker that another has taken over from, finds another version or a later number, and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from holdfast import formats, names
from holdfast.activities.facts.objects import launch_of, turn_of
from holdfast.activities.facts.pods import pod_facts
from holdfast.activities.facts.snapshot import ENDED
from holdfast.activities.kube.client import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Object,
    Unreachable,
    WebhookFailed,
)
from holdfast.activities.kube.each import each
from holdfast.activities.kube.raw import mapping, mappings
from holdfast.activities.kube.trim import PodTrace, lean, pod_trace, unsigned
from holdfast.activities.objects.ancestry import own_pods
from holdfast.activities.objects.attempts import living_owner_of
from holdfast.activities.objects.copies import read_objects
from holdfast.activities.objects.inject import InjectionError, Placement, inject
from holdfast.activities.objects.make import is_owned
from holdfast.activities.objects.placement import merged
from holdfast.activities.operations.observe import look
from holdfast.activities.operations.replace import REFUSED_TOLD, force_pods, launch_in, told_of
from holdfast.activities.operations.report import apply_report
from holdfast.activities.site.anchor import is_ours, key_of
from holdfast.activities.site.closed import withdrawn
from holdfast.activities.site.deadline import Grace
from holdfast.activities.site.site import RETRY_FIRST, Pulse, Site, as_retryable_errors, persist, user_of
from holdfast.errors import HoldfastError
from holdfast.model import Component, PodSet
from holdfast.model.calls.cluster import (
    ObserveInput,
    Parked,
    ParkInput,
    PlannedComponent,
    Unparked,
    UnparkInput,
    planned,
)
from holdfast.model.calls.plan import sources_of
from holdfast.policy.values.edit import edit

_POLL_FIRST = 0.1
_POLL_LAST = 2.0
_TOLD = 16
"""How many of the objects waited for are named."""
GONE = "the attempt's owner is gone or being deleted"


class _Refused(Exception):
    """The cluster refuses this change of a Job, now and later."""


class _Overtaken(Exception):
    """The attempt has taken a later turn than the requested one."""

    def __init__(self, turn: int) -> None:
        super().__init__(str(turn))
        self.turn = turn


async def park(site: Site, given: ParkInput) -> Parked:
    """Suspend an attempt's unfinished Jobs, prove that it has no pods left, and observe it (row J14).

    Raises:
        ApplicationError: of type `ClusterMismatch` or `ClusterUnreachable`, both retried.
    """
    site.check(given.target)
    async with as_retryable_errors(), Pulse() as pulse:
        try:
            await persist(pulse, "looking for the owner", lambda: _taken(site, given, write=False))
            await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report))
            await _until_asleep(site, given, pulse)
            await persist(pulse, "marking the attempt suspended", lambda: _mark(site, given))
        except _Refused as refused:
            return Parked(done=False, refused=str(refused))
        except _Overtaken as later:
            return Parked(done=False, turn=later.turn)
        seen = await persist(pulse, "looking at what is suspended", lambda: look(site, _observing(given)))
        await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report_done))
        return Parked(done=True, seen=seen.model_copy(update={"blind": site.blind(pulse.blind)}))


async def unpark(site: Site, given: UnparkInput) -> Unparked:
    """Resume components that were suspended in place, with their current labels and placement (row J14).

    Raises:
        ApplicationError: of type `ClusterMismatch` or `ClusterUnreachable`, both retried.
    """
    site.check(given.target)
    async with as_retryable_errors(), Pulse() as pulse:
        try:
            await persist(pulse, "looking for the owner", lambda: _taken(site, given, write=False))
            await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report))
            placed = await persist(pulse, "reading where its pods are to run", lambda: _placed(site, given))
            await _until_awake(site, _as_placed(given, placed or {}), pulse)
        except _Refused as refused:
            return Unparked(done=False, refused=str(refused))
        except _Overtaken as later:
            return Unparked(done=False, turn=later.turn)
        await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report_done))
        return Unparked(done=True, pod_sets=placed)


def _observing(given: ParkInput) -> ObserveInput:
    return ObserveInput(
        target=given.target,
        attempt=given.attempt,
        owner_uid=given.owner_uid,
        plan=given.plan,
        report=given.report,
    )


# The attempt's owner: which turn it has taken.


async def _taken(site: Site, given: ParkInput | UnparkInput, *, write: bool = True) -> None:
    """Check that the attempt lives and has taken no later turn; with `write`, record this turn on its owner.

    Raises:
        _Refused: if the attempt's owner is gone or being deleted.
        _Overtaken: if the attempt has taken a later turn.
    """
    while True:
        owner = await living_owner_of(site, given.target, given.attempt, given.owner_uid)
        if owner is None:
            raise _Refused(GONE)
        turn = turn_of(owner, names.ANNOTATION_TURN)
        if turn > given.turn:
            raise _Overtaken(turn)
        if turn == given.turn or not write:
            return
        await _annotate(site, given, owner, names.ANNOTATION_TURN)


async def _mark(site: Site, given: ParkInput) -> None:
    """Record on the attempt's owner that its suspension is complete."""
    while True:
        name = given.target.attempt_name(given.attempt)
        owner = await site.kube.find(names.API_VERSION, names.ATTEMPT_KIND, name, given.target.namespace)
        if owner is None or turn_of(owner, names.ANNOTATION_PARKED) == given.turn:
            return
        await _taken(site, given)
        await _annotate(site, given, owner, names.ANNOTATION_PARKED)


async def _annotate(site: Site, given: ParkInput | UnparkInput, owner: Object, annotation: str) -> None:
    try:
        await site.kube.patch(
            names.API_VERSION,
            names.ATTEMPT_KIND,
            owner["metadata"]["name"],
            given.target.namespace,
            uid=given.owner_uid,
            resource_version=owner["metadata"]["resourceVersion"],
            patch={"metadata": {"annotations": {annotation: str(given.turn)}}},
        )
    except (Conflict, NotFound):
        return  # It is read again.


# Suspending.


async def _until_asleep(site: Site, given: ParkInput, pulse: Pulse) -> None:
    """Suspend what is not suspended yet, repeatedly, until nothing is awake and no pod is left."""
    grace, delay = Grace(site.grace(given.grace)), _POLL_FIRST
    while True:
        try:
            await _taken(site, given)
            awake = await _suspended(site, given)
            pods = await _going(site, given)
            if not awake and not pods:
                return
            grace.see()
            refused = await force_pods(site, given.target, pods) if grace.is_over else ()
            left = [*refused[:REFUSED_TOLD]] + [told_of(plan, jobs, ()) for plan, jobs in awake]
            left += [told_of(_as_pod(pod), [pod], ()) for pod in pods[:_TOLD]]
            pulse.say("suspending it in place, and waiting for its pods to go", left[:_TOLD], len(awake) + len(pods))
        except Unreachable as error:
            pulse.say(f"suspending it in place: the API server does not answer: {error.message}", *pulse.told)
            grace.miss()
            await asyncio.sleep(RETRY_FIRST)
        pulse.blind = site.blind(pulse.blind)
        await asyncio.sleep(delay)
        delay = min(delay * 1.5, _POLL_LAST)


def _as_pod(pod: Object) -> PlannedComponent:
    return PlannedComponent(name="", api_version="v1", kind="Pod", object_name=pod["metadata"]["name"])


async def _suspended(site: Site, given: ParkInput) -> list[tuple[PlannedComponent, list[Object]]]:
    """Suspend each unfinished Job that is not suspended yet; return the Jobs whose pods are not known to be gone."""
    awake: list[tuple[PlannedComponent, list[Object]]] = []
    for plan in (one for one in given.plan if one.expected_pods):
        jobs = await _unfinished(site, given, plan, lean)
        patch = {"metadata": {"annotations": {names.ANNOTATION_TURN: str(given.turn)}}, "spec": {"suspend": True}}
        fresh = [one for one in jobs if not _is_going(one) and not _is_at(one, given.turn, suspended=True)]
        await each(fresh, _patcher(site, given, patch))
        # The status of a Job that is being deleted no longer changes: wait until the Job is gone.
        restless = [
            one for one in jobs if _is_going(one) or not (_is_at(one, given.turn, suspended=True) and _sleeps(one))
        ]
        if restless:
            awake.append((plan, restless))
    return awake


def _is_going(job: Object) -> bool:
    return "deletionTimestamp" in job["metadata"]


def _is_at(job: Object, turn: int, *, suspended: bool) -> bool:
    return turn_of(job, names.ANNOTATION_TURN) == turn and (job["spec"].get("suspend") is True) == suspended


def _sleeps(job: Object) -> bool:
    """Whether a Job reports that it is suspended and has no active pod; only then may its placement change."""
    return _says(job, "Suspended") and not mapping(job.get("status")).get("active")


async def _unfinished(
    site: Site, given: ParkInput | UnparkInput, plan: PlannedComponent, keep: Callable[[Object], Object]
) -> list[Object]:
    """Return a component's Jobs that are ours and have not ended, including those being deleted."""
    return [
        one
        for one in await read_objects(site, given.target, plan, given.attempt, keep)
        if one is not None
        and is_owned(one, given.owner_uid)
        and not _says(one, "Complete")
        and not _says(one, "Failed")
    ]


def _says(job: Object, condition: str) -> bool:
    conditions = mappings(mapping(job.get("status")).get("conditions"))
    return any(one.get("type") == condition and one.get("status") == "True" for one in conditions)


async def _going(site: Site, given: ParkInput) -> list[Object]:
    """Return the attempt's pods that have not ended."""
    labels = f"{names.LABEL_WORKLOAD_UID}={given.target.workload_uid},{names.LABEL_ATTEMPT}={given.attempt}"

    def going(pod: Object) -> PodTrace | None:
        return pod_trace(pod) if pod_facts(pod).state not in ENDED else None

    pods = (await site.kube.list("v1", "Pod", given.target.namespace, labels=labels, keep=going))["items"]
    return [*await own_pods(site, given.target, given.plan, pods, lambda pod: pod.controller)]


# Resuming.


async def _placed(site: Site, given: UnparkInput) -> dict[str, tuple[PodSet, ...]] | None:
    """Return what the custom resource says now of where its pods run: it may have changed while it was suspended (J14).

    None: it says nothing, or is gone.

    Raises:
        _Refused: if it cannot be read.
    """
    resource = await site.kube.find(*key_of(given.target)) if given.target.anchor is not None else None
    if resource is None or not is_ours(site, given.target, resource):
        return None
    try:
        return formats.pod_sets(resource) or None
    except HoldfastError as error:
        raise _Refused(str(error)) from None


def _as_placed(given: UnparkInput, placed: Mapping[str, tuple[PodSet, ...]]) -> UnparkInput:
    whole = tuple(edit(one, pod_sets=placed[one.name]) if one.name in placed else one for one in given.components)
    return given.model_copy(update={"components": whole})


async def _until_awake(site: Site, given: UnparkInput, pulse: Pulse) -> None:
    """Resume the unfinished Jobs until all are resumed; the next look at the attempt notices a Job that is gone."""
    delay = _POLL_FIRST
    while True:
        try:
            await _taken(site, given)
            await _still_permitted(site, given)
            left = [name for one in given.components for name in await _resumed(site, given, one)]
            if not left:
                return
            pulse.say("resuming it in place", left[:_TOLD], len(left))
        except Unreachable as error:
            pulse.say(f"resuming it in place: the API server does not answer: {error.message}", *pulse.told)
            await asyncio.sleep(RETRY_FIRST)
        await asyncio.sleep(delay)
        delay = min(delay * 1.5, _POLL_LAST)


async def _still_permitted(site: Site, given: UnparkInput) -> None:
    """Refuse to resume pods that are no longer permitted to run (row X4)."""
    for component in given.components:
        sources = sources_of(given.data, {component.name})
        closed = await withdrawn(site, given.target, component.template, sources)
        if closed is not None:
            raise _Refused(closed.why)


async def _resumed(site: Site, given: UnparkInput, component: Component) -> list[str]:
    """Resume each unfinished Job of a component that is not resumed yet; return the names of those to check again.

    A Job of an earlier launch is left as it is: the replacement that follows removes it.
    """
    plan = planned(component, given.target.workload_uid, given.attempt)
    jobs = [
        one
        for one in await _unfinished(site, given, plan, unsigned)
        if launch_of(one) >= launch_in(given, component.name, _index(plan, one))
    ]
    asleep = component.template.get("spec", {}).get("suspend") is True
    left = [one for one in jobs if not _is_going(one) and not _is_at(one, given.turn, suspended=asleep)]

    async def resume(job: Object) -> None:
        change = merged(job["spec"]["template"], _wanted(site, given, component, plan, job))
        if change and not _sleeps(job):
            # A Job accepts another placement only once it reports that it is suspended: suspend it first.
            await _patcher(site, given, {"spec": {"suspend": True}})(job)
            return
        spec: dict[str, Any] = {"suspend": asleep, **({"template": change} if change else {})}
        turned = {"annotations": {names.ANNOTATION_TURN: str(given.turn)}}
        await _patcher(site, given, {"metadata": turned, "spec": spec})(job)

    await each(left, resume)
    return [f"{plan.kind} {one['metadata']['name']}" for one in left]


def _index(plan: PlannedComponent, job: Object) -> int | None:
    return None if plan.copies is None else plan.object_names.index(job["metadata"]["name"])


def _wanted(
    site: Site, given: UnparkInput, component: Component, plan: PlannedComponent, job: Object
) -> dict[str, Any]:
    """Return the pod template that would be sent if a Job were made now."""
    index = _index(plan, job)
    try:
        sent = inject(
            component,
            Placement(
                target=given.target,
                attempt=given.attempt,
                owner_uid=given.owner_uid,
                installation=site.installation,
                labels=given.labels,
                resume_from=given.resume_from,
                in_place=given.in_place,
                strict=False,  # It was accepted when its Job was made.
                gang=given.gang,
                rendezvous=site.rendezvous,
            ),
            config_hash=given.config_hashes.get(component.name, ""),
            launch=given.launches.get(component.name, 0),
            copy_index=index,
            copy_launch=given.copy_launches.get(component.name, {}).get(index) if index is not None else None,
            restarts=given.restarts.get(component.name),
        )
    except InjectionError as error:
        raise _Refused(str(error)) from None
    return sent["spec"]["template"]


def _patcher(site: Site, given: ParkInput | UnparkInput, patch: dict[str, Any]) -> Callable[[Object], Awaitable[None]]:
    """Return a function that patches a Job at the version that was read; a Job that changed meanwhile is read again."""
    target = given.target

    async def change(job: Object) -> None:
        metadata = job["metadata"]
        try:
            await site.kube.patch(
                "batch/v1",
                "Job",
                metadata["name"],
                target.namespace,
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                patch=patch,
                impersonate=user_of(target),
            )
        except (NotFound, Conflict, WebhookFailed):
            return  # It is read again.
        except (Forbidden, Invalid) as error:
            if "RBAC: " not in error.message:  # If so, the authorizer may not have read a role yet.
                raise _Refused(f"Job {metadata['name']}: {error.message}") from None

    return change
