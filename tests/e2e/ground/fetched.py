"""Gets what some end-to-end tests start beside the shared stack, its progress shown, before any test's time counts.

python -m tests.e2e.ground.fetched
"""

from __future__ import annotations

from holdfast.cli.demo.dev import ProgressLines
from holdfast.local.programs.resolve import resolve
from holdfast.local.programs.tools import HA_TOOLS, PEER_TOOLS, STORE_TOOLS
from tests.monitoring.promtool import fetch
from tests.worker.temporal.authorizer import authorizer

if __name__ == "__main__":
    lines = ProgressLines()
    resolve((*HA_TOOLS, *STORE_TOOLS, *PEER_TOOLS), lines)
    authorizer(lines)
    fetch()
    lines.end()
