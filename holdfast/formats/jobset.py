"""JobSet `jobset.x-k8s.io/v1alpha2`, accepted unmodified: from its document to a workload.

What needs the cluster (fields of the Job templates, kinds that are served, rights) is checked by the worker, before the
first creation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from holdfast import names
from holdfast.errors import InvalidWorkload, ManagedElsewhere, Problem, problems_of
from holdfast.formats.jobset_checks import problems as problems_in
from holdfast.formats.jobset_components import place, read_components
from holdfast.formats.jobset_document import API_VERSION, CONTROLLER, GROUP_KIND, KIND, JobSet, MetadataPart, Shape
from holdfast.formats.jobset_policy import read_policy
from holdfast.formats.jobset_status import status
from holdfast.formats.pods import group_kind
from holdfast.formats.registry import Context, Format
from holdfast.formats.settings import Given, Settings, known_name, read_settings, relocated
from holdfast.formats.text import Document, Json
from holdfast.model import Policy, Source, Workload
from holdfast.profiles.jobset import POLICY

LABEL_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_OWN: Final = f"{names.GROUP}/"


def read(
    document: Json,
    *,
    cluster: str,
    namespace: str | None = None,
    name: str | None = None,
    defaults: Policy = POLICY,
    source: str = "",
) -> Workload:
    """Read one JobSet.

    Args:
        document: The document, as YAML or JSON hold it.
        cluster: The cluster to run it on.
        namespace: Its namespace if it names none; one that it names must be the same.
        name: Its name if it has none but a `generateName`; one that it has must be the same.
        defaults: The operator's policy, which the document's own overrides.
        source: What to call the document in errors.

    Raises:
        InvalidWorkload: with every problem found, each with its path and what is allowed there.
        ManagedElsewhere: if `managedBy` names another controller.
    """
    try:
        parsed = JobSet.model_validate(document)
    except ValidationError as error:
        raise InvalidWorkload(problems_of(error, JobSet), source) from None
    metadata, spec = parsed.metadata, parsed.spec
    if spec.managedBy is not None and spec.managedBy not in {CONTROLLER, names.MANAGED_BY}:
        raise ManagedElsewhere(f"JobSet {metadata.name or metadata.generateName}", spec.managedBy)
    problems: list[Problem] = []
    own_name = _name(metadata, name, problems)
    own_namespace = metadata.namespace or namespace or "default"
    if namespace is not None and metadata.namespace not in {None, "", namespace}:
        problems.append(Problem("metadata.namespace", f"expected {namespace!r}, as asked for", metadata.namespace))
    shape = Shape(own_name, spec)
    settings = _settings(metadata, problems)
    problems.extend(problems_in(parsed, shape))
    if problems:
        raise InvalidWorkload(problems, source)
    components, places = read_components(shape, problems)
    if problems:
        raise InvalidWorkload(problems, source)
    try:
        values: dict[str, Any] = {
            "name": own_name,
            "namespace": own_namespace,
            "cluster": cluster,
            "components": components,
            "suspend": bool(spec.suspend),
            "policy": settings.policy(read_policy(shape, defaults)),
            "source": Source(api_version=parsed.apiVersion, kind=parsed.kind),
        }
        queue = (metadata.labels or {}).get(LABEL_QUEUE)
        if queue:
            values["queue"] = queue
        return Workload(**{**values, **settings.fields})
    except ValidationError as error:
        where = {
            "name": "metadata.name",
            "namespace": "metadata.namespace",
            "queue": f"metadata.labels[{LABEL_QUEUE}]",
            "policy": "spec.failurePolicy",
            "rules": "spec.failurePolicy.rules",
            "components": "spec.replicatedJobs",
            **places,
            **settings.paths,
        }
        found = relocated(problems_of(error, Workload), where)
        # What is wrong with the whole, such as its size, is wrong with what it is made of.
        raise InvalidWorkload([replace(one, path=one.path or "spec.replicatedJobs") for one in found], source) from None


def _name(metadata: MetadataPart, asked: str | None, problems: list[Problem]) -> str:
    if not metadata.name and not asked:
        problems.append(Problem("metadata.name", "is required: a JobSet with a generateName is named by --name"))
    if metadata.name and asked and metadata.name != asked:
        problems.append(Problem("metadata.name", f"expected {asked!r}, as asked for", metadata.name))
    # A name that is missing has been told: what is made of it is checked as if it had the shortest.
    return metadata.name or asked or "x"


def _settings(metadata: MetadataPart, problems: list[Problem]) -> Settings:
    """Return the settings of Holdfast's own that the annotations give, for what JobSet has no word for."""
    given = [
        Given(f"metadata.annotations[{key}]", key.removeprefix(_OWN), value)
        for key, value in (metadata.annotations or {}).items()
        if key.startswith(_OWN) and known_name(key.removeprefix(_OWN)) is not None
    ]
    settings, wrong = read_settings(given)
    problems.extend([*wrong, *settings.problems(POLICY)])
    if settings.profile is not None:
        problems.append(Problem(settings.paths["profile"], "is decided by the kind of document", settings.profile))
    return settings


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


FORMAT = Format("JobSet", _knows, _read, status, frozenset({(API_VERSION, KIND)}), has_status=True, place=place)
"""This format's entry."""
