"""AppWrapper `workload.codeflare.dev/v1beta2`, accepted unmodified: from its document to a workload.

The worker checks what needs the cluster (served kinds, rights of the submitter), at the first creation.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import warnings
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.errors import DocumentWarning, HoldfastError, InvalidWorkload, Problem
from holdfast.formats.appwrapper.components import placed, read_components
from holdfast.formats.appwrapper.document import API_VERSION, GROUP_KIND, KIND, LABEL, AppWrapper
from holdfast.formats.appwrapper.status import component_status, reported, status
from holdfast.formats.condition import is_deployed
from holdfast.formats.pods import group_kind
from holdfast.formats.published import (
    ANNOTATIONS_PATH,
    LABEL_QUEUE,
    MetadataPart,
    check_controller,
    each_by,
    name_in,
    namespace_in,
    settings_in,
    shaped,
    warn,
    workload_of,
)
from holdfast.formats.registry import Format, Resource, is_suspended, managed_by
from holdfast.formats.settings import RETRIES_MAXIMUM, TIMING_NAMES, Settings, read_duration, read_retry_limit
from holdfast.formats.text import Json
from holdfast.model import PodSet, Policy, Report, Source, Workload
from holdfast.profiles.appwrapper import POLICY
from holdfast.profiles.rules import RESTART, with_exit_codes

CONTROLLER: Final = "workload.codeflare.dev/appwrapper-controller"
_OWN: Final = "workload.codeflare.dev"
PREFIX: Final = f"{_OWN}.appwrapper/"

DURATIONS: Final = {
    f"{PREFIX}admissionGracePeriodDuration": "admission_grace_period",
    f"{PREFIX}warmupGracePeriodDuration": "warmup_grace_period",
    f"{PREFIX}failureGracePeriodDuration": "failure_grace_period",
    f"{PREFIX}retryPausePeriodDuration": "retry_pause_period",
    f"{PREFIX}deletionOnFailureGracePeriodDuration": "deletion_on_failure_grace_period",
    f"{PREFIX}forcefulDeletionGracePeriodDuration": "forceful_deletion_grace_period",
    f"{PREFIX}successTTLDuration": "success_ttl",
}
RETRY_LIMIT: Final = f"{PREFIX}retryLimit"
_RETRIES_PUBLISHED: Final = 2**31 - 1
"""The highest number that AppWrapper's controller takes. Above `RETRIES_MAXIMUM` it counts as no limit."""
TERMINAL: Final = f"{PREFIX}terminalExitCodes"
RETRYABLE: Final = f"{PREFIX}retryableExitCodes"
ANNOTATIONS: Final = (*DURATIONS, RETRY_LIMIT, TERMINAL, RETRYABLE)
_TIMINGS: Final = {field: name for name, field in TIMING_NAMES.items()}
_SETTINGS: Final = {RETRY_LIMIT: "retryLimit"} | {key: _TIMINGS[field] for key, field in DURATIONS.items()}
"""The setting that has the same effect as each of these annotations."""
_DECIDED: Final = {
    "queue": f"metadata.labels[{LABEL_QUEUE}]",
    "suspend": "spec.suspend",
    "profile": "the kind of document",
}
"""Settings that have no effect on an AppWrapper, and what decides instead."""


def read(
    document: Json,
    *,
    cluster: str,
    namespace: str | None = None,
    name: str | None = None,
    defaults: Policy = POLICY,
    source: str = "",
) -> Workload:
    """Read one AppWrapper.

    Args:
        document: The document, as YAML or JSON hold it.
        cluster: The cluster to run it on.
        namespace: Its namespace if it names none; a named one must be the same.
        name: Its name if it has only a `generateName`; its own name, if any, must be the same.
        defaults: The operator's policy, which the annotations override (row A14).
        source: What to call the document in errors.

    Raises:
        InvalidWorkload: with every problem found, each with its path and what is allowed there.
        ManagedElsewhere: if `managedBy` names another controller.
    """
    parsed = shaped(document, AppWrapper, source)
    metadata, spec = parsed.metadata, parsed.spec
    check_controller(KIND, metadata, spec.managedBy, CONTROLLER)
    problems: list[Problem] = []
    own_name = _name(metadata, name, problems)
    own_namespace = namespace_in(metadata, namespace, problems)
    settings = settings_in(metadata, defaults, _decided(metadata.annotations or {}), problems)
    policy = _policy(metadata.annotations or {}, settings, defaults, problems)
    components = read_components(spec.components, own_name, own_namespace, problems)
    if problems:
        raise InvalidWorkload(problems, source)
    values: dict[str, Any] = {
        "name": own_name,
        "namespace": own_namespace,
        "cluster": cluster,
        "components": components,
        "labels": {LABEL: own_name},
        "suspend": bool(spec.suspend),
        "policy": policy,
        "source": Source(api_version=parsed.apiVersion, kind=parsed.kind),
    }
    values.update(settings.fields)
    return workload_of(metadata, lambda: values, {"components": "spec.components", **settings.paths}, source)


def _decided(annotations: dict[str, str]) -> dict[str, str]:
    """Return the settings that have no effect: AppWrapper's own annotations count before Holdfast's."""
    own = {name: f"{ANNOTATIONS_PATH}[{key}]" for key, name in _SETTINGS.items() if key in annotations}
    return {**_DECIDED, **own}


