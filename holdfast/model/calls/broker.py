"""The checkpoint broker's requests to its cluster's worker: signatures and payloads (row L11)."""

from __future__ import annotations

from holdfast.model import Payload
from holdfast.model.base import Time
from holdfast.model.entities.broker import Broker


class WeighInput(Payload):
    """Look at all running workloads of a cluster that can save their state."""

    broker: Broker
    refused: dict[str, Time] = {}
    """Workloads that took no request, by workflow id: until then they are only counted."""


class AskInput(Payload):
    """Ask a workload to save its state and keep running."""

    workload: str
    """Its workflow's id."""
    note: str


class AskDone(Payload):
    """The result of `AskInput`."""

    number: int = 0
    """The number of the request; 0 if the workload takes none now."""
    why: str = ""
    """Why it takes none."""
