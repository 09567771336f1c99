"""What the cluster shows of an earlier provisioner's work, as a provisioner begins (row D2)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import names
from holdfast.model.entities.provisioner import NodeAction
from holdfast.model.entities.queue import Queue
from holdfast.policy.nodes.provisioner import plan
from holdfast.worker.entities.begin import state_from
from holdfast.workflows.entity import read

NOW = datetime(2026, 1, 31, 2, 15, tzinfo=UTC)


def node(name: str, value: str = "wipe") -> dict[str, Any]:
    taint = {"key": names.quarantine_taint("us"), "value": value, "effect": "NoSchedule"}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"taints": [taint]}}


@pytest.mark.row("D2", level="pure")
def test_D2_a_provisioner_begins_with_the_wipes_of_nodes_in_quarantine() -> None:
    state = state_from([node("n-2"), node("n-1")], "local", "cluster-uid", "us", NOW)
    assert state is not None
    assert [(one.node, one.action, one.uid) for one in state.pending] == [
        ("n-1", NodeAction.WIPE, "uid-n-1"),
        ("n-2", NodeAction.WIPE, "uid-n-2"),
    ]
    assert set(state.quarantined) == {"n-1", "n-2"}
    assert state.last == 2, "numbers of later requests go on from there"
    assert [one.node for one in plan(state, set(), NOW).enlist] == ["n-1", "n-2"]


@pytest.mark.row("L15", level="pure")
def test_L15_a_provisioner_begun_anew_wipes_no_node_that_only_has_the_name_of_one_to_be_wiped() -> None:
    state = state_from([node("n-1", "held"), node("n-2")], "local", "cluster-uid", "us", NOW)
    assert state is not None
    assert [one.node for one in state.pending] == ["n-2"]
    assert set(state.quarantined) == {"n-1", "n-2"}
    assert state.quarantined["n-1"].why.startswith("waits for its release")
    alone = state_from([node("n-1", "held")], "local", "cluster-uid", "us", NOW)
    assert alone is not None
    assert (alone.pending, set(alone.quarantined)) == ((), {"n-1"})


@pytest.mark.row("D2", level="pure")
def test_D2_a_provisioner_begins_with_nothing_where_no_node_is_in_quarantine() -> None:
    assert state_from([], "local", "cluster-uid", "us", NOW) is None


@pytest.mark.row("D2", level="pure")
@pytest.mark.parametrize("damaged", ["x", "eJw=", 5])
def test_D2_a_damaged_document_is_refused_and_does_not_fail_the_task(damaged: object) -> None:
    document, why = read(Queue, {"zlib": damaged})
    assert document is None
    assert why.startswith("queue: ")
