"""A gang's Job on a real cluster: made with as many pods as a round may have, resized while it runs (rows T6, T13)."""

from __future__ import annotations

import pytest

from holdfast import names
from holdfast.activities.contract import GangPods, Scaled, ScaleInput
from holdfast.activities.kube import Object
from holdfast.activities.scale import scale
from holdfast.activities.site import Site
from holdfast.activities.snapshot import plan_of
from holdfast.model import Limits
from tests.activities.bench import INSTALLATION, Bench, eventually, job
from tests.activities.test_replace import changes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
ROW = pytest.mark.row


class Gang:
    """A gang of three of which one at least must run, on a bench."""

    def __init__(self, bench: Bench) -> None:
        given = bench.target
        self.bench = bench
        self.site = Site(bench.kube, given.cluster, given.cluster_uid, INSTALLATION, Limits())
        self.told: list[tuple[int, int]] = []

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

    async def tell(self, given: ScaleInput) -> None:
        self.told.append((given.min, given.max))

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


async def test_what_is_gone_or_has_no_right_to_be_resized_keeps_its_size(gang: Gang):
    bench = gang.bench
    found = await work(bench)
    await bench.admin.delete("batch/v1", "Job", "work", bench.namespace, uid=found["metadata"]["uid"])
    assert (await gang.scaled(4)).done, "whoever looks next notices that it is gone"
