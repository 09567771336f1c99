"""What `doctor` says of Kueue's settings beside Holdfast's own (rows F6, F9). Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.cli.front_door import kueue, longest_reset
from holdfast.model import Timings
from holdfast.profiles.appwrapper import POLICY

ROW = pytest.mark.row
INTEGRATIONS = {
    "frameworks": ["batch/job", "workload.codeflare.dev/appwrapper"],
    "externalFrameworks": ["Attempt.v1.holdfast.dev"],
}


@ROW("F9", level="pure")
@pytest.mark.parametrize(
    ("waits", "good", "says"),
    [
        ({}, True, "evicts what is not ready again within 30m; a reset by the defaults may take 18m30s"),
        ({"recoveryTimeout": "18m30s"}, False, "within 18m30s, but a reset by the defaults may take 18m30s"),
        ({"recoveryTimeout": "5m"}, False, "it is evicted in the middle"),
        ({"recoveryTimeout": "soon"}, False, "waitForPodsReady.recoveryTimeout: 'soon' is not a duration"),
    ],
)
def test_F9_kueues_recovery_is_compared_with_the_longest_reset(waits: dict[str, Any], *, good: bool, says: str) -> None:
    config = {"integrations": INTEGRATIONS, "waitForPodsReady": {"timeout": "5m", **waits}}
    _, recovery = kueue(config, {"the defaults": POLICY})
    assert recovery.good is good
    assert says in recovery.found
    assert recovery.warns or recovery.unknown or good, "it works, and somebody should look at it"


@ROW("F9", level="pure")
def test_F9_the_worst_of_those_that_live_is_named_and_without_a_wait_nothing_is_said() -> None:
    timings = Timings(**{**POLICY.timings.model_dump(by_alias=False), "warmup_grace_period": timedelta(hours=1)})
    slow = POLICY.model_copy(update={"timings": timings})
    assert longest_reset(slow) == timedelta(hours=1, minutes=13, seconds=30)
    policies = {"the defaults": POLICY, "team/slow": slow}
    _, recovery = kueue({"integrations": INTEGRATIONS, "waitForPodsReady": {"enable": True}}, policies)
    assert "a reset by team/slow may take 1h13m30s" in recovery.found
    for waits in (None, {"enable": False}):
        assert len(list(kueue({"integrations": INTEGRATIONS, "waitForPodsReady": waits}, policies))) == 1


@ROW("F6", level="pure")
@pytest.mark.parametrize("left_out", ["frameworks", "externalFrameworks", ""])
def test_F6_what_kueue_lacks_to_tell_an_attempt_is_named(left_out: str) -> None:
    integrations = {name: those for name, those in INTEGRATIONS.items() if name != left_out}
    (told,) = kueue({"integrations": integrations}, {"the defaults": POLICY})
    assert told.good is (not left_out)
    assert left_out in told.remedy
