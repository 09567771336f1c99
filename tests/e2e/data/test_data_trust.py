"""Data sets against hostile pods on a real kubelet, and the room of a namespace on a real cluster (row X10)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import names
from holdfast.model import Reason
from tests.e2e.data.staging import MOUNTS, PIECES, SIZE, SOURCE, Ground, job, queue_of_two, queued
from tests.e2e.ground.held import admits_pods, real_node, require_real
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Handle, Space, open_space
from tests.e2e.nodes.test_real_node import FOREVER, containers
from tests.store import BUCKET

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


def template(script: str, **container: Any) -> dict[str, Any]:
    """A pod on the real node."""
    spec = containers(script)
    spec["containers"][0] |= container
    return {"metadata": {}, "spec": {**spec, "terminationGracePeriodSeconds": 1}}


def reads(name: str, script: str, source: str = SOURCE) -> str:
    """A Job of one pod on the real node that reads a data set."""
    mounts = f"[{{name: corpus, source: {source}, path: /data/corpus}}]"
    document = yaml.safe_load(job(name, mounts, template(script)))
    document["spec"] |= {"parallelism": 1, "completions": 1}
    return yaml.safe_dump(document)


async def says(space: Space, workload: str, word: str) -> str:
    """Wait until the log of a workload's pod has a word, and return the log."""
    found = [""]

    async def there() -> bool:
        pods = await space.pods(workload)
        if pods:
            name = pods[-1]["metadata"]["name"]
            kubectl = space.site.stack.kubectl
            found[0] = await asyncio.to_thread(kubectl, "logs", "-n", space.namespace, name)
        return word in found[0]

    await until(there, 60, f"{workload} says {word}: {found}")
    return found[0]


@pytest.mark.real_node
@ROW("X10", level="e2e")
async def test_X10_a_pod_reads_nothing_of_another_namespace_and_writes_nothing(ground: Ground):
    site = ground.site
    await require_real(site)
    ground.store.put("corpus/word", b"kelp")
    ground.store.put("mine/word", b"dulse")
    async with real_node(site.stack), open_space(site) as other:
        grants = f"{ground.space.namespace}=s3://{BUCKET}/corpus,{other.namespace}=s3://{BUCKET}/mine"
        await ground.worker(HOLDFAST_DATA_SOURCES=grants)
        for space in (ground.space, other):
            await admits_pods(site, space.namespace)
        owner = await ground.space.submit(reads("train", FOREVER))
        secret = (await ground.space.reach(owner, "Running", 1)).data[0].digest
        hostile = (
            f"cat /data/corpus/../../{ground.space.namespace}/{secret}/data/word && echo READ; "
            f"cat /data/corpus/../../{secret}/data/word && echo READ; "
            "for way in /data/corpus/mine /data/corpus/word; do echo x > $way && echo WROTE; done; "
            "rm -f /data/corpus/word && echo WROTE; chmod 777 /data/corpus/word && echo WROTE; "
            "mount -o remount,rw /data/corpus && echo WROTE; "
            "grep ' /data' /proc/self/mountinfo; cat /data/corpus/word; echo; ls /data/corpus; echo END; "
        )
        thief = await other.submit(reads("thief", hostile + FOREVER, f"s3://{BUCKET}/mine"))
        own = (await other.reach(thief, "Running", 1)).data[0].digest
        log = await says(other, "thief", "END")
        assert "READ" not in log
        assert "WROTE" not in log
        assert "dulse" in log
        (line,) = [one for one in log.splitlines() if " /data/corpus " in one]
        assert f"/{other.namespace}/{own}/data /data/corpus ro" in line
        assert ground.space.namespace not in line
        refused = await other.ended(await other.submit(reads("asks", FOREVER)))
        assert refused.reason is Reason.REFUSED
        assert "is not granted to namespace" in refused.message
        for handle in (owner, thief):
            await handle.signal(names.SIGNAL_CANCEL, "")
            await handle.result()


