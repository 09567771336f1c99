"""A look that goes on to the removal, on a real API server: a crash in between, a decision that has changed (A6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube.client import Object
from holdfast.activities.kube.raw import mapping
from holdfast.activities.site.anchor import key_of
from holdfast.model import (
    Attempt,
    ComponentView,
    Failure,
    FailureClass,
    Observation,
    Scope,
    Stage,
    State,
    Workload,
)
from holdfast.model.calls.cluster import ObserveInput, Reset, ResetInput
from holdfast.model.life.report import Entry
from holdfast.policy.loop.fold import fold
from holdfast.policy.loop.promise import memory_of
from holdfast.policy.loop.turn import turn
from holdfast.policy.values.events import Observed
from tests.activities.bench import Bench, asked_of, eventually, pod
from tests.activities.objects.test_created_at_once import Gate
from tests.activities.operations.test_remove import deletions, nothing_left
from tests.policy.lives.life import workload

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90), pytest.mark.row("A6", level="e2e")]


async def promised(bench: Bench) -> ResetInput:
    """Launch a pod, and return the reset that follows from a snapshot in which it is missing, true or not."""
    bench.components = (pod(),)
    await bench.launch()
    now = datetime.now(UTC)
    spec: Workload = workload().model_copy(update={"components": bench.components, "name": bench.target.name})
    missing = Failure(
        cls=FailureClass.MISSING,
        scope=Scope.COMPONENT,
        reason="MissingComponent",
        time=now,
        component="solo",
        subject="solo",
        attempt=1,
    )
    seen = Observation(
        workload_uid=bench.target.workload_uid,
        attempt=1,
        owner_uid=bench.owner_uid,
        at=now,
        components={"solo": ComponentView(found=False)},
        failures=(missing,),
        failures_total=1,
    )
    attempt = Attempt(number=1, begun_at=now, submitted_at=now, owner_uid=bench.owner_uid, stage=Stage.SUBMITTED)
    state = State(since=now, policy=spec.policy, attempt=attempt, anchored=True, sequence=100, resets_at_once=True)
    state = turn(spec, fold(state, Observed(seen), now), now, full=False).state
    operation = state.operation
    assert operation is not None
    assert operation.restart is not None
    assert operation.removal is not None
    assert operation.removal.report_done is not None
    look = ObserveInput(
        target=bench.target, attempt=1, owner_uid=bench.owner_uid, plan=bench.plan, report=operation.report
    )
    removal = bench.removal(report=operation.removal.report, report_gone=operation.removal.report_done)
    return ResetInput(
        look=look,
        removal=removal,
        workload=spec,
        memory=memory_of(state),
        promise=operation.restart,
        since=operation.since,
    )


async def reset(bench: Bench, given: ResetInput, tries: int = 1) -> Reset:
    return await bench.run(bench.activities.reset, given, tries=tries)


async def lose_pod(bench: Bench) -> None:
    (there,) = await bench.pods()
    await bench.admin.delete("v1", "Pod", "solo", bench.namespace, uid=there["metadata"]["uid"], grace_period=0)

    async def gone() -> bool:
        return not await bench.pods()

    await eventually(gone)


async def shown(bench: Bench) -> int:
    anchor = await bench.anchor()
    assert anchor is not None
    return anchor["status"]["sequence"]


async def test_A6_what_the_look_confirms_is_removed_and_proven_gone(bench: Bench):
    given = await promised(bench)
    await lose_pod(bench)
    done = await reset(bench, given)
    assert done.confirmed
    assert done.seen is not None
    assert [one.reason for one in done.seen.failures] == ["MissingComponent"]
    assert done.removed is not None
    assert done.removed.gone
    await nothing_left(bench)
    assert await shown(bench) == given.removal.report_gone.sequence


async def test_A6_the_mark_and_the_report_of_the_removal_are_one_write(bench: Bench):
    given = await promised(bench)
    await lose_pod(bench)
    asked = asked_of(bench)
    assert (await reset(bench, given)).confirmed
    before = asked[: next(at for at, one in enumerate(asked) if one.startswith("DELETE"))]
    assert [one for one in before if not one.startswith(("GET", "LIST"))] == ["PATCH status"]


@pytest.mark.row("L30", level="e2e")
async def test_L30_services_go_after_the_mark_and_before_the_report(bench: Bench):
    given = await promised(bench)
    await lose_pod(bench)
    service = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}], "selector": {"app": "x"}}}
    made = await bench.admin.create({**service, "metadata": {"name": "serve", "namespace": bench.namespace}})
    report = given.removal.report.model_copy(update={"unlist": (Entry(name="serve", uid=made["metadata"]["uid"]),)})
    removal = given.removal.model_copy(update={"report": report})
    asked = asked_of(bench)
    assert (await reset(bench, given.model_copy(update={"removal": removal}))).confirmed
    first = next(at for at, one in enumerate(asked) if one.startswith("DELETE"))
    changes = [one for one in asked[: first + 3] if not one.startswith(("GET", "LIST"))]
    assert changes[:3] == ["PATCH status", "DELETE serve", "PATCH status"]
    assert await bench.admin.find("v1", "Service", "serve", bench.namespace) is None


async def test_A6_a_worker_that_took_over_reads_the_anchor_once(bench: Bench):
    given = await promised(bench)
    await lose_pod(bench)
    bench.activities._site.known.take(bench.target)  # The new worker has not written it yet.
    asked = asked_of(bench)
    assert (await reset(bench, given)).confirmed
    assert asked.count(f"GET {bench.target.name}") == 1


async def test_A6_a_stale_snapshot_removes_nothing_and_is_reported_above_the_removal(bench: Bench):
    given = await promised(bench)
    made = deletions(bench)
    done = await reset(bench, given)
    assert (done.confirmed, done.removed, made) == (False, None, [])
    assert done.seen is not None
    assert done.seen.failures == ()
    assert await bench.owner() is not None
    assert await shown(bench) == given.look.report.sequence


async def test_A6_a_late_worker_removes_nothing_once_another_try_has_found_another_decision(bench: Bench):
    """It looked, and stalls before it reports; the other's report is what a try writes that finds the pod well."""
    given = await promised(bench)
    await lose_pod(bench)
    gate = Gate(bench, lambda method, path: method == "PATCH" and path.endswith(f"/{bench.target.name}/status"))
    late = asyncio.ensure_future(reset(bench, given))
    await gate.reached.wait()
    await bench.send_report(given.look.report)
    made = deletions(bench)
    gate.opened.set()
    assert not (await late).confirmed
    assert made == []
    assert await bench.owner() is not None


