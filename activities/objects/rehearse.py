"""The rehearsal: before anything is created, a dry run asks the API server whether it would create each component.

An existing object does not prevent the dry run: the API server validates and admits an object before it checks whether
the name is taken. So AlreadyExists means that everything else is fine.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence

from holdfast import names
from holdfast.activities.kube.client import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    Object,
    QuotaExceeded,
    Unreachable,
    WebhookFailed,
)
from holdfast.activities.kube.raw import mapping, mappings
from holdfast.activities.objects.inject import InjectionError, Placement, inject
from holdfast.activities.objects.inject_data import place_of
from holdfast.activities.objects.make import described
from holdfast.activities.objects.verdict import problems_with
from holdfast.activities.site.field_paths import rewritten
from holdfast.activities.site.permissions import refusal_of
from holdfast.activities.site.site import Pulse, Site, as_retryable_errors, refused, user_of
from holdfast.errors import Problem
from holdfast.model import Component
from holdfast.model.calls.cluster import PlannedComponent, PrepareInput, Rehearsed, RehearseInput

_AT_ONCE = 16
_TOLD = 5
_NOBODY = "00000000-0000-0000-0000-000000000000"
"""The uid that stands for an owner that does not exist yet."""
_ALLOCATED = "port is already allocated"
"""The API server says so of a Service's own ports before it validates anything else, or checks its name."""


async def rehearse(site: Site, given: PrepareInput) -> None:
    """Refuse what the API server would refuse, while nothing exists yet that would be left half-made.

    Only permanent refusals count. Creation retries on quota and unreachable webhooks (rows A4, S2), and only creation
    asks a webhook that does not support dry runs.

    Raises:
        ApplicationError: of type `Refused`, naming each field.
    """
    problems = await _all_problems(site, given)
    if problems:
        raise refused(_sentence(problems))


async def rehearse_change(site: Site, given: RehearseInput) -> Rehearsed:
    """Return why the API server would refuse a change of existing components, while they still exist.

    Raises:
        ApplicationError: of type `ClusterMismatch` or `ClusterUnreachable`, both retried.
    """
    async with as_retryable_errors(), Pulse() as pulse:
        pulse.say(f"asking the API server whether it would make {len(given.components)} components as they are to be")
        await site.confirm(given.target)
        refusal = await refusal_of(site, given)
        if not refusal:
            problems = await _all_problems(site, given)
            refusal = _sentence(problems) if problems else ""
        return Rehearsed(refusal=refusal)


async def _all_problems(site: Site, given: PrepareInput | RehearseInput) -> list[Problem]:
    slots = asyncio.Semaphore(_AT_ONCE)
    places = {planned.name: index for index, planned in enumerate(given.plan)}

    async def one(component: Component) -> tuple[Problem, ...]:
        index = places[component.name]
        async with slots:
            return rewritten(given, index, await _problems(site, given, component, index))

    found = await asyncio.gather(*(one(component) for component in given.components))
    return [problem for several in found for problem in several]


async def _problems(
    site: Site, given: PrepareInput | RehearseInput, component: Component, index: int
) -> tuple[Problem, ...]:
    for copy_index in _asked_for(component):
        found = await _problems_of(site, given, component, index, copy_index)
        if found:
            return found
    return ()


def _asked_for(component: Component) -> list[int | None]:
    """Return the indices of the copies to try for all: the first and, since its name is the longest, the last."""
    if component.copies is None:
        return [None]
    return [*dict.fromkeys((0, component.copies - 1))] if component.copies else []


