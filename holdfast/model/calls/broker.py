"""The checkpoint broker's requests to its cluster's worker: signatures and payloads (row L11)."""

from __future__ import annotations

from holdfast.model import Payload
from holdfast.model.entities.broker import Broker
from holdfast.model.later import Later


class WeighInput(Payload):
    """Look at all running workloads of a cluster that can save their state, except those known not to be due."""

    broker: Broker
    later: Later = {}
    """The earliest time at which workloads are due; before that they are only counted."""


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
