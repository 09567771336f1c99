"""An AppWrapper's components: their templates, pod sets, and what `podSetInfos` adds to them, each checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from holdfast.errors import Problem, field_path, problems_of
from holdfast.formats.appwrapper.document import KIND, LABEL, ComponentPart, PodSetInfoPart, PodSetPart
from holdfast.formats.nesting import nested
from holdfast.formats.pods import (
    PathProblem,
    component_name,
    infer,
    pod_template,
    status_problems,
    status_rule,
    twin_problem,
)
from holdfast.formats.published import queues_under
from holdfast.formats.references import with_config
from holdfast.formats.text import Json, inside
from holdfast.model import Component, PodSet

POD_SETS_MAXIMUM = 8


def read_components(
    given: list[ComponentPart], owner: str, namespace: str, problems: list[Problem]
) -> tuple[Component, ...]:
    """Return an AppWrapper's components; problems found are added to `problems`.

    Args:
        given: The components as parsed.
        owner: The AppWrapper's name.
        namespace: Its namespace, which its components must share.
        problems: List to which problems are added.
    """
    if not given:
        problems.append(Problem("spec.components", "expected at least one component"))
    found: list[Component] = []
    total = 0
    seen: dict[tuple[str, ...], str] = {}
    for index, component in enumerate(given):
        path = f"spec.components[{index}]"
        before = len(problems)
        template = component.template
        elsewhere = inside(template, "metadata", "namespace")
        if elsewhere == "":
            # To Kubernetes, an empty namespace is none.
            metadata = {key: value for key, value in template["metadata"].items() if key != "namespace"}
            template = {**template, "metadata": metadata}
        elif elsewhere is not None and elsewhere != namespace:
            message = f"expected {namespace!r}, the AppWrapper's own, or none"
            problems.append(Problem(f"{path}.template.metadata.namespace", message, elsewhere))
        _check_name(template, index, seen, problems)
        pod_sets = _pod_sets(component, path, problems)
        total += len(pod_sets)
        pods = _with_infos(component, pod_sets, path, problems)
        for one in status_problems(template):
            problems.append(Problem(f"{path}.{one.path}", one.message, one.value))
        _check_labels(template, [one.path for one in pod_sets], owner, path, problems)
        problems.extend(replace(one, path=f"{path}.{one.path}") for one in nested(template, KIND, "retryLimit"))
        if len(problems) > before:
            continue
        try:
            name, status = component_name(index, template), status_rule(template)
            found.append(Component(name=name, template=template, pod_sets=pods, status=status))
        except ValidationError as error:
            problems.extend(problems_of(error, Component, path))
    if total > POD_SETS_MAXIMUM:
        problems.append(
            Problem("spec.components", f"have {total} pod sets in all: expected at most {POD_SETS_MAXIMUM}")
        )
    if given and not total and not problems:
        problems.append(Problem("spec.components", "bring no pods: expected a known kind, or podSets, in one at least"))
    return with_config(found)


def placed(given: list[ComponentPart], problems: list[Problem]) -> dict[str, tuple[PodSet, ...]]:
    """Return the pod sets of accepted components, with what an admission added; only that is checked (row F4)."""
    found: dict[str, tuple[PodSet, ...]] = {}
    for index, component in enumerate(given):
        path = f"spec.components[{index}]"
        inferred = [PodSetPart(path=one.path, replicas=one.replicas) for one in infer(component.template)[0]]
        pod_sets = component.podSets or inferred
        for place, one in enumerate(pod_sets):
            try:
                pod_template(component.template, one.path)
            except PathProblem as problem:
                problems.append(Problem(f"{path}.podSets[{place}].path", str(problem), one.path))
        pods = _with_infos(component, pod_sets, path, problems)
        found |= {component_name(index, component.template): pods} if pods else {}
    return found


def _check_name(template: Json, index: int, seen: dict[tuple[str, ...], str], problems: list[Problem]) -> None:
    """Refuse a name that is not a string, or that an earlier component of the same kind has."""
    place = f"spec.components[{index}]"
    for field in ("name", "generateName"):
        found = inside(template, "metadata", field)
        if found is not None and not isinstance(found, str):
            problems.append(Problem(f"{place}.template.metadata.{field}", "expected text: write it in quotes", found))
            return
    twin = twin_problem(template, place, f"{place}.template", seen)
    if twin is not None:
        problems.append(twin)


def _pod_sets(component: ComponentPart, path: str, problems: list[Problem]) -> list[PodSetPart]:
    """Return the declared pod sets, checked against the object, or else those inferred from the object."""
    inferred, wrong = infer(component.template)
    problems.extend(Problem(f"{path}.{one.path}", one.message, one.value) for one in wrong)
    declared = component.podSets or []
    if not declared:
        return [PodSetPart(path=one.path, replicas=one.replicas) for one in inferred]
    expected = {one.path: one.replicas for one in inferred}
    seen: set[str] = set()
    before = len(problems)
    for index, one in enumerate(declared):
        here = f"{path}.podSets[{index}]"
        if one.path in seen:
            problems.append(Problem(f"{here}.path", "is given twice", one.path))
        seen.add(one.path)
        replicas = 1 if one.replicas is None else one.replicas
        if replicas < 0:
            problems.append(Problem(f"{here}.replicas", "expected a whole number, at least 0", replicas))
        try:
            pod_template(component.template, one.path)
        except PathProblem as problem:
            problems.append(Problem(f"{here}.path", str(problem), one.path))
            continue
        if not inferred or wrong:
            continue
        if one.path not in expected:
            allowed = tuple(expected)
            problems.append(Problem(f"{here}.path", "is not where this kind has its pods", one.path, allowed))
        elif replicas != expected[one.path]:
            message = f"disagrees with the template: expected {expected[one.path]}"
            problems.append(Problem(f"{here}.replicas", message, replicas))
    missing = [one for one in expected if one not in seen]
    if missing and not wrong and len(problems) == before:
        problems.append(Problem(f"{path}.podSets", f"expected one for {', '.join(missing)} too"))
    return declared


def _with_infos(
    component: ComponentPart, pod_sets: list[PodSetPart], path: str, problems: list[Problem]
) -> tuple[PodSet, ...]:
    """Return a component's pod sets, each with what its entry in `podSetInfos` adds to it."""
    infos = component.podSetInfos or []
    if infos and len(infos) != len(pod_sets):
        message = f"expected one for each of the {len(pod_sets)} pod sets"
        problems.append(Problem(f"{path}.podSetInfos", message, infos))
    found: list[PodSet | None] = []
    for place, one in enumerate(pod_sets):
        info = infos[place] if place < len(infos) else None
        found.append(_pod_set(component.template, one, info, (path, place), problems))
    return tuple(one for one in found if one is not None)


