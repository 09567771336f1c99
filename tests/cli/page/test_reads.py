"""What the pages read from a real Temporal: each workload by its kind, and a fleet in its order (rows E1 and F7)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from aiohttp.test_utils import TestClient, TestServer
from temporalio.client import Client

from holdfast import Holdfast, Phase, names
from holdfast.cli.page import reads
from holdfast.cli.page.reads import Reader
from holdfast.cli.page.server import application
from holdfast.model import Source, Workload
from holdfast.workflows import start
from tests.client.conftest import a_workload
from tests.e2e.ground.site import until

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(90)]


@pytest.fixture
async def pages(address: str) -> AsyncIterator[TestClient]:
    made = Reader("dev", lambda: Holdfast.connect(address, "default", "dev"))
    async with TestClient(TestServer(application(made))) as client:
        yield client


async def shown(pages: TestClient, path: str, **query: str) -> str:
    answer = await pages.get(path, params=query)
    text = await answer.text()
    assert answer.status == 200, text
    return text


@pytest.fixture
async def holdfast(client: Client) -> AsyncIterator[Holdfast]:
    async with Holdfast.connect(client=client, cluster="dev") as session:
        yield session


def in_namespace(namespace: str, number: int) -> Sequence[Workload]:
    return [a_workload(name=f"train-{each}", namespace=namespace) for each in range(number)]


async def test_each_of_two_kinds_of_one_name_has_its_page(holdfast: Holdfast, pages: TestClient):
    submitted = await holdfast.submit(a_workload(name="train", namespace="kinds"))
    source = Source(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", generation=1)
    for name in ("train", "other"):
        applied = start.stamped(a_workload(name=name, namespace="kinds")).model_copy(update={"source": source})
        await holdfast.client.start_workflow(names.WORKLOAD_WORKFLOW, **start.options(applied, again=False))
    for path in ("kinds/train", "kinds/appwrapper/train"):
        assert f"uid {submitted.uid}" in await shown(pages, f"/workloads/{path}")
    jobset = await holdfast.get("jobset/train", "kinds")
    assert f"uid {jobset.uid}" in await shown(pages, "/workloads/kinds/jobset/train")
    assert f"uid {(await holdfast.get('other', 'kinds')).uid}" in await shown(pages, "/workloads/kinds/other")
    for path in ("kinds/pod/train", "kinds/jobset/x/train"):
        assert (await pages.get(f"/workloads/{path}")).status == 404


async def test_only_workloads_with_a_workflow_count_in_a_phase_and_the_newest_is_first(
    holdfast: Holdfast, pages: TestClient, monkeypatch: pytest.MonkeyPatch
):
    older, newer = [await holdfast.submit(one) for one in in_namespace("lost", 2)]
    await newer.handle.terminate("for the test")
    reader = Reader("dev", lambda: Holdfast.connect(client=holdfast.client, cluster="dev"))

    async def indexed() -> bool:
        told = await reader.fleet(None, "lost")
        return bool(told["lost"]) and len(told["found"]) == 2

    await until(indexed, 30, "Temporal's index has both")
    values = await reader.fleet(None, "lost")
    assert (values["counts"], values["lost"], values["cut"]) == ({Phase.PENDING: 1}, 1, False)
    assert [each.name for each in values["found"]] == [newer.name, older.name], "Temporal lists what runs first"
    assert [each.name for each in (await reader.fleet(Phase.PENDING, "lost"))["found"]] == [older.name]
    assert "1</b> ended without an outcome" in await shown(pages, "/", namespace="lost")
    monkeypatch.setattr(reads, "LISTED", 1)
    assert (await reader.fleet(None, "lost"))["cut"]
    await reader.close()
