"""The creation of an attempt completes its data sets, and takes the room of workloads that have ended (row X10)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio import activity

from holdfast.activities.data.cache import Cache
from holdfast.activities.data.room import Use
from holdfast.activities.data.settings import Data
from holdfast.activities.operations import create
from holdfast.activities.site.site import Pulse
from holdfast.model.calls.cluster import Target
from holdfast.model.calls.plan import DataVolume
from tests.activities.data.stored import Memory, content, knows, staged

pytestmark = pytest.mark.row("X10", level="pure")


async def test_X10_a_creation_takes_the_room_of_what_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, store = Cache(tmp_path, lambda _: 50), Memory(a={"f": b"a" * 40}, b={"f": b"b" * 40})
    (a,) = (await staged(cache, store, "u", "a")).sets
    (b,) = (await staged(cache, store, "v", "b", ended=knows({"u"}))).sets

    async def over(site: Any, client: Any, namespace: str, use: Use) -> bool:
        return use.uid == "v"

    monkeypatch.setattr(create, "is_over", over)
    monkeypatch.setattr(activity, "client", lambda: None)
    site = SimpleNamespace(data=Data(store, cache, (("*", "s3://datasets"),)))
    target = Target(
        cluster="dev", namespace="team", name="u", workload_uid="u", workflow_id="u", shard=0, run_as="runner"
    )
    volume = DataVolume(
        volume="holdfast-data-a", path="/data/a", digest=a.digest, source="s3://datasets/a", components=("main",)
    )
    monkeypatch.setattr(cache, "is_fresh", lambda *_: False)
    given = SimpleNamespace(target=target, data=(volume,))
    pulse = cast("Pulse", SimpleNamespace(say=lambda _: None, watch=lambda _: None))
    async with asyncio.timeout(4):
        assert await create.lost_data(cast("Any", site), cast("Any", given), pulse) == ""
    assert content(tmp_path, "team", a.digest) == {"f": b"a" * 40}
    assert not (tmp_path / "team" / b.digest).exists()
