"""The rehearsal: before anything is made, the API server says in a dry run whether it would make each component."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast import names
from holdfast.activities.contract import PrepareInput
from holdfast.activities.inject import InjectionError, inject
from holdfast.activities.kube import (
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
from holdfast.activities.make import described
from holdfast.activities.places import rewritten
from holdfast.activities.raw import mapping, mappings
from holdfast.activities.site import Site, refused, user_of
from holdfast.activities.verdict import problems_with
from holdfast.errors import Problem
from holdfast.model import Component

_AT_ONCE = 16
_TOLD = 5
_NOBODY = "00000000-0000-0000-0000-000000000000"
"""uid of an owner that is not there yet."""


async def rehearse(site: Site, given: PrepareInput) -> None:
    """Refuse what the API server would refuse, while there is nothing yet that would be left half-made.

    Only what stays so is refused. Quota and webhooks that cannot be reached are creation's to bear (rows A4, S2), and
    a webhook that knows no dry run is asked by creation alone.

    Raises:
        ApplicationError: of type `Refused`, naming each field.
    """
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(index: int) -> tuple[Problem, ...]:
        async with slots:
            return rewritten(given, index, await _problems(site, given, index))

    found = await asyncio.gather(*(one(index) for index in range(len(given.components))))
    problems = [problem for several in found for problem in several]
    if problems:
        raise refused(_sentence(problems))


async def _problems(site: Site, given: PrepareInput, index: int) -> tuple[Problem, ...]:
    component = given.components[index]
    try:
        sent = inject(
            component,
            target=given.target,
            attempt=given.attempt,
            owner_uid=_NOBODY,
            installation=site.installation,
            labels=given.labels,
            config_hash=given.config_hashes.get(component.name, ""),
        )
    except InjectionError as error:
        return (Problem(error.path, error.message),)
    try:
        await site.kube.would_create(sent, impersonate=user_of(given.target))
    except AlreadyExists:
        return await _in_the_way(site, given, sent)
    except Unreachable as error:
        if error.status == 500:
            return ()  # An answer, though it says nothing: it may be the dry run that this kind does not bear.
        raise
    except KubeError as error:
        if stays(error, given.components[:index], waits=given.waits):
            return problems_with(error, component.template)
    return ()


def stays(error: KubeError, before: Sequence[Component], *, waits: bool) -> bool:
    """Whether creation, after the components before it, would be refused for the same reason and for ever."""
    if isinstance(error, QuotaExceeded | WebhookFailed | Conflict) or "not support dry run" in error.message:
        return False
    # What an earlier component brings (an account, a thing that a webhook looks for) is not there in a dry run.
    helped = any(not one.pod_sets for one in before)
    if isinstance(error, Forbidden):
        return not (waits or helped or "RBAC: " in error.message)
    return isinstance(error, Invalid) and not (helped and 'admission webhook "' in error.message)


async def _in_the_way(site: Site, given: PrepareInput, sent: Object) -> tuple[Problem, ...]:
    """Return what is wrong with an object that is there already, if it is another's, and is there to stay."""
    name = sent["metadata"]["name"]
    found = await site.read_component(given.target, sent["apiVersion"], sent["kind"], name)
    there = mapping(found["metadata"] if found is not None else None)
    if not there or "deletionTimestamp" in there:
        return ()
    if any(owner.get("kind") == names.ATTEMPT_KIND for owner in mappings(there.get("ownerReferences"))):
        return ()  # An attempt's: creation waits until it goes, or says whose it is.
    what = f"{sent['kind']} {given.target.namespace}/{name}"
    return (Problem("template.metadata.name", f"{what} is there already and is not ours: {described(there)}"),)


def _sentence(problems: Sequence[Problem]) -> str:
    more = f"; and {len(problems) - _TOLD} more" if len(problems) > _TOLD else ""
    return "; ".join(str(problem) for problem in problems[:_TOLD]) + more
