"""What the provisioner asks its cluster's worker: signatures and payloads (row L15)."""

from __future__ import annotations

from holdfast.model import Payload
from holdfast.model.base import Time
from holdfast.model.entities.provisioner import NodeRequest, Progress, Result


class EnlistInput(Payload):
    """Find out whom to ask about a node; put one that is to be wiped into quarantine, before anything else."""

    cluster: str
    cluster_uid: str
    request: NodeRequest


class Enlisted(Payload):
    """What came of it."""

    uid: str = ""
    service: str = ""
    refused: str = ""
    """Why nothing can be done for it; empty where something can."""


class ProvisionInput(Payload):
    """Do what was asked, or a part of it: for a minute or two, so that what takes hours is many of them.

    Each looks at how the machine is before it changes anything, and goes on from the progress of the one before.
    """

    cluster: str
    cluster_uid: str
    request: NodeRequest


class Provisioned(Payload):
    """What it has come to."""

    result: Result
    said: str = ""
    progress: Progress = Progress()
    reached: bool = False
    """Whether the service has answered."""
    off_since: Time | None = None
    """Of a node that is proven, or said, to be off: since when that is known."""
    renewed: str = ""
    """Of a fence: the last renewal of the lease in the silence that this try was for."""


class CheckProvisionerInput(Payload):
    """Ask the service whether it would take a request."""

    cluster: str
    cluster_uid: str
    node: str = ""
    """Whose service is asked; empty: the one that the settings name, where that is one."""
