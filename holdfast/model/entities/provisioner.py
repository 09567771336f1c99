"""The provisioner: requests for a node's machine, their results, and the memory in between (row L15)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from holdfast.model.base import Time
from holdfast.model.observation import Payload
from holdfast.model.packed import PackedPayload
from holdfast.model.words import Outside

PENDING_MAXIMUM: Final = 400
"""How many requests may be pending besides fences, which are counted apart: beyond that a request is refused."""
OUTCOMES_KEPT: Final = 50
AT_ONCE: Final = 8

_Unset = Field(exclude_if=lambda value: not value)


class NodeAction(StrEnum):
    """The action requested for a node."""

    BOOT = "Boot"
    """Its machine is on."""
    WIPE = "Wipe"
    """All its drives are erased; until then it is in quarantine."""
    POWER_OFF = "PowerOff"
    """Its machine is off."""
    RELEASE = "Release"
    """Its quarantine is lifted, wiped or not."""
    FENCED = "Fenced"
    """The requester has cut its power by hand: it is reported as if the provisioner had."""

    @property
    def by_service(self) -> bool:
        """Whether the provisioning service does it."""
        return self in {NodeAction.BOOT, NodeAction.WIPE, NodeAction.POWER_OFF}


class NodeAsk(Payload):
    """A user's request."""

    node: str
    action: NodeAction
    why: Outside = ""
    by: Outside = ""
    """The requester, by their own statement."""
    pxe: bool = False
    """Of a boot: from the network, once."""
    force: bool = False
    """Of a power-off: although pods other than DaemonSets' are on the node."""


class FenceAsk(Payload):
    """A node that the monitor has found Down, whose power is to be off before its pods are replaced."""

    node: str
    uid: str
    renewed: str
    """The renewal in its lease when it was last heard: if the lease has another one, its power is not cut."""
    why: Outside = ""


class FenceNews(Payload):
    """News that the power of a node is off, by proof or by a person's statement."""

    node: str
    uid: str
    at: Time
    why: Outside
    renewed: Annotated[str, _Unset] = ""
    """The last renewal of the node's lease before its power went off: by it the monitor knows which silence this
    proves. Empty where the lease bears none, and from earlier releases."""


class Progress(Payload):
    """The progress of an action, from which its next try continues."""

    sent: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """When the machine was last told to change its power, recorded before the command was sent."""
    ordered: Annotated[dict[str, tuple[str, ...]], _Unset] = {}
    """Drives whose erasure was ordered, recorded before the order was sent, each with the tasks that existed before."""
    tasks: Annotated[dict[str, str], _Unset] = {}
    """The task that reports the erasure of a drive, by drive."""
    erased: Annotated[tuple[str, ...], _Unset] = ()
    """Drives that are proven to be erased."""


class Result(StrEnum):
    """The result of a try."""

    DONE = "Done"
    WAITS = "Waits"
    """It is not proven yet, or something about this node has to pass first."""
    AWAY = "Away"
    """The provisioning service does not answer, or accepts no requests from us."""
    REFUSED = "Refused"
    """The service, or the cluster, refuses for good."""
    WITHDRAWN = "Withdrawn"
    """It is not wanted any more."""


class NodeRequest(Payload):
    """A request that is not done yet."""

    number: int
    node: str
    action: NodeAction
    at: Time
    why: Outside = ""
    by: Outside = ""
    pxe: Annotated[bool, _Unset] = False
    force: Annotated[bool, _Unset] = False
    fence: Annotated[bool, _Unset] = False
    """Whether the monitor of nodes waits for it: it goes before others."""
    uid: Annotated[str, _Unset] = ""
    """Of the node's object; empty while that is not known, or where there is none."""
    renewed: Annotated[str, _Unset] = ""
    heard: Annotated[bool, _Unset] = False
    """Whether the node was heard again during a try: the request ends with that try, unless the power is being cut."""
    service: Annotated[str, _Unset] = ""
    """The service that handles it: scheme, host and port."""
    enlisted: Annotated[bool, _Unset] = False
    """Whether the service is known, and a node that is to be wiped is in quarantine."""
    begun: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """When it was first tried."""
    tries: Annotated[int, _Unset] = 0
    """Consecutive tries without a result."""
    again: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """The time before which it is not tried again."""
    said: Annotated[Outside, _Unset] = ""
    """The result of the last try as a text."""
    progress: Annotated[Progress, Field(exclude_if=lambda value: value == Progress())] = Progress()


class NodeOutcome(Payload):
    """The result of a request."""

    number: int
    node: str
    action: NodeAction
    result: Result
    asked_at: Time
    ended_at: Time
    why: Outside = ""
    by: Outside = ""
    said: Outside = ""
    fence: Annotated[bool, _Unset] = False


class ServiceAway(Payload):
    """A provisioning service that does not answer."""

    since: Time
    again: Time
    """When it is asked again."""
    tries: int = 1
    why: Outside = ""


class Quarantine(Payload):
    """A node that takes no new pods until it is wiped, or released by a person."""

    since: Time
    why: Outside


class ProvisionerState(PackedPayload):
    """A provisioner's memory."""

    cluster: str
    cluster_uid: str
    at_once: int = AT_ONCE
    last: int = 0
    """The number of the last request."""
    pending: tuple[NodeRequest, ...] = ()
    away: dict[str, ServiceAway] = {}
    quarantined: dict[str, Quarantine] = {}
    outcomes: tuple[NodeOutcome, ...] = ()
    done: int = 0
    """How many requests have ended."""
    news: tuple[FenceNews, ...] = ()
    """The news that was not sent to the node monitor yet."""
    turned_away: Annotated[int, _Unset] = 0
    """How many fences found no room, and must be requested again."""


class ProvisionerStatus(PackedPayload):
    """The status of a provisioner, for queries."""

    cluster: str
    message: str
    at_once: int
    pending: tuple[NodeRequest, ...] = ()
    waits: dict[int, str] = {}
    """Why each pending request has not been done yet, by its number."""
    away: dict[str, ServiceAway] = {}
    quarantined: dict[str, Quarantine] = {}
    outcomes: tuple[NodeOutcome, ...] = ()
    """The last ones, the latest first."""
    done: int = 0


class Checked(Payload):
    """The result of a look at the provisioning service."""

    good: bool
    found: str
    remedy: str = ""
