"""What a Job puts right by itself, or has left behind at its end, resets nothing (rows D22, D23)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from holdfast.formats import read
from holdfast.model import Cause, Reason, Workload
from holdfast.simulation import Simulation
from tests.e2e.ground.site import job
from tests.simulation.test_world import play, replicas, said

D22 = pytest.mark.row("D22", level="pure")
D23 = pytest.mark.row("D23", level="pure")
PREFIX = "workload.codeflare.dev.appwrapper/"
FAIL = "fail: {component: train}"
FOUR = ", ".join(f"{{at: {minute}m, {FAIL}}}" for minute in (1, 2, 3, 5))


def defaults(*components: dict[str, Any], **annotations: str) -> Workload:
    """An AppWrapper at the document's own defaults, but for these annotations."""
    document = {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": "train", "annotations": {PREFIX + key: value for key, value in annotations.items()}},
        "spec": {"components": list(components)},
    }
    (spec,) = read(yaml.safe_dump(document), cluster="simulated")
    return spec


def resets(told: Simulation) -> list[Cause]:
    return [one for one in told.causes if one.reason is Reason.RESETTING]


@D22
def test_D22_at_its_fourth_failure_a_job_of_the_default_back_off_limit_is_left_to_its_own_back_off() -> None:
    told = play(defaults(job(pods=1, backoffLimit=6)), f"[{FOUR}]", until="30m")
    assert (told.summary.phase, told.summary.restarts, told.summary.charged) == ("Running", 0, 0), said(told)


@D22
def test_D22_once_its_retries_are_used_up_the_job_fails_and_the_workload_is_reset_once() -> None:
    more = ", ".join(f"{{at: {minute}m, {FAIL}}}" for minute in (7, 12, 20))
    told = play(defaults(job(pods=1, backoffLimit=6)), f"[{FOUR}, {more}]", until="40m")
    assert (told.summary.phase, told.summary.restarts) == ("Running", 1), said(told)
    (reset,) = resets(told)
    assert "BackoffLimitExceeded" in reset.message


@D22
def test_D22_a_failure_grace_that_the_document_gives_itself_wins() -> None:
    spec = defaults(job(pods=1, backoffLimit=6), failureGracePeriodDuration="30s")
    told = play(spec, f"[{FOUR}]", until="4m10s")
    (reset,) = resets(told)
    assert str(reset.time)[11:19] == "00:03:30", "at its third failure, whose back-off is 40 s"


@D22
def test_D22_a_pod_of_another_component_that_nothing_replaces_is_not_hidden_by_a_jobs_back_off() -> None:
    spec = defaults(job(pods=1, backoffLimit=6), replicas("Deployment", 1))
    refused = "{at: 4m, podsRefused: {component: serve}}, {at: 5m5s, delete: {component: serve, pods: 1}}"
    told = play(spec, f"[{FOUR}, {refused}]", until="7m")
    (reset,) = resets(told)
    assert str(reset.time)[11:19] == "00:06:00", "one clock runs for all of it"
    assert "InsufficientPodsReady" in reset.message


@D23
def test_D23_failed_pods_that_a_complete_job_leaves_behind_reset_nothing() -> None:
    # A work queue: once one pod has succeeded the others are not replaced.
    spec = defaults(job(pods=3, completions=None, backoffLimit=6), replicas("Deployment", 2))
    told = play(
        spec, "[{at: 1m, fail: {component: train, pods: 2}}, {at: 61s, succeed: {component: train}}]", until="1h"
    )
    assert (told.summary.phase, told.summary.restarts) == ("Running", 0), said(told)
