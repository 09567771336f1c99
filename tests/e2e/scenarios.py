"""Lives of workloads, each written once and then lived again with a crash at every point of it.

A script only does what people and clusters do, and waits only for what stays until it goes on: it must come out the
same whenever, and however often, a worker dies meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast import names
from tests.e2e.crash import pod
from tests.e2e.site import appwrapper
from tests.e2e.space import STUBBORN, Handle, Space

NAME = "train"
QUICK = {"failureGracePeriodDuration": "0s", "retryPausePeriodDuration": "0s"}


@dataclass(frozen=True)
class Scenario:
    """One life, and what it comes to if nothing crashes."""

    name: str
    document: Callable[[], dict[str, Any]]
    script: Callable[[Space, Handle], Awaitable[None]]
    phase: str
    """The phase it ends in."""
    attempts: int
    """How many attempts are made."""
    charged: Mapping[str, int] = field(default_factory=dict[str, int])
    """What is used of each budget in the end."""
    replaces: bool = False
    """Whether an interrupted submission is made again as the next attempt, instead of being carried on."""

    def __str__(self) -> str:
        return self.name


def config(name: str = "settings") -> dict[str, Any]:
    """Return an AppWrapper component that wraps a ConfigMap."""
    template = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value"}}
    return {"template": template}


def _two_pods(**annotations: str) -> dict[str, Any]:
    return appwrapper(NAME, pod("first"), config(), pod("second"), **{**QUICK, **annotations})


async def _fails_and_is_reset(space: Space, handle: Handle) -> None:
    await space.reach(handle, "Running", 1)
    await space.fail_pod(NAME)
    await space.reach(handle, "Running", 2)
    await space.complete(NAME)


async def _makes_room_and_is_cancelled(space: Space, handle: Handle) -> None:
    await space.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_SUSPEND, "making room")
    await space.reach(handle, "Suspended")
    await handle.signal(names.SIGNAL_RESUME, "room again")
    await space.reach(handle, "Running", 2)
    held = (await space.pods(NAME))[0]["metadata"]["name"]
    await space.patch("v1", "Pod", held, {"metadata": {"labels": STUBBORN}})
    await handle.signal(names.SIGNAL_CANCEL, "no longer wanted")


SCENARIOS = (
    Scenario(
        name="appwrapper-reset",
        document=_two_pods,
        script=_fails_and_is_reset,
        phase="Succeeded",
        attempts=2,
        charged={"restart": 1},
    ),
    Scenario(
        name="appwrapper-suspend-and-force",
        document=lambda: _two_pods(forcefulDeletionGracePeriodDuration="2s"),
        script=_makes_room_and_is_cancelled,
        phase="Cancelled",
        attempts=2,
    ),
)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
