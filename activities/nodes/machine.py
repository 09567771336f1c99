"""The port to the service that boots, erases and powers off machines, and how each action is done once (row L15)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple, Protocol

from holdfast.model.entities.provisioner import Checked, Progress, Result

SENT_PATIENCE: Final = timedelta(seconds=30)
"""How long a machine has to show a requested power state before the request is sent again."""
TURN_SECONDS: Final = 40.0
"""How long one try waits for an action to be done; another try waits for the rest."""
POLL_SECONDS: Final = 1.0
Note = Callable[[Progress], Awaitable[None]]
"""Saves the progress of an action, and returns once that record would outlive this process."""
Still = Callable[[], Awaitable["tuple[Result, str] | None"]]
"""Returns the result of a request that is not to be sent again, and why; None if it is."""


class ServiceError(Exception):
    """The service did not carry out a request; the message gives the request and the answer."""


class Away(ServiceError):
    """The service does not answer, or accepts nothing from us: all requests to it must wait."""

    def __init__(self, message: str, *, broken: bool = False) -> None:
        """Set the message; `broken`: the service has answered that it has an error of its own."""
        super().__init__(message)
        self.broken = broken


class NotNow(ServiceError):
    """The service answers, but this machine cannot accept this request now."""


class Refusal(ServiceError):
    """The service refuses for good: there is no such machine, or the machine cannot do this."""


class Erasure(Enum):
    """The state of a drive's erasure."""

    RUNNING = "running"
    DONE = "done"


class Machine(Protocol):
    """One machine of the service. Every call may raise a `ServiceError`."""

    async def uuid(self) -> str:
        """Return its UUID as the service reports it; empty if it reports none."""
        ...

    async def power(self) -> str:
        """Return its power state: `On`, `Off`, or a text for something in between."""
        ...

    async def set_power(self, on: bool) -> None:
        """Power it on, or power it off at once, without a shutdown of its operating system."""
        ...

    async def boot_from_network_once(self) -> None:
        """Make its next boot, and only that one, come from the network."""
        ...

    async def drives(self) -> tuple[str, ...]:
        """Return the names of all its drives."""
        ...

    async def erasures(self, drive: str) -> tuple[str, ...]:
        """Return the names of the erasure orders for a drive that the service still knows, finished ones included."""
        ...

    async def erase(self, drive: str) -> str:
        """Order the erasure of a drive; return the order's name, empty where it is done already."""
        ...

    async def erasure(self, order: str) -> Erasure:
        """Return the state of an order.

        Raises:
            Refusal: if it has failed, or the service no longer knows it.
        """
        ...


class Provisioning(Protocol):
    """The provisioning service."""

    @property
    def allows_unverified(self) -> bool:
        """Whether to act on a machine that cannot be compared with its node."""
        ...

    def service_of(self, node: str, said: str) -> str:
        """Return the service of a node's machine: scheme, host and port.

        Args:
            node: the node's name.
            said: the address in the node's annotation; empty if there is none.

        Raises:
            Refusal: if this worker may not send requests to that address.
        """
        ...

    async def machine(self, node: str, said: str) -> Machine:
        """Return a node's machine, which exists."""
        ...

    async def answers(self, node: str, service: str) -> bool:
        """Whether the service of a node's machine answers at all: if so, only this machine's requests have to wait."""
        ...

    async def check(self, node: str, said: str) -> Checked:
        """Check whether the service would accept a request; `node` is empty for no node in particular."""
        ...


class Step(NamedTuple):
    """The result of a try."""

    result: Result
    said: str
    progress: Progress


async def switch(
    machine: Machine, on: bool, progress: Progress, note: Note, *, pxe: bool = False, still: Still | None = None
) -> Step:
    """Power a machine on or off, as proven by its power state; that is read before anything is requested.

    Each request is noted before it is sent. A later try cannot know whether it was sent, so it sends the request again
    only if the power has not changed for `SENT_PATIENCE`. A request that the service rejects was not sent.

    Args:
        machine: the machine.
        on: whether its power is to be on.
        progress: what was sent before.
        note: notes what is sent.
        pxe: whether it boots from the network once.
        still: says, before a request is sent again, that it is not to be any more: much may have changed since the
            first one, which had no effect (row L5).
    """
    wanted, clock = "On" if on else "Off", asyncio.get_running_loop().time
    begun = clock()
    while True:
        now, power = datetime.now(UTC), await machine.power()
        if power == wanted:
            return Step(Result.DONE, f"its power is {power}", progress)
        told = progress.sent is not None and now - progress.sent < SENT_PATIENCE
        if not told and power in {"On", "Off"}:
            stop = await still() if still is not None and progress.sent is not None else None
            if stop is not None:
                result, why = stop
                return Step(result, why, await _unsent(progress, note))
            if pxe and on:
                await machine.boot_from_network_once()
            progress = progress.model_copy(update={"sent": now})
            await note(progress)
            try:
                await machine.set_power(on)
            except NotNow:
                await _unsent(progress, note)
                raise
        if clock() - begun > TURN_SECONDS:
            since = f" {progress.sent:%H:%M:%S} UTC" if progress.sent else ""
            return Step(Result.WAITS, f"told to be {wanted}{since}, and its power is {power}", progress)
        await asyncio.sleep(POLL_SECONDS)


async def _unsent(progress: Progress, note: Note) -> Progress:
    progress = progress.model_copy(update={"sent": None})
    await note(progress)
    return progress


async def wipe(machine: Machine, progress: Progress, note: Note) -> Step:
    """Erase all drives of a machine, as proven by the end of each order.

    Before an erasure is ordered, the drive is noted together with its existing orders. A later try then finds a new
    order, or orders the erasure again.
    """
    drives = await machine.drives()
    if not drives:
        raise Refusal("it names no drive: that nothing is erased would prove nothing")
    clock = asyncio.get_running_loop().time
    begun = clock()
    for drive in drives:
        if drive not in progress.erased and drive not in progress.tasks:
            progress = await _order(machine, drive, progress, note)
    while True:
        for drive, order in progress.tasks.items():
            if drive not in progress.erased and await machine.erasure(order) is Erasure.DONE:
                progress = progress.model_copy(update={"erased": (*progress.erased, drive)})
                await note(progress)
        left = set(drives) - set(progress.erased)
        if not left:
            return Step(Result.DONE, f"all {len(drives)} drives are erased", progress)
        if clock() - begun > TURN_SECONDS:
            said = f"{len(drives) - len(left)} of {len(drives)} drives are erased"
            return Step(Result.WAITS, said, progress)
        await asyncio.sleep(POLL_SECONDS)


async def _order(machine: Machine, drive: str, progress: Progress, note: Note) -> Progress:
    there = await machine.erasures(drive)
    if drive in progress.ordered:
        new = [one for one in there if one not in progress.ordered[drive]]
    else:
        progress = progress.model_copy(update={"ordered": {**progress.ordered, drive: there}})
        await note(progress)
        new = []
    order = new[-1] if new else await machine.erase(drive)
    if order:
        progress = progress.model_copy(update={"tasks": {**progress.tasks, drive: order}})
    else:
        progress = progress.model_copy(update={"erased": (*progress.erased, drive)})
    await note(progress)
    return progress
