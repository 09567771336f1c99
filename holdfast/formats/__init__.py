"""Published workload formats, read into the model; status is written back. A new one is one file and one entry."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from holdfast import names
from holdfast.errors import DocumentWarning, InvalidWorkload, Problem
from holdfast.formats import manifests, native
from holdfast.formats.appwrapper import reader as appwrapper
from holdfast.formats.jobset import reader as jobset
from holdfast.formats.jobset.resource import RESOURCE as JOBSET
from holdfast.formats.registry import Context, Format, Resource
from holdfast.formats.settings import NAMES, Given, overridden, read_settings
from holdfast.formats.text import Document, Json, as_json, documents, half_letter, is_graph, is_queue
from holdfast.model import Component, PodSet, Policy, Status, Workload
from holdfast.model.spec.sensitive import reruns_init
from holdfast.profiles import PROFILES

FORMATS: Final[tuple[Format, ...]] = (
    appwrapper.FORMAT,
    jobset.FORMAT._replace(resource=JOBSET),
    native.FORMAT,
    manifests.FORMAT,
)
"""All formats; the first that recognizes a document reads it."""
RESOURCES: Final[Mapping[tuple[str, str], Resource]] = {
    (one.resource.api_version, one.resource.kind): one.resource for one in FORMATS if one.resource is not None
}
"""The custom resources that request workloads, by API version and kind."""

__all__ = [
    "FORMATS",
    "NAMES",
    "RESOURCES",
    "Format",
    "asking",
    "path_in",
    "place",
    "pod_sets",
    "read",
    "secrets_of",
    "source_form",
    "status_in_source_form",
]


def read(
    text_or_documents: str | Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    cluster: str,
    namespace: str | None = None,
    default_namespace: str = "default",
    name: str | None = None,
    defaults: Mapping[str, Policy] | None = None,
    overrides: Mapping[str, str] | None = None,
    payloads_encrypted: bool = False,
) -> list[Workload]:
    """Read workloads from YAML or JSON text, or from parsed documents.

    Each AppWrapper, JobSet and Holdfast document is a workload; all plain manifests together are one.

    Args:
        text_or_documents: One or several documents, as text or as values.
        cluster: The cluster to run them on.
        namespace: The namespace for documents that name none; a named one must be the same.
        default_namespace: The namespace for documents that name none, if `namespace` is not given.
        name: The name of the workload, if there is only one.
        defaults: The operator's policies that replace the published ones, by profile.
        overrides: Settings that override all others, by the names in `NAMES`: `{"failureGracePeriod": "30s"}`.
        payloads_encrypted: Whether payloads are encrypted in transit; a Secret is accepted only then.

    Raises:
        InvalidWorkload: with every problem found, each with its path and what is allowed there.
        ManagedElsewhere: if a document names another controller in `managedBy`.

    Example:
        >>> read(open("job.yaml").read(), cluster="dev")[0].name
        'train'
    """
    context = Context(cluster, namespace, default_namespace, name, profiles={**PROFILES, **(defaults or {})})
    settings, problems = read_settings(
        Given(f"overrides.{key}", key, value) for key, value in (overrides or {}).items()
    )
    if problems:
        raise InvalidWorkload(problems, "the settings")
    found = _workloads(_documents(text_or_documents), context)
    ready: list[Workload] = []
    for workload in found:
        if overrides:
            workload, problems = overridden(workload, settings)
        if not payloads_encrypted:
            problems.extend(secrets_of(workload.components, _root(workload)))
        if workload.sensitive:
            problems.extend(
                Problem(f"{_root(workload)}{path}{wrong.path}", wrong.expected, wrong.value)
                for path, wrong in reruns_init(workload.components)
            )
        if problems:
            raise InvalidWorkload(problems, f"workload {workload.name}")
        ready.append(workload)
    _check_names(ready)
    return ready


def asking(document: Json, *, cluster: str) -> Workload:
    """Return the workload that a custom resource in the cluster requests, with the resource's uid (row F1).

    Args:
        document: The resource, as the API server returns it.
        cluster: The cluster of the resource.

    Raises:
        InvalidWorkload: with every problem found, each with its path and what is allowed there.
        ManagedElsewhere: if it names another controller in `managedBy`.
    """
    resource = RESOURCES[document["apiVersion"], document["kind"]]
    (workload,) = read({**resource.bare(document), "status": None}, cluster=cluster)
    metadata = document["metadata"]
    source = workload.source.model_copy(update={"generation": metadata["generation"]})
    return workload.model_copy(update={"uid": metadata["uid"], "source": source})


def pod_sets(document: Json) -> dict[str, tuple[PodSet, ...]]:
    """Return a custom resource's pod sets with the admission controller's additions, by component (row F4).

    Empty if nothing is added.

    Raises:
        InvalidWorkload: with every problem found, each with its path and what is allowed there.
    """
    return RESOURCES[document["apiVersion"], document["kind"]].pod_sets(document)


def status_in_source_form(workload: Workload, status: Status) -> Json:
    """Return a status in the format in which the workload was written."""
    return _form(workload).status(workload, status)


def source_form(workload: Workload, status: Status) -> Json | None:
    """Return a workload's original document with its status, as its own controller would write it.

    Its spec is omitted. None for a format without a status of its own.
    """
    form = _form(workload)
    if not form.has_status:
        return None
    return {
        "apiVersion": workload.source.api_version,
        "kind": workload.source.kind,
        "metadata": {"name": workload.name, "namespace": workload.namespace},
        "status": form.status(workload, status),
    }


def place(kind: str, copies: Sequence[int | None], index: int, path: str) -> str:
    """Return the path of a component's field in the document that its author wrote.

    Args:
        kind: Kind of the document, as in `Workload.source`.
        copies: How many copies each of the workload's components has; None for a single object.
        index: Index of the component.
        path: The field's path from the component: `template.spec.parallelism`.
    """
    forms = (one for one in FORMATS if kind in {name for _, name in one.source_kinds})
    return next(forms, native.FORMAT).place(copies, index, path)


def path_in(workload: Workload, index: int, path: str) -> str:
    """Return the path of a component's field in the workload's own document; plain manifests have no common root."""
    component = workload.components[index]
    if workload.source != manifests.SOURCE:
        return place(workload.source.kind, [one.copies for one in workload.components], index, path)
    inner = path.removeprefix("template").removeprefix(".")
    metadata = component.template["metadata"]
    return f"{component.template['kind']} {metadata.get('name') or metadata.get('generateName')}: {inner}"


def _form(workload: Workload) -> Format:
    source = (workload.source.api_version, workload.source.kind)
    return next((one for one in FORMATS if source in one.source_kinds), native.FORMAT)


def _documents(given: str | Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> list[Document]:
    """Return the documents, with each List replaced by its items."""
    if isinstance(given, str):
        found = [Document(as_json(one.content), one.line) for one in documents(given)]
    else:
        several = cast("Iterable[Json]", [given] if isinstance(given, Mapping) else given)
        found = [Document(as_json(one)) for one in several]
    flat: list[Document] = []
    for one in found:
        items: Any = one.content.get("items")
        if one.content.get("kind") == "List" and one.content.get("apiVersion") == "v1" and isinstance(items, list):
            flat.extend(Document(item, one.line) for item in cast("list[Json]", items))
        else:
            flat.append(one)
    if not flat:
        raise InvalidWorkload([Problem("", "expected at least one document, found none")], "the text")
    for one in flat:
        if not isinstance(cast("Any", one.content), dict):
            raise InvalidWorkload([Problem("items", "expected objects", one.content)], "the List")
        if broken := half_letter(one.content):
            raise InvalidWorkload([Problem(broken, "holds half of a letter: expected whole Unicode text")], str(one))
    return flat


def _workloads(found: list[Document], context: Context) -> list[Workload]:
    sorted_out: dict[str, tuple[Format, list[Document]]] = {}
    for document in found:
        if is_graph(document.content):
            why = "is a graph of workloads, and stands alone in its file: `holdfast submit`, formats.graph.read_graph"
            raise InvalidWorkload([Problem("kind", why, names.GRAPH_KIND)], str(document))
        if is_queue(document.content):
            why = "is an admission queue, and no workload: `holdfast queue apply`, formats.queue.read_queues"
            raise InvalidWorkload([Problem("kind", why, names.QUEUE_KIND)], str(document))
        form = next((one for one in FORMATS if one.knows(document.content)), None)
        if form is None:
            message = "expected a Kubernetes object with apiVersion and kind, or a workload with schemaVersion"
            missing = "kind" if document.content.get("apiVersion") else "apiVersion"
            raise InvalidWorkload([Problem(missing, message)], str(document))
        sorted_out.setdefault(form.name, (form, []))[1].append(document)
    _leave_out(sorted_out)
    workloads = [
        workload for form, own_documents in sorted_out.values() for workload in form.read(own_documents, context)
    ]
    if context.name is not None and len(workloads) > 1:
        problem = Problem("name", f"names one workload, but {len(workloads)} were read", context.name)
        raise InvalidWorkload([problem], "the text")
    return workloads


def _leave_out(sorted_out: dict[str, tuple[Format, list[Document]]]) -> None:
    """Leave out plain objects without pods beside documents that are workloads by themselves (row D29).

    There is nothing to watch for them. To delete and create them with each attempt would lose their content.
    """
    plain = sorted_out.get(manifests.FORMAT.name)
    if plain is None or len(sorted_out) == 1 or any(manifests.brings_pods(one.content) for one in plain[1]):
        return
    for one in sorted_out.pop(manifests.FORMAT.name)[1]:
        text = f"{one}: brings no pods, and is not created: it is no part of the workload beside it (kubectl apply)"
        warnings.warn(text, DocumentWarning, stacklevel=2)


def _root(workload: Workload) -> str:
    return "" if workload.source == manifests.SOURCE else "spec."


def secrets_of(components: Iterable[Component], root: str = "") -> list[Problem]:
    """Return a problem for each Secret among components: it may be sent only encrypted (row X6).

    Args:
        components: the components.
        root: the path of the field that lists them.
    """
    problems = list[Problem]()
    for index, component in enumerate(components):
        if component.template["kind"] == "Secret" and component.template["apiVersion"] == "v1":
            problem = Problem(
                f"{root}components[{index}].template",
                "is a Secret, whose content would stand in the workflow's history in clear: create it beforehand and "
                f"refer to it by name, or encrypt payloads ({names.ENV_CODEC_KEYS})",
            )
            problems.append(problem)
    return problems


def _check_names(workloads: list[Workload]) -> None:
    seen: set[str] = set()
    for workload in workloads:
        if workload.workflow_id in seen:
            raise InvalidWorkload([Problem("metadata.name", "is given to two workloads", workload.name)], "the text")
        seen.add(workload.workflow_id)