def _pod_set(
    template: Json,
    given: PodSetPart,
    info: PodSetInfoPart | None,
    where: tuple[str, int],
    problems: list[Problem],
) -> PodSet | None:
    """Return a pod set with what its `podSetInfos` entry adds to it."""
    info = info or PodSetInfoPart()
    declared, added_to = (f"{where[0]}.{name}[{where[1]}]" for name in ("podSets", "podSetInfos"))
    values: dict[str, Any] = {
        "path": given.path,
        "replicas": 1 if given.replicas is None else given.replicas,
        "labels": info.labels or {},
        "annotations": info.annotations or {},
        "node_selector": info.nodeSelector or {},
        # Kubernetes treats an empty string as absent.
        "tolerations": [{k: v for k, v in one.items() if v not in ("", None)} for one in info.tolerations or []],
        "scheduling_gates": info.schedulingGates or [],
    }
    try:
        pod_set = PodSet(**values)
        pods = pod_template(template, given.path)
    except ValidationError as error:
        told = {problem.path for problem in problems}
        for problem in problems_of(error, PodSet):
            path = f"{declared if problem.path in {'path', 'replicas'} else added_to}.{problem.path}"
            if path not in told:
                problems.append(replace(problem, path=path))
        return None
    except PathProblem:
        return None  # Reported at the declared path.
    additions = (
        ("labels", inside(pods, "metadata", "labels"), pod_set.labels),
        ("annotations", inside(pods, "metadata", "annotations"), pod_set.annotations),
        ("nodeSelector", inside(pods, "spec", "nodeSelector"), pod_set.node_selector),
    )
    for field, present, added in additions:
        for key, value in added.items():
            found = inside(present, key)
            if found is not None and found != value:
                message = f"contradicts the pod template, which has {found!r}"
                problems.append(Problem(field_path((field, key), added_to), message, value))
    return pod_set


def _check_labels(template: Json, paths: list[str], owner: str, path: str, problems: list[Problem]) -> None:
    """Refuse a component or pod template with the label of another AppWrapper, or of a queue (row F10)."""
    places = ["template", *paths]
    for place in dict.fromkeys(places):
        try:
            labels = inside(pod_template(template, place) if place != "template" else template, "metadata", "labels")
        except PathProblem:
            continue
        found = inside(labels, LABEL)
        if found is not None and owner and found != owner:
            where = f"{path}.{place}.metadata.labels"
            problems.append(Problem(f"{where}[{LABEL}]", f"expected {owner!r}, or no such label", found))
    queued = queues_under(template, places, "the AppWrapper")
    problems.extend(replace(one, path=f"{path}.{one.path}") for one in queued)
