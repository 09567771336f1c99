"""Text about admission queues: the quota, the waiting workloads and why, the admitted ones. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from holdfast.cli.common.render import age
from holdfast.cli.common.screen import table
from holdfast.model.entities.queue import Queue, QueueLine, QueueStatus, StopPolicy
from holdfast.model.words import amount_of


def shown(told: QueueStatus, now: datetime) -> str:
    """Describe the status of one queue."""
    queue = told.queue
    head = f"{queue.name}  {told.admitted} admitted, {told.waiting} waiting  ({_manner(queue)}, cycle {told.cycle})"
    parts = [f"{head}\n{told.message}"]
    if told.used:
        rows = [(key, used, queue.quota.get(key, "no limit")) for key, used in told.used.items()]
        parts.append(table(("RESOURCE", "USED", "QUOTA"), rows))
    waiting = [one for one in told.lines if not one.admitted]
    held = [one for one in told.lines if one.admitted]
    if waiting:
        rows = [(str(one.position), _name(one), *_common(one, now), one.why) for one in waiting]
        parts.append(
            table(("POSITION", "WAITING WORKLOAD", "PRIORITY", "AGE", "REQUESTS", "REASON"), rows)
            + _more(told.waiting, rows)
        )
    if held:
        rows = [(_name(one), *_common(one, now), one.why) for one in held]
        parts.append(
            table(("ADMITTED WORKLOAD", "PRIORITY", "AGE", "REQUESTS", "STATUS"), rows) + _more(told.admitted, rows)
        )
    return "\n\n".join(parts)


def listed(told: Sequence[QueueStatus], silent: Mapping[str, str] = {}) -> str:
    """List queues, one a line; a queue that does not answer is listed with the reason."""
    if not (told or silent):
        return "no admission queues: every workload begins as soon as it is submitted"
    rows = [
        (one.queue.name, str(one.admitted), str(one.waiting), _quota(one), _manner(one.queue), one.message)
        for one in told
    ]
    rows += [(name, "?", "?", "", "", f"does not answer: {why}") for name, why in silent.items()]
    return table(("QUEUE", "ADMITTED", "WAITING", "USED OF QUOTA", "STRATEGY", "STATUS"), rows)


def _quota(told: QueueStatus) -> str:
    return ", ".join(f"{told.used.get(key, '0')}/{most} {key}" for key, most in told.queue.quota.items()) or "no quota"


def _manner(queue: Queue) -> str:
    return queue.strategy.value + (", held" if queue.stop_policy is StopPolicy.HOLD else "")


def _name(line: QueueLine) -> str:
    return f"{line.namespace}/{line.name}"


def _common(line: QueueLine, now: datetime) -> tuple[str, str, str]:
    demand = ", ".join(amount_of(amount, key) for key, amount in line.demand.items())
    return str(line.priority), age(now - line.since), demand


def _more(count: int, rows: Sequence[object]) -> str:
    return f"\nand {count - len(rows)} more" if count > len(rows) else ""