async def test_A6_a_late_worker_that_another_try_keeps_from_the_removal_returns_what_is_there_since(bench: Bench):
    """Temporal may take its result, if somebody resets the activity: then the tries are counted anew."""
    given = await promised(bench)
    await lose_pod(bench)
    gate = Gate(bench, lambda method, path: method == "PATCH" and path.endswith(f"/{bench.target.name}/status"))
    late = asyncio.ensure_future(reset(bench, given))
    await gate.reached.wait()
    await bench.create()  # What was missing is there again, and another try has seen and reported that.
    await bench.send_report(given.look.report)
    gate.opened.set()
    done = await late
    assert not done.confirmed
    assert done.seen is not None
    assert done.seen.failures == (), "a look from before that report is not the last one"


async def test_A6_what_is_seen_once_another_try_has_begun_the_removal_is_that_trys_work(bench: Bench):
    """The tries are counted anew after `temporal activity reset`: the first of them may come after the mark."""
    given = await promised(bench)
    await lose_pod(bench)
    await marks(bench, given.mark)
    done = await reset(bench, given)
    assert (done.confirmed, done.seen) == (True, None)
    await nothing_left(bench)


async def marks(bench: Bench, mark: str) -> None:
    """Mark the anchor as a try does right before its first deletion."""
    anchor = await bench.anchor()
    assert anchor is not None
    await bench.admin.patch(
        *key_of(bench.target),
        uid=anchor["metadata"]["uid"],
        resource_version=anchor["metadata"]["resourceVersion"],
        subresource="status",
        patch={"status": {"removal": mark}},
    )


async def annotates(bench: Bench, mark: str) -> None:
    """Mark the anchor as a try of release 0.2 does, or one that finds an older definition of anchors."""
    anchor = await bench.anchor()
    assert anchor is not None
    patch = {"metadata": {"annotations": {names.ANNOTATION_REMOVAL: mark}}}
    await bench.admin.patch(*key_of(bench.target), uid=anchor["metadata"]["uid"], patch=patch)


