"""Removal on a real cluster: gone means gone, and what is another's is not touched (rows A8, A16; U2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.activities.kube import client as kube_module
from holdfast.activities.kube import priority
from holdfast.activities.kube.client import Forbidden, Gone, Kube, KubeError, NotFound, Object, Unreachable
from holdfast.activities.kube.priority import Together
from holdfast.activities.operations import remove as remove_module
from holdfast.activities.operations.remains import is_child
from holdfast.model import Component, Condition, ConditionType, Event, Phase, Reason
from holdfast.model.calls.cluster import Removed
from tests.activities.bench import Bench, asked_of, config, deployment, eventually, job, pod, pod_spec
from tests.activities.line import Line

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90)]

STUBBORN: dict[str, Any] = {"labels": {"holdfast.dev/kwok-stubborn": "true"}}
HOLD = ["example.com/hold"]


async def nothing_left(bench: Bench) -> None:
    assert await bench.pods() == []
    assert await bench.owner() is None
    for one in bench.plan:
        assert await bench.admin.find(one.api_version, one.kind, one.object_name, bench.namespace) is None


async def left_by(removing: Awaitable[Removed], kinds: set[str]) -> Removed | None:
    """Return what came of a removal if objects of just these kinds are left: the collector may need longer."""
    removed = await removing
    assert not removed.gone
    return removed if {one.kind for one in removed.remnants} == kinds else None


async def let_go(bench: Bench, api_version: str, kind: str, name: str) -> None:
    found = await bench.admin.find(api_version, kind, name, bench.namespace)
    if found is not None:
        await bench.admin.patch(
            api_version,
            kind,
            name,
            bench.namespace,
            uid=found["metadata"]["uid"],
            patch={"metadata": {"finalizers": []}},
        )


def deletions(bench: Bench) -> list[tuple[str, Object, str]]:
    """Record every deletion of the worker: path, options, as whom."""
    made: list[tuple[str, Object, str]] = []
    before = bench.kube.mutate

    async def mutate(method: str, path: str, **options: Any) -> Object:
        if method == "DELETE":
            made.append((path.rpartition("/namespaces/")[2], options["body"], options.get("impersonate", "")))
        return await before(method, path, **options)

    bench.kube.mutate = mutate  # type: ignore[method-assign]
    return made


def paged(bench: Bench) -> list[str]:
    """Record which lists the worker asks for that go on from an earlier page."""
    asked: list[str] = []
    before = bench.kube._request

    async def request(method: str, path: str, **options: Any) -> Object:
        if (options.get("query") or {}).get("continue"):
            asked.append(path)
        return await before(method, path, **options)

    bench.kube._request = request  # type: ignore[method-assign]
    return asked


def later_key(bench: Bench) -> tuple[str, str, str, str]:
    return names.API_VERSION, names.ATTEMPT_KIND, names.attempt_name("train", 2), bench.namespace


async def later_attempt(bench: Bench) -> None:
    """Make an attempt 2 of the workload, of which its workflow does not know."""
    owner = await bench.owner()
    assert owner is not None
    api_version, kind, name, namespace = later_key(bench)
    labels = {**owner["metadata"]["labels"], names.LABEL_ATTEMPT: "2"}
    later = {"apiVersion": api_version, "kind": kind, "spec": {**owner["spec"], "attempt": 2}}
    await bench.admin.create({**later, "metadata": {"name": name, "namespace": namespace, "labels": labels}})


class TestGraceful:
    async def test_A8_one_foreground_deletion_and_then_the_proof(self, bench: Bench):
        bench.components = (config(), job(), deployment(), pod())
        await bench.launch()
        made = deletions(bench)
        removed = await bench.remove()
        assert removed == Removed(gone=True)
        await nothing_left(bench)
        ((path, options, user),) = made
        assert path == f"{bench.namespace}/attempts/train-a1"
        assert (options["propagationPolicy"], options["preconditions"]["uid"]) == ("Foreground", bench.owner_uid)
        assert user == ""

    async def test_its_deletion_goes_before_its_event_and_its_proof(self, bench: Bench):
        await bench.launch()
        asked = asked_of(bench)
        event = Event(reason=Reason.RESETTING, message="a pod has failed")
        assert (await bench.remove(report=bench.report(events=(event,)))).gone
        deleted = asked.index("DELETE train-a1")
        assert asked.index("PATCH status") < deleted < asked.index("POST events")
        assert asked.count("POST events") == 1
        assert deleted < asked.index("GET train-a1")

    async def test_its_proof_waits_until_other_removals_have_asked_for_their_deletions(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(priority, "GIVEN_WAY", 60)
        await bench.launch()
        asked = asked_of(bench)
        with bench.activities.precedence.deletions.one():
            removal = asyncio.create_task(bench.remove())

            async def is_gone() -> bool:
                return await bench.owner() is None

            await eventually(is_gone)
            await asyncio.sleep(1.0)  # For longer than it would have waited before it looked.
            assert not removal.done()
            assert "GET train-a1" not in asked
        assert (await removal).gone

    async def test_A8_what_is_left_on_a_later_page_is_no_proof(self, bench: Bench, monkeypatch: pytest.MonkeyPatch):
        bench.components = (job(pods=5, finalizers=HOLD),)
        await bench.launch()
        monkeypatch.setattr(kube_module, "PAGE", 2)
        pages = paged(bench)

        async def only_held() -> Removed | None:
            """Return what is left once the Job's controller has let go of the pods."""
            pages.clear()
            found = await bench.remove(4.0)
            held = {one.finalizers for one in found.remnants if one.kind == "Pod"}
            return found if held == {tuple(HOLD)} else None

        removed = await eventually(only_held, 60)
        assert (removed.gone, removed.remnants_total >= 5) == (False, True)
        assert {one.finalizers for one in removed.remnants if one.kind == "Pod"} == {tuple(HOLD)}
        assert len([one for one in removed.remnants if one.kind == "Pod"]) == 5
        assert pages
        for one in await bench.pods():
            await let_go(bench, "v1", "Pod", one["metadata"]["name"])
        assert (await bench.remove()).gone
        await nothing_left(bench)

    async def test_a_second_time_finds_it_gone(self, bench: Bench):
        await bench.launch()
        await bench.remove()
        assert (await bench.remove()).gone

    @pytest.mark.row("J15", level="e2e")
    async def test_J15_one_that_is_deleted_first_is_not_deleted_while_a_later_attempt_is_there(self, bench: Bench):
        await bench.launch()
        await later_attempt(bench)
        with pytest.raises(ApplicationError) as refused:
            await bench.remove(deletes_first=True)
        assert refused.value.type == "ForeignAttempt"
        anchor = await bench.anchor()
        assert anchor is not None
        assert "deletionTimestamp" not in anchor["metadata"]

    async def test_the_end_of_what_has_ended_is_refused_beside_a_later_attempt(self, bench: Bench):
        """Its own attempt may be deleted before anything is read: all else stays."""
        await bench.launch()
        await bench.send_report(bench.report(phase=Phase.SUCCEEDED, attempt=1))
        await later_attempt(bench)
        with pytest.raises(ApplicationError) as refused:
            await bench.remove(report=bench.report(phase=Phase.SUCCEEDED), release_anchor=True, delete_anchor=True)
        assert refused.value.type == "ForeignAttempt"
        anchor, later = await bench.anchor(), await bench.admin.find(*later_key(bench))
        assert [one is not None and "deletionTimestamp" not in one["metadata"] for one in (anchor, later)] == [True] * 2

    @pytest.mark.row("J15", level="e2e")
    async def test_J15_one_that_is_deleted_first_is_held_until_all_else_is_gone(self, bench: Bench):
        bench.components = (job(finalizers=HOLD),)
        await bench.launch()
        assert not (await bench.remove(1.0, deletes_first=True)).gone
        anchor = await bench.anchor()
        assert anchor is not None
        assert names.FINALIZER in anchor["metadata"]["finalizers"]
        assert "deletionTimestamp" in anchor["metadata"]
        for one in await bench.pods():
            await let_go(bench, "v1", "Pod", one["metadata"]["name"])
        assert (await bench.remove(deletes_first=True, release_anchor=True, delete_anchor=True)).gone
        assert await bench.anchor() is None

    async def test_an_attempt_that_never_was_is_gone(self, bench: Bench):
        removed = await bench.remove(attempt=0, owner_uid="", plan=())
        assert removed.gone

    async def test_an_owner_whose_uid_was_never_learnt_is_found_by_its_name(self, bench: Bench):
        await bench.launch()
        assert (await bench.remove(owner_uid="", objects=())).gone
        await nothing_left(bench)

    async def test_a_stubborn_pod_is_waited_for_until_time_is_up_and_named(self, bench: Bench):
        bench.components = (job(**STUBBORN),)
        await bench.launch()
        removed = await bench.remove(8.0)
        assert not removed.gone
        assert [one.kind for one in removed.remnants] == ["Pod", "Pod", "Job", "Attempt"]
        assert removed.remnants_total == 4
        first = removed.remnants[0]
        assert first.deleting_since is not None
        assert first.node.startswith("fake-")
        assert not first.unreachable
        told = [one for one in bench.heartbeats if one["remainingTotal"]]
        assert told[-1]["remainingTotal"] == 4
        assert any(sentence.startswith("Pod work-") for sentence in told[-1]["remaining"])

    async def test_one_that_begins_late_lets_pods_end_by_themselves(self, bench: Bench):
        bench.components = (job(annotations={"holdfast.dev/kwok-delete-delay": "2s"}),)
        await bench.launch()
        assert (await bench.remove(-30.0, grace=20.0)).gone

    async def test_its_grace_ends(self, bench: Bench):
        bench.components = (job(**STUBBORN),)
        await bench.launch()
        removed = await bench.remove(-30.0, grace=20.0)
        assert not removed.gone
        again = await asyncio.wait_for(bench.remove(-30.0, grace=20.0), 15.0)
        assert not again.gone, "it has had its grace"

    async def test_U2_a_foreign_finalizer_is_named_and_left_alone(self, bench: Bench):
        bench.components = (job(), config(metadata={"finalizers": HOLD}))
        await bench.launch()

        async def without_pods() -> Removed | None:
            found = await bench.remove(3.0)
            return found if not any(one.kind == "Pod" for one in found.remnants) else None

        removed = await eventually(without_pods, 60)
        assert not removed.gone
        assert removed.remnants[0].sentence() == "ConfigMap settings (finalizer example.com/hold)"
        found = await bench.admin.get("v1", "ConfigMap", "settings", bench.namespace)
        assert found["metadata"]["finalizers"] == [*HOLD]
        await let_go(bench, "v1", "ConfigMap", "settings")
        assert (await bench.remove()).gone

    async def test_another_object_under_a_planned_name_is_not_ours_to_prove_gone(self, bench: Bench):
        bench.components = (config(), pod())
        await bench.launch()
        for kind, name in (("ConfigMap", "settings"), ("Pod", "solo")):
            found = await bench.admin.get("v1", kind, name, bench.namespace)
            await bench.admin.delete("v1", kind, name, bench.namespace, uid=found["metadata"]["uid"], grace_period=0)
        theirs = await bench.admin.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": bench.namespace}}
        )
        assert (await bench.remove()).gone
        assert (await bench.force_remove()).gone
        found = await bench.admin.get("v1", "ConfigMap", "settings", bench.namespace)
        assert found["metadata"]["uid"] == theirs["metadata"]["uid"]

    async def test_a_pod_that_lost_its_controller_is_not_overlooked(self, bench: Bench):
        await bench.launch()
        found = await bench.admin.get("batch/v1", "Job", "work", bench.namespace)
        await bench.admin.delete(
            "batch/v1", "Job", "work", bench.namespace, uid=found["metadata"]["uid"], propagation="Orphan"
        )
        await eventually(lambda: left_by(bench.remove(3.0), {"Pod"}), 60)
        assert (await bench.force_remove()).gone
        await nothing_left(bench)

    async def test_cancellation_is_obeyed_while_waiting(self, bench: Bench):
        bench.components = (job(**STUBBORN),)
        await bench.launch()
        task = asyncio.create_task(bench.remove(60.0))
        await eventually(lambda: dying(bench))
        assert bench.environment is not None
        bench.environment.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 15.0)
        assert (await bench.force_remove()).gone


