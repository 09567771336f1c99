"""Lives of workloads, each written once and then lived again with a crash at every point of it.

A script only does what people and clusters do, and waits only for what stays until it goes on: it must come out the
same whenever, and however often, a worker dies meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from holdfast import names
from tests.e2e.crash.scene import pod
from tests.e2e.ground.site import appwrapper, until
from tests.e2e.ground.space import STUBBORN, Handle, Space
from tests.e2e.lives import jobset_scripts as jobsets
from tests.e2e.lives import lattice_lives as lattice
from tests.e2e.lives import queued_lives as queued
from tests.e2e.lives import saving_scripts as saving
from tests.e2e.lives.door_lives import FrontDoorLife
from tests.e2e.lives.entity_lives import BrokerLife, GraphLife, Life, QueueLife, StagingLife
from tests.e2e.lives.lattice import NAME, allocation
from tests.e2e.lives.node_lives import FencedLife, MonitorLife, ProvisionerLife
from tests.e2e.lives.saving import gang
from tests.e2e.nodes.agents import SHORT_SILENCE

QUICK = {"failureGracePeriodDuration": "0s", "retryPausePeriodDuration": "0s"}


@dataclass(frozen=True)
class Scenario:
    """One life, and what it comes to if nothing crashes."""

    name: str
    document: Callable[[], dict[str, Any] | str]
    script: Callable[[Space, Handle], Awaitable[None]]
    phase: str
    """The phase it ends in."""
    attempts: int
    """How many attempts are made."""
    charged: Mapping[str, int] = field(default_factory=dict[str, int])
    """What is used of each budget in the end."""
    restarts: int | None = None
    """How often it is restarted; None: as often as `restart` is charged."""
    replaces: bool = False
    """Whether an interrupted submission is made again as the next attempt, instead of being carried on."""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """What its worker is set to, by the variables of its environment."""
    quota: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of an admission queue of its own, which lets it in; none: it is in no queue."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class EntityScenario:
    """One life of an entity beside workloads: a queue, a graph, a provisioner (`entity_lives.py`)."""

    life: type[Life]
    replaces: bool = False

    @property
    def name(self) -> str:
        """What it is called in reports."""
        return self.life.name

    def __str__(self) -> str:
        return self.name


def slow(name: str) -> dict[str, Any]:
    """Return a component that is a pod which takes its time to end, so that whoever does not wait for that is seen."""
    return pod(name, kwok_delete_delay="1s")


def config(name: str = "settings") -> dict[str, Any]:
    """Return an AppWrapper component that wraps a ConfigMap."""
    template = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value"}}
    return {"template": template}


def _two_pods(**annotations: str) -> dict[str, Any]:
    return appwrapper(NAME, slow("first"), config(), slow("second"), **{**QUICK, **annotations})


async def _fails_and_is_reset(space: Space, handle: Handle) -> None:
    await space.reach(handle, "Running", 1)
    await space.fail_pod(NAME)
    await space.reach(handle, "Running", 2)
    await space.complete(NAME)


def _suspended() -> dict[str, Any]:
    document = _two_pods()
    document["spec"]["suspend"] = True
    return document


async def _is_shown_and_begins(space: Space, handle: Handle) -> None:
    """Be seen in the cluster before the first attempt (row E10), then begin."""

    async def shown() -> bool:
        anchors = await space.site.objects(names.API_VERSION, names.ANCHOR_KIND, space.namespace)
        return [one.get("status", {}).get("phase") for one in anchors] == ["Suspended"]

    await until(shown, 120, "its anchor says that it is suspended", pause=0.2)
    await handle.signal(names.SIGNAL_RESUME, "there is room")
    await _fails_and_is_reset(space, handle)


async def _makes_room_and_is_cancelled(space: Space, handle: Handle) -> None:
    await space.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_SUSPEND, "making room")
    await space.reach(handle, "Suspended")
    await handle.signal(names.SIGNAL_RESUME, "room again")
    await space.reach(handle, "Running", 2)
    held = (await space.pods(NAME))[0]["metadata"]["name"]
    await space.patch("v1", "Pod", held, {"metadata": {"labels": STUBBORN}})
    await handle.signal(names.SIGNAL_CANCEL, "no longer wanted")


# --- plain manifests with the submission profile: an interrupted submission is made anew, as a later attempt

STREAMS = {"profile": "streams", "successTTL": "0s"}
STREAMS_PODS = 5


def _streams() -> str:
    """Return five pods and what they read, as manifests."""
    settings = config()["template"]
    settings["metadata"]["annotations"] = {f"{names.GROUP}/{key}": value for key, value in STREAMS.items()}
    pods = [slow(NAME)["template"] for _ in range(STREAMS_PODS)]
    return yaml.safe_dump_all([settings, *pods])


async def _all_run(space: Space, but: str = "") -> None:
    """Wait until all pods run, and that of this uid is none of them."""

    async def check() -> bool:
        found = [one for one in await space.pods(NAME) if one["status"].get("phase") == "Running"]
        return len(found) == STREAMS_PODS and but not in {one["metadata"]["uid"] for one in found}

    await until(check, 120, f"{STREAMS_PODS} pods run")


async def _is_submitted_twice(space: Space, handle: Handle) -> None:
    first = await space.reach(handle, "Running")
    await handle.signal(names.SIGNAL_SUSPEND, "making room")
    await space.reach(handle, "Suspended")
    await handle.signal(names.SIGNAL_RESUME, "room again")

    async def again() -> bool:
        status = await space.reach(handle, "Running")
        return status.attempt > first.attempt

    await until(again, 120, "it runs again")
    await space.complete(NAME)


async def _loses_a_pod(space: Space, handle: Handle) -> None:
    await space.reach(handle, "Running")
    lost = (await space.pods(NAME))[0]["metadata"]
    await space.delete("v1", "Pod", lost["name"])
    await _all_run(space, but=lost["uid"])
    await space.reach(handle, "Running")
    await space.complete(NAME)


SCENARIOS: tuple[Scenario | EntityScenario, ...] = (
    Scenario(
        name="appwrapper-reset",
        document=_two_pods,
        script=_fails_and_is_reset,
        phase="Succeeded",
        attempts=2,
        charged={"restart": 1},
    ),
    Scenario(
        name="appwrapper-shown-as-it-waits",
        document=_suspended,
        script=_is_shown_and_begins,
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
    Scenario(
        name="streams-submission",
        document=_streams,
        script=_is_submitted_twice,
        phase="Succeeded",
        attempts=2,
        replaces=True,
    ),
    Scenario(
        name="streams-pod-deleted",
        document=_streams,
        script=_loses_a_pod,
        phase="Succeeded",
        attempts=1,
        charged={"launch": 1},
        replaces=True,
    ),
    Scenario(
        name="jobset-restart-in-order",
        document=lambda: jobsets.driven(
            "RestartJobSet",
            startupPolicy={"startupPolicyOrder": "InOrder"},
            successPolicy={"operator": "All", "targetReplicatedJobs": ["driver"]},
        ),
        script=jobsets.is_restarted_by_a_rule,
        phase="Succeeded",
        attempts=2,
        charged={"restart": 1},
    ),
    Scenario(
        name="jobset-replicated-job",
        document=lambda: jobsets.driven("RestartReplicatedJob"),
        script=jobsets.restarts_its_workers_alone,
        phase="Succeeded",
        attempts=1,
        charged={"restart": 1},
    ),
    Scenario(
        name="jobset-suspended-in-order",
        document=lambda: jobsets.driven(
            "RestartJobSet",
            startupPolicy={"startupPolicyOrder": "InOrder"},
            successPolicy={"operator": "All", "targetReplicatedJobs": ["driver"]},
        ),
        script=jobsets.is_suspended_in_place,
        phase="Succeeded",
        attempts=2,
        charged={"restart": 1},
    ),
    Scenario(
        name="preempted-and-saved",
        document=lambda: gang(NAME, pods=2),
        script=saving.saves_and_goes_on,
        phase="Succeeded",
        attempts=2,
    ),
    Scenario(
        name="lattice-saved-after-its-walltime",
        document=saving.has_a_walltime,
        script=saving.saves_after_its_walltime,
        phase="Succeeded",
        attempts=2,
    ),
    Scenario(
        name="lattice-requeue",
        document=lambda: allocation("batch", pods=2),
        script=lattice.loses_its_node,
        phase="Succeeded",
        attempts=2,
        charged={"restart": 1},
    ),
    Scenario(
        name="queued-requeue",
        document=lambda: allocation("batch", pods=2),
        script=queued.comes_back_and_lets_go,
        phase="Succeeded",
        attempts=2,
        charged={"restart": 1},
        quota={"pods": "2"},
    ),
    Scenario(
        name="lattice-sensitive-walltime",
        document=lambda: allocation("service", walltime="15s", sensitive="true"),
        script=lattice.waits_for_a_person,
        phase="Failed",
        attempts=2,
    ),
    Scenario(
        name="lattice-launch",
        document=lattice.launches,
        script=lattice.fails_to_launch,
        phase="Succeeded",
        attempts=2,
        charged={"launch": 1},
        restarts=1,
    ),
    Scenario(
        name="lattice-walltime-extended",
        document=lambda: allocation("batch", walltime="25s", walltimeExtendableTo="1h"),
        script=lattice.is_extended,
        phase="Failed",
        attempts=2,
        charged={"restart": 1},
    ),
    Scenario(
        name="lattice-node-down",
        document=lattice.has_a_place_of_its_own,
        script=lattice.has_its_node_fall_silent,
        phase="Succeeded",
        attempts=2,
        charged={"restart": 1},
        settings=SHORT_SILENCE,
    ),
    Scenario(
        name="lattice-probe",
        document=lattice.serves,
        script=lattice.stops_answering,
        phase="Succeeded",
        attempts=2,
        charged={"restart": 1},
    ),
    EntityScenario(QueueLife),
    EntityScenario(GraphLife),
    EntityScenario(ProvisionerLife),
    EntityScenario(MonitorLife),
    EntityScenario(FencedLife),
    EntityScenario(BrokerLife),
    EntityScenario(StagingLife),
    EntityScenario(FrontDoorLife),
)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
