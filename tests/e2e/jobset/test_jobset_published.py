"""Published examples run as their files have them (row J26), on real Job controllers; only their images are not run."""

from __future__ import annotations

import pytest

from tests.e2e.ground.space import Space
from tests.e2e.jobset.jobset_life import reach
from tests.published import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.row("J26", level="e2e")
@pytest.mark.parametrize("file", ["simple/group", "simple/coordinator", "failure-policy/restartjob-action"])
async def test_J26_a_published_example_runs_unmodified(space: Space, file: str):
    handle = await space.submit((ROOT / "jobset" / f"{file}.yaml").read_text())
    await reach(space, handle, "Running", 1)
    await handle.signal("cancel", "enough")
    assert (await space.ended(handle)).phase == "Cancelled"