class TestForced:
    async def test_A8_pods_first_with_grace_zero_and_each_by_its_uid(self, bench: Bench):
        bench.components = (config(), job(pods=3, **STUBBORN))
        await bench.launch()
        pods = {one["metadata"]["name"]: one["metadata"]["uid"] for one in await bench.pods()}
        made = deletions(bench)
        account = f"system:serviceaccount:{bench.namespace}:{names.RUN_AS_DEFAULT}"
        assert (await bench.force_remove()).gone
        await nothing_left(bench)
        assert made[0][0] == f"{bench.namespace}/attempts/train-a1"
        forced = {
            path.rpartition("/")[2]: options["preconditions"]["uid"]
            for path, options, user in made
            if "/pods/" in path and options["gracePeriodSeconds"] == 0 and user == account
        }
        assert forced == pods

    async def test_X5_pods_that_the_account_may_not_delete_any_more_stay_and_are_told_with_why(self, bench: Bench):
        bench.components = (job(pods=1, **STUBBORN),)
        await bench.launch()
        await bench.may_not("delete", "v1", "Pod")
        removed = await bench.force_remove(2.0)
        assert not removed.gone, "nobody else deletes them by force"
        (told,) = [one.name for one in removed.remnants if one.kind == "Pod"]
        assert "which may not be deleted: " in told
        assert "cannot delete resource" in told

    @pytest.mark.parametrize("late", [0, 1])
    async def test_A8_pods_of_several_pages_are_all_forced_and_proven_gone(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, late: int
    ):
        bench.components = (config(), job(pods=5, **STUBBORN))
        await bench.launch()
        pods = {one["metadata"]["uid"] for one in await bench.pods()}
        assert len(pods) == 5
        monkeypatch.setattr(kube_module, "PAGE", 2)
        left, pages = late, paged(bench)
        before = bench.kube._request

        async def request(method: str, path: str, **options: Any) -> Object:
            nonlocal left
            if left and (options.get("query") or {}).get("continue"):
                left -= 1
                raise Gone(410, "Expired", "the provided continue parameter is too old")
            return await before(method, path, **options)

        monkeypatch.setattr(bench.kube, "_request", request)
        made = deletions(bench)
        assert (await bench.force_remove()).gone
        await nothing_left(bench)
        assert left == 0
        assert pages or late, "its pods came in pages"
        forced = {options["preconditions"]["uid"] for path, options, _ in made if "/pods/" in path}
        assert forced == pods

    async def test_A8_after_a_graceful_removal_that_did_not_end(self, bench: Bench):
        bench.components = (job(**STUBBORN), deployment(**STUBBORN), pod(**STUBBORN))
        await bench.launch()
        assert not (await bench.remove(1.0)).gone
        assert (await bench.force_remove()).gone
        await nothing_left(bench)

    async def test_U2_a_finalizer_on_a_pod_blocks_until_it_is_taken_off_and_is_named(self, bench: Bench):
        bench.components = (job(pods=1, finalizers=HOLD),)
        await bench.launch()
        (held,) = await bench.pods()
        removed = await bench.force_remove(5.0)
        assert not removed.gone
        assert removed.remnants[0].name == held["metadata"]["name"]
        assert "example.com/hold" in removed.remnants[0].finalizers
        made = deletions(bench)
        task = asyncio.create_task(bench.force_remove(30.0))
        await asyncio.sleep(2.5)
        assert not [path for path, _, _ in made if "/pods/" in path], "a pod that only a finalizer holds is let be"
        await let_go(bench, "v1", "Pod", held["metadata"]["name"])
        assert (await task).gone
        await nothing_left(bench)

    async def test_resources_that_the_collector_does_not_remove_are_deleted_as_the_account(self, bench: Bench):
        """Here the owner was orphaned of its dependents, so that no collector comes."""
        bench.components = (config(), deployment(**STUBBORN))
        await bench.launch()
        owner = await bench.owner()
        assert owner is not None
        key = (names.API_VERSION, names.ATTEMPT_KIND, "train-a1", bench.namespace)
        await bench.admin.delete(*key, uid=bench.owner_uid, propagation="Orphan")
        await eventually(lambda: orphaned(bench))
        made = deletions(bench)
        assert (await bench.force_remove()).gone
        await nothing_left(bench)
        account = f"system:serviceaccount:{bench.namespace}:{names.RUN_AS_DEFAULT}"
        assert {user for path, _, user in made if "/configmaps/" in path or "/deployments/" in path} == {account}

    async def test_what_a_component_has_brought_forth_is_left_too(self, bench: Bench):
        """A CronJob's Job without pods, whose parent went by itself: it could still make pods."""
        cron = cron_job()
        bench.components = (cron,)
        await bench.launch()
        (made,) = bench.objects
        child = job("child").template
        child["spec"]["suspend"] = True
        parent = {"apiVersion": "batch/v1", "kind": "CronJob", "name": made.name, "uid": made.uid}
        child["metadata"] |= {"namespace": bench.namespace, "ownerReferences": [parent], "finalizers": HOLD}
        await bench.admin.create(child)
        removed = await eventually(lambda: left_by(bench.force_remove(3.0), {"Job"}), 60)
        assert [(one.kind, one.name, one.finalizers) for one in removed.remnants] == [("Job", "child", (*HOLD,))]
        await let_go(bench, "batch/v1", "Job", "child")
        assert (await bench.force_remove()).gone

    async def test_a_silent_node_is_told(self, bench: Bench, admin: Kube):
        node = await admin.create(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"silent-{bench.namespace}"}}
        )
        name = node["metadata"]["name"]
        try:
            bench.components = (pod(finalizers=HOLD),)
            template = bench.components[0].template
            template["spec"]["nodeName"] = name
            await bench.prepare()
            assert (await bench.create()).failure is None
            removed = await bench.force_remove(2.0)
            (one, *_) = removed.remnants
            assert (one.node, one.unreachable) == (name, True)
            assert "does not answer: its processes may still run" in one.sentence()
            await let_go(bench, "v1", "Pod", "solo")
            assert (await bench.force_remove()).gone
        finally:
            await admin.delete("v1", "Node", name, uid=node["metadata"]["uid"])


