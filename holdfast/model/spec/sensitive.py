"""Keeps a cluster's own controllers from running sensitive work again (rows L7, D5; decision record 0043). Pure.

Only a Job and a bare pod can be prevented from it: any other controller recreates its pods for as long as it lives.
`settled` sets the fields that the author left out; `contrary` finds the fields to refuse. Both are part of the model's
own validation, so they apply however a workload is submitted.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, cast

from pydantic import ValidationError

from holdfast.model.gang.state import Gang
from holdfast.model.spec.component import Component

UNTIL_A_PERSON_SAYS: Final = "sensitive work is not run again without a person's word"
_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_EFFECTS: Final = (None, "", "NoExecute")
_JOB_CONTROLLER: Final = "kubernetes.io/job-controller"
_KINDS: Final = (("batch/v1", "Job"), ("v1", "Pod"))


class Contrary(NamedTuple):
    """A field that would make the cluster run sensitive work again."""

    path: str
    """Path below the component: `template.spec.backoffLimit`."""
    value: Any
    allowed: str

    def __str__(self) -> str:
        """Write the refusal, path first."""
        return f"{self.path}: {self.value!r}: {self.expected}"

    @property
    def expected(self) -> str:
        """What is allowed, and why."""
        return f"expected {self.allowed}: {UNTIL_A_PERSON_SAYS}"


def contrary(component: Component) -> Iterator[Contrary]:
    """Yield each field of a component that makes its cluster run its pods again; an omitted field is never one."""
    if not component.pod_sets:
        return
    template = component.template
    if (template["apiVersion"], template["kind"]) not in _KINDS:
        yield Contrary("template.kind", template["kind"], "Job or Pod, since its controller makes failed pods again")
        return
    if not component.bare:
        yield from _of_job(_part(template, "spec"), "template.spec")
    for number, pod_set in enumerate(component.pod_sets):
        spec = _part(_at(template, pod_set.path), "spec")
        yield from _of_pod(spec, f"{pod_set.path}.spec")
        for at, one in enumerate(pod_set.tolerations):
            yield from _of_toleration(one.model_dump(by_alias=True), f"podSets[{number}].tolerations[{at}]")


def reruns_init(components: Iterable[Component]) -> Iterator[tuple[str, Contrary]]:
    """Yield each field by which a kubelet runs an init container again, with its component's path: `components[0].`.

    The model accepts them, since releases before 0.3 did: a workload that is under way must stay readable.
    """
    for number, component in enumerate(components):
        for pod_set in component.pod_sets:
            spec = _part(_at(component.template, pod_set.path), "spec")
            # An init container that always restarts is a sidecar, which does no work of its own.
            for wrong in _of_containers(spec, f"{pod_set.path}.spec", "initContainers", ("Never", "Always")):
                yield f"components[{number}].", wrong


def settled(component: Component) -> Component:
    """Return the component with omitted fields set so that no controller and no kubelet runs its pods again."""
    if not component.pod_sets or (component.template["apiVersion"], component.template["kind"]) not in _KINDS:
        return component
    template = copy.deepcopy(component.template)
    if not component.bare:
        job = template["spec"] = dict(_part(template, "spec"))
        if job.get("backoffLimitPerIndex") is None:
            _set(job, "backoffLimit", 0)
        _set(job, "podReplacementPolicy", "Failed")
    for pod_set in component.pod_sets:
        owner = _at(template, pod_set.path)
        if not isinstance(owner, dict):
            continue  # It has no pod template here: the API server refuses it with its own message.
        pod = cast("dict[str, Any]", owner)
        spec = pod["spec"] = dict(_part(pod, "spec"))
        _set(spec, "restartPolicy", "Never")
        given = _list(spec, "tolerations")
        missing = [key for key in _TAINTS if not any(_tolerates(one, key) for one in given)]
        added = [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in missing]
        if added:
            spec["tolerations"] = [*given, *added]
    return component.model_copy(update={"template": template})


def settled_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a sensitive workload's input fields, with omitted fields set.

    Input that is not a valid component or gang stays as it is: the model reports the error.
    """
    found, components, gang = dict(fields), fields.get("components"), fields.get("gang")
    if isinstance(components, list | tuple):
        found["components"] = tuple(_settled(one) for one in cast("list[Any]", components))
    if isinstance(gang, Gang) and "max_restarts" not in gang.model_fields_set:
        found["gang"] = gang.model_copy(update={"max_restarts": 0})
    elif isinstance(gang, dict) and not {"max_restarts", "maxRestarts"} & cast("dict[str, Any]", gang).keys():
        found["gang"] = {**cast("dict[str, Any]", gang), "maxRestarts": 0}
    return found


