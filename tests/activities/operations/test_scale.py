"""A gang's Job on a real cluster: made with as many pods as a round may have, resized while it runs (rows T6, T13)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.facts.snapshot import plan_of
from holdfast.activities.kube.client import Forbidden, Kube, Object
from holdfast.activities.operations.scale import scale
from holdfast.activities.site.site import Site
from holdfast.model import Limits
from holdfast.model.calls.cluster import GangPods, Scaled, ScaleInput
from tests.activities.bench import INSTALLATION, Bench, eventually, job
from tests.activities.operations.test_replace import changes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
ROW = pytest.mark.row


class Gang:
    """A gang of three of which one at least must run, on a bench."""

    def __init__(self, bench: Bench) -> None:
        given = bench.target
        self.bench = bench
        self.site = Site(bench.kube, given.cluster, given.cluster_uid, INSTALLATION, Limits(), namespaces=bench.served)
        self.told: list[tuple[int, int]] = []
        self.refuses = ""

    async def scaled(self, most: int, least: int = 1) -> Scaled:
        bench = self.bench
        bench.components = (job("work", least),)
        given = ScaleInput(
            target=bench.target,
            attempt=1,
            owner_uid=bench.owner_uid,
            plan=bench.plan,
            component="work",
            min=least,
            max=most,
            pods=most,
        )
        return await bench.run(lambda it: scale(self.site, it, self.tell), given)

    async def tell(self, given: ScaleInput) -> str:
        self.told.append((given.min, given.max))
        return self.refuses

    async def living(self, count: int) -> list[str]:
        """Wait until so many pods live, and return their indexes."""

        async def check() -> list[str]:
            pods = [one for one in await self.bench.pods() if "deletionTimestamp" not in one["metadata"]]
            label = "batch.kubernetes.io/job-completion-index"
            found = sorted(one["metadata"]["labels"][label] for one in pods)
            return found if len(found) == count else []

        return await eventually(check)


@pytest.fixture
async def gang(bench: Bench) -> Gang:
    bench.components = (job("work", 1),)
    made = Gang(bench)
    await bench.prepare()
    created = await bench.create(gang=GangPods(component="work", pods=3))
    assert created.failure is None
    return made


async def work(bench: Bench) -> Object:
    return await bench.admin.get("batch/v1", "Job", "work", bench.namespace)


@ROW("T6", level="e2e")
async def test_T6_a_gangs_job_gets_and_loses_pods_by_their_index(gang: Gang):
    assert await gang.living(3) == ["0", "1", "2"]
    before = await work(gang.bench)
    assert (await gang.scaled(5)).done
    assert await gang.living(5) == ["0", "1", "2", "3", "4"]
    assert (await gang.scaled(2, 2)).done
    assert await gang.living(2) == ["0", "1"]
    after = await work(gang.bench)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert gang.told == [(1, 5), (2, 2)], "the rendezvous is told each time"
    owner = names.attempt_name(gang.bench.target.name, 1)
    attempt = await gang.bench.admin.get(names.API_VERSION, names.ATTEMPT_KIND, owner, gang.bench.namespace)
    assert [one.expected_pods for one in plan_of(attempt)] == [2], "and whoever watches it, what is expected"


@ROW("T6", level="e2e")
async def test_T6_a_size_that_stands_already_changes_nothing(gang: Gang):
    made = changes(gang.bench.kube)
    assert (await gang.scaled(3)).done
    assert [what for method, what, _ in made if method == "PATCH" and what.startswith("jobs/")] == []


@ROW("D40", level="e2e")
async def test_D40_a_refused_resize_is_rehearsed_and_changes_neither_job_nor_rendezvous_nor_plan(bench: Bench):
    given = job("work", 1)
    spec = {**given.template["spec"], "backoffLimitPerIndex": 1, "maxFailedIndexes": 3}
    bench.components = (given.model_copy(update={"template": {**given.template, "spec": spec}}),)
    made = Gang(bench)
    await bench.prepare()
    created = await bench.create(gang=GangPods(component="work", pods=3))
    assert created.failure is None
    refused = await made.scaled(2, 2)
    assert not refused.done
    assert "maxFailedIndexes" in refused.refused
    assert made.told == [], "the rendezvous was told of nothing that did not come"
    found = await work(bench)
    assert (found["spec"]["parallelism"], found["spec"]["completions"]) == (3, 3)
    owner = names.attempt_name(bench.target.name, 1)
    attempt = await bench.admin.get(names.API_VERSION, names.ATTEMPT_KIND, owner, bench.namespace)
    assert [one.expected_pods for one in plan_of(attempt)] == [1]


@ROW("D40", level="e2e")
async def test_D40_a_rendezvous_that_will_not_have_the_size_leaves_the_job_as_it_is(gang: Gang):
    gang.refuses = "a member has succeeded"
    told = await gang.scaled(2)
    assert (told.done, told.refused) == (False, "its rendezvous: a member has succeeded")
    assert (await work(gang.bench))["spec"]["completions"] == 3


@ROW("D40", level="e2e")
async def test_D40_an_authorizer_that_has_not_read_a_role_yet_is_asked_again(gang: Gang):
    gang.site = dataclasses.replace(gang.site, kube=Unread(gang.bench.kube, 2))  # type: ignore[arg-type]
    told = await gang.scaled(2)
    assert (told.done, told.refused) == (True, "")
    assert (await work(gang.bench))["spec"]["completions"] == 2
    assert gang.told == [(1, 2)]


class Unread:
    """A cluster whose authorizer lacks a role when a Job is to change, so many times."""

    def __init__(self, kube: Kube, times: int) -> None:
        self.kube = kube
        self.times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kube, name)

    async def patch(self, api_version: str, kind: str, *rest: Any, **more: Any) -> Object:
        if kind == "Job" and self.times:
            self.times -= 1
            raise Forbidden(
                403, "Forbidden", 'jobs "work" is forbidden: RBAC: role.rbac.authorization.k8s.io not found'
            )
        return await self.kube.patch(api_version, kind, *rest, **more)


async def test_what_is_gone_or_has_no_right_to_be_resized_keeps_its_size(gang: Gang):
    bench = gang.bench
    found = await work(bench)
    await bench.admin.delete("batch/v1", "Job", "work", bench.namespace, uid=found["metadata"]["uid"])
    assert (await gang.scaled(4)).done, "whoever looks next notices that it is gone"


@ROW("X11", level="e2e")
async def test_X11_a_worker_of_other_namespaces_makes_no_gang_smaller_either(gang: Gang):
    gang.site = dataclasses.replace(gang.site, namespaces=("elsewhere",))
    found = await gang.scaled(2, 2)
    assert not found.done
    assert "is not among those this worker may act in" in found.refused
    assert (await work(gang.bench))["spec"]["parallelism"] == 3
    assert gang.told == []
