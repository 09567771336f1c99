"""A look that is acted on at once reads first, and leaves its status to what follows it (rows L4, L8, A10)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model import Event, Phase, Reason, Report
from tests.activities.bench import Bench, eventually, job

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]
ROW = pytest.mark.row
FAIL: dict[str, Any] = {"annotations": {"holdfast.dev/kwok-fail": "0s", "holdfast.dev/kwok-exit-code": "3"}}


async def said(bench: Bench) -> str:
    anchor = await bench.anchor()
    assert anchor is not None
    return anchor["status"]["message"]


async def written(bench: Bench) -> list[str]:
    return sorted(one["message"] for one in await bench.events())


def telling(bench: Bench, message: str, **more: Any) -> Report:
    return bench.report(message=message, events=(Event(reason=Reason.RESETTING, message=message),), **more)


async def failed(bench: Bench) -> None:
    bench.components = (job(**FAIL),)
    await bench.prepare()
    await bench.create()

    async def seen() -> bool:
        return bool((await bench.observe()).failures)

    await eventually(seen)


@ROW("L8", level="e2e")
async def test_L8_a_look_that_confirms_what_is_acted_on_at_once_writes_nothing(bench: Bench):
    await failed(bench)
    before = await bench.anchor()
    seen = await bench.observe(decides=True, report=telling(bench, "found"))
    assert seen.untold
    assert seen.failures
    assert await bench.anchor() == before
    assert await written(bench) == []


@ROW("A10", level="e2e")
async def test_A10_what_it_left_is_written_before_what_follows(bench: Bench):
    await failed(bench)
    owed = telling(bench, "found")
    await bench.observe(decides=True, report=owed)
    following = telling(bench, "removed", phase=Phase.RESETTING, before=owed)
    for _ in range(2):  # As when a worker dies over it: nothing is written twice.
        await bench.send_report(following)
        assert await said(bench) == "removed"
        assert await written(bench) == ["found", "removed"]


@ROW("A10", level="e2e")
async def test_A10_it_leaves_nothing_where_it_confirms_nothing(bench: Bench):
    await bench.launch()
    seen = await bench.observe(decides=True, report=telling(bench, "all is well"))
    assert not seen.untold
    assert (await said(bench), await written(bench)) == ("all is well", ["all is well"])


@ROW("A10", level="e2e")
async def test_A10_what_was_left_once_is_not_left_again(bench: Bench):
    await failed(bench)
    owed = telling(bench, "found")
    seen = await bench.observe(decides=True, report=telling(bench, "found again", before=owed))
    assert seen.failures
    assert not seen.untold
    assert (await said(bench), await written(bench)) == ("found again", ["found", "found again"])
