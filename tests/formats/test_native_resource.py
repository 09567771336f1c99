"""`kind: Workload` in the cluster: what it asks for, and how kubectl and kstatus read its status (row F17). Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from holdfast import formats, names
from holdfast.activities.site.anchor import asked_by, creator_of
from holdfast.errors import InvalidWorkload, ManagedElsewhere
from holdfast.formats.condition import life_in
from holdfast.formats.native import REQUESTED
from holdfast.formats.native_resource import RESOURCE
from holdfast.model import Condition, ConditionType, Phase, Reason, Report, Workload
from holdfast.policy.loop.submission import submitted
from holdfast.workflows.operations.dispatch import target_of
from tests.formats.jobset.jobsets import jobset_of, replicated
from tests.manifests import definition, spec_schema, written

pytestmark = pytest.mark.row("F17", level="pure")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COMPONENT: dict[str, Any] = {
    "name": "job",
    "template": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "a:1"}]}}},
    },
}
OWN = {"schemaVersion", "name", "namespace", "cluster", "uid", "labels", "queued", "graph", "source", "submittedAt"}
"""Fields of the model that no custom resource sets: Holdfast's own, and those that stand in its metadata."""


def resource(**spec: Any) -> dict[str, Any]:
    """Return a Workload as the API server gives it, with our marks."""
    labels = {"team": "a", names.LABEL_SHARD: "7", names.LABEL_WORKLOAD_UID: "u-1"}
    metadata = {"name": "train", "namespace": "team", "uid": "u-1", "generation": 3, "labels": labels}
    spec = {"managedBy": names.MANAGED_BY, "components": [COMPONENT], **spec}
    return {"apiVersion": names.API_VERSION, "kind": "Workload", "metadata": metadata, "spec": spec}


def report(phase: Phase = Phase.RUNNING, reason: Reason = Reason.SUFFICIENT_PODS_READY, **fields: Any) -> Report:
    return Report(**{"sequence": 5, "phase": phase, "reason": reason, "attempt": 2, "generation": 3, **fields})


def ready(status: bool = True) -> Condition:
    return Condition(type=ConditionType.PODS_READY, status=status, reason=Reason.SUFFICIENT_PODS_READY)


def told(status: dict[str, Any]) -> dict[str, str]:
    return {one["type"]: one["status"] for one in status["conditions"]}


def kstatus(document: dict[str, Any], status: dict[str, Any]) -> str:
    """Return what kstatus makes of it, by its published rules for any resource (cli-utils, `status.Compute`)."""
    conditions = told(status)
    if "deletionTimestamp" in document["metadata"]:
        return "Terminating"
    if status.get("observedGeneration", document["metadata"]["generation"]) != document["metadata"]["generation"]:
        return "InProgress"
    if conditions.get("Reconciling") == "True":
        return "InProgress"
    if conditions.get("Stalled") == "True":
        return "Failed"
    return "Current" if conditions.get("Ready", "True") == "True" else "InProgress"


def test_F17_it_asks_for_what_its_document_says_and_gives_it_its_own_uid() -> None:
    document = resource(priority=3, suspend=True, runAs="builder")
    (clients,) = formats.read(
        yaml.safe_dump({**document, "metadata": {"name": "train", "namespace": "team"}}), cluster="c"
    )
    asked = formats.asking(document, cluster="c")
    assert (asked.uid, asked.source.generation, asked.labels) == ("u-1", 3, {"team": "a"})
    same = asked.model_copy(update={"uid": "", "source": clients.source, "labels": {}})
    assert same == clients, "it is the workload that `holdfast submit` would start"
    anchor = target_of(asked, submitted(asked, NOON), asked.uid).anchor
    assert anchor is not None
    assert (anchor.api_version, anchor.kind) == (names.API_VERSION, "Workload")


def test_F17_what_it_asks_for_later_is_suspension_alone() -> None:
    assert asked_by(resource(suspend=True)).suspend
    assert not asked_by(resource()).suspend
    assert formats.pod_sets(resource()) == {}, "nobody adds to its pod sets"


def test_F17_who_created_it_is_what_the_api_server_signed() -> None:
    document = resource()
    document["metadata"]["annotations"] = {names.ANNOTATION_CREATED_BY: "ann"}
    asked = formats.asking(document, cluster="c")
    target = target_of(asked, submitted(asked, NOON), asked.uid)
    assert creator_of(target, document) == "ann"


