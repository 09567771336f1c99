"""A worker that cannot decrypt what Temporal has waits, and says which key it lacks (row X6)."""

from __future__ import annotations

import pytest

from holdfast.errors import Undecodable
from holdfast.worker.reach import TEMPORAL, persist
from holdfast.worker.runtime.health import Health


@pytest.mark.row("X6", level="pure")
async def test_X6_a_worker_without_the_key_waits_and_names_it() -> None:
    health, told = Health(), list[str]()

    async def call() -> str:
        waiting = [one for one in health.ready() if one.name == TEMPORAL]
        if waiting:
            told.extend(one.message for one in waiting if not one.ok)
            return "done"
        raise Undecodable("a payload is encrypted with key '2027-01', which keys.json lacks")

    assert await persist(TEMPORAL, "temporal:7233", call, health, 0.01) == "done"
    assert told == [
        "temporal:7233 holds what this worker cannot read: a payload is encrypted with key '2027-01', "
        "which keys.json lacks"
    ]
    assert all(one.ok for one in health.ready())
