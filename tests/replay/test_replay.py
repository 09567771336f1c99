"""Recorded histories replay: a change that breaks one would break every workload that is under way."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from holdfast.plugin import HoldfastPlugin
from tests.replay.record import HISTORIES, SCENARIOS

RECORDED = sorted(HISTORIES.glob("*.json"))


def read(path: Path) -> WorkflowHistory:
    text = path.read_text()
    nameless = WorkflowHistory.from_json("unknown", text)
    identifier = nameless.events[0].workflow_execution_started_event_attributes.workflow_id
    return WorkflowHistory.from_json(identifier, text)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_a_recorded_history_replays(path: Path):
    history = read(path)
    await Replayer(workflows=[], plugins=[HoldfastPlugin(["workflows"])]).replay_workflow(history)


def test_every_scenario_is_recorded():
    stems = {path.stem for path in RECORDED}
    for name in SCENARIOS:
        assert any(stem == name or stem.startswith(f"{name}-") for stem in stems), name


def test_recorded_histories_name_no_machine():
    for path in RECORDED:
        text = path.read_text()
        assert '"identity": "recorder"' in text
        assert "/tmp/" not in text
        assert "/work/" not in text
