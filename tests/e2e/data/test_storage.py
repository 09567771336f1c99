"""Data sets on real controllers and a real S3 server that is killed: what waits, what goes on, what fails (row L14)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.data.cache import data_path
from holdfast.model import Reason, Status
from holdfast.model.entities.broker import Broker
from tests.e2e.data.staging import MOUNTS, PIECES, SIZE, SOURCE, Ground, holdfast, job, queue_of_two, queued
from tests.e2e.entities.test_broker import requested
from tests.e2e.ground.held import admits_pods, real_node, require_real
from tests.e2e.ground.site import Site, until
from tests.e2e.ground.space import Handle
from tests.e2e.ground.terminal import command
from tests.e2e.lives.saving import gang, save
from tests.e2e.nodes.test_real_node import FOREVER, containers
from tests.store import BUCKET, Meter, metered

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


@asynccontextmanager
async def half_staged(ground: Ground) -> AsyncIterator[tuple[Handle, Meter]]:
    """Submit a workload whose data set stops coming in the middle."""
    async with metered(ground.store, PIECES * SIZE // 2) as line:
        await ground.worker(line.endpoint)
        handle = await ground.space.submit(job())
        await asyncio.wait_for(line.stalled.wait(), 60)
        yield handle, line


@ROW("L14", level="e2e")
async def test_L14_a_server_killed_in_the_middle_of_staging_is_waited_for_and_nothing_is_charged(ground: Ground):
    async with half_staged(ground) as (handle, line):
        assert (await ground.space.explain(handle)).now.startswith("staging what attempt 1 reads: corpus")
        ground.store.kill()
        told = await ground.stages(handle, says=f"mount corpus ({SOURCE}): {line.endpoint} ")
        assert (told.attempt, told.executions, told.restarts) == (0, 0, 0)
        assert all(one.used == 0 for one in told.budgets)
        await ground.nothing_made()
        explained = await ground.space.explain(handle)
        assert explained.why == told.message
        assert "since 20" in explained.why
        assert explained.next[0].what.startswith("staging pause: mount corpus")
        assert explained.unblock.startswith("repair the store: `holdfast doctor`")
        assert await ground.gauge("holdfast_storage_available") == [0.0]
        assert (await ground.gauge("holdfast_storage_away_total"))[0] >= 1
        ground.store.start()
        line.open()
        running = await ground.space.reach(handle, "Running", 1)
    assert (running.executions, running.restarts) == (1, 0)
    assert all(one.used == 0 for one in running.budgets)
    (corpus,) = running.data
    assert (corpus.mount, corpus.files, corpus.bytes) == ("corpus", PIECES, PIECES * SIZE)
    for at in range(PIECES):
        assert (ground.folder / data_path(corpus.digest) / f"{at:02}").read_bytes() == bytes([at]) * SIZE
    for pod in await ground.space.pods("train"):
        volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
        assert volumes["holdfast-data-corpus"]["hostPath"]["path"] == str(ground.folder / data_path(corpus.digest))
        mounts = [one for one in pod["spec"]["containers"][0]["volumeMounts"] if one["mountPath"] == "/data/corpus"]
        assert mounts == [{"name": "holdfast-data-corpus", "mountPath": "/data/corpus", "readOnly": True}]
    (warning,) = await ground.events("StorageUnavailable")
    assert warning["type"] == "Warning"
    assert "charged with nothing" in warning["message"]
    assert len(await ground.events("Staged")) == 1
    assert await ground.gauge("holdfast_storage_available") == [1.0]
    await ground.space.complete("train")
    assert (await ground.space.ended(handle)).phase == "Succeeded"


@ROW("L14", level="e2e")
async def test_L14_what_runs_goes_on_without_the_store_and_is_made_again_from_the_cache(ground: Ground):
    await ground.worker()
    handle = await ground.space.submit(job())
    first = await ground.space.reach(handle, "Running", 1)
    ground.store.kill()
    before = {one["metadata"]["uid"] for one in await ground.space.pods("train")}
    late = await ground.space.submit(job("late"))
    await ground.stages(late, says="does not answer: Connection refused")
    assert {one["metadata"]["uid"] for one in await ground.space.pods("train")} == before
    assert (await ground.site.status(handle)).phase == "Running"
    await ground.space.fail_pod("train")
    again = await ground.space.reach(handle, "Running", 2)
    assert again.data == first.data
    staged = [cause.message for cause in again.causes if cause.reason is Reason.STAGED]
    assert staged[-1].startswith("attempt 2 has corpus ready")
    assert staged[-1].endswith("all of it from the cache")
    assert (await ground.site.status(late)).executions == 0
    assert "attempt 2 has corpus ready" in await command(ground.site, "history", f"{ground.space.namespace}/train")
    assert f"version {first.data[0].digest}" in await command(ground.site, "status", f"{ground.space.namespace}/train")
    ground.store.start()
    await late.signal(names.SIGNAL_RETRY, "the store is back")
    assert (await ground.space.reach(late, "Running", 1)).data[0].digest == first.data[0].digest


@ROW("L14", level="e2e")
async def test_L14_a_worker_killed_while_it_stages_is_taken_over_from(ground: Ground):
    async with half_staged(ground) as (handle, line):
        await ground.worker()  # Another, with a line of its own.
        there = len(list(ground.folder.glob("*/data/*")))
        ground.site.workers[0].kill()
        running = await ground.space.reach(handle, "Running", 1)
        line.open()
    assert 0 < there < PIECES
    assert (running.executions, running.restarts) == (1, 0)
    (digest,) = {one.digest for one in running.data}
    assert len(list((ground.folder / data_path(digest)).iterdir())) == PIECES
    assert Reason.STORAGE_UNAVAILABLE.value not in await ground.reasons(handle)


@ROW("L14", level="e2e")
async def test_L14_suspension_and_deletion_do_not_wait_for_the_store(ground: Ground):
    ground.store.kill()
    await ground.worker()
    handle = await ground.space.submit(job())
    await ground.stages(handle, says="does not answer: Connection refused")
    await handle.signal(names.SIGNAL_SUSPEND, "for now")
    await ground.space.reach(handle, "Suspended")
    ground.store.start()
    await handle.signal(names.SIGNAL_RESUME, "")
    await ground.space.reach(handle, "Running", 1)
    ground.store.kill()
    other = await ground.space.submit(job("other"))
    await ground.stages(other, says="does not answer")
    await other.signal(names.SIGNAL_CANCEL, "")
    assert (await ground.space.ended(other)).phase == "Cancelled"


@ROW("L14", level="e2e")
async def test_L14_a_bad_data_set_fails_and_what_is_not_granted_is_refused(ground: Ground):
    grants = f"{ground.space.namespace}=s3://{BUCKET}/corpus,{ground.space.namespace}=s3://nowhere,other=s3://{BUCKET}"
    await ground.worker(HOLDFAST_DATA_SOURCES=grants)
    cases = {
        "empty": (f"{SOURCE}/none", Reason.STAGING_FAILED, "no object lies there"),
        "bucket": ("s3://nowhere/corpus", Reason.STAGING_FAILED, "has no bucket nowhere"),
        "foreign": (f"s3://{BUCKET}/private", Reason.REFUSED, "is not granted to namespace"),
    }
    for name, (source, reason, why) in cases.items():
        handle = await ground.space.submit(job(name, f"[{{name: corpus, source: {source}, path: /data}}]"))
        told = await ground.space.ended(handle)
        assert (told.phase, told.reason, told.executions) == ("Failed", reason, 0), told.message
        assert source in told.message
        assert why in told.message
        assert all(one.used == 0 for one in told.budgets)
    pinned = f"[{{name: corpus, source: {SOURCE}, path: /data, version: {'ab' * 32}}}]"
    told = await ground.space.ended(await ground.space.submit(job("pinned", pinned)))
    assert told.reason == Reason.STAGING_FAILED
    assert f"asks for version {'ab' * 32}" in told.message
    await ground.nothing_made()


@ROW("L14", level="e2e")
async def test_L14_a_worker_without_a_place_for_data_sets_says_which_setting_it_lacks(ground: Ground):
    await ground.site.start_worker()
    told = await ground.space.ended(await ground.space.submit(job()))
    assert (told.phase, told.reason) == ("Failed", Reason.REFUSED)
    assert "setting `data_directory`" in told.message
    await ground.nothing_made()


@ROW("L14", level="e2e")
async def test_L14_it_does_not_ask_its_queue_before_its_data_sets_lie_ready(ground: Ground, tmp_path: Path):
    ground.store.kill()
    await ground.worker()
    session = await queue_of_two(ground, tmp_path)
    reads = await queued(ground, "reads", MOUNTS)
    await ground.stages(reads, says="does not answer")
    bare = await queued(ground, "bare", "")
    await ground.space.reach(bare, "Running", 1)
    assert (await session.queue("one").status()).waiting == 0, "who waits for the store is in nobody's way"
    ground.store.start()
    await reads.signal(names.SIGNAL_RETRY, "")
    await ground.stages(reads, Reason.QUEUED)

    async def asked() -> bool:
        return (await session.queue("one").status()).waiting == 1

    await until(asked, 60, "its queue has heard of it")
    await ground.space.complete("bare")
    await ground.space.reach(reads, "Running", 1)


@ROW("L14", level="e2e")
async def test_L14_the_broker_asks_nobody_while_the_store_is_away(ground: Ground):
    await ground.worker()
    session = holdfast(ground.site)
    run = await session.submit(ground.site.read(gang("train", pods=2), ground.space.namespace))
    handle: Handle = ground.site.client.get_workflow_handle(run.workflow_id, result_type=Status)
    ground.space.handles.append(handle)
    await ground.space.reach(handle, "Running", 1)
    ground.store.kill()
    eager = {"cluster": ground.site.cluster, "every": "1s", "least": "1s", "most": "2s", "at_once": 1}
    await session.apply_broker(Broker.model_validate(eager))

    async def paused() -> bool:
        told = await session.broker().status()
        return told.due == 1 and "nobody is asked while the store is away" in told.message

    await until(paused, 60, "the broker asks nobody", pause=0.3)
    assert (await session.broker().status()).asked_total == 0
    assert await requested(ground.space) == set()
    assert "nobody is asked while the store is away" in await command(ground.site, "broker", "show")
    ground.store.start()
    await save(ground.space, "s3://saved/1", "train", pods=2)

    async def saved() -> bool:
        return (await ground.site.status(handle)).saved is not None

    await until(saved, 60, "it has saved")
    assert "away" not in (await session.broker().status()).message
    await command(ground.site, "broker", "stop")


def bound(namespace: str, folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """Return a volume that is a folder of the node, and the claim bound to it: no controller here binds them."""
    volume, claim = f"{namespace}-data", {"namespace": namespace, "name": "datasets"}
    common = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    bound_to = {"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim}}
    source = {"capacity": {"storage": "1Gi"}, "hostPath": {"path": str(folder)}}
    marks = {"pv.kubernetes.io/bind-completed": "yes"}
    wanted = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": volume}
    return volume, [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {**common, **source, **bound_to},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**claim, "annotations": marks},
            "spec": {**common, **wanted},
        },
    ]


@asynccontextmanager
async def claimed(site: Site, namespace: str, folder: Path) -> AsyncIterator[None]:
    """Have a claim `datasets` in a namespace that is bound to a folder of the real node."""
    volume, objects = bound(namespace, folder)
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)

    def kubectl(*argv: str) -> str:
        return site.stack.kubectl(*argv)

    for one in objects:
        await site.kube.create(one)
    uid = (await site.kube.get("v1", "PersistentVolumeClaim", "datasets", namespace))["metadata"]["uid"]
    reference = json.dumps({"spec": {"claimRef": {"uid": uid}}})
    is_bound = json.dumps({"status": {"phase": "Bound"}})
    try:
        await asyncio.to_thread(kubectl, "patch", "pv", volume, "-p", reference)
        await asyncio.to_thread(kubectl, "patch", "pv", volume, "--subresource=status", "-p", is_bound)
        claim = ("patch", "pvc", "datasets", "-n", namespace, "--subresource=status", "-p", is_bound)
        await asyncio.to_thread(kubectl, *claim)
        yield
    finally:
        # Nor is there one that would let go of it.
        await asyncio.to_thread(kubectl, "patch", "pv", volume, "-p", '{"metadata": {"finalizers": null}}')
        await asyncio.to_thread(kubectl, "delete", "pv", volume, "--wait=false")


@pytest.mark.real_node
@ROW("L14", level="e2e")
@pytest.mark.parametrize("by", ["folder", "claim"])
async def test_L14_a_real_container_reads_what_was_staged_and_cannot_change_it(ground: Ground, by: str):
    site: Site = ground.site
    await require_real(site)
    ground.store.put("corpus/word", b"kelp")
    await ground.worker(**({"HOLDFAST_DATA_CLAIM": "datasets"} if by == "claim" else {}))
    script = (
        "test $(cat /data/corpus/word) = kelp || exit 3; test $(cat /data/corpus/07 | wc -c) = 400000 || exit 4; "
        "touch /data/corpus/mine && exit 5; " + FOREVER
    )
    template = {"metadata": {}, "spec": {**containers(script), "terminationGracePeriodSeconds": 1}}

    async with real_node(site.stack), AsyncExitStack() as held:
        if by == "claim":
            await held.enter_async_context(claimed(site, ground.space.namespace, ground.folder))
        await admits_pods(site, ground.space.namespace)
        handle = await ground.space.submit(job(template=template))
        await ground.space.reach(handle, "Running", 1)
        await asyncio.sleep(1)  # What cannot read ends at once.
        told = await site.status(handle)
        assert (told.phase, told.attempt, told.pods.failed) == ("Running", 1, 0)
        for pod in await ground.space.pods("train"):
            (volume,) = [one for one in pod["spec"]["volumes"] if one["name"] == "holdfast-data-corpus"]
            assert ("persistentVolumeClaim" if by == "claim" else "hostPath") in volume
        await handle.signal(names.SIGNAL_CANCEL, "")
        assert (await ground.space.ended(handle)).phase == "Cancelled"
