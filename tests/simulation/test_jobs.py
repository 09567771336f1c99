"""What a Job does about its pods in a simulation: the Job controller's own rules (row D50). Pure.

`tests/e2e/status/test_simulated_jobs.py` holds the same rules against the real controller.
"""

from __future__ import annotations

from datetime import timedelta
from importlib import resources
from typing import Any

import pytest
import yaml

from holdfast.formats import read
from holdfast.model import Phase, Progress, Workload
from holdfast.simulation import Simulation
from tests.e2e.ground.site import job
from tests.simulation.test_world import play, said, workload

D50 = pytest.mark.row("D50", level="pure")
ONCE = {"failureGracePeriodDuration": "1h", "retryLimit": "0"}
"""A grace in which the Job's own controller has all the time it needs, and no second attempt."""
INDEXED: dict[str, Any] = {"completionMode": "Indexed"}


def spec_of(pods: int = 1, policy: str = "Never", pod: dict[str, Any] | None = None, **spec: Any) -> Any:
    limit: dict[str, Any] = {} if "backoffLimitPerIndex" in spec else {"backoffLimit": 6}
    component = job(pods=pods, **(limit | spec))
    if "backoffLimitPerIndex" in spec:
        del component["template"]["spec"]["backoffLimit"]
    component["template"]["spec"]["template"]["spec"] |= {"restartPolicy": policy, **(pod or {})}
    return workload(component, **ONCE)


def fails(simulation: Simulation) -> list[tuple[str, str]]:
    """Return when the Job says of itself that it has failed, and why."""
    return [(at, text.rpartition(": ")[2]) for at, text in said(simulation) if "says it has failed" in text]


def policy(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"podFailurePolicy": {"rules": list(rules)}}


def codes(action: str, *values: int, operator: str = "In", **more: Any) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values), **more}}


DISRUPTED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}


@D50
def test_D50_a_pod_failure_policy_fails_the_job_at_once():
    told = play(spec_of(pods=2, **policy(codes("FailJob", 42))), "[{at: 5m, fail: {exitCode: 42}}]")
    assert fails(told) == [("0:05:05", "PodFailurePolicy")], "once its other pod is gone"
    other = play(spec_of(pods=2, **policy(codes("FailJob", 42))), "[{at: 5m, fail: {exitCode: 1}}]")
    assert fails(other) == []
    assert other.summary.phase == "Running", "it has a back-off limit of 6"


def test_the_time_for_which_it_was_kept_as_failed_is_told_apart_from_what_follows_a_retry():
    kept = workload(job(), **ONCE, deletionOnFailureGracePeriodDuration="2h")
    told = play(kept, "[{at: 10m, fail: {}}, {at: 1h40m, retry: {}}]")
    phases = told.summary.phases
    assert phases[Phase.FAILED] > timedelta(minutes=20), "a Job has an hour to replace its pod"
    assert sum(phases.values(), timedelta()) == told.summary.ended_at
    assert phases.get(Phase.RESETTING, timedelta()) < timedelta(minutes=1)


@D50
def test_D50_an_ignored_failure_is_not_counted_and_still_backs_off():
    events = "[{every: 2m, times: 5, fail: {disruption: EvictionByEvictionAPI}}]"
    told = play(spec_of(backoffLimit=1, **policy(DISRUPTED)), events)
    assert fails(told) == []
    assert [at for at, text in said(told) if text.startswith("healthy again")][:2] == ["0:02:10", "0:04:20"]
    assert fails(play(spec_of(backoffLimit=1), events)) == [("0:04:00", "BackoffLimitExceeded")]


@D50
def test_D50_the_first_rule_that_matches_decides_by_container_and_operator():
    named = codes("FailJob", 0, operator="NotIn", containerName="main")
    told = play(
        spec_of(**policy(codes("Count", 3), codes("Ignore", 4, containerName="other"), named)),
        """
      - {at: 5m, fail: {exitCode: 3}}
      - {at: 7m, fail: {exitCode: 4}}
    """,
    )
    assert fails(told) == [("0:07:00", "PodFailurePolicy")]


@D50
def test_D50_the_deadline_of_a_job_counts_from_its_start_and_ends_it():
    told = play(spec_of(activeDeadlineSeconds=600), "[]")
    assert fails(told) == [("0:10:05", "DeadlineExceeded")], "and five seconds until its pods are gone"
    assert fails(play(spec_of(activeDeadlineSeconds=600), "[{at: 9m, succeed: {}}]")) == []


@D50
def test_D50_pods_that_restart_on_failure_do_not_fail_and_their_restarts_are_limited():
    one = play(spec_of(policy="OnFailure"), "[{at: 5m, fail: {}}]")
    assert one.entries[-1].text.endswith("the kubelet starts it again in place, so that the pod has not failed")
    assert (one.summary.phase, fails(one)) == ("Running", [])
    many = play(spec_of(policy="OnFailure", backoffLimit=3), "[{every: 2m, times: 9, fail: {}}]")
    assert fails(many) == [("0:06:25", "BackoffLimitExceeded")], "the third restart after a back-off of 20 s, and 5 s"
    none = play(spec_of(policy="OnFailure", backoffLimit=0), "[{every: 2m, times: 9, fail: {}}]")
    assert fails(none) == [("0:02:05", "BackoffLimitExceeded")]
    evicted = play(spec_of(policy="OnFailure", backoffLimit=0), "[{at: 2m, fail: {podReason: Evicted}}]")
    assert fails(evicted) == [("0:02:00", "BackoffLimitExceeded")], "what was evicted has failed"


@D50
def test_D50_what_restarts_runs_its_time_anew():
    told = play(spec_of(policy="OnFailure"), "[{at: 30m, fail: {}}]", pods={"run": "1h"})
    assert (str(told.summary.running), told.summary.outcome) == ("1:29:50", "Succeeded")


