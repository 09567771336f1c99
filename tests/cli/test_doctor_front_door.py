"""What `doctor` says of Kueue's settings beside Holdfast's own (rows F6, F9). Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.cli.cluster.front_door import kueue, longest_reset, stranded
from holdfast.model import Timings
from holdfast.profiles.appwrapper import POLICY

ROW = pytest.mark.row
VERSION = "config.kueue.x-k8s.io/v1beta2"
APPWRAPPERS = {"workload.codeflare.dev/appwrapper": True}
INTEGRATIONS = {
    "frameworks": ["batch/job", "workload.codeflare.dev/appwrapper"],
    "externalFrameworks": ["Attempt.v1.holdfast.dev"],
}


@ROW("F9", level="pure")
@pytest.mark.parametrize(
    ("waits", "warns", "says"),
    [
        (None, False, "evicts what is not ready again within 30m; a reset of the defaults may take 18m30s"),
        ({"enable": True}, False, "within 30m"),
        (
            {"timeout": "5m"},
            True,
            "within 5m, and a reset of the defaults may take 18m30s: it is evicted",
        ),
        ({"timeout": "5m", "recoveryTimeout": "20m"}, False, "within 20m"),
        ({"timeout": "1h", "recoveryTimeout": "18m30s"}, True, "within 18m30s"),
        ({"timeout": "5m", "recoveryTimeout": "0s"}, False, "Kueue waits for ever"),
    ],
)
def test_F9_kueues_recovery_is_compared_with_the_longest_reset(
    waits: dict[str, Any] | None, *, warns: bool, says: str
) -> None:
    config = {"apiVersion": VERSION, "integrations": INTEGRATIONS, "waitForPodsReady": waits}
    _, recovery = kueue(config, {"the defaults": POLICY}, APPWRAPPERS)
    assert (recovery.good, recovery.warns) == (True, warns)
    assert says in recovery.found


@ROW("F9", level="pure")
def test_F9_the_worst_of_those_that_live_is_named_and_what_cannot_be_read_is_not_known() -> None:
    timings = Timings(**{**POLICY.timings.model_dump(by_alias=False), "warmup_grace_period": timedelta(hours=1)})
    slow = POLICY.model_copy(update={"timings": timings})
    assert longest_reset(slow) == timedelta(hours=1, minutes=13, seconds=30)
    policies = {"the defaults": POLICY, "team/slow": slow}
    _, recovery = kueue({"apiVersion": VERSION, "integrations": INTEGRATIONS}, policies, APPWRAPPERS)
    assert "a reset of team/slow may take 1h13m30s" in recovery.found
    (_,) = kueue({"apiVersion": VERSION, "waitForPodsReady": {"enable": False}}, policies, APPWRAPPERS)
    for unread in ({"apiVersion": VERSION, "waitForPodsReady": {"timeout": "soon"}}, {"apiVersion": "x/v1beta1"}):
        _, recovery = kueue(unread, policies, APPWRAPPERS)
        assert recovery.unknown


@ROW("F6", level="pure")
@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("left_out", ["frameworks", "externalFrameworks", ""])
def test_F6_what_kueue_lacks_to_tell_an_attempt_is_named(left_out: str, *, queued: bool) -> None:
    integrations: dict[str, Any] = {name: those for name, those in INTEGRATIONS.items() if name != left_out}
    told, _ = kueue({"integrations": integrations}, {"the defaults": POLICY}, dict.fromkeys(APPWRAPPERS, queued))
    assert told.good is (not left_out or not queued), "it matters once an AppWrapper names a queue"
    assert told.warns is (bool(left_out) and not queued)
    assert left_out in told.found
    odd, *_ = kueue({"integrations": {"frameworks": 5}}, {"the defaults": POLICY}, APPWRAPPERS)
    assert not odd.good


@ROW("F9", level="pure")
@pytest.mark.parametrize(
    ("evicted", "reserved", "removed", "minutes", "told"),
    [
        ("True", "True", "False", 5, ["team/train"]),
        ("True", "True", "False", 0, []),
        ("True", "True", "True", 5, []),
        ("True", "False", "False", 5, []),
        ("False", "True", "False", 5, []),
    ],
)
def test_F9_quota_that_kueue_holds_for_what_is_gone_is_named(
    evicted: str, reserved: str, removed: str, minutes: int, told: list[str]
) -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def conditions(**found: str) -> dict[str, Any]:
        since = (now - timedelta(minutes=minutes)).isoformat()
        return {
            "conditions": [{"type": name, "status": is_, "lastTransitionTime": since} for name, is_ in found.items()]
        }

    owners = [{"uid": "u1"}]
    workload = {"metadata": {"ownerReferences": owners}, "status": conditions(Evicted=evicted, QuotaReserved=reserved)}
    mine = {
        "metadata": {"namespace": "team", "name": "train", "uid": "u1"},
        "status": conditions(QuotaReserved=removed),
    }
    other = {"metadata": {"namespace": "team", "name": "other", "uid": "u2"}, "status": mine["status"]}
    assert stranded([workload, {"metadata": {}}], [mine, other, {"metadata": {}}], now) == told
