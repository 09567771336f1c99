"""AppWrappers in the cluster: what they ask for, and the status they show for a report (rows F1, F2, F4). Pure."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import formats, names
from holdfast.activities.site.anchor import asked_by, creator_of
from holdfast.errors import InvalidWorkload, ManagedElsewhere
from holdfast.formats.appwrapper.reader import RESOURCE
from holdfast.formats.appwrapper.status import status
from holdfast.formats.condition import CONDITION, life_in, noted
from holdfast.formats.published import LABEL_QUEUE
from holdfast.model import Condition, ConditionType, Phase, Reason, Report, Source, Workload
from holdfast.policy.loop.submission import submitted
from holdfast.policy.status.explain import status_of
from holdfast.policy.status.report import report_of
from holdfast.profiles import appwrapper
from holdfast.workflows.operations.dispatch import target_of
from tests.policy.lives.life import Life, workload

ROW = pytest.mark.row
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
INFO: dict[str, Any] = {
    "labels": {"flavor": "spot"},
    "annotations": {"topology": "block"},
    "nodeSelector": {"zone": "a"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}],
}


def resource(*infos: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return an AppWrapper as the API server gives it."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/a:1"}]}}
    component: dict[str, Any] = {
        "template": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "work"},
            "spec": {"parallelism": 2, "completions": 2, "template": template},
        }
    }
    if infos:
        component["podSetInfos"] = list(infos)
    return {
        "apiVersion": RESOURCE.api_version,
        "kind": RESOURCE.kind,
        "metadata": {"name": "train", "namespace": "team", "uid": "u-1", "generation": 3, "resourceVersion": "7"},
        "spec": {"managedBy": names.MANAGED_BY, "components": [component], **spec},
        "status": {"phase": "", "conditions": []},
    }


def report(sequence: int = 1, **fields: Any) -> Report:
    fields = {"phase": Phase.RUNNING, "reason": Reason.SUFFICIENT_PODS_READY, "attempt": 1, **fields}
    return Report(sequence=sequence, **fields)


@ROW("F1", level="pure")
def test_F1_a_resource_asks_for_what_its_document_says_and_gives_it_its_own_uid() -> None:
    (submitted,) = formats.read({**resource(), "status": None}, cluster="c")
    asked = formats.asking(resource(suspend=True), cluster="c")
    assert (asked.uid, asked.source.generation, asked.suspend) == ("u-1", 3, True)
    same = {"uid": "", "suspend": False, "source": submitted.source}
    assert asked.model_copy(update=same) == submitted
    assert asked.workflow_id == "workload/c/team/train"


@ROW("F1", level="pure")
@pytest.mark.parametrize(
    ("managed_by", "accepted"),
    [
        ("holdfast.dev/holdfast", True),
        ("holdfast.dev/blue", True),
        ("workload.codeflare.dev/appwrapper-controller", True),
        ("kueue.x-k8s.io/multikueue", False),
        ("holdfast.dev/", False),
        ("holdfast.dev/a/b", False),
        ("holdfast.dev.example.com/holdfast", False),
    ],
)
def test_F1_whose_managed_by_is_not_holdfasts_is_anothers(managed_by: str, *, accepted: bool) -> None:
    document = resource(managedBy=managed_by)
    if accepted:
        assert formats.asking(document, cluster="c").name == "train"
        return
    with pytest.raises(ManagedElsewhere):
        formats.asking(document, cluster="c")


@ROW("F13", level="pure")
@ROW("X13", level="pure")
def test_F13_who_created_it_is_read_where_the_api_server_signs_and_no_document_can_say_it() -> None:
    document = resource(managedBy="holdfast.dev/holdfast")
    document["metadata"]["annotations"] = {names.ANNOTATION_CREATED_BY: "alice", names.ANNOTATION_CHANGED_BY: "carol"}
    workload = formats.asking(document, cluster="c")
    target = target_of(workload, submitted(workload, NOON), workload.uid)
    assert (creator_of(target, document), asked_by(document).by) == ("alice", "carol")
    assert "alice" not in workload.model_dump_json()
    named = {**workload.model_dump(), "source": {**workload.source.model_dump(), "by": "alice"}}
    assert Workload.model_validate(named) == workload, "a document of 0.1.0 may say it, and is not believed"
    # The API server signs what Holdfast manages: another controller's may say anything.
    foreign = {**document, "spec": {**document["spec"], "managedBy": "kueue.x-k8s.io/multikueue"}}
    assert creator_of(target, foreign) == ""
    del document["metadata"]["annotations"]
    assert (creator_of(target, document), asked_by(document).by) == ("", "")


@ROW("F4", level="pure")
def test_F4_what_kueue_adds_is_read_before_each_attempt_and_is_no_part_of_the_workload() -> None:
    admitted = resource(INFO)
    assert formats.asking(admitted, cluster="c") == formats.asking(resource(), cluster="c")
    ((pod_set,),) = formats.pod_sets(admitted).values()
    assert (pod_set.path, pod_set.replicas) == ("template.spec.template", 2)
    assert pod_set.labels == {"flavor": "spot"}
    assert pod_set.annotations == {"topology": "block"}
    assert pod_set.node_selector == {"zone": "a"}
    assert [one.key for one in pod_set.tolerations] == ["spot"]
    assert [one.name for one in pod_set.scheduling_gates] == ["kueue.x-k8s.io/topology"]
    assert formats.pod_sets(resource()) == {}
    with pytest.raises(InvalidWorkload, match=r"spec\.components\[0\]\.podSetInfos"):
        formats.pod_sets(resource(INFO, INFO))


@ROW("F4", level="pure")
def test_F4_what_runs_is_placed_although_it_would_be_refused_if_it_were_applied_now() -> None:
    document = resource(INFO)
    document["spec"]["components"][0]["template"]["metadata"]["labels"] = {LABEL_QUEUE: "team"}
    with pytest.raises(InvalidWorkload):
        formats.asking(document, cluster="c")
    assert formats.pod_sets(document) == formats.pod_sets(resource(INFO)) != {}
    declared = document["spec"]["components"][0]
    declared["podSets"] = [{"path": "template.spec.template", "replicas": 2}]
    assert formats.pod_sets(document) == formats.pod_sets(resource(INFO))


@ROW("F4", level="pure")
def test_F4_what_an_admission_adds_is_checked_each_time() -> None:
    document = resource(INFO)
    component = document["spec"]["components"][0]
    component["template"]["spec"]["template"]["metadata"] = {"labels": {"flavor": "on-demand"}}
    with pytest.raises(InvalidWorkload, match=r"podSetInfos\[0\]\.labels\.flavor: contradicts the pod template"):
        formats.pod_sets(document)
    component["podSets"] = [{"path": "template.spec.nowhere"}]
    with pytest.raises(InvalidWorkload, match=r"podSets\[0\]\.path: leads nowhere"):
        formats.pod_sets(document)


def test_a_wrong_setting_of_an_appwrapper_that_runs_fails_neither_its_attempts_nor_its_status() -> None:
    right, wrong = resource(INFO), resource(INFO)
    wrong["metadata"].setdefault("annotations", {})["holdfast.dev/restartMode"] = "Sideways"
    with pytest.raises(InvalidWorkload, match="restartMode"):
        formats.asking(wrong, cluster="c")
    assert formats.pod_sets(wrong) == formats.pod_sets(right) != {}
    assert RESOURCE.status(wrong, report(), NOON) == RESOURCE.status(right, report(), NOON)
    assert RESOURCE.status(wrong, report(), NOON)["componentStatus"]


def test_an_appwrapper_is_bare_of_what_kueue_adds_and_of_nothing_else() -> None:
    admitted = resource(INFO, suspend=True)
    before = copy.deepcopy(admitted)
    assert RESOURCE.bare(admitted) == resource(suspend=True)
    assert admitted == before


@ROW("F2", level="pure")
def test_F2_a_report_shows_as_appwrappers_own_status() -> None:
    conditions = (
        Condition(type=ConditionType.QUOTA_RESERVED, status=True, reason=Reason.SUBMITTED),
        Condition(type=ConditionType.SUBMITTED, status=True, reason=Reason.SUBMITTED),
    )
    told = report(
        4, conditions=conditions, restarts=5, used={"restart": 2}, generation=3, message="attempt 3 runs", attempt=3
    )
    status = RESOURCE.status(resource(), told, NOON)
    assert (status["phase"], status["resettingCount"]) == ("Running", 2)
    assert [one["type"] for one in status["conditions"]] == ["QuotaReserved", CONDITION]
    assert {one["observedGeneration"] for one in status["conditions"]} == {3}
    assert status["conditions"][1]["message"] == "report 4, attempt 3, Running: attempt 3 runs"
    assert status["componentStatus"] == [
        {
            "name": "work",
            "kind": "Job",
            "apiVersion": "batch/v1",
            "podSets": [{"path": "template.spec.template", "replicas": 2}],
        }
    ]
    life = life_in(status)
    assert life is not None
    assert (life.sequence, life.attempt, life.phase) == (4, 3, Phase.RUNNING)


@ROW("F2", level="pure")
def test_F2_a_condition_turns_only_when_it_does_and_others_conditions_stay() -> None:
    first = RESOURCE.status(resource(), report(), NOON)
    theirs = {"type": "example.com/Theirs", "status": "True", "reason": "A", "message": "", "lastTransitionTime": "t"}
    there = {**resource(), "status": {**first, "conditions": [*first["conditions"], theirs]}}
    second = RESOURCE.status(there, report(2), NOON + timedelta(hours=1))
    assert [one["lastTransitionTime"] for one in second["conditions"]] == ["2026-01-01T12:00:00Z", "t"]
    ended = RESOURCE.status(there, report(3, phase=Phase.SUCCEEDED), NOON + timedelta(hours=2))
    assert ended["conditions"][0]["status"] == "False"
    assert ended["conditions"][0]["lastTransitionTime"] == "2026-01-01T14:00:00Z"


@ROW("F2", level="pure")
@pytest.mark.parametrize("phase", Phase)
def test_F2_every_phase_and_reason_can_be_shown_and_read_back(phase: Phase) -> None:
    for reason in Reason:
        status = RESOURCE.status(resource(), report(12, phase=phase, reason=reason, message="a\nb: c"), NOON)
        life = life_in(status)
        assert life is not None
        assert (life.sequence, life.attempt, life.phase, life.reason) == (12, 1, phase, reason.value)


@ROW("A9", level="pure")
@ROW("A17", level="pure")
def test_A9_resets_that_charge_no_budget_are_not_counted_where_it_stands_either() -> None:
    source = Source(api_version=RESOURCE.api_version, kind=RESOURCE.kind, generation=3)
    one = Life(spec=workload(policy=appwrapper.POLICY, source=source)).runs()
    for number, charged in ((7, 0), (8, 0), (9, 0), (0, 1)):
        one.sees(running=2, marked=(f"node-{number}",)) if number else one.sees(running=1, failed=1).after(seconds=60)
        one.after(seconds=90).sees(running=2)
        told = RESOURCE.status(resource(), report_of(one.spec, one.state), NOON)
        own = status(one.spec, status_of(one.spec, one.state, one.now, "uid"))
        assert told["resettingCount"] == own["resettingCount"] == charged
    assert (one.attempt, one.state.restarts) == (5, 4)


def test_what_a_front_door_notes_leaves_what_the_workflow_said() -> None:
    there = {**resource(), "status": RESOURCE.status(resource(), report(7, used={"restart": 2}), NOON)}
    status = noted(there, report(7, reason=Reason.HELD, message="why"), NOON)
    assert (status["phase"], status["resettingCount"]) == ("Running", 2)
    assert life_in(status) == (7, 1, Phase.RUNNING, "Held")


@pytest.mark.parametrize(
    "broken", [{}, {"conditions": None}, {"conditions": ["x"]}, {"conditions": [{"type": CONDITION}]}]
)
def test_a_status_that_says_nothing_of_a_life_is_no_error(broken: dict[str, Any]) -> None:
    assert life_in(broken) is None
    message = {"type": CONDITION, "message": "report 1, attempt 1, NoPhase", "reason": "x"}
    assert life_in({"conditions": [message]}) is None