@pytest.mark.parametrize("sets", [marks, annotates])
async def test_A19_a_later_try_goes_on_if_the_removal_had_begun_whatever_it_would_find(
    bench: Bench, sets: Callable[[Bench, str], Awaitable[None]]
):
    """The first try died between its mark and its first deletion: the pod is there, and the decision stands."""
    given = await promised(bench)
    await sets(bench, given.mark)
    done = await reset(bench, given, tries=2)
    assert (done.confirmed, done.seen) == (True, None)
    assert done.removed is not None
    assert done.removed.gone
    await nothing_left(bench)


async def test_A19_where_the_definition_of_anchors_is_older_the_mark_is_an_annotation(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    """The API server drops a field that it does not know."""
    given = await promised(bench)
    await lose_pod(bench)
    send = bench.kube._request

    async def without(method: str, path: str, **options: Any) -> Object:
        status = mapping((options.get("body") or {}).get("status"))
        kept = {key: value for key, value in status.items() if key != "removal"}
        return await send(
            method, path, **{**options, "body": {**options["body"], "status": kept}} if status else options
        )

    monkeypatch.setattr(bench.kube, "_request", without)
    assert (await reset(bench, given)).confirmed
    anchor = await bench.anchor()
    assert anchor is not None
    assert anchor["metadata"]["annotations"][names.ANNOTATION_REMOVAL] == given.mark
    assert "removal" not in anchor["status"]
    await nothing_left(bench)


@pytest.mark.parametrize("reported", [False, True], ids=["nothing", "a-report"])
async def test_A19_a_later_try_looks_again_without_the_mark_of_its_own_decision(bench: Bench, reported: bool):
    """A restored Temporal may use the sequences of its reports, and the attempt's number, a second time."""
    given = await promised(bench)
    earlier = given.promise.model_copy(update={"at": given.promise.at - timedelta(hours=1)})
    await marks(bench, given.model_copy(update={"promise": earlier}).mark)
    if reported:
        await bench.send_report(given.removal.report)
    made = deletions(bench)
    assert not (await reset(bench, given, tries=2)).confirmed
    assert made == []
    assert await bench.owner() is not None


async def test_A6_a_report_from_before_the_workflow_was_restored_is_no_earlier_try(bench: Bench):
    given = await promised(bench)
    await lose_pod(bench)
    await bench.send_report(given.removal.report)
    made = deletions(bench)
    done = await reset(bench, given)
    assert not done.confirmed
    assert done.seen is not None
    assert done.seen.failures, "the workflow decides from what was seen"
    assert made == []


async def settle(bench: Bench, given: ResetInput) -> Reset:
    return await reset(bench, given.model_copy(update={"settles": True}))


async def test_A19_settling_one_that_never_ran_removes_nothing_though_its_look_repeats_the_promise(bench: Bench):
    given = await promised(bench)
    await lose_pod(bench)
    made = deletions(bench)
    done = await settle(bench, given)
    assert (done.confirmed, done.removed, made) == (False, None, [])
    assert done.seen is not None
    assert [one.reason for one in done.seen.failures] == ["MissingComponent"]


async def test_A19_settling_one_whose_removal_has_begun_says_so_and_leaves_the_rest_to_what_is_decided(bench: Bench):
    given = await promised(bench)
    await marks(bench, given.mark)
    made = deletions(bench)
    assert await settle(bench, given) == Reset(confirmed=True)
    assert made == []


async def test_A19_a_late_worker_begins_no_removal_once_it_was_settled_that_none_has_begun(bench: Bench):
    """It looked, found the promise repeated, and stalls right before it marks the anchor."""
    given = await promised(bench)
    await lose_pod(bench)
    gate = Gate(bench, lambda method, path: method == "PATCH" and path.endswith(f"/{bench.target.name}/status"))
    late = asyncio.ensure_future(reset(bench, given))
    await gate.reached.wait()
    assert not (await settle(bench, given)).confirmed
    made = deletions(bench)
    gate.opened.set()
    assert not (await late).confirmed
    assert made == []
    assert await bench.owner() is not None
