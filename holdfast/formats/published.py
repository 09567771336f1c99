"""Common parts of the documents of published controllers: metadata, queue, controller; and how to read one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from holdfast import names
from holdfast.errors import DocumentWarning, InvalidWorkload, ManagedElsewhere, Problem, problems_of
from holdfast.formats.pods import PathProblem, resolve
from holdfast.formats.registry import Context
from holdfast.formats.settings import Given, Settings, known_name, nearest, read_settings, relocated, unhyphenated
from holdfast.formats.text import Document, Json, inside
from holdfast.model import Policy, Workload
from holdfast.model.labels import KUEUE_QUEUE

LABEL_QUEUE: Final = KUEUE_QUEUE
ANNOTATIONS_PATH: Final = "metadata.annotations"
_OWN: Final = f"{names.GROUP}/"


class Part(BaseModel):
    """A part of a document, as strict as the API server about types and fields."""

    model_config = ConfigDict(extra="forbid", strict=True)


class MetadataPart(Part):
    """The fields read from an object's metadata; the API server checks the rest."""

    model_config = ConfigDict(extra="ignore", strict=True)

    name: str = ""
    generateName: str = ""
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


Read = TypeVar("Read", bound=BaseModel)


def shaped(document: Json, shape: type[Read], source: str) -> Read:
    """Return a document parsed into its shape.

    Raises:
        InvalidWorkload: with every field that does not match the shape.
    """
    try:
        return shape.model_validate(document)
    except ValidationError as error:
        raise InvalidWorkload(problems_of(error, shape), source) from None


def check_controller(kind: str, metadata: MetadataPart, managed_by: str | None, controller: str) -> None:
    """Check that a document is managed by its published controller, which we replace, or by us.

    Raises:
        ManagedElsewhere: if `managedBy` names another.
    """
    if managed_by is not None and managed_by != controller and not names.is_own_manager(managed_by):
        raise ManagedElsewhere(f"{kind} {metadata.name or metadata.generateName}", managed_by)


def name_in(metadata: MetadataPart, asked: str | None, kind: str, problems: list[Problem]) -> str:
    """Return a document's name, empty if it has none and none was requested; `kind` includes its article."""
    if not metadata.name and not asked:
        problems.append(Problem("metadata.name", f"is required: {kind} with a generateName is named by --name"))
    if metadata.name and asked and metadata.name != asked:
        problems.append(Problem("metadata.name", f"expected {asked!r}, as asked for", metadata.name))
    return metadata.name or asked or ""


def namespace_in(metadata: MetadataPart, asked: str | None, problems: list[Problem]) -> str:
    """Return a document's namespace, or the requested one; if both are given they must be equal."""
    if asked is not None and metadata.namespace not in {None, "", asked}:
        problems.append(Problem("metadata.namespace", f"expected {asked!r}, as asked for", metadata.namespace))
    return metadata.namespace or asked or "default"


def settings_in(
    metadata: MetadataPart, policy: Policy, decided: Mapping[str, str], problems: list[Problem]
) -> Settings:
    """Return Holdfast's settings among a document's annotations; problems found are added to `problems`.

    What has no effect is accepted with a warning: a setting that the document decides elsewhere, and a misspelt one,
    since the kind's own controller accepts any annotation.

    Args:
        metadata: the document's metadata.
        policy: the policy that the settings change.
        decided: settings that the document decides elsewhere, each with what decides.
        problems: list to which problems are added.
    """
    given: list[Given] = []
    for key, value in (metadata.annotations or {}).items():
        written, path = key.removeprefix(_OWN), f"{ANNOTATIONS_PATH}[{key}]"
        if written == key:
            continue
        # Annotations of Holdfast's own have hyphens and resemble settings: with hyphens, only an exact one is misspelt.
        name, near = known_name(written), unhyphenated(written) if "-" in written else nearest(written)
        if name is not None and name not in decided:
            given.append(Given(path, written, value))
        elif name is not None:
            warn(f"{path}: is ignored, since {decided[name]} decides")
        elif near is not None:
            warn(f"{path}: is no setting, and is ignored: did you mean {_OWN}{near}?")
    settings, wrong = read_settings(given)
    problems.extend([*wrong, *settings.problems(policy)])
    return settings


