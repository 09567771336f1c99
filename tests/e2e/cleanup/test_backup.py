"""Temporal restored from its backup while the cluster lives on: what was submitted in between is found, and runs on.

The Temporal server is the test's own, beside the shared cluster. What a restore does to workloads that Temporal still
knows is in test_restored.py.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.service import RPCError

from holdfast import names
from holdfast.local import Stack
from tests.e2e.cleanup.test_sweep import command
from tests.e2e.ground.site import Site, appwrapper, job, open_site

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400), pytest.mark.row("O8", level="e2e")]
WAITS = {"failureGracePeriodDuration": "1s", "retryPausePeriodDuration": "0s", "successTTLDuration": "0s"}
SETTLE_SECONDS = 5.0


@pytest.fixture
async def own(stack: Stack) -> AsyncIterator[Stack]:
    """A Temporal server of the test's own, with its database in a file."""
    name = f"backup-{secrets.token_hex(3)}"
    opened = await asyncio.to_thread(Stack.up, name, kubeconfig=stack.kubeconfig, apply=False)
    try:
        yield opened
    finally:
        await asyncio.to_thread(opened.down, purge=True)


def back_up(own: Stack, target: Path) -> None:
    """Back Temporal's database up while the server runs, as docs/how-to/backup.md does."""
    target.mkdir()
    source = own.layout.data("temporal")
    with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(target / source.name)) as copy:
        live.backup(copy)


async def living(site: Site, namespace: str, name: str) -> dict[str, str]:
    """Return the pods of a workload that are not being deleted: their uids, with whose workload's they are."""
    return {
        pod["metadata"]["uid"]: pod["metadata"]["labels"][names.LABEL_WORKLOAD_UID]
        for pod in await site.pods(namespace)
        if pod["metadata"]["annotations"].get(names.ANNOTATION_WORKLOAD) == name
        and "deletionTimestamp" not in pod["metadata"]
    }


async def holdfast(site: Site, *arguments: str, expect: int = 0) -> str:
    """Run a command as a person would."""
    argv, environment = site.command()
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, *arguments, env=environment, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == expect, f"{process.returncode}: {out.decode()}{err.decode()}"
    return out.decode() + err.decode()


async def test_O8_what_was_submitted_after_the_backup_is_an_orphan_that_runs_until_a_person_decides(
    stack: Stack, own: Stack, tmp_path: Path
):
    async with open_site(stack, tmp_path, temporal_address=own.temporal_address, prefix="b") as site:
        await site.start_worker()
        namespace = await site.namespace()
        files: dict[str, Path] = {}
        for name in ("kept", "young"):
            files[name] = tmp_path / f"{name}.yaml"
            files[name].write_text(yaml.safe_dump(appwrapper(name, job(name), **WAITS)))

        async def submit(name: str, *options: str) -> Any:
            await holdfast(site, "submit", str(files[name]), "-n", namespace, *options)
            return site.client.get_workflow_handle(site.read(files[name].read_text(), namespace).workflow_id)

        kept = await submit("kept")
        await site.reach(kept, "Running")
        await asyncio.to_thread(back_up, own, tmp_path / "backup")
        young = await submit("young")
        await site.reach(young, "Running")
        before = {name: await living(site, namespace, name) for name in files}

        begun = time.monotonic()
        site.workers[-1].kill()
        await asyncio.to_thread(own.restore_data, "temporal", tmp_path / "backup")
        await site.start_worker()
        await site.reach(kept, "Running")
        print(f"from the stop of Temporal until a restored workload answers: {time.monotonic() - begun:.1f} s")

        # What Temporal has forgotten runs on. The sweep finds it, and leaves it alone.
        with pytest.raises(RPCError, match="not found"):
            await young.describe()
        assert await unknown(site) == ["young"]

        # Submitted again under its name, it is refused before anything is made: nothing runs twice.
        refused = await submit("young")
        status = await site.reach(refused, "Failed")
        assert status.reason == "Refused"
        assert "which has not ended; `holdfast sweep --dry-run`" in status.message
        assert await unknown(site) == ["young"], "the later submission's end is not taken for its own"
        await command(site)
        await asyncio.sleep(SETTLE_SECONDS)
        assert {name: await living(site, namespace, name) for name in files} == before

        # A person decides: what is unknown goes, and only then the next begins.
        await command(site, "--unknown", "--yes")
        assert not await living(site, namespace, "young")
        again = await submit("young", "--again")
        await site.reach(again, "Running")
        after = await living(site, namespace, "young")
        assert len(after) == len(before["young"])
        assert not set(after.values()) & set(before["young"].values()), "it is another workload's"
        assert await living(site, namespace, "kept") == before["kept"]


async def unknown(site: Site) -> list[str]:
    """Return what `holdfast sweep` would ask about: workloads that Temporal does not know."""
    found = json.loads(await command(site, "--dry-run", "-o", "json"))
    return [each["name"] for each in found["workloads"] if each["verdict"] == "unknown"]
