"""What end-to-end tests of data sets stand on: a store, a cache and a site of their own, and a Job that reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml

from holdfast import names
from holdfast.client import Holdfast
from holdfast.client.connection import Place
from holdfast.model import Reason, Status
from tests.e2e.ground.site import Site, free_port, until
from tests.e2e.ground.space import Handle, Space, pod_template
from tests.e2e.ground.terminal import command
from tests.store import BUCKET, Store

SOURCE = f"s3://{BUCKET}/corpus"
MOUNTS = f"[{{name: corpus, source: {SOURCE}, path: /data/corpus}}]"
SETTINGS = {
    "failureGracePeriod": "0s",
    "retryPausePeriod": "0s",
    "retryLimit": "3",
    "successTTL": "0s",
    "forcefulDeletionGracePeriod": "5s",
}
PIECES, SIZE = 12, 400_000


def job(name: str = "train", mounts: str = MOUNTS, template: dict[str, Any] | None = None, **settings: str) -> str:
    """A Job on fake nodes that reads a data set, as its user writes it down."""
    given = {**SETTINGS, "mounts": mounts, **settings}
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": {f"{names.GROUP}/{key}": value for key, value in given.items()}},
        "spec": {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": template or pod_template()},
    }
    return yaml.safe_dump(document)


def holdfast(site: Site) -> Holdfast:
    return Holdfast(site.client, Place(site.temporal_address, site.cluster), site.cluster)


class Ground:
    """A test's own store, cache and site."""

    def __init__(self, space: Space, store: Store, cache: Path) -> None:
        self.space, self.site, self.store, self.cache = space, space.site, store, cache
        self.metrics = ""

    @property
    def folder(self) -> Path:
        """The namespace's folder of the cache."""
        return self.cache / self.space.namespace

    async def worker(self, endpoint: str = "", **changes: str) -> None:
        self.metrics = f"127.0.0.1:{free_port()}"
        given = {**self.store.settings(self.cache, endpoint), "HOLDFAST_METRICS_ADDRESS": self.metrics, **changes}
        await self.site.start_worker(kubeconfig=None, **given)

    async def gauge(self, name: str) -> list[float]:
        def read() -> str:
            with urlopen(f"http://{self.metrics}/metrics", timeout=5) as answer:
                return answer.read().decode()

        lines = (await asyncio.to_thread(read)).splitlines()
        return [float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{")]

    async def stages(self, handle: Handle, reason: Reason = Reason.STAGING, says: str = "") -> Status:
        found = list[Status]()

        async def check() -> bool:
            found[:] = [await self.site.status(handle)]
            return (found[0].phase, found[0].reason) == ("Pending", reason) and says in found[0].message

        await until(check, 60, f"{handle.id} is Pending ({reason}) and says {says!r}: {found}")
        return found[0]

    async def reasons(self, handle: Handle) -> list[str]:
        return [cause.reason.value for cause in (await self.site.status(handle)).causes]

    async def nothing_made(self) -> None:
        """Only the Anchors are there, which show how the workloads wait or ended (row E10)."""
        assert await self.site.gone(self.space.namespace)

    async def events(self, reason: str) -> list[dict[str, Any]]:
        return [one for one in await self.site.objects("v1", "Event", self.space.namespace) if one["reason"] == reason]


async def queue_of_two(ground: Ground, folder: Path) -> Holdfast:
    """Open a queue `one` for two pods."""
    file = folder / "queue.yaml"
    queue = {"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": {"name": "one"}}
    text = yaml.safe_dump({**queue, "spec": {"quota": {"pods": 2}}})
    await asyncio.to_thread(file.write_text, text)
    await command(ground.site, "queue", "apply", str(file))
    return holdfast(ground.site)


async def queued(ground: Ground, name: str, mounts: str) -> Handle:
    """Submit a Job to that queue."""
    settings = {**SETTINGS, "queue": "one"} | ({"mounts": mounts} if mounts else {})
    document = yaml.safe_load(job(name))
    document["metadata"]["annotations"] = {f"{names.GROUP}/{key}": value for key, value in settings.items()}
    run = await holdfast(ground.site).submit(ground.site.read(document, ground.space.namespace))
    handle: Handle = ground.site.client.get_workflow_handle(run.workflow_id, result_type=Status)
    ground.space.handles.append(handle)
    return handle
