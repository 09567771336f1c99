"""Objects whose deletion a right, a policy or a webhook refuses: they hold up no others, and are told as left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube.client import Forbidden, Invalid, KubeError, NotFound, WebhookFailed
from holdfast.activities.operations import replace
from holdfast.activities.operations.clear import clear
from holdfast.activities.operations.remains import find_remains
from holdfast.activities.operations.remove import force_remove, remove
from holdfast.activities.operations.report import apply_report
from holdfast.activities.site.site import Pulse
from holdfast.model import Component, Phase, PodSet, Reason, Report
from holdfast.model.calls.cluster import ClaimLeft, ClearInput, RemoveInput, ReplaceInput
from holdfast.model.life.report import Entry
from tests.activities.policed import OWNER_UID, QUIET, TARGET, Policed, made, planned

ROW = pytest.mark.row
WHY = "the policy protects it"
REFUSALS = [
    Forbidden(403, "Forbidden", WHY),
    Invalid(422, "Invalid", WHY),
    Invalid(400, "BadRequest", WHY),
    WebhookFailed(500, "InternalError", WHY),
]
refused = pytest.mark.parametrize("error", REFUSALS, ids=lambda one: str(one.status))
SETS = planned("StatefulSet", "train", "apps/v1", claims=("data",))
FIRST, SECOND = (planned("Job", name, "batch/v1", expected_pods=1) for name in ("first", "second"))


def removal(seconds: float = 4.0, **more: Any) -> RemoveInput:
    given: dict[str, Any] = {
        "target": TARGET,
        "attempt": 1,
        "owner_uid": OWNER_UID,
        "plan": (),
        "until": datetime.now(UTC) + timedelta(seconds=seconds),
        "report": QUIET,
        "report_gone": QUIET,
    }
    return RemoveInput(**(given | more))


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record what heartbeats would name as left."""
    told: list[str] = []

    def say(_: Pulse, _doing: str, remaining: Sequence[str] = (), *_more: Any) -> None:
        told.extend(remaining)

    monkeypatch.setattr(Pulse, "say", say)
    return told


def with_claims() -> Policed:
    """Have a StatefulSet whose claim goes with it, beside two claims of the workload."""
    cluster = Policed()
    cluster.put("PersistentVolumeClaim", "data-train-0", cluster.put("StatefulSet", "train", OWNER_UID))
    cluster.put("PersistentVolumeClaim", "scratch", "anchor-uid")
    cluster.put("PersistentVolumeClaim", "kept")
    return cluster


@ROW("J22", level="pure")
@ROW("D25", level="pure")
async def test_J22_a_restart_leaves_the_workloads_own_claims_alone_and_takes_those_of_a_stateful_set() -> None:
    cluster = with_claims()
    given = removal(plan=(SETS,), objects=(made(SETS),))
    assert [one["metadata"]["name"] for one in (await find_remains(cluster.site, given)).between] == ["data-train-0"]
    del cluster.objects["StatefulSet", "train"]
    assert [one["metadata"]["name"] for one in (await find_remains(cluster.site, given)).between] == ["data-train-0"]
    cluster = with_claims()
    assert (await force_remove(cluster.site, given)).gone
    assert cluster.left == ["PersistentVolumeClaim kept", "PersistentVolumeClaim scratch"]


@ROW("L30", level="pure")
@refused
async def test_L30_a_service_that_may_not_be_deleted_keeps_no_report_from_being_written(error: KubeError) -> None:
    cluster = Policed()
    cluster.put(names.ANCHOR_KIND, "train", workloadUid=TARGET.workload_uid)
    cluster.policies["Service", "serve"] = error
    uid = cluster.put("Service", "serve", OWNER_UID)
    report = Report(sequence=2, phase=Phase.RUNNING, reason=Reason.RESETTING, unlist=(Entry(name="serve", uid=uid),))
    assert await apply_report(cluster.site, TARGET, report) == 0
    assert cluster.objects[names.ANCHOR_KIND, "train"]["status"]["reason"] == Reason.RESETTING


@ROW("J22", level="pure")
@refused
async def test_J22_a_claim_that_may_not_be_deleted_is_told_with_why_and_keeps_no_other(error: KubeError) -> None:
    cluster = with_claims()
    cluster.policies["PersistentVolumeClaim", "scratch"] = error
    claims = (ClaimLeft(name="scratch", goes=True), ClaimLeft(name="data-train-0", goes=True))
    removed = await remove(cluster.site, removal(0.5, claims=claims))
    assert [one.sentence() for one in removed.remnants] == [
        f"PersistentVolumeClaim scratch, which may not be deleted: {WHY}"
    ]
    assert ("PersistentVolumeClaim", "data-train-0") not in cluster.objects
    cluster.policies.clear()
    assert (await remove(cluster.site, removal(claims=claims))).gone


