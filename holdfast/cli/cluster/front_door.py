"""The checks of `doctor` for custom resources: rights, policies, and Kueue's settings against ours (F5, F6, F9)."""

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
from holdfast.deploy import FOLDER, POLICIES, door_files
from holdfast.errors import DocumentWarning, HoldfastError
from holdfast.formats.condition import life_in
from holdfast.formats.published import LABEL_QUEUE
from holdfast.model import ActionKind, Checkpoint, Policy, format_duration, parse_duration
from holdfast.profiles.appwrapper import POLICY

if TYPE_CHECKING:
    from holdfast.activities.kube.client import Kube, Object
    from holdfast.formats.registry import Resource

_CONFIG: Final = ("v1", "ConfigMap", "kueue-manager-config", "kueue-system")
_DOCUMENT: Final = "controller_manager_config.yaml"
_WORKLOAD: Final = ("kueue.x-k8s.io/v1beta2", "Workload")
_QUEUES: Final = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")
_TOLD: Final = 10
"""How many namespaces a check names."""
_MINUTE: Final = timedelta(minutes=1)
EXTERNAL: Final = f"{names.ATTEMPT_KIND}.v1.{names.GROUP}"
READY: Final = timedelta(minutes=30)
"""Kueue 0.19's default of `waitForPodsReady.timeout`; `recoveryTimeout` defaults to that timeout."""


async def front_door(kube: Kube) -> AsyncIterator[Check]:
    """Check what each installed kind of custom resource needs; yield nothing if none is installed."""
    from holdfast import formats
    from holdfast.activities.kube.errors import Forbidden, UnknownKind

    forms: list[Resource] = []
    for form in formats.RESOURCES.values():
        try:
            await kube.resource(form.api_version, form.kind)
        except UnknownKind:
            continue
        forms.append(form)
        async for check in _rights_and_policies(kube, form):
            yield check
    async for check in queueing(kube):
        yield check
    if not forms:
        return
    try:
        config = await kube.find(*_CONFIG)
        # The items of a list do not carry their kind.
        whole: list[Object] = [
            {**one, "apiVersion": form.api_version, "kind": form.kind}
            for form in forms
            for one in ((await kube.list(form.api_version, form.kind))["items"] if config is not None else ())
        ]
    except Forbidden as error:
        why = "use a context that may read Kueue's configuration and what users apply"
        yield not_known("kueue", error.message, why)
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
    living = [one for one in whole if _is_ours(one)]
    naming = {one["kind"] for one in living if LABEL_QUEUE in mapping(mapping(one["metadata"]).get("labels"))}
    used = {one["kind"] for one in living}
    # A kind that its own controller runs here too is Kueue's business with that controller.
    queued = {
        form.framework: form.kind in naming
        for form in forms
        if form.framework and (form.kind in used or _brings_kind(form))
    }
    for check in kueue(mapping(document), {"the defaults": longest_reset(POLICY), **dict(_resets(living))}, queued):
        yield check
    try:
        workloads = (await kube.list(*_WORKLOAD))["items"]
    except (Forbidden, UnknownKind) as error:
        yield not_known("kueue quota", error.message, "use a context that may read Kueue's Workloads of v1beta2")
        return
    held = stranded(workloads, [one for one in whole if names.is_own_manager(_manager(one))], datetime.now(UTC))
    if held:
        found = f"is still reserved for {', '.join(held)}: Kueue has evicted them, and nothing of them is left"
        touch = "kubectl annotate --overwrite KIND NAME --namespace NAMESPACE look-again=$RANDOM"
        remedy = f"restart Kueue, or have it look again: {touch}"
        yield Check("kueue quota", False, found, remedy, warns=True)
    else:
        yield Check("kueue quota", True, "none is reserved for what Kueue has evicted and Holdfast has removed")


async def queueing(kube: Kube) -> AsyncIterator[Check]:
    """Say who decides when a workload runs: Kueue or Holdfast's own queues; nothing without Kueue (row F19)."""
    from holdfast.activities.kube.errors import Forbidden, NotFound, UnknownKind

    for version in _QUEUES:
        try:
            found = (await kube.list(version, "LocalQueue"))["items"]
        except (NotFound, UnknownKind):
            continue
        except Forbidden as error:
            yield not_known("queueing", error.message, "use a context that may list Kueue's LocalQueues")
            return
        yield deciders({str(mapping(one["metadata"]).get("namespace")) for one in found})
        return


def deciders(namespaces: Iterable[str]) -> Check:
    """Say who decides, given the namespaces that have a queue of Kueue's. Pure."""
    there = sorted(namespaces)
    told = f"{', '.join(there[:_TOLD])}{f' and {len(there) - _TOLD} more' if len(there) > _TOLD else ''}"
    kueue_decides = f"Kueue decides in {told}, where it has a queue" if there else "Kueue has no queue in any namespace"
    return Check("queueing", True, f"{kueue_decides}; Holdfast's own queues decide elsewhere")


