"""Lives in the archive, when Temporal has forgotten them: a real Temporal, a real S3 store, encrypted payloads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.service import RPCError

from tests.e2e.ground.site import appwrapper, job, until
from tests.e2e.ground.space import Space, pod
from tests.e2e.ground.terminal import command, run
from tests.store import BUCKET, Store, open_store

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]
ARCHIVE = f"s3://{BUCKET}/histories"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store, which the commands of a site find by their environment."""
    with open_store(tmp_path / "store") as opened:
        given = opened.settings(tmp_path / "cache")
        monkeypatch.setattr("tests.e2e.ground.terminal.shell", lambda site: site.command()[1] | given, raising=True)
        yield opened


async def forgotten(space: Space, workflow_id: str) -> None:
    """Have Temporal remove a workflow, as its retention does."""
    client = space.site.client
    execution = WorkflowExecution(workflow_id=workflow_id)
    asked = DeleteWorkflowExecutionRequest(namespace=space.site.cluster, workflow_execution=execution)
    await client.workflow_service.delete_workflow_execution(asked)

    async def gone() -> bool:
        try:
            await client.get_workflow_handle(workflow_id).describe()
        except RPCError:
            return True
        return False

    await until(gone, 60, f"{workflow_id} is gone")


@pytest.mark.row("O6", level="e2e")
async def test_O6_lives_are_read_from_the_archive_when_temporal_has_forgotten_them(space: Space, store: Store):
    first = await space.submit(appwrapper("ends", job("ends", complete="0s")))
    second = await space.submit(appwrapper("fails", pod("fails"), retryLimit="1", failureGracePeriodDuration="0s"))
    running = await space.submit(appwrapper("runs", job("runs")))
    for attempt in (1, 2):
        await space.reach(second, "Running", attempt)
        await space.fail_pod("fails")
    ends = [await space.ended(one) for one in (first, second)]
    assert [str(one.phase) for one in ends] == ["Succeeded", "Failed"]
    await space.reach(running, "Running", 1)

    def kept() -> int:
        """How many runs of this test's own workloads the archive has: others of the cluster may have ended too."""
        found = obstore.list(store.bucket(), "histories").collect()
        return sum(f"/{space.namespace}/" in one["path"] for one in found)

    async def listed() -> bool:
        await command(space.site, "archive", ARCHIVE)
        return kept() == 2

    await until(listed, 60, "visibility tells of both, and both are kept", pause=1)
    again = json.loads(await command(space.site, "archive", ARCHIVE, "-o", "json"))
    assert again["there"] >= 2
    assert kept() == 2, "what runs is not archived, and nothing is written twice"

    name = f"{space.namespace}/fails"
    before = json.loads(await command(space.site, "history", name, "-o", "json"))
    costs = json.loads(await command(space.site, "goodput", name, "-o", "json"))
    await forgotten(space, second.id)
    missing = await run(space.site, "history", name)
    assert missing.code == 2
    there = ("--archive", ARCHIVE)
    assert json.loads(await command(space.site, "history", name, *there, "-o", "json")) == before
    assert json.loads(await command(space.site, "goodput", name, *there, "-o", "json")) == costs
    page = await command(space.site, "report", name, *there, "-o", "-")
    assert "fails" in page


@pytest.mark.row("O6", level="e2e")
async def test_O6_what_is_no_archive_and_what_is_not_in_it_is_refused(space: Space, store: Store):
    wrong = await run(space.site, "archive", "histories")
    assert wrong.code == 2
    assert "expected s3://bucket/prefix" in wrong.errors
    nothing = await run(space.site, "history", f"{space.namespace}/nobody", "--archive", ARCHIVE)
    assert nothing.code == 2
    store.kill()
    away = await run(space.site, "archive", ARCHIVE.replace("histories", "others"))
    assert away.code in {0, 3}, "nothing to keep, or a store that does not answer"
    unread = await run(space.site, "history", f"{space.namespace}/nobody", "--archive", ARCHIVE)
    assert unread.code == 3
    assert "HOLDFAST_DATA_ENDPOINT" in unread.errors
