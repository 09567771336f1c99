"""What a workload's workflow writes to its memo in each run, by what the run began with. No server."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.common import TypedSearchAttributes

from holdfast import names
from holdfast.model import Checkpoint, CheckpointProtocol
from holdfast.model.entities.graph import Place
from holdfast.policy.loop.submission import submitted
from holdfast.policy.values.edit import edit
from holdfast.workflows.start import search_attributes
from holdfast.workflows.workload import WorkloadWorkflow
from tests.policy.lives.life import workload

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = edit(
    workload(),
    checkpoint=Checkpoint(protocol=CheckpointProtocol.ANNOTATION),
    labels={"team": "a"},
    queue="gpus",
    queued=True,
    graph=Place(graph="nightly", item="train"),
)
IDENTITY = {
    names.MEMO_UID: "first",
    names.MEMO_KIND: SPEC.source.kind,
    names.MEMO_LABELS: {"team": "a"},
    names.MEMO_SAVES: True,
    names.MEMO_QUEUED: True,
    names.MEMO_GRAPH: "nightly",
}


def written(monkeypatch: pytest.MonkeyPatch, columns: TypedSearchAttributes, memo: dict[str, Any]) -> dict[str, Any]:
    """Return what a run writes to its memo first, which began with these columns and this memo."""
    told: list[dict[str, Any]] = []
    begun = SimpleNamespace(typed_search_attributes=columns, raw_memo=memo)
    monkeypatch.setattr(workflow, "info", lambda: begun)
    monkeypatch.setattr(workflow, "upsert_search_attributes", lambda _: None)
    monkeypatch.setattr(workflow, "upsert_memo", told.append)
    life = object.__new__(WorkloadWorkflow)
    life._uid, life._shown = "first", None
    life._show(SPEC, submitted(SPEC, NOW), NOW)
    (memo,) = told
    return memo


def its_own(memo: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in memo.items() if name not in {names.MEMO_STATUS, names.MEMO_SPEC_HASH}}


def test_a_run_writes_who_it_is_where_its_memo_does_not_say_so(monkeypatch: pytest.MonkeyPatch):
    bare = written(monkeypatch, TypedSearchAttributes.empty, {})
    assert its_own(bare) == IDENTITY
    # A run that continues another has its search attributes, and had not what it wrote to its memo.
    assert its_own(written(monkeypatch, search_attributes(SPEC), {})) == IDENTITY


def test_a_run_whose_memo_says_who_it_is_leaves_it_as_it_is(monkeypatch: pytest.MonkeyPatch):
    assert its_own(written(monkeypatch, search_attributes(SPEC), {names.MEMO_UID: b"first"})) == {}
