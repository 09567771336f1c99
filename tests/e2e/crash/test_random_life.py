"""Random lives on the real cluster: pods, people, workers and the API server do what they like, and no law is broken.

`HOLDFAST_LIVES=20` lives more of them, `HOLDFAST_LIFE_SEED=1234` begins with that seed, `HOLDFAST_LIFE_MOVES=40` makes
them longer. What happened is printed; the servers' own timing is not repeated by a seed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from holdfast import names
from holdfast.local import Stack
from tests.e2e.ground.site import until
from tests.e2e.lives.life import BUDGET, NAME, Life, open_life
from tests.e2e.witness.invariants import check_decisions
from tests.e2e.witness.oracle import broken_by

LIVES = int(os.environ.get("HOLDFAST_LIVES", "3"))
FIRST = int(os.environ.get("HOLDFAST_LIFE_SEED", "1"))
MOVES = int(os.environ.get("HOLDFAST_LIFE_MOVES", "10"))

pytestmark = [pytest.mark.e2e, pytest.mark.sample, pytest.mark.timeout(300 + 20 * MOVES)]


@pytest.mark.parametrize("seed", range(FIRST, FIRST + LIVES))
async def test_a_random_life_breaks_no_law(stack: Stack, tmp_path: Path, seed: int):
    begun = time.monotonic()
    async with open_life(stack, tmp_path, seed) as life:
        await life.begin()
        try:
            await life.live(MOVES)
            status = await life.end()
        finally:
            print(f"seed {seed}: {', '.join(life.done)}")
        broken = await broken_by(life.space, NAME)
        assert not broken, broken
        budget = next(one for one in status.budgets if one.name == "restart")
        assert budget.used <= BUDGET
        # A retry of a failed workload gives its budget back, and keeps the count of restarts.
        assert budget.used <= status.restarts < status.executions
        assert life.handle is not None
        await check_decisions(life.handle)
        await _nothing_is_left(life)
        print(
            f"MEASURED seed {seed}: {status.phase} after {status.executions} attempts and {status.restarts} restarts, "
            f"in {time.monotonic() - begun:.0f} s"
        )


async def _nothing_is_left(life: Life) -> None:
    """All of it is gone; an anchor that stays is let go of."""
    space = life.space
    await until(lambda: space.site.gone(space.namespace), 30, "nothing of it is left")
    for anchor in await space.site.objects(names.API_VERSION, names.ANCHOR_KIND, space.namespace):
        assert names.FINALIZER not in (anchor["metadata"].get("finalizers") or ())
