"""Text about nodes and their machines. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.cli.common import output
from holdfast.cli.common.render import age
from holdfast.cli.common.screen import table
from holdfast.model import NodeBook, NodeRecord, NodeState, NodeWord
from holdfast.model.entities.provisioner import ProvisionerStatus
from holdfast.model.words import counted
from holdfast.policy.nodes.provisioner import verb_of


def document(book: NodeBook | None, told: ProvisionerStatus | None) -> dict[str, Any]:
    """Return what is known about nodes, as JSON for programs."""
    there = sorted(book.nodes.values(), key=lambda one: one.name) if book is not None else []
    return {
        "nodes": [output.document(one) for one in there],
        "provisioner": output.document(told) if told is not None else None,
    }


def shown(cluster: str, book: NodeBook | None, told: ProvisionerStatus | None, now: datetime) -> str:
    """Describe nodes and their machines: the unhealthy nodes, the pending requests, the results of the last ones."""
    parts: list[str] = []
    if book is None:
        parts.append(f"{cluster}: no monitor of nodes")
    else:
        rows = [
            (
                one.name,
                state_of(one),
                age(now - one.since),
                one.why + (f"; {one.unasked}" * bool(one.unasked)),
            )
            for one in sorted(book.nodes.values(), key=lambda one: one.name)
            if one.state is not NodeState.HEALTHY
        ]
        parts.append(f"{cluster}: {counted(book.total, 'node')} with a lease, {len(rows)} of them not healthy")
        if rows:
            parts.append(table(("NODE", "STATE", "FOR", "REASON"), rows))
    if told is None:
        return "\n\n".join([*parts, "no provisioner: nothing boots, wipes or powers off nodes"])
    parts.append(told.message.replace("; ", "\n"))
    if told.pending:
        pending = [
            (str(one.number), verb_of(one.action), one.node, age(now - one.at), told.waits[one.number])
            for one in told.pending
        ]
        parts.append(table(("ID", "PENDING ACTION", "NODE", "FOR", "REASON"), pending))
    if told.quarantined:
        rows = [(node, age(now - one.since), one.why) for node, one in sorted(told.quarantined.items())]
        parts.append(table(("QUARANTINED NODE", "FOR", "REASON"), rows))
    if told.outcomes:
        ended = [
            (str(one.number), verb_of(one.action), one.node, str(one.result), age(now - one.ended_at), one.said)
            for one in told.outcomes[:10]
        ]
        parts.append(table(("ID", "ENDED ACTION", "NODE", "RESULT", "AGO", "MESSAGE"), ended))
    return "\n\n".join(parts)


def state_of(record: NodeRecord) -> str:
    """Return a node's state for people."""
    return "Down, waiting for power-off" if record.word is NodeWord.FENCING else str(record.state)
