"""The checks of `doctor` for AppWrappers: rights, policies, and Kueue's settings against ours (F5, F6, F9)."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import yaml

from holdfast import names
from holdfast.activities.kube.raw import mapping, one_line, time_of
from holdfast.cli.cluster.checks import WORKER, Check, lacking_of_worker, not_known
from holdfast.cli.cluster.rbac import granted
from holdfast.deploy import FOLDER
from holdfast.errors import DocumentWarning, HoldfastError
from holdfast.formats.condition import life_in
from holdfast.formats.published import LABEL_QUEUE
from holdfast.model import Policy, format_duration, parse_duration
from holdfast.profiles.appwrapper import POLICY

if TYPE_CHECKING:
    from holdfast.activities.kube.client import Kube, Object

_APPLY: Final = "kubectl apply -k deploy/appwrapper"
_CONFIG: Final = ("v1", "ConfigMap", "kueue-manager-config", "kueue-system")
_DOCUMENT: Final = "controller_manager_config.yaml"
_FRAMEWORK: Final = "workload.codeflare.dev/appwrapper"
_WORKLOAD: Final = ("kueue.x-k8s.io/v1beta2", "Workload")
_MINUTE: Final = timedelta(minutes=1)
EXTERNAL: Final = f"{names.ATTEMPT_KIND}.v1.{names.GROUP}"
READY: Final = timedelta(minutes=30)
"""Kueue 0.19's default of `waitForPodsReady.timeout`; `recoveryTimeout` defaults to that timeout."""


async def front_door(kube: Kube) -> AsyncIterator[Check]:
    """Check what AppWrappers need; yield nothing if the kind is not installed."""
    from holdfast import formats
    from holdfast.activities.kube.errors import Forbidden, UnknownKind

    ((api_version, kind),) = formats.RESOURCES
    try:
        await kube.resource(api_version, kind)
    except UnknownKind:
        return
    who, missing = await lacking_of_worker(kube, granted("appwrapper/rbac.yaml"))
    if who == WORKER:
        found = f"{who} may not {', '.join(map(str, missing))}" if missing else f"{who} may run them"
        yield Check("appwrappers", not missing, found, _APPLY if missing else "")
    else:
        yield not_known("appwrappers", f"this identity may not ask what {WORKER} may do")
    try:
        away = [(each["kind"], name) for each, name in _wanted() if await kube.find(*_key(each)) is None]
    except Forbidden as error:
        yield not_known("appwrapper policies", error.message, "use a context that may read admission policies")
    else:
        told = ", ".join(" ".join(each) for each in away)
        older = bool(away) and all(each.startswith("Mutating") for each, _ in away)
        found = f"missing: {told}" + ("; nobody is named as who asked" if older else "") if away else "all are there"
        remedy = f"{_APPLY}; Kubernetes before 1.36 has no mutating policies" if away else ""
        yield Check("appwrapper policies", not away or older, found, remedy, warns=older)
    try:
        config = await kube.find(*_CONFIG)
        items: list[Object] = (await kube.list(api_version, kind))["items"] if config is not None else []
    except Forbidden as error:
        yield not_known("kueue", error.message, "use a context that may read Kueue's configuration and AppWrappers")
        return
    if config is None:
        return
    text = mapping(config.get("data")).get(_DOCUMENT)
    if not text:
        yield not_known("kueue", f"ConfigMap {_CONFIG[3]}/{_CONFIG[2]} has no {_DOCUMENT}")
        return
    try:
        document: Any = yaml.safe_load(str(text))
    except yaml.YAMLError as error:
        yield not_known("kueue", f"its configuration cannot be read: {one_line(str(error), 200)}")
        return
    # The items of a list do not carry their kind.
    whole: list[Object] = [{**one, "apiVersion": api_version, "kind": kind} for one in items]
    living = [one for one in whole if _is_ours(one)]
    queued = any(LABEL_QUEUE in mapping(mapping(one["metadata"]).get("labels")) for one in living)
    for check in kueue(mapping(document), {"the defaults": POLICY, **dict(_policies(living))}, queued=queued):
        yield check
    try:
        workloads = (await kube.list(*_WORKLOAD))["items"]
    except (Forbidden, UnknownKind) as error:
        yield not_known("kueue quota", error.message, "use a context that may read Kueue's Workloads of v1beta2")
        return
    held = stranded(workloads, [one for one in whole if names.is_own_manager(_manager(one))], datetime.now(UTC))
    if held:
        found = f"is still reserved for {', '.join(held)}: Kueue has evicted them, and nothing of them is left"
        touch = "kubectl annotate --overwrite appwrapper NAME --namespace NAMESPACE look-again=$RANDOM"
        remedy = f"restart Kueue, or have it look again: {touch}"
        yield Check("kueue quota", False, found, remedy, warns=True)
    else:
        yield Check("kueue quota", True, "none is reserved for what Kueue has evicted and Holdfast has removed")


