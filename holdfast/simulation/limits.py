"""Lists what a simulation leaves out, and refuses what it cannot play. Pure.

Its output states what is left out, so users do not take silence for an answer.
"""

from __future__ import annotations

from typing import Any

from holdfast.activities.kube.raw import mapping
from holdfast.errors import Problem
from holdfast.formats import path_in
from holdfast.formats.pods import PathProblem, pod_template
from holdfast.model import Component, Workload
from holdfast.simulation.script.events import PODS_MAXIMUM

CONTROLLERS = frozenset(
    {("batch/v1", "Job"), ("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")}
)
"""Kinds whose controllers are simulated; pods without a controller are simulated, too."""
JOB_FIELDS = {
    "successPolicy": "the Job succeeds by its completions alone",
    "managedBy": "the Job is simulated as Kubernetes' own controller would run it",
}
"""Fields of a Job that the simulated controller ignores, and what it does instead."""
JOB_NUMBERS = ("activeDeadlineSeconds", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes")
"""Numbers of a Job that its controller goes by; a submission leaves it to the API server to refuse others."""
POD_FIELDS = {"activeDeadlineSeconds": "no pod ends by its own deadline"}


def left_out(spec: Workload) -> tuple[str, ...]:
    """Return the parts of a workload that are not simulated, each with what happens instead."""
    found: list[str] = []
    if spec.gang is not None:
        found.append("the gang: no rendezvous, rounds, restarts of members or resizing; its pods are those of any Job")
    if spec.progress is not None:
        found.append("progress: pods tell no steps, and none stalls")
    for component in spec.components:
        found += [f"{component.title}: {said}" for said in _of(component)]
    return tuple(found)


def refused(spec: Workload) -> list[Problem]:
    """Return the problems of a workload that cannot be simulated."""
    found: list[Problem] = []
    if spec.expected_pods > PODS_MAXIMUM:
        message = f"has too many pods to simulate: expected at most {PODS_MAXIMUM:,}"
        found.append(Problem("", message, spec.expected_pods))
    for index, component in enumerate(spec.components):
        template = component.template
        if (template["apiVersion"], template["kind"]) != ("batch/v1", "Job"):
            continue
        for field in JOB_NUMBERS:
            value: Any = mapping(template.get("spec")).get(field)
            if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
                continue
            path = path_in(spec, index, f"template.spec.{field}")
            found.append(Problem(path, "expected a whole number, at least 0", value))
    return found


def _of(component: Component) -> list[str]:
    template = component.template
    kind = (str(template["apiVersion"]), str(template["kind"]))
    if not component.pod_sets and not component.bare:
        return []
    said: list[str] = []
    if kind not in CONTROLLERS and not component.bare:
        said.append(
            "its controller is not known: its pods are made once and not replaced, and it fails only as scripted"
        )
    own = mapping(template.get("spec"))
    if kind == ("batch/v1", "Job"):
        said += [f"spec.{field}: {instead}" for field, instead in JOB_FIELDS.items() if own.get(field) is not None]
    for pod_set in component.pod_sets:
        try:
            pod = mapping(pod_template(template, pod_set.path).get("spec"))
        except PathProblem:
            continue
        for field, instead in POD_FIELDS.items():
            if pod.get(field) is not None:
                said.append(f"{pod_set.path}.spec.{field}: {instead}")
    return said
