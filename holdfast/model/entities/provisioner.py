"""The provisioner: what is asked of a node's machine, what came of it, and what is remembered until then (row L15)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from holdfast.model.base import Outside, Time
from holdfast.model.observation import Payload
from holdfast.model.packed import PackedPayload

PENDING_MAXIMUM: Final = 400
"""How many requests may be pending besides fences, which are counted apart: beyond that a request is refused."""
OUTCOMES_KEPT: Final = 50
AT_ONCE: Final = 8

_Unset = Field(exclude_if=lambda value: not value)


class NodeAction(StrEnum):
    """What is asked of a node."""

    BOOT = "Boot"
    """Its machine is on."""
    WIPE = "Wipe"
    """All its drives are erased; until then it is in quarantine."""
    POWER_OFF = "PowerOff"
    """Its machine is off."""
    RELEASE = "Release"
    """Its quarantine is lifted, wiped or not."""
    FENCED = "Fenced"
    """Whoever asks has cut its power by hand: it is told as if the provisioner had."""

    @property
    def by_service(self) -> bool:
        """Whether the provisioning service does it."""
        return self in {NodeAction.BOOT, NodeAction.WIPE, NodeAction.POWER_OFF}


class NodeAsk(Payload):
    """What somebody asks."""

    node: str
    action: NodeAction
    why: Outside = ""
    by: Outside = ""
    """Who asks, as they say."""
    pxe: bool = False
    """Of a boot: from the network, once."""
    force: bool = False
    """Of a power-off: although pods other than DaemonSets' are on the node."""


class FenceAsk(Payload):
    """A node that the monitor has found Down, whose power is to be off before its pods are replaced."""

    node: str
    uid: str
    renewed: str
    """The renewal that its lease bore when it was last heard: if it bears another, nobody cuts its power."""
    why: Outside = ""


class FenceNews(Payload):
    """The power of a node is off, by proof or by a person's word."""

    node: str
    uid: str
    at: Time
    why: Outside
    renewed: Annotated[str, _Unset] = ""
    """The last renewal of the node's lease before its power went off: by it the monitor knows which silence this
    proves. Empty where the lease bears none, and from earlier releases."""


class Progress(Payload):
    """How far an action has come: what the next try of it goes on from."""

    sent: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """When the machine was last told to change its power, written down before that was sent."""
    ordered: Annotated[dict[str, tuple[str, ...]], _Unset] = {}
    """Drives whose erasure was ordered, written down before that was sent, each with the tasks there were before."""
    tasks: Annotated[dict[str, str], _Unset] = {}
    """Where the erasure of a drive is told of, by drive."""
    erased: Annotated[tuple[str, ...], _Unset] = ()
    """Drives that are proven to be erased."""


class Result(StrEnum):
    """What a try has come to."""

    DONE = "Done"
    WAITS = "Waits"
    """It is not proven yet, or something about this node has to pass first."""
    AWAY = "Away"
    """The provisioning service does not answer, or takes nothing from us."""
    REFUSED = "Refused"
    """The service, or the cluster, says no for good."""
    WITHDRAWN = "Withdrawn"
    """It is not wanted any more."""


class NodeRequest(Payload):
    """Something that was asked, and is not done."""

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
    service: Annotated[str, _Unset] = ""
    """The service that it is for: scheme, host and port."""
    enlisted: Annotated[bool, _Unset] = False
    """Whether it is known whom to ask, and a node that is to be wiped is in quarantine."""
    begun: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """When it was first tried."""
    tries: Annotated[int, _Unset] = 0
    """Tries in a row that came to nothing yet."""
    again: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """Before that it is not tried again."""
    said: Annotated[Outside, _Unset] = ""
    """What the last try came to, in words."""
    progress: Annotated[Progress, Field(exclude_if=lambda value: value == Progress())] = Progress()


class NodeOutcome(Payload):
    """What became of a request."""

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
    """The number of the request that was asked last."""
    pending: tuple[NodeRequest, ...] = ()
    away: dict[str, ServiceAway] = {}
    quarantined: dict[str, Quarantine] = {}
    outcomes: tuple[NodeOutcome, ...] = ()
    done: int = 0
    """How many requests have come to an end."""
    news: tuple[FenceNews, ...] = ()
    """What the monitor of nodes has not been told yet."""
    turned_away: Annotated[int, _Unset] = 0
    """How many fences found no room, and were left to be asked for again."""


class ProvisionerStatus(PackedPayload):
    """How a provisioner stands, for those who ask."""

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
    """What a look at the provisioning service came to."""

    good: bool
    found: str
    remedy: str = ""
