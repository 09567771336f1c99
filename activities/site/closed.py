"""Whether workloads may run in a namespace and as an account: checked before an attempt, and again as it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from holdfast import names
from holdfast.activities.kube.client import Kube, KubeError, NotFound, Unreachable
from holdfast.activities.kube.raw import mapping
from holdfast.activities.site.accounts import accounts_of
from holdfast.activities.site.permission_cache import Permits
from holdfast.activities.site.site import Site
from holdfast.model.calls.cluster import Target

_SECRET = ("v1", "Secret")
_SERVICE_ACCOUNT = ("v1", "ServiceAccount")
_OPTED_IN = f"{names.ANNOTATION_RUN_AS}={names.RUN_AS_ALLOWED}"
_NAME_MAXIMUM = 253


class Closed(NamedTuple):
    """Why something may not be created."""

    why: str
    opens: bool
    """Whether it ends when somebody grants what is missing; some workloads wait for that."""
    known: bool = True
    """False if the API server did not say; it may say so next time."""


async def closed_to(kube: Kube, namespace: str, run_as: str) -> Closed | None:
    """Return why no workload may begin in a namespace, with the command that fixes it; None if one may (row D37).

    Args:
        kube: a client of the namespace's cluster.
        namespace: the namespace's name.
        run_as: the service account that components are created as.

    Raises:
        KubeError: if the API server does not say.
    """
    command = f"`holdfast namespace enable {namespace}`"
    enable = f"run {command}"
    try:
        found = await kube.get("v1", "Namespace", namespace)
    except NotFound:
        return Closed(f"namespace {namespace} does not exist: {command} makes and enables it", opens=False)
    metadata = mapping(found["metadata"])
    if mapping(metadata.get("labels")).get(names.LABEL_NAMESPACE_ENABLED) != "true":
        return Closed(f"namespace {namespace} is not enabled for Holdfast: {enable}", opens=True)
    if "deletionTimestamp" in metadata:
        return Closed(f"namespace {namespace} is being deleted", opens=False)
    why = await _account_closed(kube, namespace, run_as)
    return Closed(f"{why}: {enable}, which makes it and annotates it with {_OPTED_IN}", opens=True) if why else None


async def keeps_logs(kube: Kube, namespace: str) -> bool:
    """Whether a namespace was enabled with `--evidence`: its logs may be kept (row P3).

    Raises:
        KubeError: if the API server does not say.
    """
    metadata = (await kube.get("v1", "Namespace", namespace))["metadata"]
    enabled = mapping(metadata.get("labels")).get(names.LABEL_NAMESPACE_ENABLED) == "true"
    return enabled and mapping(metadata.get("annotations")).get(names.ANNOTATION_EVIDENCE) == "true"


async def _account_closed(kube: Kube, namespace: str, name: str) -> str:
    """Return why nothing may run as a service account; empty if workloads may."""
    try:
        account = await kube.get(*_SERVICE_ACCOUNT, name, namespace)
    except NotFound:
        return f"service account {namespace}/{name} does not exist"
    if not opted_in(account["metadata"]):
        return f"service account {namespace}/{name} does not let workloads run as it"
    return ""


def secret_closed(api_version: str, kind: str, *, encrypted: bool) -> str:
    """Return why no workload may create an object of a kind, for any user; empty if it may (row X6).

    Args:
        api_version: the object's.
        kind: the object's.
        encrypted: whether this worker encrypts what Temporal stores.
    """
    if encrypted or (api_version, kind) != _SECRET:
        return ""
    return (
        "the contents of a Secret among the components would stand readable in the workflow's history: create it "
        "beforehand and refer to it by name (components of kind Secret need payload encryption)"
    )


def is_account(api_version: str, kind: str) -> bool:
    """Whether a kind is the one that pods run as: ServiceAccount."""
    return (api_version, kind) == _SERVICE_ACCOUNT


def opted_in(metadata: object) -> bool:
    """Whether a service account's metadata says that workloads may run as it."""
    return mapping(mapping(metadata).get("annotations")).get(names.ANNOTATION_RUN_AS) == names.RUN_AS_ALLOWED


def unserved(site: Site, namespace: str) -> str:
    """Return why this worker makes and changes nothing in a namespace; empty if it serves it (row X11)."""
    if not site.namespaces or namespace in site.namespaces:
        return ""
    return (
        f"namespace {namespace!r} is not among those this worker may act in: "
        f"expected one of {', '.join(site.namespaces)} (setting `namespaces`)"
    )


async def namespace_closed(site: Site, target: Target, permits: Permits) -> Closed | None:
    """Return why a workload may create nothing in its namespace; None if it may, or could a moment ago.

    Raises:
        KubeError: if the API server does not say.
    """
    if why := unserved(site, target.namespace):
        return Closed(why, opens=False)
    what = ("namespace", target.namespace, target.run_as)
    if permits.has(*what):
        return None
    closed = await permits.ask(what, lambda: closed_to(site.kube, target.namespace, target.run_as))
    if closed is None:
        permits.give(*what)
    return closed


async def account_closed(kube: Kube, target: Target, account: str, permits: Permits) -> Closed | None:
    """Return why no pod of a workload may run as an account, and which accounts are allowed; None if one may (row X12).

    Raises:
        KubeError: if the API server does not say.
    """
    what = ("account", target.namespace, account)
    if account == target.run_as or permits.has(*what):
        return None
    expected = f"expected {target.run_as}, or an account that is annotated with {_OPTED_IN}"
    if len(account) > _NAME_MAXIMUM or not names.DNS_SUBDOMAIN.match(account):
        return Closed(f"is no name of a service account: {expected}", opens=False)
    why = await _account_closed(kube, target.namespace, account)
    if why:
        return Closed(f"{why}: {expected}", opens=True)
    permits.give(*what)
    return None


def ungranted(site: Site, target: Target, sources: Iterable[str]) -> str:
    """Return why a workload's pods may not read their data sets any more; empty if they may (row X4)."""
    if site.data is None:
        return ""
    refusals = (site.data.not_granted(target.namespace, source) for source in sources)
    return next(filter(None, refusals), "")


async def withdrawn(site: Site, target: Target, thing: Mapping[str, Any], sources: Iterable[str] = ()) -> Closed | None:
    """Return why what was permitted when an attempt was prepared no longer is; None while it is (row X4).

    Operations that create objects of an attempt, or let more of it run, ask this. A permission counts for `FRESH`
    seconds after it was read. Removal does not ask.

    Args:
        site: the cluster.
        target: the workload.
        thing: the object that is about to be created, or to run.
        sources: the sources of its pods' data sets.

    Raises:
        Unreachable: if the API server does not answer.
    """
    try:
        return await _withdrawn(site, target, thing, sources)
    except Unreachable:
        raise
    except KubeError as error:
        return Closed(f"whether it is still permitted is not known: {error.message}", opens=False, known=False)


async def _withdrawn(site: Site, target: Target, thing: Mapping[str, Any], sources: Iterable[str]) -> Closed | None:
    closed = await namespace_closed(site, target, site.permits)
    if closed is not None:
        return closed
    if why := ungranted(site, target, sources):
        return Closed(why, opens=False)
    what = f"{thing['kind']} {thing['metadata']['name']}"
    if why := secret_closed(thing["apiVersion"], thing["kind"], encrypted=site.encrypted):
        return Closed(f"{what}: {why}", opens=False)
    for account, path in accounts_of(thing):
        closed = await account_closed(site.kube, target, account, site.permits)
        if closed is not None:
            return Closed(f"{what}: {path}: {account!r}: {closed.why}", closed.opens)
    return None
