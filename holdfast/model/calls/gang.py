"""The rendezvous of a gang as its workload, its hub and people meet it: names, payloads, who may say what when.

`Rendezvous` is a workflow of its own, `rendezvous/<cluster>/<namespace>/<workload>` (decision record 0030).

**How a workload begins it**: by the activity `begin_gang` (queue `holdfast/<cluster>`, a `GangBegin`), once an
attempt of a workload with a gang is submitted. It signals with start: whether the rendezvous runs already, ran once,
or never did, it runs afterwards, and knows of that attempt. So it may be repeated, and may come late: a lower
attempt, or a workload of that name that was submitted earlier, changes nothing. It is no child workflow: its parent
continues as new and would lose the handle, and a child that exists already is an error where it should be none.

**How it ends**: by the signal `end` (a `GangEnd`) from the workload's workflow itself, for which no worker of the
cluster is needed: `workflow.get_external_workflow_handle(names.rendezvous_id(...)).signal(names.SIGNAL_END,
GangEnd(...))`. That there is no such workflow is no error. It is sent when an attempt's removal begins, or the
workload has come to its end, however it did; all members are told to finish, and the rendezvous is over a keep-alive
later, unless the next attempt begins.

**What the workload is told**: the signal `gang` (a `GangOutcome`), once an attempt: its gang has succeeded, it has
failed, or a loss is the workload's own to make good. Nothing is said of rounds, and nothing after `end`.

**Who else may speak**: people, by the updates `resize` (a `GangSize`) and `evict` (a `GangEvict`), which are answered
in words if they cannot be carried out; and whoever asks the query `status` (a `GangStatus`).
"""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field

from holdfast.model import Payload, Time
from holdfast.model.gang.orders import GangOutcome, Holder, Orders
from holdfast.model.gang.packed import PackedEvents, PackedState
from holdfast.model.gang.state import Count, Gang
from holdfast.model.packed import PackedPayload


def _known_of_gang(value: Any) -> Any:
    """Return a gang on the wire without the fields that a newer release may have added."""
    if not isinstance(value, dict):
        return value
    known = {name for field, info in Gang.model_fields.items() for name in (field, info.alias)}
    return {key: entry for key, entry in cast("dict[str, Any]", value).items() if key in known}


class GangBegin(Payload):
    """An attempt of a workload with a gang has begun: input of `begin_gang`, and of the signal `attempt`."""

    cluster: str
    cluster_uid: str = ""
    namespace: str
    workload: str
    """Its name."""
    workload_uid: str
    workflow_id: str
    """Whom to tell what the gang came to."""
    submitted_at: Time
    """When the workload was: of two workloads of one name the later one's gang meets here."""
    attempt: Annotated[int, Field(ge=1)]
    gang: Annotated[Gang, BeforeValidator(_known_of_gang)]


class GangEnd(Payload):
    """An attempt ends, for reasons of the workload's own: argument of the signal `end`."""

    workload_uid: str
    attempt: int
    """This one and all before it."""
    why: str = ""


class GangSize(Payload):
    """Another size for a gang that runs: argument of the update `resize`. Answer: the size in force."""

    min: Count
    max: Count


class GangEvict(Payload):
    """A member that is to make room: argument of the update `evict` (row T13)."""

    member: str
    why: str = ""


class RendezvousMemory(PackedPayload):
    """What one run of a rendezvous leaves to the next."""

    state: PackedState
    generation: int = 0
    outcome: GangOutcome | None = None
    """What the workload is still to be told."""
    over: Time | None = None
    """When the rendezvous is over, its attempt having ended."""


class RendezvousInput(GangBegin):
    """What a rendezvous begins with; whoever starts it leaves the memory out."""

    memory: RendezvousMemory | None = None


class HubInput(Payload):
    """Serve a gang: endless, with heartbeats; queue `holdfast/<cluster>/gangs`."""

    cluster: str
    cluster_uid: str = ""
    namespace: str
    workload: str
    workload_uid: str
    workflow_id: str
    """The rendezvous' own."""


class Attach(Payload):
    """A hub begins: argument of the update `attach`. What an earlier hub says from now on is refused."""

    hub: str
    """What it is called in histories: its worker's identity."""


class Attached(PackedPayload):
    """What a hub needs to begin."""

    generation: int
    """To be said with every announcement."""
    workload_uid: str
    gang: Annotated[Gang, BeforeValidator(_known_of_gang)]
    orders: Orders
    """All that stand."""
    holders: tuple[Holder, ...]


class Announced(Payload):
    """What is new of a gang, told together: argument of the update `announce`, answered by `Orders`.

    Refused before it reaches history, as `StaleHub`, where another hub has attached since, or another attempt has
    begun.
    """

    generation: int
    attempt: int
    seen: int
    """The revision up to which this hub knows what members are to do."""
    events: PackedEvents