@ROW("X10", level="e2e")
async def test_X10_a_template_cannot_mount_the_volume_of_a_data_set_itself(ground: Ground):
    await ground.worker()
    document = yaml.safe_load(job())
    container = document["spec"]["template"]["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "holdfast-data-corpus", "mountPath": "/mine"}]
    with pytest.raises(Exception, match=r"volumeMounts\[0\].name: 'holdfast-data-corpus' is the volume"):
        await ground.space.submit(yaml.safe_dump(document))


@pytest.mark.real_node
@ROW("X10", level="e2e")
async def test_X10_a_file_that_a_hostile_pod_changes_is_fetched_anew_for_the_next_attempt(ground: Ground):
    site = ground.site
    await require_real(site)
    ground.store.put("corpus/word", b"kelp")
    await ground.worker()
    script = (
        'if [ "$HOLDFAST_ATTEMPT" = 1 ]; then while grep -q kelp /data/corpus/word; do sleep 0.1; done; exit 1; fi; '
        "grep -q kelp /data/corpus/word || exit 3; echo WHOLE; " + FOREVER
    )
    async with real_node(site.stack):
        await admits_pods(site, ground.space.namespace)
        handle = await ground.space.submit(reads("train", script))
        first = await ground.space.reach(handle, "Running", 1)
        digest = first.data[0].digest
        file = ground.folder / digest / "data/word"
        before = await asyncio.to_thread(os.stat, file)
        await change_from_a_pod(ground, f"/cache/{ground.space.namespace}/{digest}/data/word")
        second = await ground.space.reach(handle, "Running", 2)
        assert second.data == first.data
        await says(ground.space, "train", "WHOLE")
        after = await asyncio.to_thread(os.stat, file)
        assert (after.st_size, after.st_ino != before.st_ino) == (4, True)
        told = [one.message for one in (await site.status(handle)).causes if one.reason is Reason.STAGED]
        assert told[-1] == (
            f"attempt 2 has corpus ready: {PIECES + 1} files, {(PIECES * SIZE + 4) / 2**20:.4g} MiB, 4 B of it fetched"
        )
        await handle.signal(names.SIGNAL_CANCEL, "")
        assert (await ground.space.ended(handle)).phase == "Cancelled"


async def change_from_a_pod(ground: Ground, path: str) -> None:
    """Have a pod with the whole cache mounted write as many other bytes into a file, and set its times back."""
    script = (
        f"touch -r {path} /tmp/times && chmod 644 {path} && printf help > {path} && chmod 444 {path} && "
        f"touch -r /tmp/times {path} && exit 0; exit 7"
    )
    spec = containers(script)
    spec["containers"][0]["volumeMounts"] = [{"name": "cache", "mountPath": "/cache"}]
    spec["volumes"] = [{"name": "cache", "hostPath": {"path": str(ground.cache), "type": "Directory"}}]
    metadata = {"name": "hostile", "namespace": ground.space.namespace}
    await ground.site.kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    async def ended() -> bool:
        pod = await ground.site.kube.get("v1", "Pod", "hostile", ground.space.namespace)
        phase = pod["status"].get("phase")
        assert phase != "Failed", pod["status"]
        return phase == "Succeeded"

    await until(ended, 60, "the hostile pod has written")


@ROW("X10", level="e2e")
@pytest.mark.parametrize("away", [False, True], ids=["", "store-away"])
async def test_X10_a_file_that_changes_while_the_workload_is_queued_is_fetched_anew(
    ground: Ground, tmp_path: Path, away: bool
):
    await ground.worker()
    await queue_of_two(ground, tmp_path)
    bare = await queued(ground, "bare", "")
    await ground.space.reach(bare, "Running", 1)
    waits = await queued(ground, "waits", MOUNTS)
    await ground.stages(waits, Reason.QUEUED)
    (file,) = await asyncio.to_thread(lambda: list(ground.folder.glob("*/data/07")))
    await asyncio.to_thread(file.write_bytes, bytes(SIZE))
    ground.site.workers[0].kill()
    await ground.worker()  # It has not looked at the data set before.
    if away:
        ground.store.kill()
    await ground.space.complete("bare")
    if away:

        async def missed() -> bool:
            return sum(await ground.gauge("holdfast_storage_away_total")) >= 1

        await until(missed, 60, "the creation waits for the store")
        assert not await ground.space.pods("waits")
        ground.store.start()
    running = await ground.space.reach(waits, "Running", 1)
    assert (running.attempt, running.restarts) == (1, 0)
    assert await asyncio.to_thread(file.read_bytes) == bytes([7]) * SIZE


@ROW("X10", level="e2e")
async def test_X10_what_an_ended_workload_read_goes_for_another_and_what_is_used_stays(ground: Ground):
    for at in range(PIECES):
        ground.store.put(f"other/{at:02}", bytes([at + 100]) * SIZE)
    one_set = PIECES * SIZE
    await ground.worker(HOLDFAST_DATA_QUOTAS=f"*={one_set + 1}")
    first = await ground.space.submit(job("first"))
    corpus = (await ground.space.reach(first, "Running", 1)).data[0].digest
    second = await ground.space.submit(job("second", MOUNTS.replace("/corpus,", "/other,", 1)))
    told = await ground.stages(second, says="has no room for it")
    assert (told.executions, told.restarts) == (0, 0)
    assert "1 workload uses 4.578 MiB of the quota, 4.578 MiB" in told.message
    assert await ground.gauge("holdfast_storage_available") == [1.0], "the store is not to blame"
    assert homes(ground) == [corpus]
    await first.signal(names.SIGNAL_SUSPEND, "it comes back to the same data")
    await ground.space.reach(first, "Suspended")
    await retried(ground, second)
    assert homes(ground) == [corpus]
    await first.signal(names.SIGNAL_CANCEL, "")
    assert (await ground.space.ended(first)).phase == "Cancelled"
    await second.signal(names.SIGNAL_RETRY, "there is room")
    running = await ground.space.reach(second, "Running", 1)
    assert homes(ground) == [running.data[0].digest] != [corpus]
    late = await ground.space.submit(job("late", MOUNTS.replace(SOURCE, f"s3://{BUCKET}")))
    failed = await ground.space.ended(late)
    assert failed.reason is Reason.STAGING_FAILED
    assert "expected at most the quota, 4.578 MiB (setting `data_quotas`)" in failed.message


@ROW("X10", level="e2e")
async def test_X10_what_pods_read_stays_although_their_workflow_is_gone(ground: Ground):
    for at in range(PIECES):
        ground.store.put(f"other/{at:02}", bytes([at + 100]) * SIZE)
    await ground.worker(HOLDFAST_DATA_QUOTAS=f"*={PIECES * SIZE}")
    first = await ground.space.submit(job("first"))
    corpus = (await ground.space.reach(first, "Running", 1)).data[0].digest
    await first.terminate("by accident")
    second = await ground.space.submit(job("second", MOUNTS.replace("/corpus,", "/other,", 1)))
    await ground.stages(second, says="has no room for it")
    assert len(await ground.space.pods("first")) == 2
    assert homes(ground) == [corpus]
    kube, namespace = ground.site.kube, ground.space.namespace
    for each in await ground.site.objects("batch/v1", "Job", namespace):
        meta = each["metadata"]
        await kube.delete("batch/v1", "Job", meta["name"], namespace, uid=meta["uid"])
    for each in await ground.site.objects(names.API_VERSION, names.ATTEMPT_KIND, namespace):
        meta = each["metadata"]
        await kube.delete(names.API_VERSION, names.ATTEMPT_KIND, meta["name"], namespace, uid=meta["uid"])

    async def gone() -> bool:
        return not await ground.space.pods("first")

    await until(gone, 60, "its pods are gone")
    await second.signal(names.SIGNAL_RETRY, "")
    running = await ground.space.reach(second, "Running", 1)
    assert homes(ground) == [running.data[0].digest] != [corpus]


def homes(ground: Ground) -> list[str]:
    """Return the data sets in the folder of the namespace."""
    return [one for one in os.listdir(ground.folder) if not one.startswith(".")]


async def retried(ground: Ground, handle: Handle) -> None:
    """Have a workload that waits for room try again, and wait until it has."""
    before = (await ground.site.status(handle)).next
    await handle.signal(names.SIGNAL_RETRY, "")

    async def later() -> bool:
        now = (await ground.site.status(handle)).next
        return now is not None and before is not None and now.at > before.at and "no room" in now.what

    await until(later, 60, "it has tried again")
