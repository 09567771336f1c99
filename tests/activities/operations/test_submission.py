"""What the submission profile asks of preparation and creation: replace what was interrupted, wait for rights."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.activities.kube.client import Kube, Object, Unreachable
from holdfast.activities.objects.make import OWNER_GONE
from tests.activities.bench import Bench, config, eventually, job, pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]

ROLE = ("rbac.authorization.k8s.io/v1", "Role", names.RUN_AS_DEFAULT)


def posts(kube: Kube) -> list[str]:
    """Record what a client creates as a run-as account."""
    made: list[str] = []
    before = kube.mutate

    async def mutate(method: str, path: str, **options: Any) -> Object:
        if options.get("impersonate"):
            made.append(f"{method} {path.rpartition('/')[2]}")
        return await before(method, path, **options)

    kube.mutate = mutate  # type: ignore[method-assign]
    return made


async def said(bench: Bench, *words: str) -> bool:
    return any(all(word in one["doing"] for word in words) for one in bench.heartbeats)


async def let_jobs(bench: Bench, allowed: bool) -> None:
    """Give the run-as account the right to handle Jobs, or take it."""
    role = await bench.admin.get(*ROLE, bench.namespace)
    for rule in role["rules"]:
        if rule["apiGroups"] == ["batch"]:
            rule["resources"] = [*(one for one in rule["resources"] if one != "jobs"), *(["jobs"] if allowed else [])]
    await bench.admin.patch(*ROLE, bench.namespace, uid=role["metadata"]["uid"], patch={"rules": role["rules"]})
    jobs = await bench.admin.resource("batch/v1", "Job")
    user = f"system:serviceaccount:{bench.namespace}:{names.RUN_AS_DEFAULT}"

    async def in_force() -> bool:
        return (await bench.admin.allowed("create", jobs, bench.namespace, impersonate=user))[0] is allowed

    await eventually(in_force)


async def submitted(bench: Bench) -> bool:
    owner = await bench.owner()
    return bool(owner and owner.get("status", {}).get("submitted"))


class TestInterrupted:
    @pytest.mark.parametrize("made", [0, 1, 2])
    async def test_S4_a_second_try_fills_no_gap_and_adopts_nothing(self, bench: Bench, made: int):
        bench.components = (config(), job())
        await bench.prepare()
        there = await bench.create(components=bench.components[:made])
        await unmark(bench)
        calls = posts(bench.kube)
        created = await bench.create(replaces_interrupted=True, tries=2)
        assert "submission of attempt 1 was interrupted: it is replaced whole" in created.interrupted
        assert (created.objects, created.failure) == ((), None)
        assert calls == []
        assert not await submitted(bench)
        for one in there.objects:
            found = await bench.admin.get(one.api_version, one.kind, one.name, bench.namespace)
            assert found["metadata"]["uid"] == one.uid

    async def test_S4_what_is_there_already_in_a_first_try_was_made_by_one_that_nobody_counted(self, bench: Bench):
        """As after a memory that was put back: the activity is scheduled anew, and counts its tries anew."""
        bench.components = (config(), job())
        await bench.prepare()
        await bench.create(components=(config(),))
        await unmark(bench)
        created = await bench.create(replaces_interrupted=True)
        assert f"ConfigMap {bench.namespace}/settings of attempt 1 was there already" in created.interrupted
        assert await bench.admin.find("batch/v1", "Job", "work", bench.namespace) is None
        assert not await submitted(bench)

    async def test_S3_a_second_try_of_what_was_submitted_changes_nothing(self, bench: Bench):
        bench.components = (config(), job(), pod())
        await bench.prepare()
        first = await bench.create(replaces_interrupted=True)
        assert (first.interrupted, first.failure) == ("", None)
        before = [await bench.admin.get(one.api_version, one.kind, one.name, bench.namespace) for one in first.objects]
        owner = await bench.owner()
        calls = posts(bench.kube)
        second = await bench.create(replaces_interrupted=True, tries=2)
        assert second == first
        assert calls == []
        assert await bench.owner() == owner
        after = [await bench.admin.get(one.api_version, one.kind, one.name, bench.namespace) for one in first.objects]
        assert [one["metadata"]["uid"] for one in after] == [one["metadata"]["uid"] for one in before]

    async def test_S3_what_was_submitted_and_has_lost_an_object_since_is_not_filled_up(self, bench: Bench):
        bench.components = (config(), job())
        await bench.prepare()
        first = await bench.create(replaces_interrupted=True)
        await bench.admin.delete("v1", "ConfigMap", "settings", bench.namespace, uid=first.objects[0].uid)
        second = await bench.create(replaces_interrupted=True, tries=2)
        assert second.objects == first.objects[1:]
        assert second.interrupted == ""
        assert await bench.admin.find("v1", "ConfigMap", "settings", bench.namespace) is None

    async def test_an_answer_that_was_lost_is_no_interruption(self, bench: Bench):
        """The API server made it and its answer did not come: the same try finds it, and it is its own."""
        bench.components = (config(), job())
        await bench.prepare()
        before = bench.kube.mutate
        lost: list[str] = []

        async def mutate(method: str, path: str, **options: Any) -> Object:
            answer = await before(method, path, **options)
            if path.endswith("/configmaps") and not lost:
                lost.append(path)
                raise Unreachable(0, "Unreachable", "the answer was lost")
            return answer

        bench.kube.mutate = mutate  # type: ignore[method-assign]
        created = await bench.create(replaces_interrupted=True)
        assert lost
        assert (created.interrupted, created.failure) == ("", None)
        assert len(created.objects) == 2
        assert await submitted(bench)

    async def test_the_owners_loss_goes_before_an_interruption(self, bench: Bench):
        await bench.prepare()
        key = (names.API_VERSION, names.ATTEMPT_KIND, "train-a1", bench.namespace)
        await bench.admin.delete(*key, uid=bench.owner_uid)

        async def gone() -> bool:
            return await bench.owner() is None

        await eventually(gone)
        created = await bench.create(replaces_interrupted=True, tries=2)
        assert created.failure is not None
        assert (created.failure.reason, created.interrupted) == (OWNER_GONE, "")


async def unmark(bench: Bench) -> None:
    """Put the attempt back to where it was not submitted yet, as a worker leaves it that dies on the way."""
    owner = await bench.owner()
    assert owner is not None
    await bench.admin.patch(
        names.API_VERSION,
        names.ATTEMPT_KIND,
        owner["metadata"]["name"],
        bench.namespace,
        uid=bench.owner_uid,
        resource_version=owner["metadata"]["resourceVersion"],
        subresource="status",
        patch={"status": {"submitted": None}},
    )


class TestWaits:
    async def test_S2_a_right_that_is_missing_is_waited_for_in_creation_too(self, bench: Bench):
        """It was there when it was asked for, and was taken away since."""
        bench.components = (config(), job())
        await bench.prepare()
        await let_jobs(bench, False)
        task = asyncio.create_task(bench.create(waits=True, patience=None))
        await eventually(lambda: said(bench, "waiting for 1 of 1 Job: creating Job work", "cannot create resource"))
        assert not task.done()
        assert not await submitted(bench)
        await let_jobs(bench, True)
        created = await task
        assert created.failure is None
        assert await submitted(bench)

    async def test_S10_and_not_for_longer_than_was_asked(self, bench: Bench):
        bench.components = (config(), job())
        await bench.prepare()
        await let_jobs(bench, False)
        created = await bench.create(waits=True, patience=1.5)
        assert created.failure is not None
        assert (created.failure.reason, created.failure.component, created.exhausted) == ("Forbidden", "work", True)
        assert [one.kind for one in created.objects] == ["ConfigMap"]

    async def test_what_stays_refused_is_not_waited_for(self, bench: Bench):
        bench.components = (config(metadata={"labels": {"not a label": "x"}}),)
        await bench.prepare()
        created = await bench.create(waits=True, patience=None)
        assert created.failure is not None
        assert not created.exhausted

    async def test_S2_preparation_waits_for_a_right_and_makes_nothing_meanwhile(self, bench: Bench):
        bench.components = (config(), job())
        await let_jobs(bench, False)
        task = asyncio.create_task(bench.prepare(waits=True))
        await eventually(
            lambda: said(bench, "waiting for 2 components to be permitted", "may not create jobs of batch")
        )
        assert (await bench.anchor(), await bench.owner()) == (None, None)
        await let_jobs(bench, True)
        await task
        assert await bench.owner() is not None

    async def test_S2_preparation_waits_for_the_namespace_to_be_enabled(self, bench: Bench):
        await enable(bench, None)
        task = asyncio.create_task(bench.prepare(waits=True))
        await eventually(lambda: said(bench, f"holdfast namespace enable {bench.namespace}"))
        await enable(bench, "true")
        await task
        assert await bench.anchor() is not None

    async def test_S10_preparation_waits_no_longer_than_was_asked(self, bench: Bench):
        await let_jobs(bench, False)
        with pytest.raises(ApplicationError, match=r"not submitted in time: .* may not create jobs of batch") as caught:
            await bench.prepare(waits=True, patience=1.0)
        assert (caught.value.type, caught.value.non_retryable) == (names.ERROR_SUBMISSION_TIMEOUT, True)
        assert (await bench.anchor(), await bench.owner()) == (None, None)

    async def test_what_no_grant_can_change_is_refused_at_once(self, bench: Bench):
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "thing"}}
        bench.components = (config().model_copy(update={"template": secret}),)
        with pytest.raises(ApplicationError, match="payload encryption") as caught:
            await bench.prepare(waits=True)
        assert caught.value.type == names.ERROR_REFUSED


async def enable(bench: Bench, value: str | None) -> None:
    found = await bench.admin.get("v1", "Namespace", bench.namespace)
    patch = {"metadata": {"labels": {names.LABEL_NAMESPACE_ENABLED: value}}}
    await bench.admin.patch("v1", "Namespace", bench.namespace, uid=found["metadata"]["uid"], patch=patch)


class TestOtherAttempts:
    @pytest.mark.parametrize("attempt", [1, 2])
    async def test_a_later_attempt_is_not_begun_before(self, bench: Bench, attempt: int):
        bench.attempt = 3
        await bench.prepare()
        bench.attempt = attempt
        with pytest.raises(ApplicationError, match="the cluster holds attempt 3") as caught:
            await bench.prepare()
        assert (caught.value.type, caught.value.details) == (names.ERROR_FOREIGN_ATTEMPT, (3,))
        assert await bench.owner() is None

    @pytest.mark.parametrize("how", ["submitted", "with pods"])
    async def test_an_earlier_attempt_that_lives_is_not_joined(self, bench: Bench, how: str):
        bench.components = (pod(),)
        await bench.launch()
        if how == "with pods":
            await unmark(bench)
        bench.attempt = 2
        with pytest.raises(ApplicationError, match="attempt 1, which was proven gone, is there again") as caught:
            await bench.prepare()
        assert (caught.value.type, caught.value.details) == (names.ERROR_FOREIGN_ATTEMPT, (2,))
        assert await bench.owner() is None

    async def test_an_earlier_owner_under_which_nothing_runs_does_not_hold_it_up(self, bench: Bench):
        await bench.prepare()
        bench.attempt = 2
        assert (await bench.prepare()).owner_uid

    async def test_reports_go_on_above_what_the_anchor_bears(self, bench: Bench):
        first = await bench.prepare(report=bench.report(sequence=41))
        assert first.sequence in {0, 41}
        assert (await bench.prepare(report=bench.report(sequence=7))).sequence == 41
        anchor = await bench.anchor()
        assert anchor is not None
        assert anchor["status"]["sequence"] == 41
