"""Any sequence of stagings, ends, tampering, outages and quotas: what holds of the cache after each step (row X10)."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.activities.data.cache import Cache
from tests.activities.data.stored import Memory, content, knows, staged

SIZES = {"a": 10, "b": 20, "c": 30, "d": 45}
USERS = st.sampled_from(["u", "v", "w", "x"])
SETS = st.lists(st.sampled_from(sorted(SIZES)), min_size=1, max_size=2, unique=True)
T = TypeVar("T")


class Sequences(RuleBasedStateMachine):
    """One namespace of a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.store = Memory(**{name: {"f": name.encode() * size} for name, size in SIZES.items()})
        self.quota = 60
        self.over: set[str] = set()
        self.reads: dict[str, dict[str, str]] = {}
        """By workload that has not ended: its versions."""
        self.tampered: set[str] = set()

    def teardown(self) -> None:
        self.folder.cleanup()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(work)

    @rule(user=USERS, sets=SETS, breaks=st.none() | st.integers(0, 9))
    def stage(self, user: str, sets: list[str], breaks: int | None) -> None:
        if user in self.reads:
            sets = sorted(self.reads[user])  # A later attempt reads the same.
        self.store.breaks_after = breaks
        cache = Cache(self.root, lambda _: self.quota)  # A worker that has just begun.
        kept = self.reads.get(user, {})
        self.over.discard(user)
        done = self.run(staged(cache, self.store, user, *sets, ended=knows(set(self.over)), **kept))
        self.store.breaks_after = None
        if not done.sets:
            assert done.away or done.problem
            return
        self.reads[user] = {one.mount: one.digest for one in done.sets}
        for one in done.sets:
            assert content(self.root, "team", one.digest) == {"f": one.mount.encode() * SIZES[one.mount]}
            self.tampered.discard(one.digest)
        assert self.occupied() <= self.quota

    @precondition(lambda self: self.reads)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        user = data.draw(st.sampled_from(sorted(self.reads)))
        del self.reads[user]
        self.over.add(user)

    @rule(data=st.data(), back=st.booleans())
    def tamper(self, data: st.DataObject, back: bool) -> None:
        files = sorted(self.root.glob("team/*/data/f"))
        if files:
            path = data.draw(st.sampled_from(files))
            before = path.stat()
            path.write_bytes(b"!" * before.st_size)
            if back:
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            self.tampered.add(path.parent.parent.name)

    def occupied(self) -> int:
        return sum(one.stat().st_size for one in self.root.glob("team/*/data/f"))

    @invariant()
    def what_is_used_is_there(self) -> None:
        for versions in self.reads.values():
            for name, digest in versions.items():
                path = self.root / "team" / digest / "data/f"
                if digest not in self.tampered:
                    assert path.read_bytes() == name.encode() * SIZES[name]

    @invariant()
    def what_is_reserved_fits(self) -> None:
        stored = Cache(self.root, lambda _: self.quota).room("team").stored()
        assert sum(one.bytes for one in stored) <= self.quota


TestSequences = pytest.mark.row("X10", level="pure")(Sequences.TestCase)
TestSequences.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
