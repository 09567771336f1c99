"""Checkpoints of real containers on a real kubelet: asked by HTTP at their own address, and gone on from (row L32)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml

from holdfast import names
from tests.e2e.site import Site, until
from tests.e2e.space import Space, open_space
from tests.e2e.test_real_node import FOREVER, containers

pytestmark = [pytest.mark.e2e, pytest.mark.real_node, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row

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
    """A namespace whose default service account is there, as the kubelet needs it."""
    if await shared_site.kube.find("v1", "Node", "real") is None:
        pytest.skip("this stack has no real node: holdfast dev up --real-node, as root")
    async with open_space(shared_site) as space:

        async def there() -> bool:
            return await shared_site.kube.find("v1", "ServiceAccount", "default", space.namespace) is not None

        await until(there, 20, "the default service account is there")
        yield space


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
    assert "from=\n" in await logs(real), "there is nothing to go on from, and it is told so"
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
    """Return a Job that is still saving when its walltime of 6 s is over, and does this when it is told to end."""
    answer = "if [ -e /tmp/saved ]; then " + SAVES + "; else " + AT_IT + "; fi"
    script = (SERVE % answer).replace("exec httpd -f", "httpd") + f"trap '{on_term}' TERM\n{FOREVER}"
    given = {
        "profile": "lattice-batch",
        "walltime": "6s",
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
async def test_L19_a_container_that_has_saved_in_its_termination_grace_is_suspended_and_goes_on(real: Space):
    handle = await real.submit(ending("sleep 2; touch /tmp/saved; sleep 4; exit 0", grace=20))
    await real.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    await real.reach(handle, "Checkpointing", 1)
    status = await real.reach(handle, "Suspended", 1)
    assert status.checkpoint is not None
    assert (status.checkpoint.state, status.checkpoint.uri) == ("Complete", "s3://saved/1"), status.checkpoint.why
    assert status.checkpoint.conflict is not None, "the walltime was over while it was saving"
    assert "WalltimeExceeded" in [one.reason for one in status.causes]
    await handle.signal(names.SIGNAL_RESUME, "more time")
    status = await real.reach(handle, "Running", 2)
    assert status.resumed_from == "s3://saved/1"
    await handle.signal(names.SIGNAL_CANCEL, "enough")
    assert (await real.ended(handle)).phase == "Cancelled"


@ROW("L20", level="e2e")
async def test_L20_a_container_that_is_killed_before_it_has_saved_has_failed(real: Space):
    handle = await real.submit(ending("sleep 60; touch /tmp/saved", grace=3))
    await real.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    status = await real.ended(handle)
    assert (status.phase, status.reason) == ("Failed", "WalltimeExceeded")
    assert status.checkpoint is not None
    assert (status.checkpoint.state, status.saved) == ("Discarded", None)
    await real.truth.settle()
    (life,) = real.truth.of(1, "Pod")
    assert life.object["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137, "it was killed"
