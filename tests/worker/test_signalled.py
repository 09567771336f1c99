"""Being told to stop, once and twice."""

from __future__ import annotations

import os
import signal

import pytest

from holdfast.plugin import with_passthrough
from holdfast.worker.process import EXIT_AT_ONCE, Process
from holdfast.worker.runtime.settings import Settings


async def test_the_first_signal_drains_and_the_second_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    process = Process(Settings(cluster="c"), with_passthrough(None))
    process._signalled(signal.SIGTERM)
    assert process.health.draining
    assert exits == []
    process._signalled(signal.SIGINT)
    assert exits == [EXIT_AT_ONCE]
