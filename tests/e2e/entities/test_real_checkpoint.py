"""Checkpoints of real containers on a real kubelet: asked by HTTP at their own address, and gone on from (row L32)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
import yaml

from holdfast import names
from holdfast.local import Stack
from tests.e2e.ground.held import open_real
from tests.e2e.ground.site import Site, free_port, open_site, until
from tests.e2e.ground.space import Space
from tests.e2e.nodes.test_real_node import FOREVER, containers

pytestmark = [pytest.mark.e2e, pytest.mark.real_node, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
ROOT = Path(__file__).resolve().parents[3]

SERVE = r"""
echo "from=$HOLDFAST_RESUME_FROM"
mkdir -p /tmp/www/cgi-bin
cat > /tmp/www/cgi-bin/checkpoint <<'END'
#!/bin/sh
cat > /tmp/asked
%s
END
chmod +x /tmp/www/cgi-bin/checkpoint
exec httpd -f -p 8080 -h /tmp/www
"""
SAVED = r"""'Content-Type: application/json\r\n\r\n{"state": "Complete", "uri": "s3://saved/%s"}'"""
SAVES = f'printf {SAVED} "$HOLDFAST_ATTEMPT"'
AT_IT = r"""printf 'Content-Type: application/json\r\n\r\n{"state": "InProgress"}'"""
HANGS = "sleep 600"


@pytest_asyncio.fixture(loop_scope="session")
async def real(shared_site: Site) -> AsyncIterator[Space]:
    """A namespace of pods that the kubelet can run."""
    async with open_real(shared_site) as space:
        yield space


@dataclass(frozen=True)
class Counted:
    """The same on a worker of its own, whose metrics page is read."""

    space: Space
    address: str

    async def conflicts(self) -> float:
        """Return how many walltimes the worker says were over while pods were saving (rows L19, L20)."""
        async with aiohttp.ClientSession() as session, session.get(f"http://{self.address}/metrics") as answer:
            lines = [
                one for one in (await answer.text()).splitlines() if one.startswith(names.METRIC_WALLTIME_CONFLICT)
            ]
        assert all(f'cluster="{self.space.site.cluster}"' in one for one in lines), lines
        return sum(float(one.split()[-1]) for one in lines)


@pytest_asyncio.fixture(loop_scope="session")
async def counted(stack: Stack, tmp_path: Path) -> AsyncIterator[Counted]:
    """A namespace of a worker of its own."""
    address = f"127.0.0.1:{free_port()}"
    async with open_site(stack, tmp_path, prefix="k") as site:
        await site.start_worker(HOLDFAST_METRICS_ADDRESS=address)
        async with open_real(site) as space:
            yield Counted(space, address)


def served(answer: str, **settings: str) -> str:
    """Return a Job on the real node whose container serves what answers a request to save."""
    given = {"checkpoint": "http", "checkpointPort": "8080", "checkpointPath": "/cgi-bin/checkpoint", **settings}
    spec = containers(SERVE % answer, terminationGracePeriodSeconds=1)
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "annotations": {f"{names.GROUP}/{key}": value for key, value in given.items()}},
        "spec": {"backoffLimit": 0, "template": {"spec": spec}},
    }
    return yaml.safe_dump(document)


async def logs(space: Space) -> str:
    (pod,) = await space.pods("train")
    return await asyncio.to_thread(space.site.stack.kubectl, "logs", "-n", space.namespace, pod["metadata"]["name"])


@ROW("L32", level="e2e")
@ROW("J3", level="e2e")
async def test_L32_a_container_is_asked_at_its_own_address_and_the_next_one_goes_on(real: Space):
    handle = await real.submit(served(SAVES))
    await real.reach(handle, "Running", 1)

    async def begun() -> bool:
        return "from=\n" in await logs(real)

    await until(begun, 30, "there is nothing to go on from, and it is told so")
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    status = await real.reach(handle, "Suspended")
    assert status.checkpoint is not None
    assert (status.checkpoint.state, status.checkpoint.uri) == ("Complete", "s3://saved/1"), status.checkpoint.why
    await handle.signal(names.SIGNAL_RESUME, "room again")
    await real.reach(handle, "Running", 2)

    async def told() -> bool:
        return "from=s3://saved/1\n" in await logs(real)

    await until(told, 30, "the next container is told where to go on")
    await handle.signal(names.SIGNAL_CANCEL, "enough")
    assert (await real.ended(handle)).phase == "Cancelled"


@ROW("L32", level="e2e")
async def test_L32_an_endpoint_that_hangs_is_unresponsive(real: Space):
    handle = await real.submit(served(HANGS, checkpointTimeout="3s"))
    await real.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    status = await real.reach(handle, "Suspended")
    assert status.checkpoint is not None
    assert (status.checkpoint.state, status.saved) == ("Discarded", None)
    assert "its endpoint does not answer" in status.checkpoint.why
    await handle.signal(names.SIGNAL_CANCEL, "enough")
    assert (await real.ended(handle)).phase == "Cancelled"


def ending(on_term: str, grace: int) -> str:
    """Return a Job that is still saving when its walltime of 20 s is over, and does this when it is told to end."""
    answer = "if [ -e /tmp/saved ]; then " + SAVES + "; else " + AT_IT + "; fi"
    script = (SERVE % answer).replace("exec httpd -f", "httpd") + f"trap '{on_term}' TERM\n{FOREVER}"
    given = {
        "profile": "lattice-batch",
        "walltime": "20s",
        "checkpoint": "http",
        "checkpointPort": "8080",
        "checkpointPath": "/cgi-bin/checkpoint",
    }
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "annotations": {f"{names.GROUP}/{key}": value for key, value in given.items()}},
        "spec": {
            "backoffLimit": 0,
            "template": {"spec": containers(script, terminationGracePeriodSeconds=grace)},
        },
    }
    return yaml.safe_dump(document)


@ROW("L19", level="e2e")
async def test_L19_a_container_that_has_saved_in_its_termination_grace_is_suspended_and_goes_on(counted: Counted):
    real = counted.space
    handle = await real.submit(ending("sleep 2; touch /tmp/saved; sleep 4; exit 0", grace=20))
    await real.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    await real.reach(handle, "Checkpointing", 1)
    status = await real.reach(handle, "Suspended", 1)
    assert status.checkpoint is not None
    assert (status.checkpoint.state, status.checkpoint.uri) == ("Complete", "s3://saved/1"), status.checkpoint.why
    assert status.checkpoint.conflict is not None, "the walltime was over while it was saving"
    assert await counted.conflicts() == 1
    assert "WalltimeExceeded" in [one.reason for one in status.causes]
    await handle.signal(names.SIGNAL_RESUME, "more time")
    status = await real.reach(handle, "Running", 2)
    assert status.resumed_from == "s3://saved/1"
    await handle.signal(names.SIGNAL_CANCEL, "enough")
    assert (await real.ended(handle)).phase == "Cancelled"


@ROW("L20", level="e2e")
async def test_L20_a_container_that_is_killed_before_it_has_saved_has_failed(counted: Counted):
    real = counted.space
    assert await counted.conflicts() == 0
    handle = await real.submit(ending("sleep 60; touch /tmp/saved", grace=3))
    await real.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    status = await real.ended(handle)
    assert (status.phase, status.reason) == ("Failed", "WalltimeExceeded")
    assert status.checkpoint is not None
    assert (status.checkpoint.state, status.saved) == ("Discarded", None)
    assert await counted.conflicts() == 1
    await real.truth.settle()
    (life,) = real.truth.of(1, "Pod")
    assert life.object["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137, "it was killed"


@ROW("L32", level="e2e")
async def test_L32_the_published_example_saves_when_it_is_preempted_and_goes_on(real: Space):
    """As it is published, but for the node and its image, which this stack does not pull."""
    document = yaml.safe_load((ROOT / "examples" / "checkpoint.yaml").read_text())
    spec = document["spec"]["template"]["spec"]
    ours = containers("")
    spec |= {key: ours[key] for key in ("nodeSelector", "tolerations")}
    spec["containers"][0] |= {key: ours["containers"][0][key] for key in ("image", "imagePullPolicy")}
    handle = await real.submit(yaml.safe_dump(document))
    await real.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    status = await real.reach(handle, "Suspended")
    assert status.checkpoint is not None
    assert status.checkpoint.state == "Complete", status.checkpoint.why
    assert status.checkpoint.uri is not None
    assert status.checkpoint.uri.startswith("memory://step-")
    await handle.signal(names.SIGNAL_RESUME, "room again")
    assert (await real.reach(handle, "Running", 2)).resumed_from == status.checkpoint.uri
    await handle.signal(names.SIGNAL_CANCEL, "enough")
    assert (await real.ended(handle)).phase == "Cancelled"