def kueue(config: Mapping[str, Any], policies: Mapping[str, Policy], *, queued: bool) -> Iterator[Check]:
    """Compare Kueue's configuration with what AppWrappers need of it (rows F6, F9).

    Args:
        config: Kueue's configuration document.
        policies: the policies of active AppWrappers, by name.
        queued: whether one of these AppWrappers names a queue of Kueue.
    """
    integrations = mapping(config.get("integrations"))
    lacking = {
        f"frameworks: [{_FRAMEWORK}]": _FRAMEWORK not in _texts(integrations.get("frameworks")),
        f"externalFrameworks: [{EXTERNAL}]": EXTERNAL not in _texts(integrations.get("externalFrameworks")),
    }
    told = " and ".join(name for name, is_lacking in lacking.items() if is_lacking)
    if told:
        found = f"its integrations lack {told}: it admits no AppWrapper, or queues what is under one a second time"
        remedy = "set them in Kueue's configuration, where it is to admit AppWrappers (docs/how-to/appwrappers.md)"
        yield Check("kueue", not queued, found, remedy, warns=not queued)
    else:
        yield Check("kueue", True, "it admits AppWrappers, and nothing under them")
    version = str(config.get("apiVersion"))
    if not version.endswith("/v1beta2"):
        yield not_known("kueue recovery", f"Kueue's configuration is of {version}: only the times of v1beta2 are known")
        return
    waits = mapping(config.get("waitForPodsReady"))
    if waits.get("enable") is False:
        return
    try:
        ready = parse_duration(str(waits.get("timeout") or "0")) or READY
        recovery = parse_duration(str(given)) if (given := waits.get("recoveryTimeout")) is not None else ready
    except ValueError as error:
        yield not_known("kueue recovery", f"waitForPodsReady: {error}")
        return
    longest, name = max((longest_reset(policy), name) for name, policy in policies.items())
    takes = f"a reset of {name} may take {format_duration(longest)}"
    spans = f"Kueue evicts what is not ready again within {format_duration(recovery)}"
    if not recovery:
        yield Check("kueue recovery", True, f"Kueue waits for ever until pods are ready again; {takes}")
    elif longest < recovery:
        yield Check("kueue recovery", True, f"{spans}; {takes}")
    else:
        remedy = "set waitForPodsReady.recoveryTimeout above that, or shorter graces"
        yield Check("kueue recovery", True, f"{spans}, and {takes}: it is evicted in the middle", remedy, warns=True)


def stranded(
    workloads: Iterable[Mapping[str, Any]], resources: Iterable[Mapping[str, Any]], now: datetime
) -> list[str]:
    """Return the AppWrappers (`namespace/name`) that Kueue has evicted, that are gone and that still hold quota (F9).

    Kueue releases the quota once it sees that an AppWrapper is no longer active. It may miss that
    (kubernetes-sigs/kueue#14811).

    Args:
        workloads: Kueue's Workload objects.
        resources: AppWrappers that Holdfast runs.
        now: the current time; AppWrappers removed within the last minute are left out.
    """
    evicted = {
        str(owner.get("uid"))
        for one in workloads
        if _since(one, "Evicted", "True")
        and _since(one, "QuotaReserved", "True")
        and not _since(one, "Finished", "True")
        for owner in mapping(one["metadata"]).get("ownerReferences") or ()
    }
    gone = (one for one in resources if mapping(one["metadata"]).get("uid") in evicted)
    return [
        f"{mapping(one['metadata']).get('namespace')}/{mapping(one['metadata']).get('name')}"
        for one in gone
        if (since := _since(one, "QuotaReserved", "False")) is not None and since < now - _MINUTE
    ]


def _since(resource: Mapping[str, Any], condition: str, status: str) -> datetime | None:
    """Return since when a condition has the given status; None if it does not."""
    for one in mapping(resource.get("status")).get("conditions") or ():
        if one.get("type") == condition and one.get("status") == status:
            return time_of(one.get("lastTransitionTime"))
    return None


def longest_reset(policy: Policy) -> timedelta:
    """Return the longest time that an AppWrapper may be without ready pods in a reset, if each grace period runs out.

    An AppWrapper makes no checkpoint, and its only pause is the retry pause.
    """
    waits = policy.timings
    removal = waits.failure_grace_period + waits.forceful_deletion_grace_period
    return removal + waits.retry_pause_period + waits.admission_grace_period + waits.warmup_grace_period


def _is_ours(resource: Mapping[str, Any]) -> bool:
    """Whether Holdfast manages a resource, and its life has not ended."""
    life = life_in(mapping(resource.get("status")))
    return names.is_own_manager(_manager(resource)) and (life is None or not life.phase.ended)


def _manager(resource: Mapping[str, Any]) -> str:
    return str(mapping(resource.get("spec")).get("managedBy") or "")


def _policies(resources: Iterable[dict[str, Any]]) -> Iterator[tuple[str, Policy]]:
    """Yield the policies of AppWrappers by name; skip AppWrappers that cannot run."""
    from holdfast import formats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DocumentWarning)
        for one in resources:
            try:
                workload = formats.asking(one, cluster="cluster")
            except (HoldfastError, KeyError, TypeError):
                continue
            yield f"{workload.namespace}/{workload.name}", workload.policy


def _texts(value: Any) -> list[str]:
    return [str(one) for one in cast("list[Any]", value)] if isinstance(value, list) else []


def _wanted() -> Iterator[tuple[dict[str, Any], str]]:
    for file in ("policies.yaml", "askers.yaml"):
        for document in yaml.safe_load_all((FOLDER / "appwrapper" / file).read_text(encoding="utf-8")):
            yield document, document["metadata"]["name"]


def _key(document: Mapping[str, Any]) -> tuple[str, str, str]:
    return document["apiVersion"], document["kind"], document["metadata"]["name"]
