"""Nodes as their leases show them: the operator's timings, observations of a node, and its record."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from holdfast.model.base import Duration, Time
from holdfast.model.entities.provisioner import FenceNews
from holdfast.model.observation import Interval, Payload
from holdfast.model.packed import PackedPayload
from holdfast.model.words import Outside

_Unset = Field(exclude_if=lambda value: not value)


class NodeTimings(Payload):
    """How long a node may be silent (row L4), as the operator of its cluster sets it.

    Silence is time without an observed renewal of the node's lease; time without observation does not count.
    """

    degraded: Duration = timedelta(seconds=30)
    """Silence after which it is Degraded."""
    down: Duration = timedelta(seconds=60)
    """Further silence after which it is Down."""
    sensitive_down: Duration = timedelta(minutes=5)
    """The same for sensitive workloads."""
    check: Duration = timedelta(seconds=30)
    """How long a node that was Down must renew without a break before its health check; doubled after each Down."""
    flaps: Annotated[int, Field(ge=1, le=16)] = 3
    """A node that falls silent this often in `flap_window` stays Degraded until it renews as long without a break."""
    flap_window: Duration = timedelta(minutes=10)
    fence: Annotated[bool, _Unset] = False
    """Whether a silent node is powered off before its workloads learn that it is Down (row L15)."""

    @property
    def until_down(self) -> timedelta:
        """Silence after which a node is Down."""
        return self.degraded + self.down

    @property
    def until_lost(self) -> timedelta:
        """Silence after which it is Down for sensitive workloads too."""
        return self.degraded + max(self.down, self.sensitive_down)


class NodeState(StrEnum):
    """The state of a node (row L4)."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    """Silent: nothing is done yet."""
    DOWN = "Down"
    """Its workloads have been told."""
    RETURNING = "Returning"
    """Back from Down: it takes no new pods until a health check passes (row L5)."""


class NodeWord(StrEnum):
    """The mark on a node's object for the workloads that have pods there."""

    NONE = ""
    DOWN = "Down"
    """Silent for too long, for all but sensitive workloads."""
    LOST = "Lost"
    """The same, for all."""
    FENCING = "Fencing"
    """Silent for too long, but to be powered off first: no workload is told yet, and no new pod lands there."""
    FAULTY = "Faulty"
    """Its hardware is broken: a look at its pods shows that."""
    RETURNING = "Returning"


class OwnMarks(Payload):
    """This installation's earlier marks on a node's object: a monitor with an empty memory begins with them."""

    word: NodeWord = NodeWord.NONE
    why: str = ""
    since: Time | None = None
    heard: Time | None = None
    """When a renewal of its lease was last seen, as of then."""
    off: Time | None = None
    """The time since which its power is marked as off; None if it is not."""
    off_why: str = ""
    off_renewed: str = ""
    """The last renewal of its lease before that."""

    @property
    def is_silent(self) -> bool:
        """Whether these are the marks of a silent node."""
        return self.off is not None or self.word in {NodeWord.DOWN, NodeWord.LOST, NodeWord.FENCING}


class NodeSight(Payload):
    """One node as observed: a complete snapshot of the relevant fields."""

    name: str
    uid: str = ""
    renewed: str = ""
    """The renewal time in its lease, as the node wrote it; empty if it has none."""
    heard: Time | None = None
    """When that renewal was observed here."""
    silent: bool = False
    fault: str = ""
    """The reason for which its hardware is reported as broken; empty if it is sound."""
    message: Outside = ""
    gone: bool = False
    """Whether the node's object is gone, or another one has its name."""
    ready: bool = True
    """Whether its kubelet reports it as ready (live looks)."""
    believed: Annotated[bool, _Unset] = False
    """Whether its silence is no reason to doubt the watch: it was doubted for long enough, or the node is Down."""
    own: Annotated[OwnMarks | None, _Unset] = None
    """At the start of a watch: the marks on its object, if the monitor may not know them."""
    asked_uid: Annotated[str, _Unset] = ""
    """The UID of the node that was to be looked at (live looks); empty from earlier releases."""


class NodesSeen(Payload):
    """News of some nodes, and how many there are."""

    at: Time
    nodes: tuple[NodeSight, ...] = ()
    total: int = 0
    """Nodes with a lease."""
    silent: int = 0
    held_since: Time | None = None
    """Since when so many nodes are silent that rather the observation has failed; None if that is not so."""
    blind: tuple[Interval, ...] = ()


class NodeRecord(Payload):
    """The record of a node that is not, or was not always, healthy."""

    name: str
    uid: str = ""
    state: NodeState = NodeState.HEALTHY
    since: Time
    at: Time
    """When it was last observed."""
    renewed: str = ""
    heard: Time | None = None
    believed: Annotated[bool, _Unset] = False
    """Whether its silence was doubted, with that of most nodes, and is believed since."""
    steady: Time | None = None
    """The time since which it has renewed without a break; None while it is silent."""
    fault: str = ""
    message: str = ""
    ready: bool = True
    flaps: tuple[Time, ...] = ()
    """When it fell silent, in the window that counts."""
    downs: int = 0
    """How often it was Down."""
    word: NodeWord = NodeWord.NONE
    """The mark that its object should have."""
    told: NodeWord = NodeWord.NONE
    """The mark that was last written there."""
    looked: Time | None = None
    """When it was last looked at live."""
    why: str = ""
    """The evidence and the rule for its state."""
    refused: str = ""
    """Why its object could not be marked; empty where it could."""
    tried: Time | None = None
    """When that was tried last."""
    ours: Annotated[bool, _Unset] = False
    """Whether pods of this installation are on it, as of when it was marked (where nodes are fenced)."""
    sensitive: Annotated[bool, _Unset] = False
    """Whether some of those are of a sensitive workload, or may be."""
    fencing: Annotated[Time | None, _Unset] = None
    """The time since which it must be powered off."""
    asked: Annotated[Time | None, _Unset] = None
    """When the provisioner was last asked."""
    unasked: Annotated[str, _Unset] = ""
    """Why the provisioner could not be asked; empty if it could."""
    fenced: Annotated[Time | None, _Unset] = None
    """The time since which its power is known to be off."""
    fenced_why: Annotated[str, _Unset] = ""
    withdraw: Annotated[bool, _Unset] = False
    """Whether the provisioner must still be told that the node renews again."""


class NodeBook(PackedPayload):
    """The memory of a cluster's node monitor: only exceptions, however many nodes there are."""

    nodes: dict[str, NodeRecord] = {}
    total: int = 0
    silent: int = 0
    held_since: Time | None = None
    blind: tuple[Interval, ...] = ()
    decided: int = 0
    """How often a node was found Down."""
    fenced: Annotated[dict[str, FenceNews], _Unset] = {}
    """Nodes that are known to be off, and have not been found silent yet."""


class NodeWish(Payload):
    """A mark to write on a node's object."""

    name: str
    uid: str
    word: NodeWord
    why: str = ""
    since: Time
    heard: Time | None = None


class NodeMarked(Payload):
    """The result of such a wish."""

    name: str
    uid: Annotated[str, _Unset] = ""
    """The UID of the node that was to be marked; empty from earlier releases."""
    word: NodeWord
    gone: bool = False
    refused: Outside = ""
    ours: Annotated[bool, _Unset] = False
    """Whether pods of this installation are there (asked of a node that is to be fenced)."""
    sensitive: Annotated[bool, _Unset] = False
    """Whether some of them are of a sensitive workload, or may be."""