@ROW("A8", level="pure")
@refused
async def test_A8_an_attempt_that_may_not_be_deleted_is_told_with_why_when_time_is_up(error: KubeError) -> None:
    cluster = Policed()
    cluster.policies[names.ATTEMPT_KIND, "train-a1"] = error
    cluster.put("Job", "first", OWNER_UID)
    removed = await remove(cluster.site, removal(0.5, plan=(FIRST,)))
    assert [one.sentence() for one in removed.remnants] == [
        f"Attempt train-a1, which may not be deleted: {WHY}",
        "Job first",
    ]


@ROW("A8", level="pure")
@refused
async def test_A8_an_attempt_that_may_not_be_deleted_keeps_no_pods(error: KubeError) -> None:
    cluster = Policed()
    cluster.policies[names.ATTEMPT_KIND, "train-a1"] = error
    cluster.put("Pod", "first-x", OWNER_UID)
    for name, ends in (("told-x", timedelta(minutes=1)), ("over-x", timedelta(minutes=-1))):
        cluster.put("Pod", name, OWNER_UID)
        cluster.objects["Pod", name]["metadata"]["deletionTimestamp"] = f"{datetime.now(UTC) + ends:%FT%TZ}"
    removed = await force_remove(cluster.site, removal(0.5))
    assert (removed.gone, cluster.left) == (False, ["Attempt train-a1", "Pod told-x"])
    assert set(cluster.graces) == {("first-x", None), ("over-x", 0)}, "nobody had told first-x to end"
    assert removed.remnants[0].sentence() == f"Attempt train-a1, which may not be deleted: {WHY}"
    cluster.policies.clear()
    assert (await force_remove(cluster.site, removal())).gone


@ROW("X5", level="pure")
@refused
async def test_X5_a_pod_that_may_not_be_forced_is_told_with_why_however_it_is_refused(error: KubeError) -> None:
    cluster = Policed()
    cluster.policies["Pod", "train-0"] = error
    cluster.put("Pod", "train-0")
    removed = await force_remove(cluster.site, removal(0.5))
    assert [one.sentence() for one in removed.remnants] == [f"Pod train-0, which may not be deleted: {WHY}"]


@ROW("J12", level="pure")
@refused
async def test_J12_an_active_job_that_may_not_be_deleted_holds_up_no_other_and_time_is_up(
    error: KubeError, said: list[str]
) -> None:
    cluster = Policed()
    cluster.policies["Job", "first"] = error
    for name in ("first", "second"):
        uid = cluster.put("Job", name, OWNER_UID)
        cluster.put("Pod", f"{name}-x", uid, labels={names.LABEL_COMPONENT: name})
    given = ClearInput(
        target=TARGET,
        attempt=1,
        owner_uid=OWNER_UID,
        plan=(FIRST, SECOND),
        until=datetime.now(UTC) + timedelta(seconds=0.5),
        grace=0.0,
        report=QUIET,
        report_done=QUIET,
    )
    assert not (await clear(cluster.site, given)).done
    assert cluster.left == ["Attempt train-a1", "Job first", "Pod first-x"], "a Job would make others of forced pods"
    assert said[-2:] == [f"Job first may not be deleted: {WHY}", "Job first and 1 Pod"]


@ROW("D17", level="pure")
@refused
async def test_D17_what_may_not_be_deleted_keeps_no_other_from_going(error: KubeError, said: list[str]) -> None:
    cluster = Policed()
    cluster.policies["Pod", "pe-0"] = error
    for index in range(20):
        cluster.put("Pod", f"pe-{index}", OWNER_UID)
    template = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pe"}}
    component = Component(name="pe", template=template, pod_sets=(PodSet(path="template"),), copies=20)
    given = ReplaceInput(
        target=TARGET,
        attempt=1,
        owner_uid=OWNER_UID,
        components=(component,),
        launches={"pe": 1},
        patience=None,
        grace=20.0,
        report=QUIET,
        report_done=QUIET,
    )
    with suppress(TimeoutError):
        await asyncio.wait_for(replace._until_gone(cluster.site, given, component, Pulse()), 0.5)
    assert cluster.left == ["Attempt train-a1", "Pod pe-0"]
    assert said[-1] == f"Pod pe-0 may not be deleted: {WHY}"


async def test_what_is_gone_is_no_refusal() -> None:
    cluster = Policed()
    cluster.put("Job", "first", OWNER_UID)
    first = cluster.objects["Job", "first"]
    cluster.policies["Job", "first"] = NotFound(404, "NotFound", "gone")
    assert await replace.delete_read(cluster.site, TARGET, first, FIRST) == ""
