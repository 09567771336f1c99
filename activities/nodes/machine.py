"""The port to whatever boots, erases and powers off machines, and how each is done once (row L15)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple, Protocol

from holdfast.model.entities.provisioner import Checked, Progress, Result

SENT_PATIENCE: Final = timedelta(seconds=30)
"""A machine that was told to change its power has so long for it to be seen, before it is told again."""
TURN_SECONDS: Final = 40.0
"""How long one try goes on looking whether something is done; what takes longer is another try's."""
POLL_SECONDS: Final = 1.0
Note = Callable[[Progress], Awaitable[None]]
"""Writes down how far an action has come, and returns once that would outlive this process."""


class ServiceError(Exception):
    """The service could not be made to do something; the message says what was asked, and what it answered."""


class Away(ServiceError):
    """It does not answer, or takes nothing from us: whatever is asked of it has to wait."""

    def __init__(self, message: str, *, broken: bool = False) -> None:
        """Say what was asked; `broken` where it has answered, that something is wrong with itself."""
        super().__init__(message)
        self.broken = broken


class NotNow(ServiceError):
    """It answers, and this machine cannot take this now."""


class Refusal(ServiceError):
    """It says no for good: there is no such machine, or the machine cannot do that."""


class Erasure(Enum):
    """How the erasure of a drive stands."""

    RUNNING = "running"
    DONE = "done"


class Machine(Protocol):
    """One machine of the service. Every call may raise a `ServiceError`."""

    async def uuid(self) -> str:
        """Return its UUID as the service says it; empty where it says none."""
        ...

    async def power(self) -> str:
        """Return how its power is: `On`, `Off`, or a word for something in between."""
        ...

    async def set_power(self, on: bool) -> None:
        """Have it be on or, at once and without asking its system, off."""
        ...

    async def boot_from_network_once(self) -> None:
        """Have its next boot, and that alone, come from the network."""
        ...

    async def drives(self) -> tuple[str, ...]:
        """Name all its drives."""
        ...

    async def erasures(self, drive: str) -> tuple[str, ...]:
        """Name the orders to erase a drive that the service remembers, those that are over included."""
        ...

    async def erase(self, drive: str) -> str:
        """Order the erasure of a drive; return the order's name, empty where it is done already."""
        ...

    async def erasure(self, order: str) -> Erasure:
        """Return how an order stands.

        Raises:
            Refusal: if it has failed, or nothing is known of it any more.
        """
        ...


class Provisioning(Protocol):
    """The service."""

    @property
    def allows_unverified(self) -> bool:
        """Whether a machine that cannot be compared with its node is acted on all the same."""
        ...

    def service_of(self, url: str) -> str:
        """Return which service a machine's URL is of: scheme, host and port.

        Raises:
            Refusal: if it is none that this worker may ask.
        """
        ...

    def url_of(self, node: str, said: str) -> str:
        """Return a node's URL: what its own annotation says, else by the template."""
        ...

    async def machine(self, url: str) -> Machine:
        """Return a machine, which is there."""
        ...

    async def answers(self, url: str) -> bool:
        """Whether the service of a machine answers at all: if it does, only this machine's requests have to wait."""
        ...

    async def check(self, url: str) -> Checked:
        """Look whether the service would take a request."""
        ...


class Step(NamedTuple):
    """What a try has come to."""

    result: Result
    said: str
    progress: Progress


async def switch(machine: Machine, on: bool, progress: Progress, note: Note, *, pxe: bool = False) -> Step:
    """Have a machine be on, or off, by proof of how its power is; it is looked at before it is told anything.

    That it is told is written down before. Whoever goes on from there does not know whether it was: it is told again
    only if nothing has come of it for `SENT_PATIENCE`.
    """
    wanted, clock = "On" if on else "Off", asyncio.get_running_loop().time
    begun = clock()
    while True:
        now, power = datetime.now(UTC), await machine.power()
        if power == wanted:
            return Step(Result.DONE, f"its power is {power}", progress)
        told = progress.sent is not None and now - progress.sent < SENT_PATIENCE
        if not told and power in {"On", "Off"}:
            if pxe and on:
                await machine.boot_from_network_once()
            progress = progress.model_copy(update={"sent": now})
            await note(progress)
            await machine.set_power(on)
        if clock() - begun > TURN_SECONDS:
            since = f" {progress.sent:%H:%M:%S} UTC" if progress.sent else ""
            return Step(Result.WAITS, f"told to be {wanted}{since}, and its power is {power}", progress)
        await asyncio.sleep(POLL_SECONDS)


async def wipe(machine: Machine, progress: Progress, note: Note) -> Step:
    """Erase all drives of a machine, by proof of each order's end.

    That a drive is to be erased is written down before it is ordered, with the orders there were: whoever goes on from
    there finds an order that is new, or orders it anew.
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
