"""What is expected of a Deployment whose pods start slowly, and that others evict, scale and roll out (row D14)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from holdfast.formats import read
from holdfast.model import Reason
from holdfast.simulation import Simulation
from tests.simulation.test_world import play, replicas, said

D14 = pytest.mark.row("D14", level="pure")
SLOW = {"start": "90s"}
EVICTED = "{every: 40h, times: 70, delete: {component: serve, pods: 1}}"


def lives(
    *events: str, until: str = "120d", pods: dict[str, Any] = SLOW, one: dict[str, Any] | None = None
) -> Simulation:
    document = {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": "serve"},
        "spec": {"components": [one or replicas("Deployment", 20)]},
    }
    (spec,) = read(yaml.safe_dump(document), cluster="simulated")
    return play(spec, f"[{', '.join(events)}]", pods=pods, until=until)


@D14
def test_D14_evictions_over_120_days_reset_nothing_though_each_pod_takes_90_s_to_start() -> None:
    told = lives(EVICTED)
    assert (told.summary.phase, told.summary.attempts, told.summary.restarts) == ("Running", 1, 0), said(told)[-8:]


@D14
def test_D14_failed_evicted_pods_that_are_replaced_slowly_reset_nothing_either() -> None:
    told = lives("{every: 40h, times: 70, fail: {component: serve, podReason: Evicted}}")
    assert (told.summary.phase, told.summary.attempts, told.summary.restarts) == ("Running", 1, 0), said(told)[-8:]


@D14
def test_D14_a_pod_that_takes_five_minutes_to_end_resets_nothing_though_none_is_made_before_it_is_gone() -> None:
    one = replicas("StatefulSet", 3)
    one["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 300
    told = lives(EVICTED, pods={"stop": "295s"}, one=one)
    assert (told.summary.phase, told.summary.attempts, told.summary.restarts) == ("Running", 1, 0), said(told)[-8:]


@D14
def test_D14_scaled_down_rolled_out_and_autoscaled_within_its_declared_count_it_is_never_reset() -> None:
    down = "{every: 240h, times: 11, scale: {component: serve, replicas: 5}}"
    up = "{every: 250h, times: 11, scale: {component: serve, replicas: 17}}"
    rolled = "{every: 100h, times: 28, rollOut: {component: serve}}"
    told = lives(EVICTED, down, up, rolled)
    assert (told.summary.phase, told.summary.attempts, told.summary.restarts) == ("Running", 1, 0), said(told)[-8:]


@D14
def test_D14_a_replacement_that_never_runs_has_its_warm_up_then_the_failure_grace_and_no_more() -> None:
    told = lives("{at: 1h, unschedulable: {}}", "{at: 2h, delete: {component: serve, pods: 1}}", until="2h6m30s")
    (reset,) = (one for one in told.causes if one.reason is Reason.RESETTING)
    assert (str(reset.time)[11:19], "InsufficientPodsReady" in reset.message) == ("02:06:00", True), said(told)


@D14
def test_D14_a_pod_that_its_controller_cannot_make_again_has_the_failure_grace_alone() -> None:
    told = lives("{at: 1h, podsRefused: {}}", "{at: 2h, delete: {component: serve, pods: 1}}", until="2h1m30s")
    (reset,) = (one for one in told.causes if one.reason is Reason.RESETTING)
    # The deleted pod takes 5 s to end.
    assert (str(reset.time)[11:19], "InsufficientPodsReady" in reset.message) == ("02:01:05", True), said(told)


@D14
def test_D14_scaled_to_0_it_is_held_and_never_succeeds_until_it_is_scaled_up_again() -> None:
    zero = "{at: 1h, scale: {component: serve, replicas: 0}}"
    told = lives(zero, until="100d")
    assert (told.summary.phase, told.summary.reason) == ("Pending", "Held"), said(told)
    assert (told.summary.attempts, told.summary.restarts) == (1, 0)
    assert any("Deployment serve is scaled to 0" in text for _, text in said(told)), said(told)
    told = lives(zero, "{at: 50h, scale: {component: serve, replicas: 20}}", until="100d")
    assert (told.summary.phase, told.summary.reason) == ("Running", "SufficientPodsReady"), said(told)
    assert (told.summary.attempts, told.summary.restarts) == (1, 0)


@D14
@pytest.mark.row("F11", level="pure")
@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_F11_of_0_replicas_from_the_beginning_it_is_held_and_runs_once_it_is_scaled_up(kind: str) -> None:
    up = "{at: 50h, scale: {component: serve, replicas: 2}}"
    told = lives(until="40h", one=replicas(kind, 0))
    assert (told.summary.phase, told.summary.reason, told.summary.attempts) == ("Pending", "Held", 1), said(told)
    assert any(f"{kind} serve is scaled to 0" in text for _, text in said(told)), said(told)
    told = lives(up, until="100h", one=replicas(kind, 0))
    assert (told.summary.phase, told.summary.attempts, told.summary.restarts) == ("Running", 1, 0), said(told)
