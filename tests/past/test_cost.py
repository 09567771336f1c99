"""What another policy would have cost: compared with the life that really goes by that policy (row P6)."""

from __future__ import annotations

import pytest

from holdfast.model import Workload
from holdfast.model.life.ledger import Bucket
from holdfast.past.ledger import end_of, ledger_of
from holdfast.past.other import compared
from holdfast.past.policies import with_settings
from tests.past.recorded import NAMES, story
from tests.past.test_simulated_lives import document, lived, script
from tests.simulation.cases import CASES, Case


def other(spec: Workload, **settings: str) -> Workload:
    return spec.model_copy(update={"policy": with_settings(spec.policy, dict(settings), spec)})


@pytest.mark.row("P6", level="pure")
@pytest.mark.parametrize("name", NAMES)
async def test_P6_the_policy_in_force_costs_what_happened(name: str):
    lived = await story(name)
    ledger = ledger_of(lived, end_of(lived))
    result = compared(lived, lived.spec.policy).costs
    assert result.other == result.real
    assert result.known_until is None
    assert result.real.milliseconds == ledger.milliseconds
    assert result.real.attempts == ledger.executions
    assert result.real.to_end == ledger.age


@pytest.mark.row("P6", level="pure")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_P6_the_policy_in_force_costs_what_happened_in_simulated_lives(case: Case):
    real = lived(case.workload(), script(case.name))
    result = compared(real, real.spec.policy).costs
    assert result.other == result.real
    assert result.real.milliseconds == ledger_of(real, end_of(real)).milliseconds


@pytest.mark.row("P6", level="pure")
@pytest.mark.parametrize(
    ("case", "settings"),
    [
        ("failed-pod-reset", {"failureGracePeriod": "10s"}),
        ("failed-pod-reset", {"failureGracePeriod": "5m"}),
        ("failed-pod-reset", {"retryPausePeriod": "10s"}),
        ("failed-pod-reset", {"retryPausePeriod": "10m"}),
        ("failed-pod-reset", {"failureGracePeriod": "2m", "retryPausePeriod": "1s"}),
        ("failed-pod-reset", {"retryLimit": "0"}),
        ("failed-pod-reset", {"retryLimit": "0", "failureGracePeriod": "10s"}),
        ("failed-pod-reset", {"retryLimit": "0", "failureGracePeriod": "5m"}),
        ("retry-limit-exceeded", {"retryLimit": "1"}),
        ("retry-limit-exceeded", {"failureGracePeriod": "0s", "retryPausePeriod": "1s"}),
    ],
)
def test_P6_another_policy_costs_what_a_life_under_it_costs(case: str, settings: dict[str, str]):
    """The simulated cluster takes as long as it did, so the answer can be compared with what then happens."""
    spec = document("pods")
    real = lived(spec, script(case))
    really = lived(other(spec, **settings), script(case))
    ledger = ledger_of(really, end_of(really))
    result = compared(real, really.spec.policy).costs
    assert result.known_until is None
    assert result.other.milliseconds == ledger.milliseconds
    assert result.other.attempts == ledger.executions
    assert result.other.to_end == ledger.age


@pytest.mark.row("P6", level="pure")
def test_P6_pods_that_are_late_to_the_other_policy_alone_are_detected_by_it():
    real = lived(document("pods"), script("warmup-grace"))
    result = compared(real, other(real.spec, warmupGracePeriod="2m").policy).costs
    assert result.known_until is None
    assert {bucket: time / 1000 for bucket, time in result.other.milliseconds.items() if time} == {
        Bucket.STARTING: 120 + 10,
        Bucket.DETECTING: 60,
        Bucket.PAUSING: 90,
        Bucket.PRODUCTIVE: 60,
        Bucket.REMOVING: 5,
    }


@pytest.mark.row("P6", level="pure")
@pytest.mark.parametrize(
    ("case", "settings", "until"),
    [
        ("retry-limit-exceeded", {"retryLimit": "9"}, 685),
        ("warmup-grace", {"warmupGracePeriod": "20m"}, 360),
    ],
)
def test_P6_what_the_other_policy_would_have_met_later_is_not_guessed(case: str, settings: dict[str, str], until: int):
    """It restarts where reality failed; to it pods are not late yet: both are counted up to there."""
    real = lived(document("pods"), script(case))
    result = compared(real, other(real.spec, **settings).policy).costs
    assert result.known_until is not None
    assert (result.known_until - real.runs[0].began_at).total_seconds() == until
    assert result.other.to_end is None
    assert result.real.to_end == ledger_of(real, end_of(real)).age
    assert result.other.milliseconds == result.real.milliseconds
    assert sum(result.real.milliseconds.values()) == until * 1000


@pytest.mark.row("P6", level="pure")
def test_P6_hours_in_which_pods_and_their_devices_bring_nothing_are_compared():
    spec = document("pods", **{"command: [train]": "command: [train], resources: {limits: {nvidia.com/gpu: 4}}"})
    real = lived(spec, script("failed-pod-reset"))
    result = compared(real, other(spec, failureGracePeriod="10s").policy).costs
    assert result.real.idle_hours == {"pods": 145 * 2 / 3600, "nvidia.com/gpu": 145 * 8 / 3600}
    assert result.other.idle_hours == {"pods": 95 * 2 / 3600, "nvidia.com/gpu": 95 * 8 / 3600}