class TestAnchor:
    async def test_it_stays_held_while_the_workload_lives(self, bench: Bench):
        await bench.launch()
        await bench.remove()
        anchor = await bench.anchor()
        assert anchor is not None
        assert anchor["metadata"]["finalizers"] == [names.FINALIZER]
        assert anchor["status"]["reason"] == Reason.DELETION_COMPLETE

    async def test_it_is_released_when_the_workload_has_ended(self, bench: Bench):
        await bench.launch()
        await bench.remove(release_anchor=True)
        anchor = await bench.anchor()
        assert anchor is not None
        assert "finalizers" not in anchor["metadata"]
        assert (await bench.remove(release_anchor=True)).gone

    async def test_A16_it_goes_when_the_workload_was_deleted(self, bench: Bench):
        await bench.launch()
        await bench.remove(release_anchor=True, delete_anchor=True)
        await eventually(lambda: anchor_gone(bench))
        assert (await bench.remove(release_anchor=True, delete_anchor=True)).gone

    async def test_A16_it_goes_when_its_user_had_deleted_it(self, bench: Bench):
        prepared = await bench.prepare()
        await bench.create()
        key = (names.API_VERSION, names.ANCHOR_KIND, "train", bench.namespace)
        await bench.admin.delete(*key, uid=prepared.anchor_uid)
        await bench.remove(release_anchor=True, delete_anchor=True)
        await eventually(lambda: anchor_gone(bench))

    @pytest.mark.parametrize("quick", [False, True])
    async def test_A10_another_hands_finalizer_keeps_it_with_a_status_that_is_true(self, bench: Bench, quick: bool):
        await bench.launch()
        anchor = await bench.anchor()
        assert anchor is not None
        key = (names.API_VERSION, names.ANCHOR_KIND, "train", bench.namespace)
        hold = {"metadata": {"finalizers": [names.FINALIZER, *HOLD]}}
        await bench.admin.patch(*key, uid=anchor["metadata"]["uid"], patch=hold)
        if quick:
            await bench.send_report(bench.report(phase=Phase.SUCCEEDED, attempt=1))
        event = Event(reason=Reason.CANCEL_REQUESTED, message="no longer wanted")
        report = bench.report(phase=Phase.SUCCEEDED, events=(event,))
        assert (await bench.remove(report=report, release_anchor=True, delete_anchor=True)).gone
        assert [one["message"] for one in await bench.events()] == ["no longer wanted"]
        anchor = await bench.anchor()
        assert anchor is not None
        assert anchor["metadata"]["finalizers"] == HOLD
        assert "deletionTimestamp" in anchor["metadata"]
        assert anchor["status"]["reason"] == Reason.DELETION_COMPLETE
        await let_go(bench, *key[:3])

    async def test_what_goes_is_not_told_that_it_is_gone(self, bench: Bench):
        """Nothing is written but what is needed: the deleted anchor itself says that nothing is left.

        What is not gone yet is asked for again.
        """
        await bench.launch()
        asked = asked_of(bench)
        assert (await bench.remove(release_anchor=True, delete_anchor=True)).gone
        assert asked[:3] == ["PATCH status", "GET attempts", "DELETE train-a1"]
        assert asked[-5:] == ["GET train-a1", "GET work", "GET pods", "PATCH train", "DELETE train"]
        assert set(asked[3:-5]) <= {"GET attempts", "GET train-a1", "GET work", "GET pods"}

    @pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
    @pytest.mark.parametrize("stays", [False, True])
    async def test_the_quick_removal_of_what_has_ended_is_told_by_an_event_if_its_anchor_stays(
        self, bench: Bench, phase: Phase, stays: bool, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(remove_module, "UNTOLD_SECONDS", 60.0)  # The machine may be busy.
        await bench.launch()
        await bench.send_report(bench.report(phase=phase, attempt=1))
        asked = asked_of(bench)
        report = bench.report(phase=phase, events=(Event(reason=Reason.CANCEL_REQUESTED, message="no longer wanted"),))
        gone = bench.report(phase=phase, reason=Reason.DELETION_COMPLETE)
        ending = {"release_anchor": True, "delete_anchor": not stays}
        given: dict[str, Any] = {"report": report, "report_gone": gone, **ending}
        assert (await bench.remove(**given)).gone
        assert asked[:2] == ["DELETE train-a1", "GET attempts"], "nothing is read before"
        told = ["POST events", "PATCH status", "GET attempts", "PATCH train"]
        end = told if stays else ["PATCH train", "DELETE train"]
        proof = asked[-len(end) - 2 :]  # Where deletion takes longer, it is looked at meanwhile.
        assert proof == ["GET work", "GET pods", *end]
        assert [one["message"] for one in await bench.events()] == ["no longer wanted"] * stays

    @pytest.mark.parametrize("untold", [0.5, 60.0], ids=["while it lasts", "as its time is up"])
    async def test_the_slow_removal_of_what_has_ended_is_told(
        self, bench: Bench, untold: float, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(remove_module, "UNTOLD_SECONDS", untold)
        monkeypatch.setattr(remove_module, "UNTOLD_LAST", untold)
        bench.components = (job(**STUBBORN),)
        await bench.launch()
        await bench.send_report(bench.report(phase=Phase.SUCCEEDED, attempt=1))
        asked = asked_of(bench)
        event = Event(reason=Reason.CANCEL_REQUESTED, message="no longer wanted")
        report = bench.report(phase=Phase.SUCCEEDED, reason=Reason.DELETION_INITIATED, events=(event,))
        assert not (await bench.remove(2.5, report=report, release_anchor=True)).gone
        assert asked[:2] == ["DELETE train-a1", "GET attempts"], "nothing is read before"
        anchor = await bench.anchor()
        assert anchor is not None
        assert anchor["status"]["reason"] == Reason.DELETION_INITIATED
        assert [one["message"] for one in await bench.events()] == ["no longer wanted"]
        await bench.force_remove()

    async def test_the_removal_of_what_has_ended_is_told_as_late_as_when_most_ran_beside_it(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ):
        untold = iter([60.0])

        def spread(least: float, *_: float) -> float:
            return next(untold, 0.0) if least == remove_module.UNTOLD_SECONDS else least

        monkeypatch.setattr(remove_module.Pulse, "spread", spread)
        bench.components = (job(**STUBBORN),)
        await bench.launch()
        await bench.send_report(bench.report(phase=Phase.SUCCEEDED, attempt=1))
        asked = asked_of(bench)
        assert not (await bench.remove(2.5, report=bench.report(phase=Phase.SUCCEEDED), release_anchor=True)).gone
        told = asked.index("PATCH status")
        assert asked[:told].count("GET attempts") > 2, "it went on while the others ended"
        assert "GET attempts" not in asked[told:], "it is told as its time is up"
        await bench.force_remove()

    @pytest.mark.parametrize(
        "answered", [Unreachable(0, "Unreachable", "planted"), Forbidden(403, "Forbidden", "planted")]
    )
    async def test_the_first_deletion_of_what_has_ended_is_asked_for_again_if_it_fails(
        self, bench: Bench, answered: KubeError
    ):
        await bench.launch()
        await bench.send_report(bench.report(phase=Phase.SUCCEEDED, attempt=1))
        send, fails = bench.kube.mutate, [answered]

        async def mutate(method: str, path: str, **options: Any) -> Object:
            if method == "DELETE" and fails:
                raise fails.pop()
            return await send(method, path, **options)

        bench.kube.mutate = mutate  # type: ignore[method-assign]
        assert (await bench.remove(report=bench.report(phase=Phase.SUCCEEDED), release_anchor=True)).gone
        assert not fails

    @pytest.mark.parametrize("held", [False, True])
    async def test_what_holds_quota_does_not_wait_for_others_as_long_as_what_does_not(self, bench: Bench, held: bool):
        await bench.launch()
        quota = Condition(type=ConditionType.QUOTA_RESERVED, status=held, reason=Reason.COMPLETED, message="")
        await bench.send_report(bench.report(phase=Phase.FAILED, attempt=1))
        report = bench.report(phase=Phase.FAILED, conditions=(quota,))
        there, member = list[str](), Together.member

        def counted(self: Together) -> Any:
            there.append("ends" if self is bench.activities._site.together_at_ends else "others")
            return member(self)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Together, "member", counted)
            assert (await bench.remove(report=report, release_anchor=True)).gone
        assert there == ["others" if held else "ends"]

    async def test_the_event_of_a_removal_whose_rounds_get_no_answer_is_told_at_its_end(self, bench: Bench):
        bench.components = (job(**STUBBORN),)
        await bench.launch()
        send = bench.kube.mutate

        async def mutate(method: str, path: str, **options: Any) -> Object:
            if method == "DELETE":
                raise Unreachable(429, "TooManyRequests", "planted")
            return await send(method, path, **options)

        bench.kube.mutate = mutate  # type: ignore[method-assign]
        event = Event(reason=Reason.RESETTING, message="a pod has failed")
        assert not (await bench.remove(1.0, report=bench.report(events=(event,)))).gone
        assert [one["message"] for one in await bench.events()] == ["a pod has failed"]
        bench.kube.mutate = send  # type: ignore[method-assign]
        await bench.force_remove()

    @pytest.mark.parametrize(("tries", "ends"), [(2, True), (1, False)], ids=["a second try", "a retry of what failed"])
    async def test_a_second_try_and_a_removal_that_is_not_the_last_tell_first(
        self, bench: Bench, tries: int, ends: bool
    ):
        await bench.launch()
        await bench.send_report(bench.report(phase=Phase.FAILED))
        asked = asked_of(bench)
        removal = bench.removal(report=bench.report(phase=Phase.FAILED), release_anchor=ends)
        assert (await bench.run(bench.activities.remove, removal, tries=tries)).gone
        assert asked[:3] == ["PATCH status", "GET attempts", "DELETE train-a1"]

    async def test_what_has_an_event_to_tell_is_told_before_it_goes(self, bench: Bench):
        await bench.launch()
        events = (Event(reason=Reason.DELETION_COMPLETE, message="processes of it may still run on node-7"),)
        asked = asked_of(bench)
        gone = bench.report(sequence=1000, reason=Reason.DELETION_COMPLETE, events=events)
        assert (await bench.remove(report_gone=gone, release_anchor=True, delete_anchor=True)).gone
        assert asked[-4:] == ["PATCH status", "POST events", "PATCH train", "DELETE train"]
        assert [one["message"] for one in await bench.events()] == ["processes of it may still run on node-7"]

    async def test_a_finalizer_that_came_since_the_last_status_is_kept(self, bench: Bench):
        """The anchor is remembered as it was last written: what others have added since is not taken off."""
        await bench.launch()
        send = bench.kube.mutate

        async def mutate(method: str, path: str, **options: Any) -> Object:
            answer = await send(method, path, **options)
            if method == "DELETE" and path.endswith("/train-a1"):
                anchor = await bench.anchor()
                assert anchor is not None
                hold = {"metadata": {"finalizers": [names.FINALIZER, *HOLD]}}
                key = (names.API_VERSION, names.ANCHOR_KIND, "train", bench.namespace)
                await bench.admin.patch(*key, uid=anchor["metadata"]["uid"], patch=hold)
            return answer

        bench.kube.mutate = mutate  # type: ignore[method-assign]
        assert (await bench.remove(release_anchor=True, delete_anchor=True)).gone
        anchor = await bench.anchor()
        assert anchor is not None
        assert anchor["metadata"]["finalizers"] == HOLD
        assert anchor["status"]["reason"] == Reason.DELETION_COMPLETE
        await let_go(bench, names.API_VERSION, names.ANCHOR_KIND, "train")

    async def test_a_deletion_that_is_refused_is_told_as_begun_and_with_why(self, bench: Bench):
        await bench.launch()

        async def refuses(*place: str, **options: Any) -> Object:
            raise Forbidden(403, "Forbidden", f"a webhook denies it: {place[1]}")

        delete, bench.kube.delete = bench.kube.delete, refuses  # type: ignore[method-assign]
        report = bench.report(reason=Reason.RESETTING, events=(Event(reason=Reason.RESETTING, message="told"),))
        removed = await bench.remove(1.0, report=report)
        assert not removed.gone
        assert removed.remnants[0].sentence() == (
            "Attempt train-a1, which may not be deleted: a webhook denies it: Attempt"
        )
        anchor = await bench.anchor()
        assert anchor is not None
        assert anchor["status"]["reason"] == Reason.RESETTING
        assert [one["message"] for one in await bench.events()] == ["told"]
        bench.kube.delete = delete  # type: ignore[method-assign]
        assert (await bench.remove()).gone

    async def test_it_is_not_released_before_all_is_gone(self, bench: Bench):
        bench.components = (job(**STUBBORN),)
        await bench.launch()
        await bench.remove(1.0, release_anchor=True, delete_anchor=True)
        anchor = await bench.anchor()
        assert anchor is not None
        assert anchor["metadata"]["finalizers"] == [names.FINALIZER]
        assert anchor["status"]["reason"] == Reason.RESETTING
        await bench.force_remove()

    async def test_one_of_another_workload_is_left_alone(self, bench: Bench):
        await bench.launch()
        other = bench.target.model_copy(update={"workload_uid": "another"})
        await bench.remove(target=other, owner_uid="gone", plan=(), release_anchor=True, delete_anchor=True)
        anchor = await bench.anchor()
        assert anchor is not None
        assert "deletionTimestamp" not in anchor["metadata"]
        assert anchor["metadata"]["finalizers"] == [names.FINALIZER]

    async def test_owners_that_came_too_late_go_with_it(self, bench: Bench):
        await bench.launch()
        await bench.remove()
        await bench.prepare()
        bench.attempt = 2
        await bench.prepare()
        assert (await bench.remove(release_anchor=True)).gone

        async def swept() -> bool:
            listed = await bench.admin.list(names.API_VERSION, names.ATTEMPT_KIND, bench.namespace)
            return not listed["items"]

        await eventually(swept)


class TestBlind:
    async def test_while_the_cluster_does_not_answer_nothing_is_called_gone(
        self, far_kube: Kube, admin: Kube, namespace: str, line: Line
    ):
        bench = await Bench.make(far_kube, admin, namespace)
        await bench.launch()
        line.cut()
        task = asyncio.create_task(bench.remove(1.0))
        done, _ = await asyncio.wait({task}, timeout=3.0)
        assert not done, "its time is up, but nothing is known: that is for the first answer to say"
        owner = await bench.owner()
        assert owner is not None
        assert "deletionTimestamp" not in owner["metadata"]
        line.mend()
        assert (await task).blind
        assert (await bench.remove()).gone

    async def test_it_goes_on_when_the_cluster_answers_again(
        self, far_kube: Kube, admin: Kube, namespace: str, line: Line
    ):
        bench = await Bench.make(far_kube, admin, namespace)
        await bench.launch()
        line.hold()
        task = asyncio.create_task(bench.remove(30.0))
        await asyncio.sleep(2.0)
        line.mend()
        removed = await task
        assert removed.gone
        assert removed.blind
        await nothing_left(bench)

    async def test_what_an_earlier_try_could_not_see_is_still_told(self, bench: Bench):
        await bench.prepare()
        dark = {"begin": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:01:00Z"}
        removed = await bench.run(bench.activities.remove, bench.removal(), earlier=[{"blind": [dark]}])
        assert [one.end.minute for one in removed.blind] == [1]


def unread(bench: Bench, *kinds: str) -> None:
    """Have the API server answer 500 to whoever reads these kinds, as it does when their conversion webhook is away."""
    before = bench.kube.get

    async def get(api_version: str, kind: str, *where: str, **options: Any) -> Object:
        if kind in kinds:
            raise Unreachable(500, "InternalError", f"conversion webhook for {kind} failed")
        return await before(api_version, kind, *where, **options)

    bench.kube.get = get  # type: ignore[method-assign]


class TestUnreadKind:
    async def test_it_is_told_as_left_and_time_is_up_when_it_is_up(self, bench: Bench):
        bench.components = (config(metadata={"finalizers": HOLD}), job())
        await bench.launch()
        unread(bench, "ConfigMap")
        removed = await asyncio.wait_for(bench.remove(2.0), 30.0)
        assert not removed.gone
        assert "ConfigMap settings, which cannot be read: conversion webhook for ConfigMap failed" in [
            one.sentence() for one in removed.remnants
        ]
        assert removed.blind == ()

    async def test_A8_its_pods_are_forced_all_the_same(self, bench: Bench):
        bench.components = (config(), job(**STUBBORN))
        await bench.launch()
        unread(bench, "ConfigMap")
        removed = await asyncio.wait_for(bench.force_remove(4.0), 30.0)

        async def are_gone() -> bool:
            return await bench.pods() == []

        await eventually(are_gone)  # Their Job's controller lets go of them; nobody else ends a stubborn pod.
        assert not removed.gone, "what cannot be read is not proven gone"


class TestLostRights:
    async def test_what_nobody_may_read_is_not_called_gone(self, bench: Bench):
        bench.components = (config(),)
        await bench.launch()
        key = ("rbac.authorization.k8s.io/v1", "RoleBinding", names.RUN_AS_DEFAULT, bench.namespace)
        binding = await bench.admin.get(*key)
        await bench.admin.delete(*key, uid=binding["metadata"]["uid"])
        await eventually(lambda: unreadable(bench))
        removed = await eventually(lambda: left_by(bench.remove(3.0), {"ConfigMap"}), 60)
        (one,) = removed.remnants
        assert one.sentence().startswith("ConfigMap settings, which cannot be read: ")

    async def test_a_deleted_namespace_does_not_wait_for_itself(self, bench: Bench):
        """Its deletion takes the account's rights away, and waits for our anchor, which waits for the proof."""
        bench.components = (config(metadata={"finalizers": HOLD}), job())
        await bench.launch()
        found = await bench.admin.get("v1", "Namespace", bench.namespace)
        await bench.admin.delete("v1", "Namespace", bench.namespace, uid=found["metadata"]["uid"])
        await eventually(lambda: unreadable(bench), 30.0)
        assert (await bench.remove(60.0, release_anchor=True, delete_anchor=True)).gone
        assert await bench.pods() == []
        assert await bench.owner() is None
        await let_go(bench, "v1", "ConfigMap", "settings")

        async def gone() -> bool:
            return await bench.admin.find("v1", "Namespace", bench.namespace) is None

        await eventually(gone, 30.0)


def cron_job() -> Component:
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": pod_spec()}}}}
    return Component(
        name="nightly",
        template={"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": spec},
    )


@pytest.mark.parametrize(
    ("owner", "uid", "label", "child", "claim"),
    [
        ("set-uid", "j", "", True, True),
        ("other", "j", "", False, False),
        ("", "j", "w", True, False),
        ("", "set-uid", "w", False, False),
    ],
)
def test_a_child_is_known_by_its_parent_or_its_label(owner: str, uid: str, label: str, child: bool, claim: bool):
    thing = {"metadata": {"uid": uid, "ownerReferences": [{"uid": owner}], "labels": {names.LABEL_WORKLOAD_UID: label}}}
    assert is_child(thing, "w", {"set-uid"}) is child
    assert is_child(thing, None, {"set-uid"}) is claim


async def dying(bench: Bench) -> bool:
    owner = await bench.owner()
    return owner is not None and "deletionTimestamp" in owner["metadata"]


async def orphaned(bench: Bench) -> bool:
    found = await bench.admin.get("v1", "ConfigMap", "settings", bench.namespace)
    return await bench.owner() is None and "ownerReferences" not in found["metadata"]


async def anchor_gone(bench: Bench) -> bool:
    return await bench.anchor() is None


async def unreadable(bench: Bench) -> bool:
    user = f"system:serviceaccount:{bench.namespace}:{names.RUN_AS_DEFAULT}"
    try:
        await bench.kube.get("v1", "ConfigMap", "settings", bench.namespace, impersonate=user)
    except Forbidden:
        return True
    return False


async def test_a_deletion_without_a_uid_is_refused(bench: Bench):
    with pytest.raises(ValueError, match="no uid"):
        await bench.kube.delete("v1", "Pod", "solo", bench.namespace, uid="")
    with pytest.raises(NotFound):
        await bench.admin.delete("v1", "Pod", "solo", bench.namespace, uid="some")
