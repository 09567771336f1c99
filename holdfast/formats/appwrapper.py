"""AppWrapper `workload.codeflare.dev/v1beta2`, accepted unmodified: from its document to a workload.

What needs the cluster (kinds that are served, rights of the submitter) is checked by the worker, at the first creation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from pydantic import ValidationError

from holdfast import names
from holdfast.errors import InvalidWorkload, ManagedElsewhere, Problem, problems_of
from holdfast.formats.appwrapper_components import read_components
from holdfast.formats.appwrapper_document import API_VERSION, GROUP_KIND, KIND, LABEL, AppWrapper, MetadataPart
from holdfast.formats.appwrapper_status import status
from holdfast.formats.pods import group_kind
from holdfast.formats.registry import Context, Format
from holdfast.formats.settings import Settings, read_duration, read_reset, read_retry_limit, relocated
from holdfast.formats.text import Document, Json
from holdfast.model import Policy, Source, Workload
from holdfast.profiles.appwrapper import POLICY
from holdfast.profiles.rules import RESTART, with_exit_codes

CONTROLLER: Final = "workload.codeflare.dev/appwrapper-controller"
LABEL_QUEUE: Final = "kueue.x-k8s.io/queue-name"
PREFIX: Final = "workload.codeflare.dev.appwrapper/"

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
TERMINAL: Final = f"{PREFIX}terminalExitCodes"
RETRYABLE: Final = f"{PREFIX}retryableExitCodes"
ANNOTATIONS: Final = (*DURATIONS, RETRY_LIMIT, TERMINAL, RETRYABLE)
RESET_AFTER: Final = f"{names.GROUP}/restartBudgetResetAfter"
"""Ours: the published annotations have no word for it."""

_ANNOTATIONS_PATH = "metadata.annotations"


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
        namespace: Its namespace if it names none; one that it names must be the same.
        name: Its name if it has none but a `generateName`; one that it has must be the same.
        defaults: The operator's policy, which the annotations override (row A14).
        source: What to call the document in errors.

    Raises:
        InvalidWorkload: with every problem found, each with its path and what is allowed there.
        ManagedElsewhere: if `managedBy` names another controller.
    """
    try:
        parsed = AppWrapper.model_validate(document)
    except ValidationError as error:
        raise InvalidWorkload(problems_of(error, AppWrapper), source) from None
    metadata, spec = parsed.metadata, parsed.spec
    if spec.managedBy is not None and spec.managedBy not in {CONTROLLER, names.MANAGED_BY}:
        raise ManagedElsewhere(f"AppWrapper {metadata.name or metadata.generateName}", spec.managedBy)
    problems: list[Problem] = []
    own_name = _name(metadata, name, problems)
    own_namespace = metadata.namespace or namespace or "default"
    if namespace is not None and metadata.namespace not in {None, "", namespace}:
        problems.append(Problem("metadata.namespace", f"expected {namespace!r}, as asked for", metadata.namespace))
    policy = _policy(metadata.annotations or {}, defaults, problems)
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
    queue = (metadata.labels or {}).get(LABEL_QUEUE)
    if queue:
        values["queue"] = queue
    try:
        return Workload(**values)
    except ValidationError as error:
        places = {
            "name": "metadata.name",
            "namespace": "metadata.namespace",
            "queue": f"metadata.labels[{LABEL_QUEUE}]",
            "components": "spec.components",
        }
        found = relocated(problems_of(error, Workload), places)
        # What is wrong with the whole, such as its size, is wrong with what it is made of.
        problems = [replace(one, path=one.path or "spec.components") for one in found]
        raise InvalidWorkload(problems, source) from None


def _name(metadata: MetadataPart, asked: str | None, problems: list[Problem]) -> str:
    if not metadata.name and not asked:
        problems.append(Problem("metadata.name", "is required: an AppWrapper with a generateName is named by --name"))
    if metadata.name and asked and metadata.name != asked:
        problems.append(Problem("metadata.name", f"expected {asked!r}, as asked for", metadata.name))
    name = metadata.name or asked or ""
    if len(name) > 63:
        problems.append(Problem("metadata.name", "expected at most 63 characters, since it becomes a label", name))
    return name


def _policy(annotations: dict[str, str], defaults: Policy, problems: list[Problem]) -> Policy:
    """Return the operator's policy with what the annotations say in place of it (rows A14, A15)."""
    settings = Settings()
    codes: dict[str, list[int]] = {TERMINAL: [], RETRYABLE: []}
    for key, value in annotations.items():
        path = f"{_ANNOTATIONS_PATH}[{key}]"
        found: object = None
        if key in DURATIONS:
            field = DURATIONS[key]
            # Grace and pause periods are held within [0, maximum]; a TTL below 0 means nothing and is refused.
            found = read_duration(value, path, floor=field != "success_ttl")
            if isinstance(found, timedelta):
                settings.timings[field] = found
        elif key == RETRY_LIMIT:
            found = read_retry_limit(value, path)
            if isinstance(found, int):
                settings.limits[RESTART] = found
        elif key == RESET_AFTER:
            found = read_reset(value, path)
            if isinstance(found, timedelta):
                settings.resets[RESTART] = found
        elif key in codes:
            found = _exit_codes(value, path)
            if not isinstance(found, Problem):
                codes[key] = found
        elif key.startswith(PREFIX):
            found = Problem(path, "is no annotation of AppWrapper", allowed=ANNOTATIONS)
        if isinstance(found, Problem):
            problems.append(found)
    return with_exit_codes(settings.policy(defaults), codes[TERMINAL], codes[RETRYABLE])


def _exit_codes(text: str, path: str) -> list[int] | Problem:
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,3}", part) and int(part) <= 255 for part in parts):
        return Problem(path, "expected exit codes from 0 to 255, parted by commas, such as 1, 137", text)
    return [int(part) for part in parts]


def _knows(document: Json) -> bool:
    return group_kind(document) == GROUP_KIND


def _read(documents: Sequence[Document], context: Context) -> list[Workload]:
    found: list[Workload] = []
    for document in documents:
        if document.content.get("apiVersion") != API_VERSION:
            problem = Problem("apiVersion", "is not accepted", document.content.get("apiVersion"), (API_VERSION,))
            raise InvalidWorkload([problem], str(document))
        found.append(
            read(
                document.content,
                cluster=context.cluster,
                namespace=context.namespace,
                name=context.name,
                defaults=context.profiles[POLICY.profile],
                source=str(document),
            )
        )
    return found


FORMAT = Format("AppWrapper", _knows, _read, status, frozenset({(API_VERSION, KIND)}), has_status=True)
"""This format's entry."""
