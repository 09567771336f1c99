"""The simulated cluster does what Kubernetes' controllers, nodes and quotas would, as far as a policy sees it."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml

from holdfast.formats import read
from holdfast.model import Workload
from holdfast.simulation import Simulation, read_script, simulate
from holdfast.simulation.script.read import HAPPENINGS
from tests.e2e.ground.site import appwrapper, job
from tests.e2e.ground.space import pod
from tests.e2e.lives.streams import pes, streams

NOTHING = dict.fromkeys(("warmupGracePeriodDuration", "admissionGracePeriodDuration"), "20s")


def workload(*components: dict[str, Any], **annotations: str) -> Workload:
    document = yaml.safe_dump(appwrapper("train", *components, **annotations))
    (found,) = read(document, cluster="simulated")
    return found


def play(spec: Workload, events: str, **script: Any) -> Simulation:
    told = read_script(yaml.safe_dump({**script, "events": yaml.safe_load(events)}))
    assert told.problems(spec) == []
    return simulate(spec, told)


def said(simulation: Simulation) -> list[tuple[str, str]]:
    return [(str(one.at), one.text) for one in simulation.entries]


def replicas(kind: str, count: int, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "image": "example.com/serve:1"}]}}
    return {
        "template": {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": "serve"},
            "spec": {"replicas": count, "selector": {}, "template": template, **spec},
        }
    }


def test_a_job_replaces_failed_pods_after_a_doubled_back_off_until_its_limit():
    spec = workload(job(backoffLimit=2), failureGracePeriodDuration="1h", retryLimit="0")
    told = play(spec, "[{at: 1m, fail: {}}, {at: 2m, fail: {}}, {at: 3m, fail: {}}]")
    healed = [at for at, text in said(told) if text.startswith("healthy again")]
    assert healed == ["0:01:10", "0:02:20"], "replaced after 10 and 20 seconds, and starting since (row D14)"
    assert ("0:03:05", "Job train says it has failed: BackoffLimitExceeded") in said(told)
    assert told.summary.reason == "RetryLimitExceeded"


def test_a_job_of_more_completions_than_pods_goes_on_in_waves():
    told = play(workload(job(pods=2, completions=6)), "[]", pods={"run": "1h"})
    assert told.summary.outcome == "Succeeded"
    assert str(told.summary.running) == "3:00:20", "two more waves had to be scheduled and started"
    assert told.summary.restarts == 0


@pytest.mark.row("A15", level="pure")
def test_A15_a_pod_of_the_second_wave_ends_with_a_terminal_exit_code():
    spec = workload(job(pods=1, completions=3, backoffLimit=6), terminalExitCodes="3")
    told = play(spec, "[{at: 5m, succeed: {}}, {at: 6m, fail: {exitCode: 3}}]")
    assert told.summary.outcome == "Failed"
    assert told.summary.restarts == 0


@pytest.mark.row("A18", level="pure")
def test_A18_a_pod_replaced_in_an_earlier_wave_fails_nobody_in_a_later_one():
    spec = workload(job(pods=1, completions=4, backoffLimit=6), failureGracePeriodDuration="1m")
    events = ", ".join(f"{{at: {minute}m, succeed: {{}}}}" for minute in (4, 6, 8, 10))
    told = play(spec, f"[{{at: 2m, fail: {{exitCode: 1}}}}, {events}]")
    assert (told.summary.outcome, told.summary.restarts) == ("Succeeded", 0)
    assert len([at for at, text in said(told) if text.startswith("failure grace")]) == 1, said(told)


def test_a_stateful_set_starts_its_pods_in_order_and_brings_one_back_under_its_name():
    spec = workload(replicas("StatefulSet", 3), failureGracePeriodDuration="1m")
    told = play(spec, "[{at: 5m, fail: {podReason: Evicted}}]")
    assert ("0:00:30", "attempt 1 runs") in said(told)
    assert ("0:05:00", "warm-up grace: 1 of 3 pods are starting again") in said(told), said(told)
    assert (told.summary.phase, told.summary.restarts) == ("Running", 0)


def test_what_a_kubelet_starts_again_in_place_has_not_failed():
    told = play(workload(replicas("Deployment", 2)), "[{at: 5m, fail: {exitCode: 137}}]")
    assert told.entries[-1].text.endswith("the kubelet starts it again in place, so that the pod has not failed")
    assert told.summary.phase == "Running"


def test_pods_of_a_silent_node_are_evicted_and_forced_and_the_node_is_not_used():
    spec = workload(pod("one"), pod("two"), **NOTHING)
    told = play(spec, "[{at: 1m, nodeLost: {node: node-1}}]", nodes=2)
    assert ("0:06:40", "one is deleted, since node-1 does not answer") in said(told)
    gone = [text for _, text in said(told) if text.startswith("attempt 1 is gone from")]
    assert len(gone) == 1
    assert gone[0].startswith("attempt 1 is gone from the API; it may still run on node-1 until that node is")
    assert (told.summary.phase, told.summary.restarts) == ("Running", 1)


def test_a_node_that_comes_back_soon_changes_nothing():
    told = play(workload(pod("one"), **NOTHING), "[{at: 1m, nodeLost: {node: node-1, for: 2m}}]")
    assert (told.summary.phase, told.summary.restarts) == ("Running", 0)


def test_a_refusal_is_borne_for_the_admission_grace_and_charged():
    told = play(workload(job()), "[{at: 0s, refuse: {component: train, for: 30s}}]")
    assert [one.restarts for one in [told.summary]] == [1]
    assert told.causes[0].reason == "SubmissionFailed"
    assert str(told.causes[0].time)[11:19] == "00:00:20"


def test_a_refusal_that_passes_in_time_is_no_failure():
    told = play(workload(job()), "[{at: 0s, refuse: {component: train, for: 15s}}]")
    assert (told.summary.phase, told.summary.restarts) == ("Running", 0)


def test_a_final_refusal_fails_it_at_once():
    told = play(workload(job()), "[{at: 0s, refuse: {reason: Invalid}}]")
    assert (told.summary.outcome, told.summary.reason) == ("Failed", "CreateFailed")


def test_a_finalizer_outlives_force_until_it_goes():
    spec = workload(pod("one"))
    told = play(spec, "[{at: 1m, stuck: {finalizer: example.com/hold, for: 10m}}, {at: 2m, suspend: }]")
    assert (
        "0:02:05",
        "forcing the deletion of what is left: Pod one (finalizer example.com/hold); Attempt owner-1",
    ) in [(at, text) for at, text in said(told)], said(told)
    assert ("0:11:00", "attempt 1 is proven gone") in said(told)
    assert told.summary.phase == "Suspended"


def test_pods_made_again_alone_are_replacements_and_no_restarts():
    (found,) = read(streams(*pes(2, reads="")), cluster="simulated")
    told = play(found, "[{at: 1m, fail: {component: pe-0}}, {every: 10m, times: 2, delete: {component: pe-1}}]")
    assert (told.summary.replacements, told.summary.restarts, told.summary.attempts) == (3, 0, 1)
    assert told.summary.phase == "Running"


def test_an_unlimited_budget_and_endless_failures_end_with_the_script():
    spec = workload(pod("one"), retryLimit="1000000", failureGracePeriodDuration="0s", retryPausePeriodDuration="0s")
    told = play(spec, "[{attempt: each, at: 1s, fail: {}}]", until="30d")
    assert told.truncated


EXAMPLES = {
    "fail": {"pods": "all"},
    "succeed": {"pods": 1},
    "nodeLost": {"node": "node-1", "for": "2m"},
    "unschedulable": {"for": "20m"},
    "podsRefused": {"for": "3m"},
    "refuse": {"for": "3m"},
    "scale": {"component": "serve", "replicas": 1},
    "rollOut": {"component": "serve"},
    "delete": {"component": "train"},
    "componentFailed": {"component": "train"},
    "blind": {"for": "4m"},
    "stuck": {"finalizer": "example.com/hold", "for": "30m"},
    "nodeBroken": {"node": "node-1", "for": "10m"},
    "launchFails": {"for": "10m"},
    "probeFails": {"pods": "all", "for": "10m"},
    "extend": {"by": "1h"},
    "requeue": {"node": "node-1"},
    **{name: {} for name in ("suspend", "resume", "preempt", "checkpoint", "cancel", "retry")},
}


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_script_says_it_comes_to_rest_and_does_so_again(seed: int):
    assert EXAMPLES.keys() == HAPPENINGS.keys()
    chance = random.Random(seed)
    names = chance.choices(sorted(set(EXAMPLES) - {"cancel"}), k=6)
    events = [{"at": f"{chance.randrange(3600)}s", name: EXAMPLES[name]} for name in names]
    serve = replicas("Deployment", 3)
    spec = workload(job(backoffLimit=chance.randrange(3)), pod("lone"), serve, failureGracePeriodDuration="30s")
    script = read_script(yaml.safe_dump({"events": [*events, {"at": "5h", "cancel": {}}]}))
    first = simulate(spec, script)
    assert first == simulate(spec, script)
    assert first.summary.finished, said(first)
    assert first.summary.charged <= 3
    assert [one.at for one in first.entries] == sorted(one.at for one in first.entries)