@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue", "holdfast.dev/", 3, None])
def test_F17_one_that_another_controller_runs_is_refused(manager: Any) -> None:
    with pytest.raises(ManagedElsewhere):
        formats.read(yaml.safe_dump(resource(managedBy=manager)), cluster="c")


def test_F17_what_is_wrong_with_it_is_told_with_its_field() -> None:
    with pytest.raises(InvalidWorkload, match=r"spec\.priority"):
        formats.asking(resource(priority=11), cluster="c")


LABEL = "kueue.x-k8s.io/queue-name"


def queued(name: str, **spec: Any) -> dict[str, Any]:
    document = resource(**spec)
    document["metadata"]["labels"][LABEL] = name
    return document


@pytest.mark.row("F10", level="pure")
def test_F10_the_label_of_a_queue_names_its_queue_and_goes_to_no_pod() -> None:
    for document in (queued("gpu"), queued("gpu", queue="gpu"), queued("gpu", queue=None)):
        asked = formats.asking(document, cluster="c")
        assert (asked.queue, asked.labels) == ("gpu", {"team": "a"})
    assert formats.asking(queued(""), cluster="c").queue == "default"


@pytest.mark.row("F10", level="pure")
def test_F10_another_queue_than_its_spec_names_or_one_of_a_component_is_refused() -> None:
    with pytest.raises(InvalidWorkload) as caught:
        formats.asking(queued("gpu", queue="cpu"), cluster="c")
    (problem,) = caught.value.problems
    assert str(problem) == f"metadata.labels[{LABEL}]: contradicts spec.queue, which is 'cpu' (found 'gpu')"
    component = copy.deepcopy(COMPONENT)
    component["template"]["metadata"]["labels"] = {LABEL: "gpu"}
    component["template"]["spec"]["template"]["metadata"] = {"labels": {LABEL: "gpu"}}
    with pytest.raises(InvalidWorkload) as caught:
        formats.asking(resource(components=[component]), cluster="c")
    assert [one.path for one in caught.value.problems] == [
        f"spec.components[0].template.metadata.labels[{LABEL}]",
        f"spec.components[0].template.spec.template.metadata.labels[{LABEL}]",
    ]
    jobs = jobset_of(replicated(metadata={"labels": {LABEL: "gpu"}}))
    with pytest.raises(InvalidWorkload) as caught:
        formats.asking(resource(components=[{"name": "jobs", "template": jobs}]), cluster="c")
    (problem,) = caught.value.problems
    place = "spec.components[0].template.spec.replicatedJobs[0].template.metadata"
    assert problem.path == f"{place}.labels[{LABEL}]"


CASES = [
    (report(Phase.PENDING, Reason.BLOCKED), "InProgress"),
    (report(Phase.PENDING, Reason.QUEUED), "InProgress"),
    (report(Phase.PENDING, Reason.HELD), "Failed"),
    (report(Phase.RESUMING, Reason.CREATING), "InProgress"),
    (report(conditions=(ready(),)), "Current"),
    (report(conditions=(ready(False),)), "InProgress"),
    (report(Phase.CHECKPOINTING, Reason.CHECKPOINT_REQUESTED, conditions=(ready(),)), "Current"),
    (report(Phase.FINISHING, Reason.COMPLETED), "Current"),
    (report(Phase.RESETTING, Reason.FOUND_FAILED_PODS), "InProgress"),
    (report(Phase.SUSPENDING, Reason.SUSPEND_REQUESTED), "InProgress"),
    (report(Phase.SUSPENDED, Reason.SUSPEND_REQUESTED), "Current"),
    (report(Phase.TERMINATING, Reason.CANCEL_REQUESTED), "InProgress"),
    (report(Phase.SUCCEEDED, Reason.COMPLETED), "Current"),
    (report(Phase.FAILED, Reason.RETRY_LIMIT_EXCEEDED), "Failed"),
    (report(Phase.CANCELLED, Reason.CANCEL_REQUESTED), "Failed"),
]


@pytest.mark.parametrize(("given", "expected"), CASES, ids=[f"{one.phase}-{one.reason}-{end}" for one, end in CASES])
def test_F17_kstatus_reads_how_it_is(given: Report, expected: str) -> None:
    status = RESOURCE.status(resource(), given, NOON)
    assert kstatus(resource(), status) == expected
    assert sum(told(status)[one] == "True" for one in ("Ready", "Reconciling", "Stalled")) == 1, "exactly one holds"


