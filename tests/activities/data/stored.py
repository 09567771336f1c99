"""A store that is a dictionary, and workloads that stage from it: for tests of the cache alone."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from holdfast.activities.data.cache import Cache
from holdfast.activities.data.room import Ended, Use, nobody_knows
from holdfast.activities.data.settings import Data
from holdfast.activities.data.stage import stage
from holdfast.activities.data.storage import Away, Changed, Entry
from holdfast.activities.site.site import Site
from holdfast.model.calls.cluster import Target
from holdfast.model.calls.stage import Staged, StageInput
from holdfast.model.spec.mount import Mount, bucket_of

PIECE = 4
OPEN = SimpleNamespace(has=lambda *_: True)
"""What permits each namespace, for a site without a cluster."""


class Memory:
    """Objects by `bucket/key`; content comes in pieces of four bytes, with MD5 as etags."""

    name = "memory"

    def __init__(self, **sets: dict[str, bytes]) -> None:
        self.objects = {f"datasets/{name}/{key}": data for name, files in sets.items() for key, data in files.items()}
        self.asked: list[tuple[str, int]] = []
        """Keys that were fetched, and from which byte on."""
        self.breaks_after: int | None = None
        """Pieces after which it does not answer any more."""
        self.etags: dict[str, str] = {}
        """Etags that are no MD5."""

    async def list(self, source: str) -> list[Entry]:
        bucket, prefix = bucket_of(source)
        start = f"{bucket}/{prefix}/"
        return [
            Entry(key.removeprefix(start), len(data), self.etags.get(key, f'"{hashlib.md5(data).hexdigest()}"'))
            for key, data in self.objects.items()
            if key.startswith(start)
        ]

    async def fetch(self, source: str, entry: Entry, start: int = 0) -> AsyncGenerator[bytes]:
        bucket, prefix = bucket_of(source)
        name = f"{bucket}/{prefix}/{entry.key}"
        if name not in self.objects:
            raise Changed(name)
        self.asked.append((entry.key, start))
        data = self.objects[name]
        for at in range(start, len(data), PIECE):
            if self.breaks_after is not None:
                if self.breaks_after <= 0:
                    raise Away("memory does not answer")
                self.breaks_after -= 1
            await asyncio.sleep(0)
            yield data[at : at + PIECE]

    async def answers(self, source: str) -> None:
        return


def mount(name: str) -> Mount:
    """A data set of the store under its own name."""
    return Mount(name=name, source=f"s3://datasets/{name}", path=f"/data/{name}")


async def staged(
    cache: Cache, store: Memory, uid: str, *sets: str, namespace: str = "team", ended: Ended = nobody_knows, **kept: str
) -> Staged:
    """Stage data sets for a workload.

    Args:
        cache: where to.
        store: where from.
        uid: the workload.
        sets: names of data sets.
        namespace: the workload's.
        ended: who knows which workloads have ended.
        kept: by name: the versions that it began with.
    """
    data = Data(store, cache, (("*", "s3://datasets"),))
    site = cast("Site", SimpleNamespace(check=lambda _: None, data=data, namespaces=(), permits=OPEN))
    target = Target(
        cluster="dev", namespace=namespace, name=uid, workload_uid=uid, workflow_id=uid, shard=0, run_as="runner"
    )
    return await stage(site, StageInput(target=target, mounts=tuple(mount(one) for one in sets), versions=kept), ended)


def knows(over: set[str]) -> Ended:
    """Return what knows that these workloads have ended."""

    async def ended(namespace: str, use: Use) -> bool:
        return use.uid in over

    return ended


def content(root: Path, namespace: str, digest: str) -> dict[str, bytes]:
    """Return what pods find under a mount."""
    folder = root / namespace / digest / "data"
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}
