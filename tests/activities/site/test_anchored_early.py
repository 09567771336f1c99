"""An Anchor that is made before the first attempt: where it may be, once, and what the attempt makes of it (E10)."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.activities.kube.client import Kube, Object
from holdfast.model import Phase, Reason, Report
from holdfast.model.calls.cluster import AnchorInput, Prepared, Reported, ReportInput
from tests.activities.bench import Bench, asked_of, job, spoiled
from tests.activities.objects.test_created_at_once import reports
from tests.activities.operations.test_crashes import BEFORE_OR_AFTER, Crashing
from tests.activities.site.test_withdrawn import as_another_worker, closed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), pytest.mark.row("E10", level="e2e")]


def waits(bench: Bench, **changes: Any) -> Report:
    given = {"phase": Phase.PENDING, "reason": Reason.QUEUED, "message": "it waits in queue gpus", "attempt": 0}
    return bench.report(**(given | changes))


async def shown(bench: Bench, report: Report | None = None) -> Reported:
    """Report a wait, as a workflow does whose first attempt has not begun."""
    contents = AnchorInput(plan=bench.plan, spec_hash="hash")
    given = ReportInput(target=bench.target, report=report or waits(bench), anchor=contents)
    return await bench.run(bench.activities.report, given)


def creation(bench: Bench, given: dict[str, Any]) -> dict[str, Any]:
    """Return what prepares and creates the first attempt of a workload that has its Anchor already."""
    create = bench.creation(owner_uid="", report=given["report"].model_copy(update={"repeats": True}))
    return {"report": given["report"], "create": create, "components": bench.components, "anchored": True}


async def there(bench: Bench) -> Object:
    anchor = await bench.anchor()
    assert anchor is not None
    return anchor


async def test_E10_it_says_why_the_workload_waits_and_costs_two_changes(bench: Bench):
    asked = asked_of(bench)
    assert (await shown(bench)).anchored
    assert [one for one in asked if not one.startswith("GET")] == ["POST anchors", "PATCH status"]
    anchor = await there(bench)
    assert anchor["metadata"]["finalizers"] == [names.FINALIZER]
    assert anchor["spec"]["components"] == [{"name": "work", "kind": "Job", "expectedPods": 2}]
    status = anchor["status"]
    assert (status["phase"], status["reason"], status["attempt"]) == ("Pending", "Queued", 0)
    assert await bench.owner() is None


async def test_E10_its_first_attempt_belongs_to_it(bench: Bench):
    await shown(bench)
    early, asked = await there(bench), asked_of(bench)
    prepared = await bench.prepare(**creation(bench, reports(bench)))
    assert prepared.created is not None
    assert prepared.created.failure is None
    assert "POST anchors" not in asked, "it is looked for first"
    assert prepared.anchor_uid == early["metadata"]["uid"]
    owner = await bench.owner()
    assert owner is not None
    assert [one["uid"] for one in owner["metadata"]["ownerReferences"]] == [early["metadata"]["uid"]]


async def test_E10_a_report_that_comes_late_neither_makes_nor_changes_anything(bench: Bench):
    late = waits(bench)
    await shown(bench)
    await bench.prepare(anchored=True)
    before = await there(bench)
    assert (await shown(bench, late)).sequence == before["status"]["sequence"]
    assert (await there(bench))["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_E10_no_object_is_made_in_a_namespace_that_is_not_enabled(kube: Kube, admin: Kube, bare_namespace: str):
    bench = await Bench.make(kube, admin, bare_namespace)
    asked = asked_of(bench)
    assert not (await shown(bench)).anchored
    assert await bench.anchor() is None
    assert all(one.startswith("GET") for one in asked)


async def test_E10_one_that_is_there_counts_even_if_its_namespace_is_closed_since(bench: Bench):
    await shown(bench)
    await closed(bench)
    assert (
        await shown(await as_another_worker(bench), waits(bench, reason=Reason.BLOCKED, message="its graph"))
    ).anchored
    assert (await there(bench))["status"]["reason"] == "Blocked"


async def test_E10_a_report_that_comes_after_the_end_puts_no_finalizer_back(bench: Bench):
    late = waits(bench)
    await shown(bench)
    report = bench.report(phase=Phase.FAILED, reason=Reason.REFUSED)
    assert (await bench.remove(attempt=0, plan=(), release_anchor=True, report=report, report_gone=report)).gone
    await shown(bench, late)
    assert "finalizers" not in (await there(bench))["metadata"]


async def test_E10_another_workload_keeps_its_anchor_until_it_has_ended(bench: Bench):
    await shown(bench)
    first = await there(bench)
    target = bench.target
    bench.target = target.model_copy(update={"workload_uid": "another"})
    assert not (await shown(bench)).anchored
    assert (await there(bench))["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    bench.target = target
    assert (await bench.remove(attempt=0, plan=(), release_anchor=True)).gone
    bench.target = target.model_copy(update={"workload_uid": "another"})
    assert (await shown(bench)).anchored
    assert (await there(bench))["spec"]["workloadUid"] == "another"


@pytest.mark.parametrize("at_once", [True, False], ids=["one object", "rehearsed"])
async def test_E10_it_stays_as_the_workload_is_refused_and_nothing_else_does(bench: Bench, at_once: bool):
    bench.components = (spoiled(job(), parallelims=3),)
    await shown(bench)
    given: dict[str, Any] = creation(bench, reports(bench)) | ({} if at_once else {"create": None})
    with pytest.raises(ApplicationError, match="parallelims") as refused:
        await bench.prepare(**given)
    assert refused.value.type == names.ERROR_REFUSED
    assert (await there(bench))["metadata"]["finalizers"] == [names.FINALIZER]
    assert await bench.owner() is None
    report = bench.report(phase=Phase.FAILED, reason=Reason.REFUSED)
    assert (await bench.remove(release_anchor=True, report=report, report_gone=report)).gone
    anchor = await there(bench)
    assert "finalizers" not in anchor["metadata"]
    assert (anchor["status"]["phase"], anchor["status"]["reason"]) == ("Failed", "Refused")


async def test_E10_it_goes_with_a_workload_that_is_cancelled_as_it_waits(bench: Bench):
    await shown(bench)
    assert (await bench.remove(attempt=0, release_anchor=True, delete_anchor=True)).gone
    assert await bench.anchor() is None


@BEFORE_OR_AFTER
async def test_E10_a_worker_that_dies_at_any_change_makes_one_anchor_and_one_attempt(bench: Bench, after: bool):
    crashing, waiting, given, later = Crashing(bench.kube), waits(bench), reports(bench), reports(bench)
    create = creation(bench, given)
    is_shown, tries = False, 0
    prepared: Prepared | None = None

    async def work() -> None:
        nonlocal is_shown, tries, prepared
        if not is_shown:
            is_shown = (await shown(bench, waiting)).anchored
        if prepared is None:
            tries += 1
            prepared = await bench.prepare(tries, **create)
        assert (await bench.create(patience=5.0, **later)).failure is None

    assert await crashing.survive(work, after) >= 4
    owners = (await bench.admin.list(names.API_VERSION, names.ATTEMPT_KIND, bench.namespace))["items"]
    anchors = (await bench.admin.list(names.API_VERSION, names.ANCHOR_KIND, bench.namespace))["items"]
    assert (len(owners), len(anchors)) == (1, 1)