def test_F17_every_phase_is_one_of_the_three() -> None:
    assert {one.phase for one, _ in CASES} == set(Phase)


def test_F17_its_status_has_what_its_columns_print_and_the_report_it_shows() -> None:
    status = RESOURCE.status(
        resource(), report(restarts=1, executions=2, message="all run", conditions=(ready(),)), NOON
    )
    assert (status["phase"], status["reason"], status["message"]) == ("Running", "SufficientPodsReady", "all run")
    assert (status["attempt"], status["restarts"], status["executions"]) == (2, 1, 2)
    assert status["observedGeneration"] == 3
    life = life_in(status)
    assert life is not None
    assert (life.sequence, life.attempt, life.phase) == (5, 2, Phase.RUNNING)
    assert told(status)["PodsReady"] == "True"


def test_F17_an_edit_that_is_not_obeyed_yet_is_in_progress() -> None:
    document = resource()
    document["metadata"]["generation"] = 4
    assert kstatus(document, RESOURCE.status(document, report(conditions=(ready(),)), NOON)) == "InProgress"


def test_F17_a_condition_that_stays_keeps_its_time() -> None:
    document = resource()
    document["status"] = RESOURCE.status(document, report(conditions=(ready(),)), NOON)
    later = NOON + timedelta(hours=1)
    again = RESOURCE.status(document, report(Phase.RESETTING, Reason.FOUND_FAILED_PODS), later)
    times = {one["type"]: one["lastTransitionTime"] for one in again["conditions"]}
    assert times["Stalled"] == "2026-01-01T12:00:00Z"
    assert times["Ready"] == times["Reconciling"] == "2026-01-01T13:00:00Z"


def test_F17_what_nobody_decides_for_stays_as_it_was_said_last_and_is_stalled() -> None:
    document = resource()
    document["status"] = RESOURCE.status(document, report(restarts=1, conditions=(ready(),)), NOON)
    held = RESOURCE.note(document, report(Phase.RUNNING, Reason.HELD, message="its workflow is Terminated"), NOON)
    assert (held["phase"], held["reason"], held["restarts"], held["attempt"]) == ("Running", "Held", 1, 2)
    assert told(held)["PodsReady"] == "True", "no quota is let go of"
    assert kstatus(document, held) == "Failed"
    blocked = RESOURCE.note(resource(), Report(sequence=0, phase=Phase.PENDING, reason=Reason.BLOCKED), NOON)
    assert (blocked["phase"], blocked["reason"]) == ("Pending", "Blocked"), "what waits is seen, too"


def test_F17_a_refusal_is_of_the_generation_that_was_read() -> None:
    status = RESOURCE.status(resource(), report(Phase.FAILED, Reason.REFUSED, sequence=0, generation=None), NOON)
    assert status["observedGeneration"] == 3
    assert kstatus(resource(), status) == "Failed"


# The definition


def fields(part: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, part
    for name, one in part.get("properties", {}).items():
        yield from fields(one, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(part.get(inner), dict):
            yield from fields(part[inner], f"{path}[]")


def test_F17_each_field_of_the_model_is_asked_for_or_is_our_own() -> None:
    every = {field.alias or name for name, field in Workload.model_fields.items()}
    assert every == set(REQUESTED) | OWN
    assert not set(REQUESTED) & OWN
    assert set(spec_schema()["properties"]) == {*REQUESTED, "managedBy"}


def test_F17_each_field_has_one_type_and_is_described() -> None:
    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path, one in fields({"properties": {name: schema["properties"][name] for name in ("spec", "status")}}):
        if not path:
            continue
        assert isinstance(one.get("type"), str), path
        assert not {"$ref", "anyOf", "oneOf", "const"} & set(one), path
        if not path.endswith("[]"):
            assert one.get("description"), f"{path}: `kubectl explain` has nothing to say"


def test_F17_everything_but_suspend_is_immutable() -> None:
    rules = {one["fieldPath"] for one in spec_schema()["x-kubernetes-validations"]}
    assert rules == {f".{one}" for one in (*REQUESTED, "managedBy") if one != "suspend"}


def test_F17_a_default_is_stored_for_its_controller_alone() -> None:
    assert [path for path, one in fields(spec_schema()) if "default" in one] == [".managedBy"]


@pytest.mark.parametrize("path", written(), ids=lambda path: path.name)
def test_F17_the_manifests_are_as_the_model_has_them(path: Any) -> None:
    assert path.read_text() == written()[path], "run `make manifests`"
