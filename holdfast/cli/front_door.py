"""What `doctor` says of AppWrappers in the cluster: rights, policies, and Kueue's settings beside ours (F5, F6, F9)."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import yaml

from holdfast import names
from holdfast.activities.raw import mapping
from holdfast.cli.checks import WORKER, Check, lacking_of_worker, not_known
from holdfast.cli.granted import granted
from holdfast.errors import DocumentWarning, HoldfastError
from holdfast.local.paths import deploy_dir
from holdfast.model import Policy, format_duration, parse_duration
from holdfast.profiles.appwrapper import POLICY

if TYPE_CHECKING:
    from holdfast.activities.kube import Kube, Object

_APPLY: Final = "kubectl apply -k deploy/appwrapper"
_CONFIG: Final = ("v1", "ConfigMap", "kueue-manager-config", "kueue-system")
_FRAMEWORK: Final = "workload.codeflare.dev/appwrapper"
EXTERNAL: Final = f"{names.ATTEMPT_KIND}.v1.{names.GROUP}"
RECOVERY: Final = timedelta(minutes=30)
"""For how long Kueue 0.19 lets an admitted workload have pods that are not ready any more, where nothing is set."""


async def front_door(kube: Kube) -> AsyncIterator[Check]:
    """Look at what AppWrappers need; nothing is said where the kind is not installed."""
    from holdfast import formats
    from holdfast.activities.kube_errors import Forbidden, UnknownKind

    ((api_version, kind),) = formats.RESOURCES
    try:
        await kube.resource(api_version, kind)
    except UnknownKind:
        return
    who, missing = await lacking_of_worker(kube, granted("appwrapper/rbac.yaml"))
    if who == WORKER:
        found = f"{who} may not {', '.join(map(str, missing))}" if missing else f"{who} may run them"
        yield Check("appwrappers", not missing, found, _APPLY if missing else "")
    try:
        away = [f"{each['kind']} {name}" for each, name in _wanted() if await kube.find(*_key(each)) is None]
    except Forbidden as error:
        yield not_known("appwrapper policies", error.message, "use a context that may read admission policies")
    else:
        found = f"missing: {', '.join(away)}" if away else "all are there"
        yield Check("appwrapper policies", not away, found, _APPLY if away else "")
    try:
        config = await kube.find(*_CONFIG)
        items: list[Object] = (await kube.list(api_version, kind))["items"] if config is not None else []
    except Forbidden as error:
        yield not_known("kueue", error.message, "use a context that may read Kueue's configuration and AppWrappers")
        return
    if config is not None:
        # A list's items do not say of which kind they are.
        whole = ({**one, "apiVersion": api_version, "kind": kind} for one in items)
        policies = {"the defaults": POLICY, **dict(_policies(whole))}
        texts = cast("dict[str, str]", config.get("data") or {}).values()
        for check in kueue(yaml.safe_load(next(iter(texts), "")) or {}, policies):
            yield check


def kueue(config: Mapping[str, Any], policies: Mapping[str, Policy]) -> Iterator[Check]:
    """Compare Kueue's configuration with what AppWrappers need of it (rows F6, F9).

    Args:
        config: Kueue's own document.
        policies: by what they are called, those of AppWrappers that live.
    """
    integrations = mapping(config.get("integrations"))
    lacking = {
        f"frameworks: [{_FRAMEWORK}]": _FRAMEWORK not in (integrations.get("frameworks") or ()),
        f"externalFrameworks: [{EXTERNAL}]": EXTERNAL not in (integrations.get("externalFrameworks") or ()),
    }
    told = " and ".join(name for name, is_lacking in lacking.items() if is_lacking)
    remedy = f"set integrations.{told} in Kueue's configuration (docs/using.md)" if told else ""
    why = f"its integrations lack {told}: it queues what is under an admitted AppWrapper a second time, or none of them"
    yield Check("kueue", not told, why if told else "it admits AppWrappers, and nothing under them", remedy)
    waits = mapping(config.get("waitForPodsReady"))
    if not waits or waits.get("enable") is False:
        return
    try:
        given = waits.get("recoveryTimeout")
        recovery = parse_duration(str(given)) if given is not None else RECOVERY
    except ValueError as error:
        yield not_known("kueue recovery", f"waitForPodsReady.recoveryTimeout: {error}")
        return
    longest, name = max((longest_reset(policy), name) for name, policy in policies.items())
    spans = f"Kueue evicts what is not ready again within {format_duration(recovery)}"
    takes = f"a reset by {name} may take {format_duration(longest)}"
    if longest < recovery:
        yield Check("kueue recovery", True, f"{spans}; {takes}")
    else:
        remedy = "set waitForPodsReady.recoveryTimeout above that, or shorter graces"
        yield Check("kueue recovery", False, f"{spans}, but {takes}: it is evicted in the middle", remedy, warns=True)


def longest_reset(policy: Policy) -> timedelta:
    """Return how long a workload may be without ready pods until its next attempt has them, if each grace runs out."""
    waits = policy.timings
    removal = waits.failure_grace_period + waits.forceful_deletion_grace_period
    return removal + waits.retry_pause_period + waits.admission_grace_period + waits.warmup_grace_period


def _policies(resources: Iterable[dict[str, Any]]) -> Iterator[tuple[str, Policy]]:
    """Return the policies of those that Holdfast runs, by their names."""
    from holdfast import formats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DocumentWarning)
        for one in resources:
            try:
                workload = formats.asking(one, cluster="cluster")
            except HoldfastError:
                continue  # It is another controller's, or was refused.
            yield f"{workload.namespace}/{workload.name}", workload.policy


def _wanted() -> Iterator[tuple[dict[str, Any], str]]:
    folder = deploy_dir()
    assert folder is not None
    for document in yaml.safe_load_all((folder / "appwrapper" / "policies.yaml").read_text(encoding="utf-8")):
        yield document, document["metadata"]["name"]


def _key(document: Mapping[str, Any]) -> tuple[str, str, str]:
    return document["apiVersion"], document["kind"], document["metadata"]["name"]
