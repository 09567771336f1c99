"""What people read of nodes and their machines: pure functions from values to text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.cli.entities.node_text import document, shown
from holdfast.model import NodeBook, NodeRecord, NodeState, NodeWord
from holdfast.model.entities.nodes import NodeTimings
from holdfast.model.entities.provisioner import FenceAsk, NodeAction, NodeAsk, ProvisionerState, Result
from holdfast.policy.nodes import provisioner as policy
from holdfast.policy.nodes.provisioner_status import status, unfenced

NOW = datetime(2026, 1, 31, 2, 14, 50, tzinfo=UTC)
BEFORE = NOW - timedelta(minutes=5)
HEARD = NOW - timedelta(minutes=2)
"""When node-3 last renewed its lease."""
DOWN = HEARD + NodeTimings().until_down


def down() -> NodeRecord:
    """A node that fell silent, and is to be powered off before its pods are replaced."""
    why = f"its lease was last renewed at {HEARD:%H:%M:%S} UTC; its pods are replaced only once its power is off"
    return NodeRecord(name="node-3", since=DOWN, at=NOW, state=NodeState.DOWN, word=NodeWord.FENCING, why=why)


def told() -> ProvisionerState:
    """A provisioner that has booted node-1, and whose service has not answered since it is to wipe node-7."""
    state = ProvisionerState(cluster="dev", cluster_uid="u")
    state, boot = policy.on_request(state, NodeAsk(node="node-1", action=NodeAction.BOOT), BEFORE)
    state, wipe = policy.on_request(state, NodeAsk(node="node-7", action=NodeAction.WIPE, why="released"), BEFORE)
    for one in (boot, wipe):
        state = policy.enlisted(state, one.number, "uid", "https://bmc", "", BEFORE)
    progress = boot.progress
    state = policy.on_try_ended(state, boot.number, Result.DONE, "its power is On", progress, BEFORE, reached=True)
    at = BEFORE
    while at <= NOW:
        state = policy.on_try_ended(state, wipe.number, Result.AWAY, "connection refused", progress, at)
        at = state.away["https://bmc"].again
    return state


def fencing() -> ProvisionerState:
    """The same, asked to power node-3 off as well."""
    state = policy.fence(told(), FenceAsk(node="node-3", uid="n3", renewed="r"), DOWN)
    return policy.enlisted(state, 3, "n3", "https://bmc", "", DOWN)


def test_nodes_and_requests_are_told_with_what_they_wait_for() -> None:
    fencing = NodeRecord(
        name="node-3", since=BEFORE, at=NOW, state=NodeState.DOWN, word=NodeWord.FENCING, why="silent", unasked="no one"
    )
    book = NodeBook(nodes={"node-3": fencing, "node-4": NodeRecord(name="node-4", since=BEFORE, at=NOW)}, total=9)
    lines = shown("dev", book, status(told(), set(), NOW), NOW).splitlines()
    assert lines == [
        "dev: 9 nodes with a lease, 1 of them not healthy",
        "",
        "NODE    STATE                        FOR  REASON",
        "node-3  Down, waiting for power-off  5m   silent; no one",
        "",
        "https://bmc has not answered since 2026-01-31 02:09:50 UTC",
        "requests: 1 pending, 0 under way, 1 ended",
        "1 node in quarantine",
        "",
        "ID  PENDING ACTION  NODE    FOR  REASON",
        "2   wipe            node-7  5m   https://bmc does not answer: connection refused; next try at 02:18:20 UTC",
        "",
        "QUARANTINED NODE  FOR  REASON",
        'node-7            5m   waits for wipe (request 2, asked for with the note "released")',
        "",
        "ID  ENDED ACTION  NODE    RESULT  AGO  MESSAGE",
        "1   boot          node-1  Done    5m   its power is On",
    ]


def test_a_cluster_with_neither_monitor_nor_provisioner_says_so() -> None:
    assert shown("dev", None, None, NOW).splitlines() == [
        "dev: no monitor of nodes",
        "",
        "no provisioner: nothing boots, wipes or powers off nodes",
    ]
    assert document(None, None) == {"nodes": [], "provisioner": None}
    found = document(NodeBook(), status(told(), set(), NOW))
    assert found["provisioner"]["waits"].keys() == {"2"}


def test_who_is_not_off_yet_is_told_whatever_became_of_the_request() -> None:
    record = NodeRecord(name="n", uid="u", since=BEFORE, at=NOW, state=NodeState.DOWN, word=NodeWord.FENCING, ours=True)
    book = NodeBook(nodes={"n": record, "theirs": record.model_copy(update={"name": "theirs", "ours": False})})
    state = ProvisionerState(cluster="dev", cluster_uid="u")
    assert unfenced(book, status(state, set(), NOW)) == {"n": "it is to be asked for"}
    unasked = NodeBook(nodes={"n": record.model_copy(update={"unasked": "no one is there"})})
    assert unfenced(unasked, status(state, set(), NOW)) == {"n": "no one is there"}
    state = policy.fence(state, FenceAsk(node="n", uid="u", renewed="r"), NOW)
    assert unfenced(book, status(state, set(), NOW)) == {"n": "its provisioning service is to be looked up"}
    state = policy.enlisted(state, 1, "u", "https://bmc", "no such service", NOW)
    assert unfenced(book, status(state, set(), NOW)) == {"n": "Refused: no such service"}
