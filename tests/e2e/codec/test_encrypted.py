"""A whole life with encrypted payloads: what Temporal stores of it, and what those who have the key are shown (X6)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.client import Client

from holdfast import names
from holdfast.codec.keyfile import add
from holdfast.codec.options import options
from holdfast.local import Stack
from holdfast.worker.cleanup.namespace import enable
from tests.client.server import temporal_server
from tests.codec.test_on_temporal import stored
from tests.e2e.ground.site import Site, appwrapper, job, open_site, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240), pytest.mark.row("X6", level="e2e")]

ANNOTATION, ENVIRONMENT, REASON = "planted-annotation", "planted-environment", "planted-reason"
SECRET = "planted-secret"
HIDDEN = "cGxhbnRlZC1zZWNyZXQ="
"""The same in base64, as Kubernetes stores it."""
TRIED_AGAIN = 180
"""Seconds within which Temporal has tried a failed workflow task again: after 10, 20, 35, 55, 85, 120 s, and so on."""


def document(*, with_secret: bool) -> dict[str, Any]:
    train = job(pods=1)
    template = train["template"]["spec"]["template"]
    template["metadata"]["annotations"]["planted"] = ANNOTATION
    template["spec"]["containers"][0]["env"] = [{"name": "PLANTED", "value": ENVIRONMENT}]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "planted"}, "stringData": {"password": SECRET}}
    return appwrapper("train", *([{"template": secret}] if with_secret else []), train)


@asynccontextmanager
async def opened(stack: Stack, folder: Path, keys: Path | None, *roles: str) -> AsyncIterator[tuple[Site, Path]]:
    """A site with a worker (of each of these roles), on a Temporal server of its own whose database can be read."""
    database = folder / "temporal" / "temporal.sqlite"
    database.parent.mkdir()
    with temporal_server(database=database) as address:
        async with open_site(stack, folder, temporal_address=address, prefix="x") as site:
            site.client = await Client.connect(address, namespace=site.cluster, **options(keys))
            for each in roles or ("workflows,cluster,wait,watch,admission",):
                await site.start_worker("--roles", each, **with_keys(keys))
            yield site, database


def with_keys(keys: Path | None) -> dict[str, Any]:
    return {names.ENV_CODEC_KEYS: str(keys)} if keys is not None else {}


async def run(site: Site, keys: Path | None, *arguments: str, said: str = "") -> tuple[int, str]:
    """Run a `holdfast` command; return its exit code, and all that it printed."""
    argv, environment = site.command()
    process = await asyncio.create_subprocess_exec(
        *argv,
        *arguments,
        env=environment | with_keys(keys),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate(said.encode())
    assert process.returncode is not None
    return process.returncode, out.decode()


async def live(site: Site, keys: Path | None, *, with_secret: bool) -> tuple[str, str]:
    """Live through a failure and a suspension; return the namespace, and what Kubernetes had of it meanwhile."""
    namespace = await site.namespace()
    await enable(site.kube, namespace, secrets=True)
    text = yaml.safe_dump(document(with_secret=with_secret))
    code, out = await run(site, keys, "submit", "-", "-n", namespace, said=text)
    assert code == 0, out
    handle = site.client.get_workflow_handle(names.workflow_id(site.cluster, namespace, "train"))
    await site.reach(handle, "Running")
    if with_secret:
        made = await site.kube.get("v1", "Secret", "planted", namespace)
        assert made["data"] == {"password": HIDDEN}
    await site.fail_pod(namespace, exit_code=7)
    await site.reach(handle, "Running", attempt=2)
    kinds = (
        (names.API_VERSION, names.ATTEMPT_KIND),
        (names.API_VERSION, names.ANCHOR_KIND),
        ("v1", "Event"),
        ("v1", "Pod"),
    )
    there = json.dumps([await site.objects(*kind, namespace) for kind in kinds])
    code, out = await run(site, keys, "suspend", "train", "-n", namespace, "--reason", REASON, "--wait")
    assert code == 0, out
    for command in ("status", "explain", "history"):
        code, out = await run(site, keys, command, "train", "-n", namespace, "-o", "json")
        assert code == 0, out
        assert REASON in out or command == "status", f"{command} shows to whoever has the key what was said"
    return namespace, there


async def kept(site: Site, namespace: str, database: Path) -> bytes:
    """All that Temporal has of the workload: its history, its description, its list, and the server's database."""
    handle = site.client.get_workflow_handle(names.workflow_id(site.cluster, namespace, "train"))
    found = [event.SerializeToString() async for event in handle.fetch_history_events()]
    assert len(found) > 20
    found.append((await handle.describe()).raw_description.SerializeToString())
    found += [each.raw_info.SerializeToString() async for each in site.client.list_workflows()]
    found.append(stored(database))
    return b"\n".join(found)


def among(words: tuple[str, ...], content: bytes) -> set[str]:
    return {word for word in words if word.encode() in content}


