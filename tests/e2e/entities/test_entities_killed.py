"""Every entity on the shared Temporal: its worker dies, a query comes, a timer falls due (D1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.local import Stack
from tests.e2e.ground.site import open_site
from tests.workflows.entities.test_entities_killed import lived_through

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.mark.row("D1", level="e2e")
async def test_D1_what_a_query_shows_before_the_task_makes_no_history_that_cannot_replay(
    stack: Stack, tmp_path: Path
) -> None:
    async with open_site(stack, tmp_path, prefix="k") as site:
        await lived_through(site.client, site.cluster)