async def _rights_and_policies(kube: Kube, form: Resource) -> AsyncIterator[Check]:
    from holdfast.activities.kube.errors import Forbidden

    kinds, apply = f"{form.kind.lower()}s", f"kubectl apply -k deploy/{form.folder}"
    needed = granted(f"{form.folder}/rbac.yaml")
    who, missing = await lacking_of_worker(kube, needed)
    policies: list[dict[str, Any]] = list(_wanted(form))
    try:
        away = [one for one in policies if await kube.find(*_key(one)) is None]
    except Forbidden as error:
        away, unread = list[dict[str, Any]](), error.message
    else:
        unread = ""
    own = [one for one in policies if one["metadata"]["name"].startswith(form.folder)]
    if not _brings_kind(form) and len(missing) == len(needed) and all(one in away for one in own):
        yield Check(kinds, True, f"another controller runs them: {apply}, if Holdfast is to run those that name it")
        return
    if who == WORKER:
        found = f"{who} may not {', '.join(map(str, missing))}" if missing else f"{who} may run them"
        yield Check(kinds, not missing, found, apply if missing else "")
    else:
        yield not_known(kinds, f"this identity may not ask what {WORKER} may do")
    name = f"{form.kind.lower()} policies"
    if unread:
        yield not_known(name, unread, "use a context that may read admission policies")
        return
    told = ", ".join(f"{one['kind']} {one['metadata']['name']}" for one in away)
    older = bool(away) and all(one["kind"].startswith("Mutating") for one in away)
    found = f"missing: {told}" + ("; nobody is named as who asked" if older else "") if away else "all are there"
    remedy = f"{applied(form, away)}; Kubernetes before 1.36 has no mutating policies" if away else ""
    yield Check(name, not away or older, found, remedy, warns=older)


def applied(form: Resource, away: Iterable[Mapping[str, Any]]) -> str:
    """Return what applies the policies of a kind that are missing: those of all kinds come with `deploy/`. Pure."""
    own = {one["metadata"]["name"].startswith(form.folder) for one in away}
    folders = [folder for folder, is_own in (("", False), (form.folder, True)) if is_own in own]
    return " and ".join(f"kubectl apply -k deploy/{folder}" for folder in folders)


def _brings_kind(form: Resource) -> bool:
    """Whether Holdfast brings a kind's definition, rather than another controller."""
    return (FOLDER / form.folder / "crd.yaml").exists()


def kueue(config: Mapping[str, Any], resets: Mapping[str, timedelta], queued: Mapping[str, bool]) -> Iterator[Check]:
    """Compare Kueue's configuration with what Holdfast's workloads need of it (rows F6, F9).

    Args:
        config: Kueue's configuration document.
        resets: the longest resets of active workloads, by name.
        queued: by the name under which Kueue lists a kind: whether one of its active workloads names a queue of Kueue.
    """
    integrations = mapping(config.get("integrations"))
    lacking = {
        f"frameworks: [{name}]": names_queue
        for name, names_queue in queued.items()
        if name not in _texts(integrations.get("frameworks"))
    }
    if EXTERNAL not in _texts(integrations.get("externalFrameworks")):
        lacking[f"externalFrameworks: [{EXTERNAL}]"] = any(queued.values())
    if lacking:
        found = (
            f"its integrations lack {' and '.join(lacking)}: it admits no such workload, or queues what is under one"
        )
        remedy = "set them in Kueue's configuration, where it is to admit these (docs/how-to/appwrappers.md)"
        matters = any(lacking.values())
        yield Check("kueue", not matters, f"{found} a second time", remedy, warns=not matters)
    else:
        kinds = ", ".join(name.rpartition("/")[2] for name in queued)
        yield Check("kueue", True, f"it admits each {kinds}, and nothing under them")
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
    longest, name = max((span, name) for name, span in resets.items())
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
    """Return the resources (`namespace/name`) that Kueue has evicted, that are gone and that still hold quota (F9).

    Kueue releases the quota once it sees that one is no longer active. It may miss that
    (kubernetes-sigs/kueue#14811).

    Args:
        workloads: Kueue's Workload objects.
        resources: what Holdfast runs.
        now: the current time; resources removed within the last minute are left out.
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


def longest_reset(policy: Policy, checkpoint: Checkpoint | None = None) -> timedelta:
    """Return the longest time that a workload may be without ready pods in a reset, if each grace period runs out.

    That counts the longest pause, a rule's or the retry pause, and a checkpoint before it, if the workload makes any.
    """
    waits = policy.timings
    actions = [policy.default, *(rule.action for rule in policy.rules)]
    pauses = [one.pause for one in actions if one.kind is ActionKind.RESTART and one.pause is not None]
    saves = checkpoint.timeout + checkpoint.extension if checkpoint is not None else timedelta()
    removal = waits.failure_grace_period + saves + waits.forceful_deletion_grace_period
    pause = max([waits.retry_pause_period, *pauses])
    return removal + pause + waits.admission_grace_period + waits.warmup_grace_period


def _is_ours(resource: Mapping[str, Any]) -> bool:
    """Whether Holdfast manages a resource, and its life has not ended."""
    life = life_in(mapping(resource.get("status")))
    return names.is_own_manager(_manager(resource)) and (life is None or not life.phase.ended)


def _manager(resource: Mapping[str, Any]) -> str:
    return str(mapping(resource.get("spec")).get("managedBy") or "")


def _resets(resources: Iterable[dict[str, Any]]) -> Iterator[tuple[str, timedelta]]:
    """Yield the longest resets of workloads by name; skip resources that cannot run."""
    from holdfast import formats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DocumentWarning)
        for one in resources:
            try:
                workload = formats.asking(one, cluster="cluster")
            except (HoldfastError, AttributeError, KeyError, TypeError, ValueError):
                continue
            yield f"{workload.namespace}/{workload.name}", longest_reset(workload.policy, workload.checkpoint)


def _texts(value: Any) -> list[str]:
    return [str(one) for one in cast("list[Any]", value)] if isinstance(value, list) else []


def _wanted(form: Resource) -> Iterator[dict[str, Any]]:
    for path in door_files(form.folder):
        if path.name in POLICIES:
            yield from yaml.safe_load_all(path.read_text(encoding="utf-8"))


def _key(document: Mapping[str, Any]) -> tuple[str, str, str]:
    return document["apiVersion"], document["kind"], document["metadata"]["name"]
