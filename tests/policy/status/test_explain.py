"""The explanation is right in each phase: why, now, next, and what would unblock it (row U11)."""

from __future__ import annotations

import pytest

from holdfast import names
from holdfast.model import CopyCounts, OperationKind, Phase, Reason, Source, Status
from holdfast.model.entities.graph import GraphNews, Place
from holdfast.policy.status.explain import explain_of, markdown, status_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, OperationRefused, Resumed, Suspended
from holdfast.policy.verdicts.hold import hold
from tests.policy.lives.life import Life, workload
from tests.policy.lives.moments import moment

ROW = pytest.mark.row
APPLIED = Source(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", generation=1)
OTHERS = (
    (workload(source=APPLIED), "delete the JobSet, and apply it again"),
    (workload(graph=Place(graph="g", item="train")), "submit its graph again, once that has ended"),
)
"""What another run would be a stranger to: a custom resource, and a workload of a graph; and what runs them anew."""


def told(life: Life) -> str:
    explanation = explain_of(life.spec, life.state, life.now)
    return "\n".join(
        [
            f"{explanation.phase.value} {explanation.attempt} -> {explanation.next_attempt}",
            f"why {explanation.why}",
            f"now {explanation.now}",
            *(f"next +{(each.at - life.now).total_seconds():g} {each.what}" for each in explanation.next),
            f"unblock {explanation.unblock}",
        ]
    )


@ROW("U11", level="pure")
def test_U11_waiting_for_pods_names_how_many_and_until_when():
    life = Life().settle().sees(running=1, pending=1)
    text = told(life)
    assert "1 of 2 pods running" in text
    assert "next +300 warm-up grace: 1 pod does not run yet" in text


@ROW("U11", level="pure")
def test_U11_a_preparation_says_for_how_long_it_waits_for_kinds():
    life = Life(spec=workload(allow_missing_kinds=True), hold={OperationKind.PREPARE}).settle()
    assert "attempt 1 (waits as long as it takes for a kind that the cluster lacks)" in told(life)
    waits = {"submissionTimeout": "10m"}
    life = Life(spec=workload(allow_missing_kinds=True, timings=waits), hold={OperationKind.PREPARE}).settle()
    assert "attempt 1 (waits up to 10m for a kind that the cluster lacks)" in told(life)
    assert "waits" not in told(Life(hold={OperationKind.PREPARE}).settle())


@ROW("U11", level="pure")
def test_U11_unhealthy_names_pod_code_node_rule_and_consequence():
    text = told(Life().runs().sees(running=1, failed=1))
    assert "why train-0 exited 1 on node-7 (default rule)" in text
    assert "next +60 failure grace: train-0 exited 1 on node-7" in text
    assert "if it is not healthy by then: reset (restart 1 of 3), then attempt 2" in text


@ROW("U11", level="pure")
def test_U11_unhealthy_with_nothing_left_says_that_it_will_fail():
    life = Life().runs()
    for _ in range(3):
        life.sees(failed=1, job_failed=True).after(seconds=90).sees(running=2)
    assert "the workload fails, since its restart budget is used up (3 of 3)" in told(life.sees(running=1, failed=1))


@ROW("U11", level="pure")
def test_U11_resetting_tells_the_way_to_the_next_attempt():
    life = Life(hold={OperationKind.REMOVE}).runs().sees(failed=1, job_failed=True)
    text = told(life)
    assert text.startswith("Resetting 1 -> 2")
    assert "now deleting attempt 1" in text
    assert "next +600 forceful deletion" in text
    assert "retry pause 1m30s, then attempt 2" in text


@ROW("U11", level="pure")
def test_U11_pausing_tells_when_the_next_attempt_comes_and_how_to_skip_it():
    text = told(Life().runs().sees(failed=1, job_failed=True).after(seconds=30))
    assert "next +60 retry pause" in text
    assert "unblock `holdfast retry default/train-llm` skips the pause" in text


@ROW("U11", level="pure")
def test_U11_a_foreign_finalizer_is_named_with_what_unblocks_it():
    life = Life(stubborn=True, undying=True, hold={OperationKind.FORCE_REMOVE}).runs().tell(Cancelled())
    life.finish()
    text = told(life.settle())
    assert "Pod train-0 (finalizer example.com/hold)" in text
    assert "whoever owns the finalizer example.com/hold must finish" in text


@ROW("U11", level="pure")
@pytest.mark.parametrize("bring", ["suspended", "succeeded", "running", "creating", "resumed"])
def test_U11_no_phase_is_left_without_a_reason(bring: str):
    life = Life(hold={OperationKind.CREATE} if bring == "creating" else set())
    match bring:
        case "suspended":
            life.runs().tell(Suspended())
        case "succeeded":
            life.runs().sees(succeeded=2, complete=True)
        case "running":
            life.runs()
        case "resumed":
            life.runs().tell(Suspended()).tell(Resumed())
        case _:
            life.settle()
    explanation = explain_of(life.spec, life.state, life.now)
    assert explanation.why
    assert explanation.now
    assert explanation.reason is not Reason.QUEUED
    assert explanation.name in markdown(explanation)


@ROW("U11", level="pure")
@pytest.mark.parametrize(
    ("wish", "follows"),
    [
        (Suspended(), "once all is gone: the workload's quota is released, and the workload waits for resume"),
        (Cancelled(), "once all is gone: the workload's quota is released, and the workload ends as Cancelled"),
        (None, "once all is gone: retry pause 1m30s, then attempt 2"),
    ],
)
def test_U11_a_removal_says_what_follows_its_proof(wish: Suspended | Cancelled | None, follows: str):
    life = Life(hold={OperationKind.REMOVE}).runs()
    text = told(life.tell(wish) if wish is not None else life.sees(failed=1, job_failed=True))
    assert "now deleting attempt 1" in text
    assert follows in text


@ROW("U11", level="pure")
def test_U11_a_forced_removal_says_so_and_when_it_is_told_again():
    life = Life(stubborn=True, undying=True, hold={OperationKind.FORCE_REMOVE}).runs().tell(Suspended())
    text = told(life)
    assert "now forcing out what is left of attempt 1: 1 object left" in text
    assert "next +30 Holdfast looks for what is left, and forces its deletion again" in text


@ROW("U11", level="pure")
def test_U11_what_is_held_says_what_contradicts_what_and_not_what_failed_before():
    life = Life(hold={OperationKind.OBSERVE}).runs().sees(running=1, failed=1).after(seconds=60)
    life.state = hold(life.state, "attempt 7 is there", 7, life.now)
    assert "why attempt 7 is there" in told(life.settle())


@ROW("U11", level="pure")
def test_U11_pods_that_are_late_say_where_to_look():
    life = Life().settle().sees(pending=2)
    assert "unblock see its pods' Events" in told(life.after(minutes=5))


def test_markdown_keeps_its_table_whole():
    life = Life().runs().tell(Suspended(note="a | b"))
    assert r"a \| b" in markdown(explain_of(life.spec, life.state, life.now))


def test_status_counts_pods_and_names_the_failure_once_failed():
    spec = workload()
    life = Life(spec=spec).runs()
    for _ in range(3):
        life.sees(failed=1, job_failed=True).after(seconds=90).sees(running=2)
    life.sees(failed=1, job_failed=True)
    status = status_of(spec, life.state, life.now, "uid")
    assert (status.phase, status.restarts, status.executions) == (Phase.FAILED, 3, 4)
    assert status.failure is not None
    assert status.failure.reason == "BackoffLimitExceeded"


def test_status_counts_the_copies_of_components_that_have_some():
    life = Life().runs()
    plain = status_of(life.spec, life.state, life.now, "uid")
    assert "copies" not in plain.model_dump(mode="json"), "what has none is told as ever"
    seen = life.state.observation
    assert seen is not None
    (name,) = seen.components
    counts = CopyCounts(expected=3, ready=1, succeeded=1, failed=1)
    views = {name: seen.components[name].model_copy(update={"copies": counts})}
    state = life.state.model_copy(update={"observation": seen.model_copy(update={"components": views})})
    told = status_of(life.spec, state, life.now, "uid")
    assert told.copies == {name: counts}
    assert Status.model_validate(told.model_dump(mode="json")) == told


@ROW("E7", level="pure")
@pytest.mark.parametrize(
    ("message", "unblock"),
    [
        ("spec.template.image: is required", "correct the file, then run `holdfast submit FILE --again`"),
        (
            "namespace research is not enabled for Holdfast: run `holdfast namespace enable research`",
            "enable the namespace, then run `holdfast retry default/train-llm`",
        ),
        (
            "this worker stages no data sets: its operator gives it a place for them (setting `data_directory`)",
            "have the worker's operator set what it lacks, then run `holdfast retry default/train-llm`",
        ),
        (
            "spec.components[0].template.kind: cluster dev does not serve Plan of example.com/v1: install what defines "
            "it, or submit with --allow-missing-kinds to wait until it is there",
            "install what defines that kind, then run `holdfast retry default/train-llm`",
        ),
    ],
)
def test_E7_after_a_refusal_the_file_is_corrected_or_what_it_needs_is_set_up(message: str, unblock: str):
    life = Life(hold={OperationKind.PREPARE}).settle()
    life.tell_result(OperationRefused(names.ERROR_REFUSED, message))
    life.settle()
    assert (life.ended, life.state.reason) == (Phase.FAILED, Reason.REFUSED)
    assert explain_of(life.spec, life.state, life.now).unblock == unblock
    first = unblock.partition(", then")[0]
    for spec, again in OTHERS:
        assert explain_of(spec, life.state, life.now).unblock == f"{first}, then {again}"


@ROW("E7", level="pure")
def test_E7_what_has_ended_and_another_run_would_be_a_stranger_to_is_not_to_be_retried():
    ended, kept = moment("failed"), moment("failed and kept")
    for spec, again in OTHERS:
        assert explain_of(spec, ended.state, ended.now).unblock == again
        assert "`holdfast retry " in explain_of(spec, kept.state, kept.now).unblock, "its own run can begin again"
    news = GraphNews(item="train", workload_uid="uid", outcome=Phase.FAILED, released=True)
    attempt = edit(kept.state.attempt, cleared=True) if kept.state.attempt is not None else None
    out = edit(kept.state, graph_told=news, attempt=attempt)
    spec, again = OTHERS[1]
    assert explain_of(spec, out, kept.now).unblock == again, "its graph counts it as ended"