async def _problems_of(
    site: Site, given: PrepareInput | RehearseInput, component: Component, index: int, copy_index: int | None
) -> tuple[Problem, ...]:
    change = given if isinstance(given, RehearseInput) else None
    try:
        sent = inject(
            component,
            Placement(
                target=given.target,
                attempt=given.attempt,
                owner_uid=_NOBODY,
                installation=site.installation,
                labels=given.labels,
                bounds=given.bounds,
                gang=given.gang,
                rendezvous=site.rendezvous,
                rendezvous_ca=site.rendezvous_ca(),
                data=given.data,
                place=place_of(site.data, given.target.namespace),
                excluded=change.nodes_excluded if change is not None else (),
                disliked=change.nodes_disliked if change is not None else (),
                marked=site.marks.selectable if change is not None and change.nodes_unmarked else (),
            ),
            config_hash=given.config_hashes.get(component.name, ""),
            copy_index=copy_index,
        )
    except InjectionError as error:
        return (Problem(error.path, error.message),)
    return await _dry_run(site, given, component, index, sent)


async def _dry_run(
    site: Site, given: PrepareInput | RehearseInput, component: Component, index: int, sent: Object
) -> tuple[Problem, ...]:
    try:
        await site.kube.would_create(sent, impersonate=user_of(given.target))
    except AlreadyExists:
        return await _in_the_way(site, given, sent)
    except Unreachable as error:
        if error.status == 500:
            return ()  # An answer, though it says nothing: this kind may just not support dry runs.
        raise
    except KubeError as error:
        if isinstance(given, RehearseInput) and _ALLOCATED in error.message:
            bare = await _without_its_ports(site, given, sent)
            if bare is not None:
                return await _dry_run(site, given, component, index, bare)
        if stays(error, _still_to_come(given, index), waits=given.waits):
            return problems_with(error, component.template)
    return ()


async def _without_its_ports(site: Site, given: RehearseInput, sent: Object) -> Object | None:
    """Return a Service without the node ports that the one to be replaced holds; None if it has none of them."""
    found = await site.read_component(given.target, sent["apiVersion"], sent["kind"], sent["metadata"]["name"])
    there = mapping(mapping(found).get("spec"))
    held = {port["nodePort"] for port in mappings(there.get("ports")) if port.get("nodePort")}
    bare = copy.deepcopy(sent)
    ports: list[Object] = [port for port in bare["spec"]["ports"] if port.get("nodePort") in held]
    for port in ports:
        del port["nodePort"]
    return bare if ports else None


def _still_to_come(given: PrepareInput | RehearseInput, index: int) -> list[PlannedComponent]:
    """Return the components that creation makes before this one, and that do not exist in the dry run."""
    before = given.plan[:index]
    if isinstance(given, RehearseInput) and given.standing:
        again = {one.name for one in given.components}
        return [one for one in before if one.name in again]
    return list(before)


def stays(error: KubeError, before: Sequence[Component | PlannedComponent], *, waits: bool) -> bool:
    """Whether creation, after the components before it, would be refused permanently for the same reason."""
    if isinstance(error, QuotaExceeded | WebhookFailed | Conflict) or "not support dry run" in error.message:
        return False
    # What an earlier component provides (an account, an object that a webhook looks for) is missing in a dry run.
    helped = any(not one.expected_pods for one in before)
    if isinstance(error, Forbidden):
        return not (waits or helped or "RBAC: " in error.message)
    return isinstance(error, Invalid) and not (helped and 'admission webhook "' in error.message)


async def _in_the_way(site: Site, given: PrepareInput | RehearseInput, sent: Object) -> tuple[Problem, ...]:
    """Return the problem with an object that exists already, if it is not ours and is there to stay."""
    name = sent["metadata"]["name"]
    found = await site.read_component(given.target, sent["apiVersion"], sent["kind"], name)
    there = mapping(found["metadata"] if found is not None else None)
    if not there or "deletionTimestamp" in there:
        return ()
    if any(owner.get("kind") == names.ATTEMPT_KIND for owner in mappings(there.get("ownerReferences"))):
        return ()  # It is an attempt's: creation waits until it is gone, or says whose it is.
    what = f"{sent['kind']} {given.target.namespace}/{name}"
    return (Problem("template.metadata.name", f"{what} is there already and is not ours: {described(there)}"),)


def _sentence(problems: Sequence[Problem]) -> str:
    more = f"; and {len(problems) - _TOLD} more" if len(problems) > _TOLD else ""
    return "; ".join(str(problem) for problem in problems[:_TOLD]) + more
