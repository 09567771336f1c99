"""The interface of a gang's rendezvous to its workload, its hub and people: names, payloads, who may send what when.

`Rendezvous` is a workflow of its own, `rendezvous/<cluster>/<namespace>/<workload>` (decision record 0030).

**How a workload begins it**: by the activity `begin_gang` (queue `holdfast/<cluster>`, a `GangBegin`), once an
attempt of a workload with a gang is submitted. It signals with start: whether the rendezvous runs already, ran once,
or never did, it runs afterwards, and knows that attempt. So the signal may be repeated or late: a lower attempt, or a
workload of that name that was submitted earlier, changes nothing. It is not a child workflow: its parent continues as
new and would lose the handle, and an existing child would be an error, which it must not be.

**How it ends**: by the signal `end` (a `GangEnd`) from the workload's workflow itself, for which no worker of the
cluster is needed: `workflow.get_external_workflow_handle(names.rendezvous_id(...)).signal(names.SIGNAL_END,
GangEnd(...))`. It is no error if no such workflow exists. The signal is sent when an attempt's removal begins, or when
the workload has ended in any way; all members are told to finish, and the rendezvous ends a keep-alive later, unless
the next attempt begins.

**What the workload receives**: the signal `gang` (a `GangOutcome`), once per attempt: its gang has succeeded or
failed, or the workload itself must handle a loss. It receives nothing about rounds, and nothing after `end`.

**Who else may use it**: people, by the updates `resize` (a `GangSize`) and `evict` (a `GangEvict`), which return a
message if they cannot be carried out; and any client, by the query `status` (a `GangStatus`).
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
    """The workload's name."""
    workload_uid: str
    workflow_id: str
    """The workflow that receives the outcome of the gang."""
    submitted_at: Time
    """When the workload's workflow began, by Temporal's clock: the gang of the later submission meets here.

    A run that continues another one begins later; before 0.3 it was when the client said that it submitted."""
    attempt: Annotated[int, Field(ge=1)]
    gang: Annotated[Gang, BeforeValidator(_known_of_gang)]

    @property
    def run_id(self) -> str:
        """Its name in the state of the gang."""
        return f"{self.workload_uid}-{self.attempt}"

    def is_later(self, other: GangBegin) -> bool:
        """Whether it takes the place of another attempt: a later one, or one of a later submission of the name."""
        if self.workload_uid == other.workload_uid:
            return self.attempt > other.attempt
        return self.submitted_at > other.submitted_at


class GangEnd(Payload):
    """An attempt ends, for reasons of the workload's own: argument of the signal `end`."""

    workload_uid: str
    attempt: int
    """The attempt that ends, with all attempts before it."""
    why: str = ""


class GangSize(Payload):
    """Another size for a gang that runs: argument of the update `resize`. Answer: the size in force."""

    min: Count
    max: Count


class GangEvict(Payload):
    """A member that must make room: argument of the update `evict` (row T13)."""

    member: str
    why: str = ""


class RendezvousMemory(PackedPayload):
    """The memory that one run of a rendezvous leaves to the next."""

    state: PackedState
    generation: int = 0
    outcome: GangOutcome | None = None
    """The outcome that is not sent to the workload yet."""
    over: Time | None = None
    """When the rendezvous ends, once its attempt has ended."""


class RendezvousInput(GangBegin):
    """The input of a rendezvous; a client that starts it leaves the memory out."""

    memory: RendezvousMemory | None = None


class HubInput(Payload):
    """Serve a gang: runs without end, with heartbeats; queue `holdfast/<cluster>/gangs`."""

    cluster: str
    cluster_uid: str = ""
    namespace: str
    workload: str
    workload_uid: str
    workflow_id: str
    """The workflow id of the rendezvous."""


class Attach(Payload):
    """A hub begins: argument of the update `attach`. Messages of an earlier hub are refused from now on."""

    hub: str
    """The hub's name in histories: its worker's identity."""


class Attached(PackedPayload):
    """The data that a hub needs to begin."""

    generation: int
    """The number to send with every announcement."""
    workload_uid: str
    gang: Annotated[Gang, BeforeValidator(_known_of_gang)]
    orders: Orders
    """All current orders."""
    holders: tuple[Holder, ...]


class Announced(Payload):
    """The news of a gang, sent together: argument of the update `announce`, answered by `Orders`.

    Refused before it reaches history, as `StaleHub`, if another hub has attached since, or another attempt has begun.
    """

    generation: int
    attempt: int
    seen: int
    """The revision up to which this hub knows the orders for members."""
    events: PackedEvents
