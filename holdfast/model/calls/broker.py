"""What the checkpoint broker asks its cluster's worker: signatures and payloads (row L11)."""

from __future__ import annotations

from holdfast.model import Payload
from holdfast.model.entities.broker import Broker
from holdfast.model.later import Later


class WeighInput(Payload):
    """Look at all workloads of a cluster that run and can save their state, but those that are known not to be due."""

    broker: Broker
    later: Later = {}
    """When workloads are due at the earliest; before that they are only counted."""


class AskInput(Payload):
    """Ask a workload to save its state and to run on."""

    workload: str
    """Its workflow's id."""
    note: str


class AskDone(Payload):
    """What came of it."""

    number: int = 0
    """Of the request; 0 if the workload takes none now."""
    why: str = ""
    """Why not."""
