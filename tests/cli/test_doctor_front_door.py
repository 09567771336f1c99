"""What `doctor` says of Kueue's settings beside Holdfast's own (rows F6, F9). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import formats
from holdfast.cli.cluster.front_door import applied, deciders, kueue, longest_reset, stranded
from holdfast.model import Checkpoint, CheckpointProtocol, Timings
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
    _, recovery = kueue(config, {"the defaults": longest_reset(POLICY)}, APPWRAPPERS)
    assert (recovery.good, recovery.warns) == (True, warns)
    assert says in recovery.found


@ROW("F9", level="pure")
def test_F9_the_worst_of_those_that_live_is_named_and_what_cannot_be_read_is_not_known() -> None:
    timings = Timings(**{**POLICY.timings.model_dump(by_alias=False), "warmup_grace_period": timedelta(hours=1)})
    slow = POLICY.model_copy(update={"timings": timings})
    assert longest_reset(slow) == timedelta(hours=1, minutes=13, seconds=30)
    resets = {"the defaults": longest_reset(POLICY), "team/slow": longest_reset(slow)}
    _, recovery = kueue({"apiVersion": VERSION, "integrations": INTEGRATIONS}, resets, APPWRAPPERS)
    assert "a reset of team/slow may take 1h13m30s" in recovery.found
    (_,) = kueue({"apiVersion": VERSION, "waitForPodsReady": {"enable": False}}, resets, APPWRAPPERS)
    for unread in ({"apiVersion": VERSION, "waitForPodsReady": {"timeout": "soon"}}, {"apiVersion": "x/v1beta1"}):
        _, recovery = kueue(unread, resets, APPWRAPPERS)
        assert recovery.unknown


@ROW("F9", level="pure")
def test_F9_the_longest_pause_of_a_rule_and_a_checkpoint_are_part_of_a_reset() -> None:
    usual, hours = longest_reset(POLICY), timedelta(hours=3)
    paused = [
        rule.model_copy(update={"action": rule.action.model_copy(update={"pause": hours})}) for rule in POLICY.rules
    ]
    rules = POLICY.model_copy(update={"rules": tuple(paused)})
    assert longest_reset(rules) == usual + hours - POLICY.timings.retry_pause_period
    saves = Checkpoint(
        protocol=CheckpointProtocol.ANNOTATION, timeout=timedelta(hours=1), extension=timedelta(minutes=5)
    )
    assert longest_reset(POLICY, saves) == usual + timedelta(hours=1, minutes=5)


@ROW("F6", level="pure")
@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("left_out", ["frameworks", "externalFrameworks", ""])
def test_F6_what_kueue_lacks_to_tell_an_attempt_is_named(left_out: str, *, queued: bool) -> None:
    integrations: dict[str, Any] = {name: those for name, those in INTEGRATIONS.items() if name != left_out}
    told, _ = kueue(
        {"integrations": integrations}, {"the defaults": longest_reset(POLICY)}, dict.fromkeys(APPWRAPPERS, queued)
    )
    assert told.good is (not left_out or not queued), "it matters once an AppWrapper names a queue"
    assert told.warns is (bool(left_out) and not queued)
    assert left_out in told.found
    odd, *_ = kueue({"integrations": {"frameworks": 5}}, {"the defaults": longest_reset(POLICY)}, APPWRAPPERS)
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


@ROW("F19", level="pure")
@pytest.mark.parametrize(
    ("namespaces", "says"),
    [
        ((), "Kueue has no queue in any namespace; Holdfast's own queues decide elsewhere"),
        (("b", "a"), "Kueue decides in a, b, where it has a queue; Holdfast's own queues decide elsewhere"),
        (map(str, range(12)), "6, 7 and 2 more, where it has a queue"),
    ],
)
def test_F19_doctor_says_who_decides_when_a_workload_runs(namespaces: Iterable[str], says: str) -> None:
    check = deciders(namespaces)
    assert check.good
    assert says in check.found


@ROW("F16", level="pure")
def test_F16_each_kind_that_kueue_is_to_admit_is_named_where_its_configuration_lacks_it() -> None:
    both = {**APPWRAPPERS, "jobset.x-k8s.io/jobset": False}
    told, _ = kueue(
        {"apiVersion": VERSION, "integrations": INTEGRATIONS}, {"the defaults": longest_reset(POLICY)}, both
    )
    assert (told.good, told.warns) == (True, True), "no JobSet names a queue"
    assert "frameworks: [jobset.x-k8s.io/jobset]" in told.found


@pytest.mark.row("F16", level="pure")
def test_F16_policies_of_all_kinds_come_with_the_base_and_a_kinds_own_with_its_folder():
    form = formats.RESOURCES["jobset.x-k8s.io/v1alpha2", "JobSet"]
    own, shared = {"metadata": {"name": "jobsets.holdfast.dev"}}, {"metadata": {"name": "resource-askers.holdfast.dev"}}
    assert applied(form, [shared]) == "kubectl apply -k deploy/"
    assert applied(form, [own]) == "kubectl apply -k deploy/jobset"
    assert applied(form, [own, shared]) == "kubectl apply -k deploy/ and kubectl apply -k deploy/jobset"
