"""JobSets in the cluster: what they request, and the status they show for a report (row F16). Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import formats, names
from holdfast.errors import InvalidWorkload
from holdfast.formats.condition import CONDITION, life_in
from holdfast.formats.jobset.resource import RESOURCE
from holdfast.formats.published import LABEL_QUEUE
from holdfast.model import (
    Barrier,
    Condition,
    ConditionType,
    CopyCounts,
    CopyRestarts,
    Failure,
    FailureClass,
    Phase,
    Reason,
    Report,
    Scope,
    Source,
    SuspendMode,
)
from holdfast.workflows.operations.dispatch import target_of
from tests.formats.documents import Json, copy
from tests.formats.jobset.jobsets import jobset_of, replicated
from tests.formats.jobset.jobsets_refused import WORKER, agent_and_program, in_place
from tests.policy.lives.life import Life

ROW = pytest.mark.row
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PLACED: Json = {
    "metadata": {"labels": {"flavor": "spot"}, "annotations": {"topology": "block"}},
    "spec": {
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}],
    },
}


QUEUED = {LABEL_QUEUE: "team"}


def resource(*jobs: Json, labels: Json | None = None, **spec: Any) -> Json:
    """Return a JobSet as the API server gives it."""
    document = jobset_of(*(jobs or (replicated("a", replicas=2), replicated("b"))), managedBy=names.MANAGED_BY, **spec)
    document["metadata"] |= {"namespace": "ns", "uid": "u1", "generation": 3, "labels": labels or {}}
    return document


def queued(*jobs: Json, **spec: Any) -> Json:
    """Return a JobSet whose quota Kueue counts."""
    return resource(*jobs, labels=QUEUED, **spec)


def placed(document: Json, index: int = 0, added: Json = PLACED) -> Json:
    """Return a JobSet with what Kueue writes into one of its pod templates."""
    found = copy(document)
    template = found["spec"]["replicatedJobs"][index]["template"]["spec"]["template"]
    template["metadata"] = {**template.get("metadata", {}), **added.get("metadata", {})}
    template["spec"] |= added.get("spec", {})
    return found


def report(phase: Phase = Phase.RUNNING, sequence: int = 7, *, quota: bool = True, **fields: Any) -> Report:
    conditions = (Condition(type=ConditionType.QUOTA_RESERVED, status=quota, reason=Reason.SUBMITTED),)
    fields = {"reason": Reason.SUFFICIENT_PODS_READY, "generation": 3, "attempt": 1} | fields
    return Report(sequence=sequence, phase=phase, conditions=conditions, **fields)


def counted(**copies: tuple[int, int, int, int]) -> dict[str, CopyCounts]:
    """Return counts: expected, ready, succeeded, active."""
    return {
        name: CopyCounts(expected=one[0], ready=one[1], succeeded=one[2], active=one[3]) for name, one in copies.items()
    }


def shown(document: Json, told: Report, now: datetime = NOON) -> Json:
    return RESOURCE.status(document, told, now)


def condition(status: Json, kind: str) -> Json | None:
    return next((one for one in status["conditions"] if one["type"] == kind), None)


def active(status: Json) -> list[int]:
    return [one["active"] for one in status["replicatedJobsStatus"]]


@ROW("F16", level="pure")
def test_F16_the_kind_is_in_the_ids_of_its_workflow_and_of_its_attempts():
    workload = formats.asking(resource(), cluster="c")
    assert workload.workflow_id == "workload/c/ns/jobset/train"
    assert names.parse_workflow_id(workload.workflow_id) == ("c", "ns", "train")
    life = Life(spec=workload)
    assert target_of(workload, life.state, "u1").attempt_name(2) == "train-a2-jobset"
    submitted = workload.model_copy(update={"source": workload.source.model_copy(update={"generation": None})})
    assert submitted.workflow_id == "workload/c/ns/train"
    for wrong in ("workload/c/ns/pod/train", "workload/c/ns/jobset/train/more"):
        with pytest.raises(ValueError, match="is not a workload's id"):
            names.parse_workflow_id(wrong)


@ROW("F16", level="pure")
def test_F16_every_kind_in_an_id_is_one_that_is_run():
    assert set(names.KINDS_IN_IDS) <= {kind.lower() for _, kind in formats.RESOURCES}


@ROW("F16", level="pure")
def test_F16_what_kueue_writes_into_templates_is_read_with_each_attempt_and_is_no_part_of_the_workload():
    document = placed(resource(), 0)
    assert formats.asking(document, cluster="c") == formats.asking(resource(), cluster="c")
    ((name, (pod_set,)),) = formats.pod_sets(document).items()
    assert name == "a"
    assert (pod_set.labels, pod_set.annotations) == ({"flavor": "spot"}, {"topology": "block"})
    assert pod_set.node_selector == {"zone": "a"}
    assert [one.key for one in pod_set.tolerations] == ["spot"]
    assert [one.name for one in pod_set.scheduling_gates] == ["kueue.x-k8s.io/topology"]
    assert formats.pod_sets(resource()) == {}
    wrong = placed(resource(), 1, {"spec": {"tolerations": [{"operator": 5}]}})
    with pytest.raises(InvalidWorkload, match=r"replicatedJobs\[1\].template.spec.template.*tolerations"):
        formats.pod_sets(wrong)


@ROW("F4", level="pure")
@pytest.mark.parametrize(
    "document",
    [
        in_place(**agent_and_program(program_env=WORKER, beside=False)),
        jobset_of(annotations={f"{names.GROUP}/retryLimit": "many"}),
        jobset_of(successPolicy={"operator": "All", "targetReplicatedJobs": ["nobody"]}),
        jobset_of(replicated(metadata={"labels": QUEUED})),
    ],
    ids=["JobSet's agent", "a setting", "a target", "a queue"],
)
def test_F4_what_runs_is_placed_although_it_would_be_refused_if_it_were_applied_now(document: Json):
    document["metadata"] |= {"namespace": "ns", "uid": "u1", "generation": 3}
    with pytest.raises(InvalidWorkload):
        formats.asking(document, cluster="c")
    ((pod_set,),) = formats.pod_sets(placed(document)).values()
    assert pod_set.node_selector == {"zone": "a"}


@ROW("F16", level="pure")
def test_F16_what_jobset_itself_reads_of_a_pod_template_stays_with_the_workload():
    topology = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    document = placed(resource(), 0, {"metadata": {"annotations": topology}})
    (component,) = [one for one in formats.asking(document, cluster="c").components if one.name == "a"]
    assert "podAffinity" in component.template["spec"]["template"]["spec"]["affinity"]
    assert formats.pod_sets(document) == {}


@ROW("F1", level="pure")
@ROW("F16", level="pure")
def test_F16_labels_with_jobsets_prefix_are_kept_but_for_those_that_holdfast_writes():
    own = {f"{prefix}/foo": "x" for prefix in ("jobset.sigs.k8s.io", "alpha.jobset.sigs.k8s.io")}
    written = dict.fromkeys(("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/job-index"), "other")
    document = placed(resource(), 0, {"metadata": {"labels": own | written, "annotations": own | written}})
    ((_, (pod_set,)),) = formats.pod_sets(document).items()
    assert pod_set.labels == own
    assert pod_set.annotations == {"jobset.sigs.k8s.io/foo": "x"}, "the other is part of the workload"
    (component,) = [one for one in formats.asking(document, cluster="c").components if one.name == "a"]
    kept = component.template["spec"]["template"]["metadata"]["annotations"]
    assert kept["alpha.jobset.sigs.k8s.io/foo"] == "x"


@ROW("F16", level="pure")
def test_F16_one_with_a_queue_is_made_anew_after_a_suspension_and_others_stay_in_place():
    queued = formats.asking(resource(labels={LABEL_QUEUE: "team"}), cluster="c")
    assert queued.policy.deletion.suspend is SuspendMode.DELETE
    assert formats.asking(resource(), cluster="c").policy.deletion.suspend is SuspendMode.IN_PLACE


@ROW("F16", level="pure")
def test_F16_kueue_sees_jobs_active_until_it_is_proven_that_none_is_left():
    document = queued()
    going = shown(document, report(Phase.SUSPENDING, copies=counted(a=(2, 0, 1, 0), b=(1, 0, 0, 0))))
    assert active(going) == [1, 1], "nothing is seen of them, and nothing is proven"
    ended = shown(document, report(Phase.SUSPENDING, copies=counted(a=(2, 0, 2, 0), b=(1, 0, 1, 0))))
    assert sum(active(ended)) > 0
    unseen = shown(document, report(Phase.RESUMING))
    assert active(unseen) == [2, 1], "it holds its quota from the first"
    gone = shown(document, report(Phase.SUSPENDED, quota=False, copies=counted(a=(2, 1, 0, 1), b=(1, 0, 0, 0))))
    assert active(gone) == [0, 0], "what was seen last is not there any more"


@ROW("F16", level="pure")
@pytest.mark.parametrize(("phase", "kind"), [(Phase.SUCCEEDED, "Completed"), (Phase.FAILED, "Failed")])
def test_F16_an_end_is_withheld_until_it_holds_no_quota(phase: Phase, kind: str):
    early = shown(queued(), report(phase, copies=counted(a=(2, 0, 2, 0), b=(1, 0, 1, 0))))
    assert condition(early, kind) is None
    assert "terminalState" not in early
    assert sum(active(early)) > 0
    late = shown(queued(), report(phase, quota=False, copies=counted(a=(2, 0, 2, 0), b=(1, 0, 1, 0))))
    found = condition(late, kind)
    assert found is not None
    assert (found["status"], found["observedGeneration"]) == ("True", 3)
    assert late["terminalState"] == kind
    assert active(late) == [0, 0]


@ROW("F16", level="pure")
@pytest.mark.parametrize(("phase", "kind"), [(Phase.SUCCEEDED, "Completed"), (Phase.FAILED, "Failed")])
def test_F16_without_a_queue_it_says_what_jobset_says_while_jobs_are_still_there(phase: Phase, kind: str):
    told = report(phase, copies=counted(a=(2, 0, 1, 0), b=(1, 0, 0, 0)))
    early = shown(resource(), told)
    found = condition(early, kind)
    assert found is not None
    assert (found["status"], early["terminalState"]) == ("True", kind)
    assert active(early) == [0, 0], "as the Jobs' own status says"
    life = life_in(early)
    assert life is not None
    unread = shown(unreadable(early), told)
    assert (condition(unread, kind) or {}).get("status") == "True"
    assert active(unread) == [0, 0]


@ROW("F16", level="pure")
def test_F16_a_failure_has_jobsets_own_reason_and_restarts_are_counted_as_jobset_counts_them():
    failure = Failure(
        cls=FailureClass.APP, time=NOON, scope=Scope.COMPONENT, component="a", subject="Job train-a-0", reason="x"
    )
    document = resource(failurePolicy={"maxRestarts": 2, "rules": [{"action": "RestartJob"}]})
    alone = {"a": {1: CopyRestarts(restarts=2, charged=1, attempt=1, launches=2, at=NOON)}}
    told = report(
        Phase.FAILED,
        quota=False,
        reason=Reason.RETRY_LIMIT_EXCEEDED,
        failure=failure,
        restarts=3,
        used={"restart": 2},
        copy_restarts=alone,
    )
    status = shown(document, told)
    found = condition(status, "Failed")
    assert found is not None
    assert found["reason"] == "ReachedMaxRestarts"
    assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)
    (first, _) = status["replicatedJobsStatus"]
    assert (first["jobRestarts"], first["jobRestartsCountTowardsMax"]) == ([0, 2], [0, 1])


@ROW("F16", level="pure")
def test_F16_conditions_turn_and_keep_their_times_and_a_repeated_report_changes_nothing():
    document = resource(startupPolicy={"startupPolicyOrder": "InOrder"})
    first = shown(document, report(Phase.SUSPENDED, quota=False, sequence=1, reason=Reason.SUSPEND_REQUESTED))
    assert condition(first, "Suspended") is not None
    document["status"] = first
    ready = counted(a=(2, 2, 0, 2), b=(1, 1, 0, 1))
    later = NOON + timedelta(minutes=5)
    second = shown(document, report(sequence=2, copies=ready), later)
    assert [condition(second, kind)["status"] for kind in ("Suspended", "StartupPolicyCompleted")] == ["False", "True"]  # type: ignore[index]
    document["status"] = second
    assert shown(document, report(sequence=2, copies=ready), later + timedelta(hours=1)) == second
    third = shown(document, report(sequence=3, attempt=2, copies=counted(a=(2, 0, 0, 2), b=(1, 0, 0, 0))), later)
    startup = [condition(third, kind) for kind in ("StartupPolicyInProgress", "StartupPolicyCompleted")]
    assert [one["status"] for one in startup if one] == ["True", "False"], "JobSet shows one of the two"
    life = life_in(third)
    assert life is not None
    assert (life.sequence, life.attempt) == (3, 2)


@ROW("J13", level="pure")
@ROW("J17", level="pure")
@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_J13_a_startup_policy_stays_as_it_was_at_the_end(phase: Phase):
    document = resource(startupPolicy={"startupPolicyOrder": "InOrder"})
    for first, startup in (((2, 2, 0, 2), ("False", "True")), ((2, 1, 0, 2), ("True", None))):
        document["status"] = {}
        document["status"] = shown(document, report(copies=counted(a=first, b=(1, 1, 0, 1))))
        later = NOON + timedelta(minutes=5)
        ended = shown(document, report(phase, sequence=8, copies=counted(a=(2, 0, 1, 0), b=(1, 0, 0, 0))), later)
        kinds = ("StartupPolicyInProgress", "StartupPolicyCompleted")
        found = [condition(ended, kind) for kind in kinds]
        assert tuple(one["status"] if one else None for one in found) == startup
        assert found[0] == condition(document["status"], kinds[0]), "nor does its time change"


@ROW("J24", level="pure")
@ROW("F16", level="pure")
@pytest.mark.parametrize(
    ("barrier", "previous", "current"),
    [
        (None, None, None),
        (Barrier(attempt=0, since=NOON), None, None),
        (Barrier(attempt=0), None, 0),
        (Barrier(attempt=2, since=NOON), 1, 1),
        (Barrier(attempt=2), 1, 2),
    ],
)
def test_J24_a_jobset_in_the_cluster_shows_its_in_place_restart_attempts(
    barrier: Barrier | None, previous: int | None, current: int | None
):
    status = shown(resource(), report(barrier=barrier))
    found = [status.get(f"{kind}InPlaceRestartAttempt") for kind in ("previous", "current")]
    assert found == [previous, current]
    assert ("barrier" in report(barrier=barrier).model_dump()) == (barrier is not None)


@ROW("J17", level="pure")
@pytest.mark.parametrize(
    ("rule", "reason", "action"),
    [
        ("Rule1", "FailurePolicy_Rule1", "RestartJobSet"),
        ("Rule2", "FailurePolicy_Rule2", "RestartJobSetAndIgnoreMaxRestarts"),
        ("no-failure-policy-rule", "DefaultFailurePolicy", "RestartJobSet"),
    ],
)
def test_J17_a_restart_of_all_jobs_is_a_condition_until_all_are_ready(rule: str, reason: str, action: str):
    actions = {"Rule1": "RestartJobSet", "Rule2": "RestartJobSetAndIgnoreMaxRestarts"}
    rules = [{"name": name, "action": each} for name, each in actions.items()]
    document = resource(failurePolicy={"maxRestarts": 2, "rules": rules})
    why = f"train-a-0: BackoffLimitExceeded: said (rule other) (rule {rule}); the next attempt avoids n1"
    document["status"] = shown(document, report(Phase.RESETTING, 8, reason=Reason.RESETTING, message=why, restarts=1))
    found = condition(document["status"], "RestartingJobSet")
    assert found is not None
    assert (found["status"], found["reason"]) == ("True", reason)
    assert found["message"] == f"applying {action} failure policy action (first failed job: train-a-0)"
    some = counted(a=(2, 1, 0, 2), b=(1, 1, 0, 1))
    document["status"] = shown(document, report(Phase.RESUMING, 9, attempt=2, copies=some, restarts=1))
    assert (condition(document["status"], "RestartingJobSet") or {})["reason"] == reason, "it is kept"
    both = counted(a=(2, 1, 1, 1), b=(1, 1, 0, 1))
    for phase in (Phase.RESUMING, Phase.RUNNING):
        ready = condition(shown(document, report(phase, 10, attempt=2, copies=both, restarts=1)), "RestartingJobSet")
        assert ready is not None
        assert (ready["status"], ready["reason"]) == ("False", "JobsReady")
    failed = condition(
        shown(document, report(Phase.FAILED, 10, attempt=2, copies=some, restarts=1)), "RestartingJobSet"
    )
    assert failed is not None
    assert (failed["status"], failed["reason"]) == ("False", "JobSetFailed")


@ROW("J17", level="pure")
def test_J17_a_restart_by_a_rule_of_holdfasts_own_is_told_with_a_reason_that_the_kind_allows():
    why = "its owner was deleted (rule owner-deleted)"
    status = shown(resource(), report(Phase.RESETTING, reason=Reason.RESETTING, message=why, restarts=1))
    found = condition(status, "RestartingJobSet")
    assert found is not None
    assert (found["reason"], found["message"]) == ("Restarting", why)
    assert condition(shown(resource(), report(Phase.RUNNING)), "RestartingJobSet") is None


@ROW("F16", level="pure")
@ROW("J17", level="pure")
def test_J17_one_that_restarted_and_is_resumed_is_not_restarting():
    document = resource()
    for phase, restarts, expected in (
        (Phase.RESETTING, 1, "True"),
        (Phase.RESUMING, 1, "True"),
        (Phase.RUNNING, 1, "False"),
        (Phase.SUSPENDED, 1, "False"),
        (Phase.RESUMING, 1, "False"),
        (Phase.RESUMING, 2, "True"),
    ):
        document["status"] = shown(document, report(phase, restarts=restarts))
        found = condition(document["status"], "RestartingJobSet")
        assert found is not None
        assert found["status"] == expected, (phase, restarts)


@ROW("F16", level="pure")
def test_F16_one_that_cannot_be_read_shows_why():
    document = resource(successPolicy={"operator": "All", "targetReplicatedJobs": ["nobody"]})
    told = Report(sequence=0, phase=Phase.FAILED, reason=Reason.REFUSED, message="spec.x: no")
    status = shown(document, told)
    found = condition(status, "Failed")
    assert found is not None
    assert (found["status"], found["message"]) == ("True", "spec.x: no")
    assert status["terminalState"] == "Failed"
    assert condition(status, CONDITION) is not None


def unreadable(status: Json, **labels: str) -> Json:
    """Return a JobSet whose annotation was made wrong after admission, with the status that it had."""
    document = resource(labels=labels)
    document["metadata"]["annotations"] = {"holdfast.dev/retryLimit": "x"}
    return document | {"status": status}


@ROW("F16", level="pure")
@pytest.mark.parametrize(("phase", "kind"), [(Phase.SUCCEEDED, "Completed"), (Phase.FAILED, "Failed")])
def test_F16_one_that_cannot_be_read_any_more_ends_once_it_holds_no_quota(phase: Phase, kind: str):
    before = shown(queued(), report(copies=counted(a=(2, 2, 0, 2), b=(1, 1, 0, 1))))
    held = shown(unreadable(before, **QUEUED), report(phase))
    assert condition(held, kind) is None
    assert "terminalState" not in held
    assert active(held) == [2, 1]
    ended = shown(unreadable(before, **QUEUED), report(phase, 8, quota=False))
    assert condition(ended, kind) is not None
    assert ended["terminalState"] == kind
    assert [(one["active"], one["ready"]) for one in ended["replicatedJobsStatus"]] == [(0, 0), (0, 0)]
    assert [one["name"] for one in ended["replicatedJobsStatus"]] == ["a", "b"]


@ROW("F16", level="pure")
def test_F16_one_that_cannot_be_read_any_more_is_suspended_and_resumed():
    before = shown(resource(), report(copies=counted(a=(2, 2, 0, 2), b=(1, 1, 0, 1))))
    parked = {"a": CopyCounts(expected=2, suspended=2), "b": CopyCounts(expected=1)}
    status = shown(unreadable(before), report(Phase.SUSPENDED, quota=False, copies=parked))
    assert active(status) == [0, 0]
    assert RESOURCE.is_deployed(status)
    found = condition(status, "Suspended")
    assert found is not None
    assert found["status"] == "True"
    again = shown(unreadable(status, **QUEUED), report(Phase.RUNNING, 8))
    found = condition(again, "Suspended")
    assert found is not None
    assert found["status"] == "False"
    assert sum(active(again)) > 0, "Kueue takes none active as quota that is free"


@ROW("F16", level="pure")
def test_F16_a_suspension_in_place_is_known_by_its_suspended_jobs():
    parked = {"a": CopyCounts(expected=2, suspended=2), "b": CopyCounts(expected=1)}
    assert RESOURCE.is_deployed(shown(resource(), report(Phase.SUSPENDED, quota=False, copies=parked)))
    assert not RESOURCE.is_deployed(shown(resource(), report(Phase.SUSPENDED, quota=False)))


@ROW("F16", level="pure")
def test_F16_one_that_is_tried_again_has_not_failed():
    document = resource()
    failed = shown(document, report(Phase.FAILED, reason=Reason.RETRY_LIMIT_EXCEEDED))
    assert (condition(failed, "Failed") or {})["status"] == "True"
    for phase in (Phase.RESETTING, Phase.RUNNING, Phase.SUCCEEDED):
        later = shown({**document, "status": failed}, report(phase, 8), NOON + timedelta(minutes=1))
        again = condition(later, "Failed") or {}
        told = (again["status"], again["reason"], again["lastTransitionTime"])
        assert told == ("False", "RetryRequested", "2026-01-01T12:01:00Z"), phase
        assert later["terminalState"] == ("Completed" if phase is Phase.SUCCEEDED else None), "a merge takes it away"
    still = shown({**document, "status": failed}, report(Phase.FAILED, 8, quota=False))
    assert ((condition(still, "Failed") or {})["status"], still["terminalState"]) == ("True", "Failed")
    assert "terminalState" not in shown(document, report(Phase.RUNNING))
    held = shown({**document, "status": failed}, report(Phase.PENDING, 8, reason=Reason.HELD))
    assert "terminalState" not in held, "nobody asked for a retry"
    assert "Failed" not in {one["type"] for one in held["conditions"] if one["status"] == "False"}


@ROW("F8", level="pure")
def test_F8_kueue_counts_the_quota_of_what_names_a_queue_in_the_cluster_and_of_nothing_else():
    assert formats.asking(queued(), cluster="c").kueue_admits
    assert not formats.asking(resource(), cluster="c").kueue_admits
    submitted = jobset_of(replicated("a"))
    submitted["metadata"] |= {"labels": QUEUED}
    (workload,) = formats.read(submitted, cluster="c")
    assert (workload.queue, workload.kueue_admits) == ("team", False)
    own = workload.model_copy(update={"source": Source(api_version=names.API_VERSION, kind="Workload", generation=1)})
    assert not own.kueue_admits
