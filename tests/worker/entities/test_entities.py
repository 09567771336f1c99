"""What the cluster shows of an earlier provisioner's work, as a provisioner begins (row D2)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.model.entities.provisioner import NodeAction
from holdfast.model.entities.queue import Queue
from holdfast.policy.nodes.provisioner import plan
from holdfast.worker.entities.begin import state_from
from holdfast.workflows.entity import read

NOW = datetime(2026, 1, 31, 2, 15, tzinfo=UTC)


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {}}


@pytest.mark.row("D2", level="pure")
def test_D2_a_provisioner_begins_with_the_wipes_of_nodes_in_quarantine() -> None:
    state = state_from([node("n-2"), node("n-1")], "local", "cluster-uid", NOW)
    assert state is not None
    assert [(one.node, one.action, one.uid) for one in state.pending] == [
        ("n-1", NodeAction.WIPE, "uid-n-1"),
        ("n-2", NodeAction.WIPE, "uid-n-2"),
    ]
    assert set(state.quarantined) == {"n-1", "n-2"}
    assert state.last == 2, "numbers of later requests go on from there"
    assert [one.node for one in plan(state, set(), NOW).enlist] == ["n-1", "n-2"]


@pytest.mark.row("D2", level="pure")
def test_D2_a_provisioner_begins_with_nothing_where_no_node_is_in_quarantine() -> None:
    assert state_from([], "local", "cluster-uid", NOW) is None


@pytest.mark.row("D2", level="pure")
@pytest.mark.parametrize("damaged", ["x", "eJw=", 5])
def test_D2_a_damaged_document_is_refused_and_does_not_fail_the_task(damaged: object) -> None:
    document, why = read(Queue, {"zlib": damaged})
    assert document is None
    assert why.startswith("queue: ")
