"""Nodes as their leases tell of them: the operator's waits, what was seen of a node, and what is remembered of it."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from holdfast.model.base import Duration, Outside, Time
from holdfast.model.entities.provisioner import FenceNews
from holdfast.model.observation import Interval, Payload
from holdfast.model.packed import PackedPayload

_Unset = Field(exclude_if=lambda value: not value)


class NodeTimings(Payload):
    """How long a node may be silent (row L4), as the operator of its cluster sets it.

    Silence is time without a renewal of the node's lease, as seen here; time in which nothing could be seen is none.
    """

    degraded: Duration = timedelta(seconds=30)
    """Silence after which it is Degraded."""
    down: Duration = timedelta(seconds=60)
    """So much more, and it is Down."""
    sensitive_down: Duration = timedelta(minutes=5)
    """The same for sensitive workloads."""
    check: Duration = timedelta(seconds=30)
    """How long a node that was Down must be heard without a break until its health check; doubled each time anew."""
    flaps: Annotated[int, Field(ge=1, le=16)] = 3
    """A node that falls silent so often in `flap_window` stays Degraded until it is heard without a break as long."""
    flap_window: Duration = timedelta(minutes=10)
    fence: Annotated[bool, _Unset] = False
    """Whether a node that is Down by its silence is powered off before that is told to its workloads (row L15)."""

    @property
    def until_down(self) -> timedelta:
        """Silence after which a node is Down."""
        return self.degraded + self.down

    @property
    def until_lost(self) -> timedelta:
        """Silence after which it is Down for sensitive workloads too."""
        return self.degraded + max(self.down, self.sensitive_down)


class NodeState(StrEnum):
    """How a node stands (row L4)."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    """Silent: nothing is done yet."""
    DOWN = "Down"
    """Its workloads have been told."""
    RETURNING = "Returning"
    """Back from Down: it takes no new pods until a health check passes (row L5)."""


class NodeWord(StrEnum):
    """What stands on a node's object for the workloads that have pods there."""

    NONE = ""
    DOWN = "Down"
    """Silent for too long, for all but sensitive workloads."""
    LOST = "Lost"
    """The same, for all."""
    FENCING = "Fencing"
    """Silent for too long, and its power is to be off first: nobody hears of it yet, and no pod lands there."""
    FAULTY = "Faulty"
    """Its hardware is broken: who looks at its pods sees that itself."""
    RETURNING = "Returning"


class OwnMarks(Payload):
    """What this installation has said on a node's object before: whoever has an empty memory begins with that."""

    word: NodeWord = NodeWord.NONE
    why: str = ""
    since: Time | None = None
    heard: Time | None = None
    """When a renewal of its lease was last seen, as of then."""
    off: Time | None = None
    """Since when its power is said to be off; None where that is not said."""
    off_why: str = ""
    off_renewed: str = ""
    """The last renewal of its lease before that."""

    @property
    def is_silent(self) -> bool:
        """Whether this was said of a node that nobody heard."""
        return self.off is not None or self.word in {NodeWord.DOWN, NodeWord.LOST, NodeWord.FENCING}


class NodeSight(Payload):
    """One node as seen: a whole snapshot of what matters of it."""

    name: str
    uid: str = ""
    renewed: str = ""
    """The renewal time that its lease bears, in the node's own words; empty where it has none."""
    heard: Time | None = None
    """When that renewal was seen here."""
    silent: bool = False
    fault: str = ""
    """Reason by which its hardware is told to be broken; empty for a sound one."""
    message: Outside = ""
    gone: bool = False
    """Whether the node's object is gone, or another one has its name."""
    ready: bool = True
    """Whether its kubelet says that it is ready (live looks)."""
    believed: Annotated[bool, _Unset] = False
    """Whether its silence is no reason to doubt the watch: it was doubted for long enough, or the node is Down."""
    own: Annotated[OwnMarks | None, _Unset] = None
    """At the start of a watch: what stands on its object, where the monitor may not know of it."""


class NodesSeen(Payload):
    """News of some nodes, and how many there are."""

    at: Time
    nodes: tuple[NodeSight, ...] = ()
    total: int = 0
    """Nodes with a lease."""
    silent: int = 0
    held_since: Time | None = None
    """Since when so many are silent that it is rather the sight of them that is lost; None where it is not."""
    blind: tuple[Interval, ...] = ()


class NodeRecord(Payload):
    """What is remembered of a node that is not, or was not always, healthy."""

    name: str
    uid: str = ""
    state: NodeState = NodeState.HEALTHY
    since: Time
    at: Time
    """When it was last seen."""
    renewed: str = ""
    heard: Time | None = None
    believed: Annotated[bool, _Unset] = False
    """Whether its silence was doubted, with that of most nodes, and is believed since."""
    steady: Time | None = None
    """Since when it has been heard without a break; None while it is silent."""
    fault: str = ""
    message: str = ""
    ready: bool = True
    flaps: tuple[Time, ...] = ()
    """When it fell silent, in the window that counts."""
    downs: int = 0
    """How often it was Down."""
    word: NodeWord = NodeWord.NONE
    """What is to stand on its object."""
    told: NodeWord = NodeWord.NONE
    """What was last put there."""
    looked: Time | None = None
    """When it was last looked at live."""
    why: str = ""
    """By which evidence and rule it is in its state."""
    refused: str = ""
    """Why its object could not be marked; empty where it could."""
    tried: Time | None = None
    """When that was tried last."""
    ours: Annotated[bool, _Unset] = False
    """Whether pods of this installation are on it, as of when it was marked (where nodes are fenced)."""
    sensitive: Annotated[bool, _Unset] = False
    """Whether some of those are of a sensitive workload, or may be."""
    fencing: Annotated[Time | None, _Unset] = None
    """Since when its power is to be off."""
    asked: Annotated[Time | None, _Unset] = None
    """When the provisioner was asked last."""
    unasked: Annotated[str, _Unset] = ""
    """Why it could not be asked; empty where it could."""
    fenced: Annotated[Time | None, _Unset] = None
    """Since when its power is known to be off."""
    fenced_why: Annotated[str, _Unset] = ""
    withdraw: Annotated[bool, _Unset] = False
    """Whether the provisioner is still to be told that it is heard again."""


class NodeBook(PackedPayload):
    """All that the monitor of a cluster's nodes remembers: exceptions only, however many nodes there are."""

    nodes: dict[str, NodeRecord] = {}
    total: int = 0
    silent: int = 0
    held_since: Time | None = None
    blind: tuple[Interval, ...] = ()
    decided: int = 0
    """How often a node was found Down."""
    fenced: Annotated[dict[str, FenceNews], _Unset] = {}
    """Nodes that are off by a person's word, and have not been found silent yet."""


class NodeWish(Payload):
    """What is to stand on a node's object."""

    name: str
    uid: str
    word: NodeWord
    why: str = ""
    since: Time
    heard: Time | None = None


class NodeMarked(Payload):
    """What became of such a wish."""

    name: str
    word: NodeWord
    gone: bool = False
    refused: Outside = ""
    ours: Annotated[bool, _Unset] = False
    """Whether pods of this installation are there (asked of a node that is to be fenced)."""
    sensitive: Annotated[bool, _Unset] = False
    """Whether some of them are of a sensitive workload, or may be."""
