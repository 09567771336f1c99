"""Plain Kubernetes manifests: the objects of a stream, in the given order, as one workload.

Pods are counted for the known kinds of `pods.py`; any other object has none, unless its annotation
`holdfast.dev/pod-sets` declares them: `[{"path": "template.spec.template", "replicas": 3}]`. The settings of
`settings.py` may be set as annotations on any of the objects: `holdfast.dev/failureGracePeriod: 30s`,
`holdfast.dev/retryLimit: "5"`, `holdfast.dev/profile: streams`. The label `kueue.x-k8s.io/queue-name` names the queue
as the annotation `holdfast.dev/queue` does, and is taken off the object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from pydantic import TypeAdapter, ValidationError

from holdfast import names
from holdfast.errors import InvalidWorkload, Problem, problems_of
from holdfast.formats.pods import (
    ANNOTATION_STATUS,
    UNCOUNTED,
    PathProblem,
    component_name,
    group_kind,
    infer,
    pod_template,
    status_problems,
    status_rule,
    twin_problem,
)
from holdfast.formats.published import LABEL_QUEUE, queue_in, queues_under, without_queue
from holdfast.formats.references import with_config
from holdfast.formats.registry import Context, Format
from holdfast.formats.settings import Given, Settings, known_name, nearest, read_settings, relocated
from holdfast.formats.text import Document, Json, inside
from holdfast.model import Component, Kind, PodSet, Policy, Source, Status, Workload
from holdfast.profiles.manifests import POLICY

PREFIX: Final = f"{names.GROUP}/"
ANNOTATION_POD_SETS: Final = f"{PREFIX}pod-sets"
SOURCE: Final = Source(api_version="v1", kind="List")

_POD_SETS: TypeAdapter[tuple[PodSet, ...]] = TypeAdapter(tuple[PodSet, ...])
_SERVICES = {("apps", "Deployment"), ("apps", "StatefulSet")}


def read(documents: Sequence[Document], context: Context) -> list[Workload]:
    """Read all plain manifests of a stream as one workload.

    Its name is the requested one, or else that of the first object with pods.

    Raises:
        InvalidWorkload: with every problem found; each path begins with its object, `Job train: spec...`.
    """
    if not documents:
        return []
    problems: list[Problem] = []
    components: list[Component] = []
    given: list[Given] = []
    places: dict[str, str] = {}
    seen: dict[tuple[str, ...], str] = {}
    for index, document in enumerate(documents):
        place = str(document)
        # Maps the model's path of a field to the path that its author knows.
        places[f"components[{index}].template"] = f"{place}: "
        before = len(problems)
        pod_sets = _pod_sets(document.content, place, problems)
        problems.extend(_at(place, status_problems(document.content)))
        twin = twin_problem(document.content, f"object {index + 1}", "template", seen)
        problems.extend(_at(place, [twin] if twin is not None else []))
        given.extend(_given(document.content, place, problems))
        template = without_queue(document.content)
        problems.extend(_at(place, queues_under(template, [one.path for one in pod_sets], "the object")))
        if len(problems) > before:
            continue
        try:
            components.append(
                Component(
                    name=component_name(index, document.content),
                    template=template,
                    pod_sets=pod_sets,
                    status=status_rule(document.content),
                )
            )
        except ValidationError as error:
            problems.extend(_at(place, problems_of(error, Component)))
    settings, wrong = read_settings(given)
    problems.extend(wrong)
    if not problems and not any(component.expected_pods for component in components):
        message = f"bring no pods: expected a Pod, Job or the like among them, or the annotation {ANNOTATION_POD_SETS}"
        problems.append(Problem(f"{documents[0]}: kind", f"these objects {message}"))
    policy = _policy(settings, context, problems)
    if problems:
        raise InvalidWorkload(problems, _source(documents))
    return [_workload(components, documents, context, policy, settings, places)]


def _workload(
    components: list[Component],
    documents: Sequence[Document],
    context: Context,
    policy: Policy,
    settings: Settings,
    places: dict[str, str],
) -> Workload:
    bearing = next(component for component in components if component.expected_pods)
    first = bearing.template["metadata"]
    namespaces = [one for one in (inside(each.content, "metadata", "namespace") for each in documents) if one]
    kinds = {group_kind(component.template) for component in components if component.expected_pods}
    values: dict[str, Any] = {
        "name": context.name or first.get("name") or str(first["generateName"]).rstrip("-."),
        "namespace": context.namespace_beside(namespaces) or namespaces[0],
        "cluster": context.cluster,
        "kind": Kind.SERVICE if kinds <= _SERVICES else Kind.BATCH,
        "components": with_config(components),
        "policy": settings.policy(policy),
        "source": SOURCE,
        **settings.fields,
    }
    try:
        return Workload(**values)
    except ValidationError as error:
        found = relocated(problems_of(error, Workload), {**places, **settings.paths})
        tidy = [Problem(one.path.replace(": .", ": "), one.message, one.value, one.allowed) for one in found]
        raise InvalidWorkload(tidy, _source(documents)) from None


def _policy(settings: Settings, context: Context, problems: list[Problem]) -> Policy:
    """Return the profile named by `holdfast.dev/profile`; add any problem with it to `problems`."""
    name = settings.profile or POLICY.profile
    policy = context.profiles.get(name)
    if policy is None:
        problems.append(Problem(settings.paths["profile"], "is no profile", name, tuple(sorted(context.profiles))))
        return context.profiles[POLICY.profile]
    problems.extend([*settings.problems(policy), *settings.rule_problems(policy)])
    return policy


def _source(documents: Sequence[Document]) -> str:
    return str(documents[0]) if len(documents) == 1 else f"{documents[0]} and {len(documents) - 1} more"


def _at(place: str, problems: Iterable[Problem]) -> list[Problem]:
    """Return problems of one object, with the object before their paths and without the leading `template`."""
    found: list[Problem] = []
    for one in problems:
        path = one.path.removeprefix("template").removeprefix(".")
        found.append(Problem(f"{place}: {path}" if path else place, one.message, one.value, one.allowed))
    return found


def brings_pods(content: Json) -> bool:
    """Whether an object has pods, by its kind or by its own annotation."""
    declared = inside(content, "metadata", "annotations", ANNOTATION_POD_SETS)
    inferred, wrong = infer(content)
    return declared is not None or bool(inferred or wrong) or group_kind(content) in UNCOUNTED


def _pod_sets(content: Json, place: str, problems: list[Problem]) -> tuple[PodSet, ...]:
    declared = inside(content, "metadata", "annotations", ANNOTATION_POD_SETS)
    inferred, wrong = infer(content)
    if declared is None:
        problems.extend(_at(place, wrong))
        if group_kind(content) in UNCOUNTED:
            message = f"brings pods whose number is not known here: give it in the annotation {ANNOTATION_POD_SETS}"
            problems.append(Problem(f"{place}: kind", message, content.get("kind")))
        return tuple(PodSet(path=one.path, replicas=one.replicas) for one in inferred)
    path = f"{place}: metadata.annotations[{ANNOTATION_POD_SETS}]"
    try:
        found = _POD_SETS.validate_python(json.loads(declared))
    except ValidationError as error:
        problems.extend(problems_of(error, PodSet, path))
        return ()
    except (TypeError, ValueError, RecursionError):
        problems.append(
            Problem(path, 'expected JSON such as [{"path": "template.spec.template", "replicas": 3}]', declared)
        )
        return ()
    for one in found:
        try:
            pod_template(content, one.path)
        except PathProblem as problem:
            problems.append(Problem(path, str(problem), one.path))
    if inferred and {one.path: one.replicas for one in found} != dict(inferred):
        expected = json.dumps([one._asdict() for one in inferred])
        problems.append(
            Problem(path, f"disagrees with the object: expected {expected}, or no such annotation", declared)
        )
    return found


def _given(content: Json, place: str, problems: list[Problem]) -> Iterable[Given]:
    """Yield the settings among an object's annotations, and the queue of its label; a misspelled name is a problem."""
    queue = queue_in(content)
    if queue is not None:
        yield Given(f"{place}: metadata.labels[{LABEL_QUEUE}]", "queue", queue)
    annotations: Any = inside(content, "metadata", "annotations")
    if not isinstance(annotations, dict):
        return
    for key, value in cast("Json", annotations).items():
        name = key.removeprefix(PREFIX)
        if name == key or key in {ANNOTATION_POD_SETS, ANNOTATION_STATUS}:
            continue
        path = f"{place}: metadata.annotations[{key}]"
        if known_name(name) is None:
            near = nearest(name)
            if near is not None:
                problems.append(Problem(path, f"is no setting; did you mean {PREFIX}{near}?"))
        elif not isinstance(value, str):
            problems.append(Problem(path, "expected text: write it in quotes", value))
        else:
            yield Given(path, name, value)


def _knows(document: Json) -> bool:
    return bool(document.get("apiVersion")) and bool(document.get("kind"))


def status(workload: Workload, status: Status) -> Json:
    """Return the status in Holdfast's own form: a list of manifests has none."""
    return status.model_dump(mode="json")


FORMAT = Format("manifests", _knows, read, status, frozenset({(SOURCE.api_version, SOURCE.kind)}))
"""This format's entry. It accepts anything that looks like a Kubernetes object, so it comes last."""