def _settled(given: Any) -> Any:
    try:
        return settled(Component.model_validate(given))
    except ValidationError:
        return given


def contrary_gang(gang: Gang) -> Iterator[Contrary]:
    """Yield each field of a gang that makes its members run their workers again."""
    if gang.max_restarts:
        yield Contrary("gang.maxRestarts", gang.max_restarts, "0")
    if gang.min != gang.max:
        yield Contrary("gang.min", gang.min, f"gang.max, {gang.max}, since a member that joins begins a round for all")


def _of_job(job: dict[str, Any], path: str) -> Iterator[Contrary]:
    limit, each = job.get("backoffLimit"), job.get("backoffLimitPerIndex")
    if each:
        yield Contrary(f"{path}.backoffLimitPerIndex", each, "0")
    if limit and each is None:
        yield Contrary(f"{path}.backoffLimit", limit, "0")
    policy = job.get("podReplacementPolicy")
    if policy not in (None, "Failed"):
        yield Contrary(f"{path}.podReplacementPolicy", policy, "Failed")
    rules = _list(_part(job, "podFailurePolicy"), "rules")
    for at, rule in enumerate(rules):
        if isinstance(rule, dict) and cast("dict[str, Any]", rule).get("action") == "Ignore":
            where = f"{path}.podFailurePolicy.rules[{at}].action"
            yield Contrary(where, "Ignore", "FailJob, FailIndex or Count, since an ignored pod is made again")
    manager = job.get("managedBy")
    if manager not in (None, _JOB_CONTROLLER):
        yield Contrary(f"{path}.managedBy", manager, f"{_JOB_CONTROLLER} or none")


def _of_pod(spec: dict[str, Any], path: str) -> Iterator[Contrary]:
    policy = spec.get("restartPolicy")
    if policy not in (None, "Never"):
        yield Contrary(f"{path}.restartPolicy", policy, "Never")
    yield from _of_containers(spec, path, "containers", ("Never",))
    for at, one in enumerate(_list(spec, "tolerations")):
        toleration = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
        yield from _of_toleration(toleration, f"{path}.tolerations[{at}]")


def _of_containers(spec: dict[str, Any], path: str, field: str, allowed: tuple[str, ...]) -> Iterator[Contrary]:
    for at, one in enumerate(_list(spec, field)):
        container = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
        policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules")
        if policy not in (None, *allowed):
            yield Contrary(f"{path}.{field}[{at}].restartPolicy", policy, " or ".join(allowed))
        if rules:
            yield Contrary(f"{path}.{field}[{at}].restartPolicyRules", rules, "none")


def _of_toleration(toleration: dict[str, Any], path: str) -> Iterator[Contrary]:
    seconds = toleration.get("tolerationSeconds")
    if seconds is not None and any(_names(toleration, key) for key in _TAINTS):
        yield Contrary(f"{path}.tolerationSeconds", seconds, "none, so that no pod is evicted from a silent node")


def _names(toleration: dict[str, Any], key: str) -> bool:
    """Whether a toleration covers the taints of a silent node, for any duration."""
    return toleration.get("effect") in _EFFECTS and toleration.get("key") in (None, "", key)


def _tolerates(toleration: Any, key: str) -> bool:
    """Whether this toleration keeps a pod on a silent node without a time limit."""
    if not isinstance(toleration, dict):
        return False
    given = cast("dict[str, Any]", toleration)
    exists = given.get("operator") == "Exists" or (given.get("key") == key and not given.get("value"))
    return _names(given, key) and exists and given.get("tolerationSeconds") is None


def _set(parent: dict[str, Any], field: str, value: Any) -> None:
    if parent.get(field) is None:
        parent[field] = value


def _at(template: dict[str, Any], path: str) -> Any:
    """Return the pod template at a pod set's path: `template` for a pod, `template.spec.template` for a Job."""
    found: Any = template
    for name in path.split(".")[1:]:
        found = _part(found, name) if isinstance(found, dict) else None
    return found


def _part(parent: Any, field: str) -> dict[str, Any]:
    value = cast("dict[str, Any]", parent).get(field) if isinstance(parent, dict) else None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(parent: dict[str, Any], field: str) -> list[Any]:
    value = parent.get(field)
    return cast("list[Any]", value) if isinstance(value, list) else []