async def test_X6_nothing_of_an_encrypted_life_is_readable_in_temporal(stack: Stack, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    add(keys, "first")
    async with opened(stack, tmp_path, keys) as (site, database):
        namespace, there = await live(site, keys, with_secret=True)
        everything = await kept(site, namespace, database)
        assert among((ANNOTATION, ENVIRONMENT, REASON, SECRET, HIDDEN), everything) == set()
        assert names.workflow_id(site.cluster, namespace, "train").encode() in everything, "ids are readable"
        assert not among((SECRET, HIDDEN), there.encode()), "Kubernetes has it in the Secret alone"
        logs = "".join(worker.log.read_text() for worker in site.workers)
        assert '"event": "ready"' in logs
        assert not among((SECRET, HIDDEN, ENVIRONMENT), logs.encode())

        other = tmp_path / "other.json"
        add(other, "second")
        for without, words in (
            (None, "encrypted with key 'first', and there is no key file: HOLDFAST_CODEC_KEYS names one"),
            (other, f"encrypted with key 'first', which {other} lacks: add it there"),
        ):
            for command in ("status", "history", "explain"):
                code, out = await run(site, without, command, "train", "-n", namespace)
                assert (code, "Traceback" in out) == (2, False), out
                assert words in " ".join(out.split()), out
        code, out = await run(
            site, None, "submit", "-", "-n", namespace, said=yaml.safe_dump(document(with_secret=True))
        )
        assert code == 2, out
        assert "is a Secret" in out


async def test_X6_without_a_codec_the_same_words_are_found(stack: Stack, tmp_path: Path) -> None:
    """What looks for them can find them: the test above can fail."""
    async with opened(stack, tmp_path, None) as (site, database):
        namespace, _ = await live(site, None, with_secret=False)
        words = (ANNOTATION, ENVIRONMENT, REASON)
        assert among(words, await kept(site, namespace, database)) == set(words)


@pytest.mark.timeout(480)
async def test_X6_a_worker_that_loses_its_key_holds_the_workload_until_it_is_back(stack: Stack, tmp_path: Path) -> None:
    keys, theirs = tmp_path / "keys.json", tmp_path / "theirs.json"
    add(keys, "first")
    add(theirs, "other")
    whole = keys.read_bytes()
    async with opened(stack, tmp_path, keys, "workflows", "cluster,wait,watch,admission") as (site, _):
        namespace = await site.namespace()
        code, out = await run(
            site, keys, "submit", "-", "-n", namespace, said=yaml.safe_dump(document(with_secret=False))
        )
        assert code == 0, out
        handle = site.client.get_workflow_handle(names.workflow_id(site.cluster, namespace, "train"))
        await site.reach(handle, "Running")
        (before,) = await site.pods(namespace)
        assert site.workers[0].stop() == 0
        lacking = await site.start_worker("--roles", "workflows", **with_keys(theirs))

        async def said(words: str) -> bool:
            _, out = await run(site, keys, "status", "train", "-n", namespace)
            return words in " ".join(out.split())

        missing = "encrypted with key 'first'"
        await until(lambda: said(missing), TRIED_AGAIN, "status says which key is missing", pause=0.5)
        assert missing in lacking.log.read_text()
        (pod,) = await site.pods(namespace)
        assert pod["metadata"]["uid"] == before["metadata"]["uid"], "what runs goes on"
        theirs.write_bytes(whole)

        async def answered() -> bool:
            return not await said("no worker")

        # A worker reads its key file again as it needs it, and not at once.
        await until(answered, TRIED_AGAIN, "the worker has the key", pause=0.5)
        await site.fail_pod(namespace, exit_code=7)
        await site.reach(handle, "Running", attempt=2)


@pytest.mark.timeout(480)
async def test_X6_what_a_lost_key_encrypted_is_swept_and_begun_again(stack: Stack, tmp_path: Path) -> None:
    lost, new = tmp_path / "lost.json", tmp_path / "new.json"
    add(lost, "first")
    add(new, "second")
    kind, text = ("workload.codeflare.dev/v1beta2", "AppWrapper"), yaml.safe_dump(document(with_secret=False))
    async with opened(stack, tmp_path, lost) as (site, _):
        namespace = await site.namespace()
        code, out = await run(site, lost, "submit", "-", "-n", namespace, said=text)
        assert code == 0, out
        wrapped = appwrapper("applied", job("work", pods=1))
        wrapped["metadata"]["namespace"] = namespace
        wrapped["spec"]["managedBy"] = site.managed_by
        made = await site.kube.create(wrapped)
        ids = [names.workflow_id(site.cluster, namespace, *one) for one in (("train",), ("applied", kind[1]))]
        for one in ids:
            await site.reach(site.client.get_workflow_handle(one), "Running")
        begun = asyncio.get_running_loop().time()

        assert site.workers[0].stop() == 0
        async for execution in site.client.list_workflows("ExecutionStatus = 'Running'"):
            await site.client.get_workflow_handle(execution.id).terminate("key lost")
        await site.start_worker(**with_keys(new))
        await site.kube.delete(*kind, "applied", namespace, uid=made["metadata"]["uid"])
        code, out = await run(site, new, "sweep", "--dry-run")
        assert code == 0, out
        assert "its workflow is over (Terminated), and its memo cannot be read" in " ".join(out.split())
        code, out = await run(site, new, "sweep", "--unknown", "--yes")
        assert code == 0, out
        assert await site.gone(namespace)

        async def is_gone() -> bool:
            return await site.kube.find(*kind, "applied", namespace) is None

        await until(is_gone, 120, "the deletion of what was applied is done")
        code, out = await run(site, new, "submit", "--again", "-", "-n", namespace, said=text)
        assert code == 0, out
        # Until then the new resource might be the one whose run cannot be read.
        await asyncio.sleep(max(0.0, begun + 62 - asyncio.get_running_loop().time()))
        await site.kube.create(wrapped)
        again = await Client.connect(site.temporal_address, namespace=site.cluster, **options(new))
        await site.reach(again.get_workflow_handle(ids[0]), "Running")

        async def is_running() -> bool:
            found = await site.kube.get(*kind, "applied", namespace)
            return found.get("status", {}).get("phase") == "Running"

        await until(is_running, 120, "what was applied again runs")
