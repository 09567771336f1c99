"""Checks a workload's permissions before anything of it is created: its namespace, its accounts, its kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NoReturn

from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.activities.kube.client import Forbidden, UnknownKind
from holdfast.activities.kube.raw import mapping
from holdfast.activities.kube.resources import Resource
from holdfast.activities.site.accounts import accounts_of
from holdfast.activities.site.closed import (
    Closed,
    account_closed,
    is_account,
    namespace_closed,
    opted_in,
    secret_closed,
)
from holdfast.activities.site.field_paths import written
from holdfast.activities.site.permission_cache import Permits
from holdfast.activities.site.site import RETRY_FIRST, RETRY_LAST, Pulse, Site, refused, user_of
from holdfast.model.calls.cluster import PrepareInput, RehearseInput, Target

_VERBS = ("create", "get", "delete")
_VERBS_OF_ORDERS = ("patch",)
"""What the service account must be allowed with pods that wait at a barrier: their annotations are their orders."""
_LABEL_AGGREGATE = f"{names.GROUP}/aggregate-to-worker"
"""Label of a ClusterRole whose rules also apply to the worker (`deploy/rbac.yaml`)."""
_VERBS_OF_SIGHT = ("get", "list", "watch")


class _NotYet(ApplicationError):
    """A refusal that ends when somebody grants what is missing."""

    def __init__(self, message: str) -> None:
        super().__init__(message, type=names.ERROR_REFUSED, non_retryable=True)


class _NoKind(_NotYet):
    """A refusal that ends when somebody installs a kind."""


def _is_waited_for(refusal: _NotYet, given: PrepareInput, pulse: Pulse) -> bool:
    # The rights to a kind that was waited for are installed with it, and may arrive a moment later.
    return given.waits or (given.waits_for_kinds and (isinstance(refusal, _NoKind) or given.borne + pulse.borne > 0))


async def until_permitted(site: Site, given: PrepareInput, pulse: Pulse) -> None:
    """Make every check that can refuse; if requested, wait until what is missing is granted.

    Raises:
        ApplicationError: of type `Refused`, or `SubmissionTimeout` if waiting took too long; neither is retried.
    """
    delay = RETRY_FIRST
    while True:
        try:
            return await _check_permitted(site, given)
        except _NotYet as refusal:
            if not _is_waited_for(refusal, given, pulse):
                raise
            if given.patience is not None and pulse.borne >= given.patience:
                raise ApplicationError(
                    f"not submitted in time: {refusal.message}",
                    type=names.ERROR_SUBMISSION_TIMEOUT,
                    non_retryable=True,
                ) from None
            pulse.say(f"waiting for {len(given.plan)} components to be permitted: {refusal.message}")
        await pulse.bear(delay)
        delay = min(delay * 2, RETRY_LAST)


async def refusal_of(site: Site, given: RehearseInput) -> str:
    """Return why a running workload could not be recreated now; empty if it could, or would wait.

    Raises:
        KubeError: if the API server does not say.
    """
    try:
        await _check_permitted(site, given)
    except _NotYet as refusal:
        return "" if given.waits else refusal.message
    except ApplicationError as refusal:
        return refusal.message
    return ""


async def _check_permitted(site: Site, given: PrepareInput | RehearseInput) -> None:
    # A change of a running workload needs the current permissions, not those of a moment ago.
    permits = site.permits if isinstance(given, PrepareInput) else Permits()
    await _check_namespace(site, given.target, permits)
    await _check_accounts(site, given, permits)
    plan = list(enumerate(given.plan))
    if isinstance(given, RehearseInput):
        changed = {one.name for one in given.components}
        plan = [(index, one) for index, one in plan if one.name in changed]
    kinds: dict[tuple[str, str], str] = {}
    for index, component in plan:
        kinds.setdefault((component.api_version, component.kind), written(given, index, "template.kind"))
    checks = (_check_kind(site, given, *kind, place, permits) for kind, place in sorted(kinds.items()))
    found = [one for one in await asyncio.gather(*checks, return_exceptions=True) if one is not None]
    if found:
        # Report what waiting cannot fix first, then what a right would fix, then what is yet to be installed.
        raise min(found, key=lambda one: isinstance(one, _NotYet) + isinstance(one, _NoKind))
    if isinstance(given, PrepareInput) and given.barrier:
        pods = await site.kube.resource("v1", "Pod")
        await _check_rights(site, given.target, _VERBS_OF_ORDERS, pods, "restarts in place", permits)
    ruled = {(one.api_version, one.kind) for _, one in plan if one.status.settles}
    await asyncio.gather(*(_check_sight(site, given.target, *kind, permits) for kind in sorted(ruled)))


def _raise(closed: Closed, place: str = "") -> NoReturn:
    why = f"{place}: {closed.why}" if place else closed.why
    raise _NotYet(why) if closed.opens else refused(why)


async def _check_namespace(site: Site, target: Target, permits: Permits) -> None:
    closed = await namespace_closed(site, target, permits)
    if closed is not None:
        _raise(closed)


async def _check_accounts(site: Site, given: PrepareInput | RehearseInput, permits: Permits) -> None:
    """Refuse pods that would run as an account that has not opted in; for a component, its own template opts in."""
    places = {planned.name: index for index, planned in enumerate(given.plan)}
    brought: dict[str, Mapping[str, Any]] = {}
    for component in given.components:
        index = places[component.name]
        planned = given.plan[index]
        for account, path in accounts_of(component.template):
            if opted_in(brought.get(account)):
                continue
            closed = await account_closed(site.kube, given.target, account, permits)
            if closed is not None:
                _raise(closed, f"{written(given, index, f'template.{path}')}: {account!r}")
        if is_account(planned.api_version, planned.kind):
            # It counts only for the components after it: creation follows their order.
            brought[planned.object_name] = mapping(component.template["metadata"])


async def _check_kind(
    site: Site, given: PrepareInput | RehearseInput, api_version: str, kind: str, place: str, permits: Permits
) -> None:
    target = given.target
    if why := secret_closed(api_version, kind, encrypted=site.encrypted):
        raise refused(f"{place}: {why}")
    try:
        resource = await site.kube.resource(api_version, kind)
    except UnknownKind:
        asks = isinstance(given, PrepareInput) and not (given.waits or given.waits_for_kinds)
        instead = ", or submit with --allow-missing-kinds to wait until it is there" if asks else ""
        raise _NoKind(
            f"{place}: cluster {site.cluster} does not serve {kind} of {api_version}: install what defines it{instead}"
        ) from None
    if not resource.namespaced:
        raise refused(
            f"{place}: {kind} of {api_version} belongs to no namespace: only namespaced components can be removed again"
        )
    await _check_rights(site, target, _VERBS, resource, place, permits)


async def _check_rights(
    site: Site, target: Target, verbs: tuple[str, ...], resource: Resource, place: str, permits: Permits
) -> None:
    """Refuse what the service account may not do with a kind."""
    user, right = user_of(target), " ".join(verbs)
    if permits.has_right(right, user, target.namespace, resource):
        return
    for verb in verbs:
        try:
            allowed, why = await site.kube.allowed(verb, resource, target.namespace, impersonate=user)
        except Forbidden as error:
            raise _NotYet(
                f"the worker may not act as service account {target.namespace}/{target.run_as} ({error.message}): "
                f"run `holdfast namespace enable {target.namespace}`"
            ) from None
        if not allowed:
            raise _NotYet(
                f"{place}: service account {target.namespace}/{target.run_as} may not {verb} {resource.plural}"
                f"{f' of {resource.group}' if resource.group else ''} in namespace {target.namespace}"
                f"{f': {why}' if why else ''}"
            )
    permits.give(right, user, target.namespace, resource)


async def _check_sight(site: Site, target: Target, api_version: str, kind: str, permits: Permits) -> None:
    """Refuse a kind whose own status decides, if the worker may not read it: it would never be seen to end."""
    resource = await site.kube.resource(api_version, kind)
    if permits.has_right("sight", target.namespace, resource):
        return
    for verb in _VERBS_OF_SIGHT:
        allowed, _ = await site.kube.allowed(verb, resource, target.namespace)
        if not allowed:
            what = f"{resource.plural}{f'.{resource.group}' if resource.group else ''}"
            raise _NotYet(
                f"the worker may not {verb} {what}, and would never learn that one has ended: have an administrator "
                f"make a ClusterRole that lets {what} be read (get, list, watch) and label it "
                f"{_LABEL_AGGREGATE}=true"
            )
    permits.give("sight", target.namespace, resource)
