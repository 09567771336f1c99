"""The pytest plugin that notes what each test's seconds were spent on; tests/plugins/rows.py writes it down."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from tests.plugins.spent import METER

TIMES = "times"
SERVERS = ("e2e", "temporal", "real_node")
"""The marks of tests that need a server."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Begin at nothing: what was spent before is no test's."""
    METER.take()
    _cpu.since()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> None:
    """Note, in the process that runs the test, what its seconds so far were spent on."""
    times: Any = next((value for name, value in item.user_properties if name == TIMES), None)
    if times is None:
        times = {"server": any(item.get_closest_marker(name) for name in SERVERS), "parts": {}, "cpu": 0.0}
        item.user_properties.append((TIMES, times))
    for part, seconds in METER.take().items():
        times["parts"][part] = round(times["parts"].get(part, 0.0) + seconds, 2)
    times["cpu"] = round(times["cpu"] + _cpu.since(), 2)


class _Cpu:
    """Seconds of the processor that this process and its ended children have used since the last call."""

    def __init__(self) -> None:
        self._used = 0.0

    def since(self) -> float:
        whose = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
        used = sum(one.ru_utime + one.ru_stime for one in whose)
        seconds, self._used = used - self._used, used
        return seconds


_cpu = _Cpu()
