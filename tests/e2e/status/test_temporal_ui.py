"""What Temporal's UI shows of a workload that failed: the documented links list it, and no stack hides why (row E9)."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent

from tests.e2e.ground.site import appwrapper, job, until
from tests.e2e.ground.space import Space

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "interfaces.md"
LINK = re.compile(r"^\| ([a-z ]+) \| `http://\S+/workflows\?query=(\S+)` \|$", re.MULTILINE)
QUERIES = {name: unquote(query) for name, query in LINK.findall(PAGE.read_text())}


def failures(event: HistoryEvent) -> list[Failure]:
    """Return the failures that an event of a history has, each before its cause."""
    found: list[Failure] = []
    for field, value in event.ListFields():
        if field.name.endswith("_attributes") and "failure" in value.DESCRIPTOR.fields_by_name:
            each = value.failure
            while each.message:
                found.append(each)
                each = each.cause
    return found


@pytest.mark.row("E9", level="e2e")
async def test_E9_a_failed_workload_is_listed_by_the_documented_links_and_has_no_stack_trace(space: Space):
    doomed = job(complete="")
    doomed["template"]["spec"]["template"]["metadata"]["annotations"] = {
        "holdfast.dev/kwok-fail": "0s",
        "holdfast.dev/kwok-exit-code": "3",
    }
    handle = await space.submit(
        appwrapper("doomed", doomed, retryLimit="1", failureGracePeriodDuration="1s", retryPausePeriodDuration="1s")
    )
    status = await space.ended(handle)
    assert (status.phase, status.restarts) == ("Failed", 1)

    found = [failure async for event in handle.fetch_history_events() for failure in failures(event)]
    assert any(failure.message.startswith("doomed failed: ") for failure in found)
    assert [failure.stack_trace for failure in found if failure.stack_trace] == []

    assert set(QUERIES) == {"failed", "resetting or failed", "waiting for quota", "refused", "restarted at least once"}
    expected = {"failed", "resetting or failed", "restarted at least once"}

    async def listed() -> bool:
        names = {
            name
            for name, query in QUERIES.items()
            if [one async for one in space.site.client.list_workflows(query) if one.id == handle.id]
        }
        return names == expected

    await until(listed, 30, "the links list it")
