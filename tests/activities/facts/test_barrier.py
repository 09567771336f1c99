"""Where a pod stands at its barrier, as the kubelet's status and its annotations say (row J24)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import names
from holdfast.activities.facts.barrier import barrier_facts, waits_alone
from holdfast.activities.facts.pods import PodState, pod_facts
from holdfast.activities.objects.inject_barrier import BarrierProblem, add_barrier
from holdfast.activities.operations.barrier import Reminders
from holdfast.model import FailureClass, Reason

ROW = pytest.mark.row("J24", level="pure")
RULES = [{"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}]
AGENT: dict[str, Any] = {
    "name": "agent",
    "restartPolicy": "Always",
    "restartPolicyRules": RULES,
    "startupProbe": {"httpGet": {"path": "/barrier-is-down", "port": 8081}},
}
RUNNING = {"running": {"startedAt": "2026-11-01T10:00:00Z"}}
WAITING = {"waiting": {"reason": "PodInitializing"}}
REMOVED = {"waiting": {"reason": "RestartingAllContainers"}}
FAILED = {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": "2026-11-01T10:05:00Z"}}


def pod(
    request: int | None = 1,
    attempt: int | None = None,
    seen: int | None = None,
    restarts: int = 0,
    agent: dict[str, Any] = RUNNING,
    worker: dict[str, Any] = WAITING,
    *,
    started: bool = False,
    phase: str = "Pending",
) -> dict[str, Any]:
    """Return a pod with an agent, as the API server holds it."""
    orders = {
        names.ANNOTATION_RESTART_REQUEST: request,
        names.ANNOTATION_IN_PLACE_ATTEMPT: attempt,
        names.ANNOTATION_RESTARTS_SEEN: seen,
    }
    return {
        "metadata": {"name": "p", "uid": "u", "annotations": {k: str(v) for k, v in orders.items() if v is not None}},
        "spec": {"nodeName": "n", "initContainers": [AGENT], "containers": [{"name": "worker"}]},
        "status": {
            "phase": phase,
            "initContainerStatuses": [
                {"name": "agent", "restartCount": restarts, "started": started, "state": agent},
            ],
            "containerStatuses": [{"name": "worker", "state": worker}],
        },
    }


NEW = pod()
LIFTED = pod(1, 1, 0, started=True, worker=RUNNING, phase="Running")
ASKED = pod(2, 1, 0, started=True, worker=RUNNING, phase="Running")
BACK = pod(2, 1, 0, 1)


@ROW
@pytest.mark.parametrize(
    ("raw", "goal", "there"),
    [
        (NEW, 1, True),
        (NEW, 2, False),
        (pod(agent=WAITING), 1, False),
        (LIFTED, 1, False),
        (ASKED, 2, False),
        # Its program is not seen yet, but was allowed to start: that is no proof that it does not run.
        (pod(2, 1, 0), 2, False),
        (BACK, 2, True),
        (pod(2, 1, 0, 1, agent=REMOVED), 2, False),
        # The kubelet still shows a process of the old attempt.
        (pod(2, 1, 0, 1, worker=RUNNING), 2, False),
        (pod(2, 1, 0, 1, started=True), 2, False),
    ],
)
def test_J24_a_pod_is_there_only_with_proof(raw: dict[str, Any], goal: int, there: bool):
    facts = barrier_facts(raw)
    assert facts is not None
    assert facts.is_there(goal) is there


@ROW
@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (NEW, "a new pod waits at the barrier"),
        (pod(agent=WAITING), ""),
        (LIFTED, ""),
        (ASKED, ""),
        (BACK, ""),
        (pod(1, 1, 0, 1), "its containers restarted in place"),
        (pod(1, 1, 0, 1, agent=REMOVED), "its containers restarted in place"),
        (pod(None), ""),
    ],
)
def test_J24_a_pod_that_waits_unasked_is_a_failure(raw: dict[str, Any], why: str):
    assert waits_alone(barrier_facts(raw)) == why
    facts = pod_facts(raw)
    assert facts.restarted is bool(why)
    if why:
        assert (facts.failure_class, facts.reason, facts.message) == (FailureClass.APP, Reason.POD_RESTARTED, why)
    assert facts.state in {PodState.PENDING, PodState.RUNNING}, "it still runs, or may: it has not ended"


@ROW
def test_J24_the_exit_code_is_told_while_the_kubelet_shows_it():
    assert pod_facts(pod(1, 1, 0, 1, agent=RUNNING, worker=FAILED, phase="Running")).exit_code == 3
    assert pod_facts(pod(1, 1, 0, 1)).exit_code is None


@ROW
def test_J24_a_pod_without_an_agent_has_no_barrier_to_wait_at():
    raw = pod()
    raw["spec"]["initContainers"] = []
    facts = barrier_facts(raw)
    assert facts is not None
    assert (facts.waits, facts.started) == (False, False)


@ROW
@pytest.mark.row("J25", level="pure")
@pytest.mark.parametrize("resumes", [False, True])
def test_J24_the_agent_gets_its_files_and_every_container_those_of_programs(resumes: bool):
    spec: dict[str, Any] = {"initContainers": [{"name": "first"}, {**AGENT}], "containers": [{"name": "worker"}]}
    add_barrier({"spec": spec}, "template", resumes=resumes)
    told = {names.ENV_IN_PLACE_ATTEMPT_FILE: names.ANNOTATION_IN_PLACE_ATTEMPT}
    if resumes:
        told[names.ENV_RESUME_FROM_FILE] = names.ANNOTATION_RESUME_FROM
    first, agent, worker = (*spec["initContainers"], *spec["containers"])
    assert [one["mountPath"] for one in agent["volumeMounts"]] == [
        names.IN_PLACE_ORDERS_DIRECTORY,
        names.IN_PLACE_MEMORY_DIRECTORY,
    ]
    (orders, _) = agent["volumeMounts"]
    assert first["volumeMounts"] == worker["volumeMounts"] == [orders]
    shown = {
        f"{orders['mountPath']}/{item['path']}": item["fieldRef"]["fieldPath"]
        for volume in spec["volumes"]
        if volume["name"] == orders["name"]
        for item in volume["downwardAPI"]["items"]
    }
    for one in (first, agent, worker):
        read = {variable["name"]: shown[variable["value"]] for variable in one["env"]}
        assert read == {name: f"metadata.annotations['{annotation}']" for name, annotation in told.items()}


@ROW
def test_J24_a_containers_own_variables_stay():
    own = {"name": names.ENV_RESUME_FROM_FILE, "value": "/elsewhere"}
    spec: dict[str, Any] = {"initContainers": [{**AGENT}], "containers": [{"name": "worker", "env": [own]}]}
    add_barrier({"spec": spec}, "template", resumes=True)
    assert [one["name"] for one in spec["containers"][0]["env"]] == [
        names.ENV_IN_PLACE_ATTEMPT_FILE,
        names.ENV_RESUME_FROM_FILE,
    ]
    assert own in spec["containers"][0]["env"]


@ROW
@pytest.mark.parametrize("annotation", [names.ANNOTATION_IN_PLACE_ATTEMPT, names.ANNOTATION_RESTARTS_SEEN])
def test_J24_a_template_that_would_lift_the_barrier_by_itself_is_refused(annotation: str):
    template = {
        "metadata": {"annotations": {annotation: "0"}},
        "spec": {"initContainers": [{**AGENT}], "containers": []},
    }
    with pytest.raises(BarrierProblem, match="expected none") as refused:
        add_barrier(template, "template", resumes=False)
    assert refused.value.path == f"template.metadata.annotations[{annotation}]"


@ROW
@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"volumes": [{"name": "holdfast-in-place-memory"}]}, "spec.volumes"),
        (
            {"initContainers": [{**AGENT, "volumeMounts": [{"mountPath": names.IN_PLACE_MEMORY_DIRECTORY}]}]},
            "spec.initContainers[0].volumeMounts",
        ),
        (
            {"containers": [{"name": "worker", "volumeMounts": [{"mountPath": names.IN_PLACE_ORDERS_DIRECTORY}]}]},
            "spec.containers[0].volumeMounts",
        ),
    ],
)
def test_J24_a_template_that_takes_the_agents_place_is_refused(spec: dict[str, Any], path: str):
    with pytest.raises(BarrierProblem) as refused:
        add_barrier({"spec": {"initContainers": [{**AGENT}], "containers": [], **spec}}, "template", resumes=False)
    assert refused.value.path == f"template.{path}"


@ROW
@pytest.mark.parametrize(
    ("raw", "goal", "lags"),
    [
        (NEW, 1, False),
        (pod(1, 1, 0), 1, True),
        (LIFTED, 1, False),
        (ASKED, 2, True),
        (BACK, 2, False),
        (pod(2, 1, 0, 1, agent=REMOVED), 2, False),
        (pod(agent=WAITING), 1, False),
        # Asked for another attempt: its orders are changed first.
        (LIFTED, 2, False),
    ],
)
def test_J24_a_pod_lags_while_its_agent_has_not_done_what_it_was_told(raw: dict[str, Any], goal: int, lags: bool):
    stands = barrier_facts(raw)
    assert stands is not None
    assert stands.lags(goal) is lags


@ROW
def test_J24_a_kubelet_is_reminded_of_a_pod_that_lags_and_each_time_later():
    asked, back, lifted = barrier_facts(ASKED), barrier_facts(BACK), barrier_facts(LIFTED)
    assert asked is not None
    assert back is not None
    assert lifted is not None
    reminders = Reminders()
    pods = {"slow": asked, "done": back}
    told = [now for now in range(100) if reminders.due(pods, 2, float(now)) == ["slow"]]
    assert told == [5, 15, 35, 75]
    assert reminders.due({"slow": lifted}, 1, 100.0) == []
    assert reminders.due(pods, 2, 101.0) == [], "its time begins anew"
