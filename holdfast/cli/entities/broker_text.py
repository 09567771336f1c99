"""Text about a checkpoint broker. Pure."""

from __future__ import annotations

from datetime import datetime

from holdfast.cli.common.render import age
from holdfast.cli.common.screen import table
from holdfast.model import format_duration
from holdfast.model.entities.broker import BrokerStatus
from holdfast.model.words import counted
from holdfast.policy.entities.broker import name_of


def shown(told: BrokerStatus, now: datetime) -> str:
    """Describe the status of a broker."""
    broker = told.broker
    looked = f"last look {age(now - told.looked_at)} ago" if told.looked_at is not None else "not looked yet"
    saves = "saves" if broker.at_once == 1 else "save"
    parts = [
        f"checkpoint broker of {broker.cluster}  cycle {told.cycle}, every {format_duration(broker.every)}, {looked}",
        told.message,
        f"at most {broker.at_once} {saves} at once; {counted(told.asked_total, 'request')} so far",
    ]
    if told.unheard:
        parts.append(f"{told.unheard} did not answer, and are asked again in the next cycle")
    text = "\n".join(parts)
    if told.asked:
        rows = [(name_of(one.workload), one.why) for one in told.asked]
        text += "\n\n" + table(("WORKLOAD", "ASKED BECAUSE"), rows)
    return text
