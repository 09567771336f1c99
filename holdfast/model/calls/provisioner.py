"""The provisioner's requests to its cluster's worker: signatures and payloads (row L15)."""

from __future__ import annotations

from holdfast.model import Payload
from holdfast.model.base import Time
from holdfast.model.entities.provisioner import NodeRequest, Progress, Result


class EnlistInput(Payload):
    """Find the provisioning service of a node; first of all, quarantine a node that is to be wiped."""

    cluster: str
    cluster_uid: str
    request: NodeRequest


class Enlisted(Payload):
    """The result of `EnlistInput`."""

    uid: str = ""
    service: str = ""
    refused: str = ""
    """Why nothing can be done for the node; empty if something can."""


class ProvisionInput(Payload):
    """Carry out a request, or a part of it: for a minute or two, so that an action of hours takes many calls.

    Each call reads the machine's state before it changes anything, and continues from the progress of the last one.
    """

    cluster: str
    cluster_uid: str
    request: NodeRequest


class Provisioned(Payload):
    """The result of `ProvisionInput`."""

    result: Result
    said: str = ""
    progress: Progress = Progress()
    reached: bool = False
    """Whether the service has answered."""
    off_since: Time | None = None
    """Since when it is known that the node is off, by proof or by a person's statement."""
    renewed: str = ""
    """For a fence: the last renewal of the lease before the silence that this try was for."""


class CheckProvisionerInput(Payload):
    """Ask the service whether it would take a request."""

    cluster: str
    cluster_uid: str
    node: str = ""
    """The node whose service is asked; empty: the service that the settings name, if they name one."""