@D50
def test_D50_an_init_container_that_restarts_counts_as_its_pod_does():
    told = play(spec_of(policy="OnFailure", backoffLimit=2), "[{at: 0s, launchFails: {reason: InitError}}]")
    assert [why for _, why in fails(told)] == ["BackoffLimitExceeded"]


@D50
def test_D50_a_back_off_limit_per_index_gives_up_indexes_one_by_one():
    spec = spec_of(pods=3, backoffLimitPerIndex=1, **INDEXED)
    told = play(spec, "[{at: 2m, fail: {}}, {at: 4m, succeed: {}}]", pods={})
    assert fails(told) == [], "its second try succeeds"
    assert told.summary.outcome == "Succeeded"
    again = play(spec, "[{at: 2m, fail: {}}, {at: 4m, fail: {pods: 3}}, {at: 6m, succeed: {}}]")
    assert fails(again) == [("0:06:00", "FailedIndexes")], "index 0 has failed for good, the others were tried again"
    most = play(spec_of(pods=3, backoffLimitPerIndex=0, maxFailedIndexes=1, **INDEXED), "[{at: 2m, fail: {pods: 2}}]")
    assert fails(most) == [("0:02:05", "MaxFailedIndexesExceeded")]
    one = play(
        spec_of(pods=2, backoffLimitPerIndex=5, **INDEXED, **policy(codes("FailIndex", 42))),
        "[{at: 2m, fail: {exitCode: 42}}, {at: 3m, succeed: {}}]",
    )
    assert fails(one) == [("0:03:00", "FailedIndexes")]


@D50
def test_D50_indexes_that_wait_keep_their_place():
    spec = spec_of(pods=1, completions=3, backoffLimitPerIndex=3, **INDEXED)
    told = play(spec, "[{at: 1m, fail: {}}]", pods={"run": "5m"})
    assert str(told.summary.running) == "0:16:30", "index 1 does not run in the ten seconds in which index 0 waits"
    assert told.summary.outcome == "Succeeded"


@D50
def test_D50_only_failed_pods_are_replaced_where_the_job_says_so():
    events = "[{at: 2m, delete: {component: train, pods: 1}}]"

    def healed(**spec: Any) -> list[str]:
        told = play(spec_of(**spec), events, pods={"stop": "1m"})
        return [at for at, text in said(told) if text.startswith("healthy again")]

    assert healed() == ["0:02:10"]
    assert healed(podReplacementPolicy="Failed") == ["0:03:10"], "once the old one is gone"
    assert healed(**policy(DISRUPTED)) == ["0:03:10"]


@D50
def test_D50_a_failure_of_one_that_always_restarts_and_of_one_that_never_does():
    component = {
        "template": {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "serve"},
            "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "main", "image": "e/s:1"}]}}},
        }
    }
    told = play(workload(component, job(pods=1, backoffLimit=6), **ONCE), "[{at: 5m, fail: {pods: all}}]")
    (event,) = [text for at, text in said(told) if at == "0:05:00" and "; the kubelet" in text]
    assert "the kubelet starts serve-0 again in place" in event
    assert [at for at, text in said(told) if text.startswith("healthy again")] == ["0:05:10"], "of the Job alone"


def gang(**size: int) -> Workload:
    text = (resources.files("holdfast.cli.common") / "examples" / "gang.yaml").read_text()
    document = yaml.safe_load(text)
    document["spec"]["gang"] |= size
    (spec,) = read(yaml.safe_dump(document), cluster="simulated")
    return spec


@D50
def test_D50_a_gangs_job_has_its_pods_none_restarts_in_place_and_it_replaces_them_without_limit():
    told = play(gang(), "[{at: 5m, fail: {exitCode: 1}}]", pods={"run": "30m"})
    assert ("0:00:10", "attempt 1 runs") in said(told)
    assert ("0:05:00", "train-0 exited 1") in said(told), "its pod has failed, and another one runs in its place"
    assert (told.summary.outcome, str(told.summary.running)) == ("Succeeded", "0:35:10")
    all_of_them = play(gang(min=1, max=3, spares=2), "[{at: 5m, fail: {pods: all}}]", pods={"run": "30m"}, until="6m")
    assert ("0:05:00", "train-0, train-1 and 3 more exited 1") in said(all_of_them)
    often = play(gang(), "[{every: 10m, times: 9, fail: {}}]", until="2h")
    assert (often.summary.phase, fails(often)) == ("Running", [])


@D50
def test_D50_a_gangs_job_without_a_pod_template_is_simulated_too():
    spec = gang()
    odd = spec.components[0].model_copy(update={"template": {**spec.components[0].template, "spec": None}})
    told = play(spec.model_copy(update={"components": (odd,)}), "[]", until="1h")
    assert told.summary.phase == "Running"


@D50
def test_D50_what_is_not_simulated_is_said():
    assert play(spec_of(), "[{at: 1h, succeed: {}}]").left_out == ()
    rules = {"rules": [{"succeededIndexes": "0"}]}
    told = play(spec_of(successPolicy=rules, pod={"activeDeadlineSeconds": 60}, **INDEXED), "[]").left_out
    assert [one.partition(": ")[2].partition(":")[0] for one in told] == [
        "spec.successPolicy",
        "template.spec.template.spec.activeDeadlineSeconds",
    ]
    progress = spec_of().model_copy(update={"progress": Progress()})
    assert [one.partition(":")[0] for one in play(progress, "[]").left_out] == ["progress"]
    assert [one.partition(":")[0] for one in play(gang(), "[]").left_out] == ["the gang"]