def warn(message: str) -> None:
    """Warn of a part of a document that is accepted and has no effect."""
    warnings.warn(message, DocumentWarning, stacklevel=2)


def workload_of(
    metadata: MetadataPart,
    values: Callable[[], dict[str, Any]],
    places: Mapping[str, str],
    source: str,
) -> Workload:
    """Return the workload built from a document's values.

    Args:
        metadata: the document's metadata, for its queue and its labels.
        values: returns the workload's fields; their validation errors are reported as the workload's.
        places: the document path of each workload field; problems of the whole workload go to `components`.
        source: what to call the document.

    Raises:
        InvalidWorkload: with the paths of the document.
    """
    queue = (metadata.labels or {}).get(LABEL_QUEUE)
    fields: dict[str, Any] = {"queue": queue} if queue else {}
    try:
        given = values()
        labelled: dict[str, Any] = {"source": {**given["source"].model_dump(), "labels": metadata.labels or {}}}
        return Workload(**{**fields, **given, **labelled})
    except ValidationError as error:
        own = {
            "name": "metadata.name",
            "namespace": "metadata.namespace",
            "queue": f"metadata.labels[{LABEL_QUEUE}]",
            "source": "metadata.labels",
        }
        found = relocated(problems_of(error, Workload), {**own, **places})
        # A problem of the whole workload, such as its size, is reported at its components.
        problems = [replace(one, path=one.path or places["components"]) for one in found]
        raise InvalidWorkload(problems, source) from None


def queue_in(document: Json) -> str | None:
    """Return the queue that an object's label names, in any format; an empty one names none, as Kueue reads it."""
    queue = inside(document, "metadata", "labels", LABEL_QUEUE)
    return queue if isinstance(queue, str) and queue else None


def without_queue(document: Json) -> Json:
    """Return an object without the label of its queue: under an attempt, Kueue would queue it again (row F10)."""
    if queue_in(document) is None:
        return document
    metadata: Json = document["metadata"]
    labels = {key: value for key, value in metadata["labels"].items() if key != LABEL_QUEUE}
    return {**document, "metadata": {**metadata, "labels": labels}}


def queues_under(template: Json, places: Sequence[str], owner: str) -> list[Problem]:
    """Return a problem for each of a component's places that has the label of a queue (row F10).

    Where pods are those of a Job's template in the component, as in a JobSet, the Job is such a place too.

    Args:
        template: The component.
        places: Where labels stand: `template` for the component itself, and the paths of its pod templates.
        owner: What should have the label instead.
    """
    found: list[Problem] = []
    # The component itself is one only where `places` names it: manifests take its label off.
    jobs = (place.removesuffix(".spec.template") for place in places if place != "template.spec.template")
    for place in dict.fromkeys((*jobs, *places)):
        try:
            labels = inside(resolve(template, place), "metadata", "labels")
        except PathProblem:
            continue  # Reported at the declared path.
        if (queue := inside(labels, LABEL_QUEUE)) is not None:
            where = f"{place}.metadata.labels[{LABEL_QUEUE}]"
            found.append(Problem(where, f"expected none: give {owner} itself the queue", queue))
    return found


class Reader(Protocol):
    """Reads one document."""

    def __call__(
        self, document: Json, *, cluster: str, namespace: str | None, name: str | None, defaults: Policy, source: str
    ) -> Workload:
        """Return the workload that the document describes."""
        ...


def each_by(read: Reader, api_version: str, profile: str) -> Callable[[Sequence[Document], Context], list[Workload]]:
    """Return a function that reads each document of a single-version format under a profile's policy."""

    def read_all(documents: Sequence[Document], context: Context) -> list[Workload]:
        found: list[Workload] = []
        for document in documents:
            if document.content.get("apiVersion") != api_version:
                problem = Problem("apiVersion", "is not accepted", document.content.get("apiVersion"), (api_version,))
                raise InvalidWorkload([problem], str(document))
            found.append(
                read(
                    document.content,
                    cluster=context.cluster,
                    namespace=context.namespace_beside(inside(document.content, "metadata", "namespace")),
                    name=context.name,
                    defaults=context.profiles[profile],
                    source=str(document),
                )
            )
        return found

    return read_all
