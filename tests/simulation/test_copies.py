"""Copies of a component in the simulated cluster: each fails and goes by itself, and is judged with the others."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from holdfast import names
from holdfast.formats import read
from holdfast.model import Workload
from tests.e2e.ground.site import job
from tests.simulation.test_world import play, said


def workload(*rules: dict[str, Any], copies: int = 3, **policy: Any) -> Workload:
    document = {
        "apiVersion": names.API_VERSION,
        "kind": "Workload",
        "metadata": {"name": "train"},
        "spec": {
            "components": [
                {"name": "workers", **job("workers", 2), "copies": copies},
                {"name": "driver", **job("driver", 1)},
            ],
            "policy": {
                "timings": {"retryPausePeriod": "0s", "failureGracePeriod": "30s"},
                "rules": list(rules),
                "budgets": [{"name": "restart", "limit": 3}],
                "default": {"charge": "restart"},
                **policy,
            },
        },
    }
    (found,) = read(yaml.safe_dump(document), cluster="simulated")
    return found


def test_all_copies_run_and_end_as_one():
    told = play(workload(), "[{at: 1m, succeed: {pods: all}}]")
    assert (told.summary.outcome, told.summary.attempts) == ("Succeeded", 1)


def test_no_copies_are_no_hindrance():
    told = play(workload(copies=0), "[{at: 1m, succeed: {pods: all}}]")
    assert told.summary.outcome == "Succeeded"


def test_one_copy_that_gives_up_restarts_all():
    told = play(workload(), "[{at: 1m, componentFailed: {component: workers, reason: BackoffLimitExceeded}}]")
    assert any("Job workers-0 gives up" in text for _, text in said(told))
    assert told.summary.attempts == 2


def test_each_further_failure_is_another_copys():
    rule = {"name": "let", "match": {"components": ["workers"]}, "action": {"kind": "Ignore"}}
    event = "{component: workers, reason: BackoffLimitExceeded}"
    told = play(workload(rule), f"[{{at: 1m, componentFailed: {event}}}, {{at: 1m2s, componentFailed: {event}}}]")
    gave_up = [text for _, text in said(told) if "gives up" in text]
    assert [text.split()[1] for text in gave_up] == ["workers-0", "workers-1"]
    assert (told.summary.attempts, told.summary.restarts) == (1, 0)
    assert any("Job workers (3 copies) has failed for good" in text for _, text in said(told))


def test_one_copy_that_is_deleted_restarts_the_component_alone():
    rule = {"name": "alone", "match": {"components": ["workers"]}, "action": {"unit": "Component", "grace": False}}
    told = play(workload(rule), "[{at: 1m, delete: {component: workers}}]")
    assert any("Job workers-0 deleted by another client" in text for _, text in said(told))
    assert any("Job workers-0 is gone" in text for _, text in said(told))
    assert told.summary.attempts == 1


def test_a_refusal_names_a_copy():
    spec = workload()
    refuse = "[{at: 0s, refuse: {component: workers, reason: Invalid}}]"
    told = play(spec, refuse)
    assert any("workers-0" in text for _, text in said(told))


def test_J12_at_the_end_copies_that_have_ended_stay_and_active_ones_go():
    success = {"operator": "Any", "components": ["driver"]}
    lets_be = {"kind": "Ignore", "charge": None}
    spec = workload(success=success, deletion={"atEnd": "Active"}, default=lets_be)
    gives_up = "{at: 1m, componentFailed: {component: workers, reason: BackoffLimitExceeded}}"
    told = play(spec, f"[{gives_up}, {{at: 2m, succeed: {{component: driver, pods: all}}}}]")
    texts = [text for _, text in said(told)]
    assert any("deleting what is still active of Job workers (3 copies)" in text for text in texts), texts
    assert any("nothing of attempt 1 is active any more" in text for text in texts), texts
    assert told.summary.outcome == "Succeeded"


def test_a_rule_for_everything_without_a_grace_acts_on_the_pods_before_the_jobs_word():
    """Pods that a Job deletes as it gives up do not run any more; its own word comes once they are gone."""
    script = "[{at: 1m, componentFailed: {component: driver, reason: DeadlineExceeded}}]"
    first = [text for _, text in said(play(workload({"name": "any", "action": {"grace": False}}), script))]
    assert any("InsufficientPodsReady: 1 of 7 pods do not run (rule any)" in text for text in first)
    own = {"name": "own", "match": {"scopes": ["Component"]}, "action": {"grace": False}}
    first = [text for _, text in said(play(workload(own), script))]
    assert any("driver: DeadlineExceeded (rule own)" in text for text in first)


ALONE = {"name": "alone", "match": {"scopes": ["Component"], "components": ["workers"]}, "action": {"unit": "Member"}}
GIVES_UP = "componentFailed: {component: workers, reason: BackoffLimitExceeded}"


@pytest.mark.row("J23", level="pure")
def test_J23_the_copy_that_gave_up_is_made_again_and_no_other():
    told = play(workload(ALONE), f"[{{at: 1m, {GIVES_UP}}}, {{at: 10m, succeed: {{pods: all}}}}]")
    texts = [text for _, text in said(told)]
    assert any("Job workers-0 gives up" in text for text in texts)
    assert any("2 pods of Job workers (3 copies) do not run yet" in text for text in texts), "the other four run on"
    assert (told.summary.outcome, told.summary.attempts, told.summary.restarts) == ("Succeeded", 1, 1)
    assert [budget.used for budget in told.summary.budgets] == [1]


@pytest.mark.row("J23", level="pure")
def test_J23_each_copy_that_gives_up_charges_the_budget_until_it_is_used_up():
    often = ", ".join(f"{{at: {minute}m, {GIVES_UP}}}" for minute in (1, 3, 6, 9))
    told = play(workload(ALONE), f"[{often}]")
    assert (told.summary.outcome, told.summary.reason) == ("Failed", "RetryLimitExceeded")
    assert (told.summary.attempts, told.summary.restarts, told.summary.charged) == (1, 3, 3)


@pytest.mark.row("J23", level="pure")
def test_J23_copies_that_give_up_together_are_made_again_together():
    script = f"[{{at: 1m, {GIVES_UP}}}, {{at: 1m2s, {GIVES_UP}}}, {{at: 10m, succeed: {{pods: all}}}}]"
    told = play(workload(ALONE), script)
    assert any("4 pods of Job workers (3 copies) do not run yet" in text for _, text in said(told))
    found = (told.summary.outcome, told.summary.attempts, told.summary.restarts, told.summary.replacements)
    assert found == ("Succeeded", 1, 2, 1)


@pytest.mark.row("J23", level="pure")
def test_J23_a_copy_is_made_again_alone_in_a_later_attempt_too():
    script = f"[{{at: 1m, {GIVES_UP}}}, {{at: 5m, componentFailed: {{component: driver}}}}, {{at: 9m, {GIVES_UP}}}]"
    told = play(workload(ALONE, budgets=[{"name": "restart", "limit": 9}]), script)
    assert (told.summary.attempts, told.summary.restarts, told.summary.replacements) == (2, 3, 2)
    assert told.summary.phase == "Running"


@pytest.mark.row("J23", level="pure")
@pytest.mark.parametrize(("limit", "outcome"), [(2, "Succeeded"), (1, "Failed")])
def test_J23_each_copy_charges_its_components_own_budget(limit: int, outcome: str):
    rule = {**ALONE, "action": {"unit": "Member", "charge": "member"}}
    budgets = [{"name": "restart", "limit": 0}, {"name": "member", "limit": limit, "scope": "Member"}]
    script = f"[{{at: 1m, {GIVES_UP}}}, {{at: 1m2s, {GIVES_UP}}}, {{at: 10m, succeed: {{pods: all}}}}]"
    told = play(workload(rule, budgets=budgets), script)
    assert told.summary.outcome == outcome