def _name(metadata: MetadataPart, asked: str | None, problems: list[Problem]) -> str:
    name = name_in(metadata, asked, "an AppWrapper", problems)
    if len(name) > 63:
        problems.append(Problem("metadata.name", "expected at most 63 characters, since it becomes a label", name))
    return name


def _policy(annotations: dict[str, str], settings: Settings, defaults: Policy, problems: list[Problem]) -> Policy:
    """Return the operator's policy with AppWrapper's annotations and Holdfast's settings applied (rows A14, A15)."""
    codes: dict[str, list[int]] = {TERMINAL: [], RETRYABLE: []}
    for key, value in annotations.items():
        path = f"{ANNOTATIONS_PATH}[{key}]"
        found: object = None
        if key in DURATIONS:
            field = DURATIONS[key]
            # Grace and pause periods are clamped to [0, maximum]; a negative TTL has no meaning and is refused.
            found = read_duration(value, path, floor=field != "success_ttl")
            if isinstance(found, timedelta):
                settings.timings[field] = found
        elif key == RETRY_LIMIT:
            found = read_retry_limit(value, path, _RETRIES_PUBLISHED)
            if isinstance(found, int):
                settings.limits[RESTART] = found if found <= RETRIES_MAXIMUM else None
        elif key in codes:
            found = _exit_codes(value, path)
            if not isinstance(found, Problem):
                codes[key] = found
        elif key.startswith(_OWN):
            _warn_of(path, key)
        if isinstance(found, Problem):
            problems.append(found)
    problems.extend(settings.rule_problems(defaults))
    return with_exit_codes(settings.policy(defaults), codes[TERMINAL], codes[RETRYABLE])


def _warn_of(path: str, key: str) -> None:
    """Warn of an annotation that looks like AppWrapper's but is not: AppWrapper's own controller ignores it."""
    written = {one.removeprefix(PREFIX): one for one in ANNOTATIONS}
    near = difflib.get_close_matches(key.rpartition("/")[2], written, n=1, cutoff=0.7)
    if not near and not key.startswith(PREFIX):
        return
    hint = f"did you mean {written[near[0]]}?" if near else f"known are {', '.join(ANNOTATIONS)}"
    warn(f"{path}: is no annotation of AppWrapper, and is ignored: {hint}")


def _exit_codes(text: str, path: str) -> list[int] | Problem:
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,3}", part) and int(part) <= 255 for part in parts):
        return Problem(path, "expected exit codes from 0 to 255, parted by commas, such as 1, 137", text)
    return [int(part) for part in parts]


def _knows(document: Json) -> bool:
    return group_kind(document) == GROUP_KIND


def _bare(document: Json) -> Json:
    spec: Json = document["spec"]
    components = [{key: one[key] for key in one if key != "podSetInfos"} for one in spec["components"]]
    return {**document, "spec": {**spec, "components": components}}


def _unset(document: Json) -> Json:
    """Return a document without its settings: they are read once, and may not fail what already runs (record 0100)."""
    return {**document, "metadata": {**document["metadata"], "annotations": None}, "status": None}


def _pod_sets(document: Json) -> dict[str, tuple[PodSet, ...]]:
    if _bare(document) == document:
        return {}
    problems: list[Problem] = []
    found = placed(shaped(document, AppWrapper, "").spec.components, problems)
    if problems:
        raise InvalidWorkload(problems, f"{KIND} {document['metadata']['name']}")
    return found


def _status_suffices(status: Mapping[str, Any]) -> bool:
    return bool(status.get("componentStatus"))


def _reported(document: Json, report: Report, now: datetime) -> Json:
    previous: Json = document.get("status") or {}
    components = previous.get("componentStatus")
    if not components:
        # An accepted document can be read again; for a refused one there is no status by component.
        with warnings.catch_warnings(), contextlib.suppress(HoldfastError):
            warnings.simplefilter("ignore", DocumentWarning)
            components = component_status(read(_unset(document), cluster="cluster"))
            for told, written in zip(components, document["spec"]["components"], strict=True):
                # Kueue reads these annotations here: they set how pods of a set are placed together.
                noted = {one["path"]: one.get("annotations") for one in written.get("podSets") or ()}
                for one in told["podSets"]:
                    one.update({"annotations": noted[one["path"]]} if noted.get(one["path"]) else {})
    return reported(components or [], report, previous, now)


RESOURCE: Final = Resource(
    API_VERSION,
    KIND,
    managed_by=managed_by,
    is_suspended=is_suspended,
    bare=_bare,
    pod_sets=_pod_sets,
    status=_reported,
    is_deployed=is_deployed,
    status_suffices=_status_suffices,
    folder="appwrapper",
    framework="workload.codeflare.dev/appwrapper",
)
"""How an AppWrapper in the cluster requests a workload."""

FORMAT = Format(
    KIND,
    _knows,
    each_by(read, API_VERSION, POLICY.profile),
    status,
    frozenset({(API_VERSION, KIND)}),
    has_status=True,
    resource=RESOURCE,
)
"""This format's entry."""
