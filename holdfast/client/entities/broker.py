"""A cluster's checkpoint broker: create it, query it, end it (row L11)."""

from __future__ import annotations

from dataclasses import dataclass

from temporalio.client import Client

from holdfast import names
from holdfast.client.connection import Place
from holdfast.client.entities.configured import Configured
from holdfast.model.entities.broker import Broker, BrokerStatus


@dataclass(frozen=True)
class BrokerRun(Configured[Broker, BrokerStatus]):
    """The broker of one cluster."""

    type = names.BROKER_WORKFLOW
    remedy = "holdfast broker start makes one"
    role = "workflows"
    told = BrokerStatus


async def apply(client: Client, place: Place, broker: Broker) -> BrokerRun:
    """Create a broker, or change the configuration of the existing one (see `Holdfast.apply_broker`)."""
    run = BrokerRun(client, place, broker.workflow_id)
    await run.apply(broker)
    return run
