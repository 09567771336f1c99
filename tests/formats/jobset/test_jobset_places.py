"""What the cluster says of a JobSet: a refusal names the field its author wrote (J6), a message is whole (J16)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.activities.facts.objects import object_facts
from holdfast.activities.site.field_paths import written
from holdfast.formats.jobset import reader
from holdfast.model import Failure, FailureClass, Match, Scope
from holdfast.model.calls.cluster import RehearseInput
from holdfast.model.calls.plan import Target, planned
from holdfast.policy.failures.rules import matches
from tests.e2e.peers.jobsets import jobset as document
from tests.e2e.peers.jobsets import replicated


def asked(**spec: object) -> RehearseInput:
    """Return what is asked of the API server about a JobSet of two replicated jobs."""
    given = document("train", replicated("driver"), replicated("workers", replicas=3), **spec)
    workload = reader.read(given, cluster="dev")
    target = Target(
        cluster="dev",
        namespace=workload.namespace,
        name=workload.name,
        workload_uid="u",
        workflow_id="w",
        shard=0,
        run_as=workload.run_as,
        source_kind=workload.source.kind,
    )
    plan = tuple(planned(one, "u", 1) for one in workload.components)
    return RehearseInput(target=target, attempt=1, plan=plan, components=workload.components)


@pytest.mark.row("J6", level="pure")
@pytest.mark.parametrize(
    ("index", "path", "place"),
    [
        (0, "template.metadata.name", "spec.network.subdomain"),
        (0, "template.spec.selector", "spec.network"),
        (1, "template.spec.template.spec.containers[0].image", "spec.replicatedJobs[0].template.spec.template.spec"),
        (2, "template.spec.parallelism", "spec.replicatedJobs[1].template.spec.parallelism"),
        (2, "template.metadata.name", "spec.replicatedJobs[1].name"),
    ],
)
def test_J6_a_field_of_a_component_is_told_as_one_of_the_jobset(index: int, path: str, place: str) -> None:
    assert written(asked(), index, path).startswith(place)


@pytest.mark.row("J6", level="pure")
def test_J6_without_host_names_there_is_no_service_before_the_first_job() -> None:
    found = written(asked(network={"enableDNSHostnames": False}), 1, "template.spec.backoffLimit")
    assert found == "spec.replicatedJobs[1].template.spec.backoffLimit"


@pytest.mark.row("J16", level="pure")
def test_J16_a_pattern_finds_the_end_of_the_longest_message_of_a_job() -> None:
    pod, container = f"{'n' * 63}/{'p' * 63}", "c" * 63
    message = f"Container {container} for pod {pod} failed with exit code 143 matching FailJob rule at index 12"
    condition = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": message}
    (found,) = object_facts({"metadata": {}, "status": {"conditions": [condition]}}).conditions
    match = Match(message_pattern="exit code 143 matching FailJob rule at index 12$")
    failure = Failure(
        cls=FailureClass.APP,
        scope=Scope.COMPONENT,
        reason=found.reason,
        time=datetime(2026, 1, 1, tzinfo=UTC),
        message=found.message,
    )
    assert matches(match, failure)
