"""The entity workflows of a cluster: who needs each, what begins it, and what is done when one is not healthy (D2).

Pure. The watchdog of a worker carries out what `judge` says; `explain` and `doctor` say the same to a person.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from holdfast import names
from holdfast.policy.record import shortened

FAILURES: Final = 3
"""Failed workflow tasks in a row after which an entity counts as failing."""
MARK: Final = "holdfast watchdog"
"""How the reason begins by which the watchdog terminates an entity."""


class Source(StrEnum):
    """What says that an entity is to exist, and what it begins with."""

    SETTINGS = "Settings"
    """The settings of the cluster's workers: there is one for each cluster."""
    DOCUMENT = "Document"
    """The document that a person or a workload began it with; the history of its last run holds that."""


@dataclass(frozen=True, slots=True)
class Entity:
    """One kind of entity workflow."""

    type: str
    """Its workflow type."""
    title: str
    """What a person calls it."""
    prefix: Callable[[str], str]
    """The id, or what all ids begin with where there are several, for a cluster."""
    source: Source
    needed_by: str
    """Who depends on it."""
    meanwhile: str
    """What does not happen while it is away."""
    several: bool = False
    fails_as_result: bool = False
    """Whether a failed workflow is a result that stands, as for a graph that failed."""

    def name_of(self, workflow_id: str) -> str:
        """Return what a person calls the entity that has this id: `queue gpus`."""
        rest = workflow_id.split("/")[2:]
        return f"{self.title} {'/'.join(rest)}" if rest else self.title


def _several(id_of: Callable[[str], str]) -> Callable[[str], str]:
    return lambda cluster: id_of(cluster).rstrip("/") + "/"


ENTITIES: Final = (
    Entity(
        type=names.CLUSTER_WATCH_WORKFLOW,
        title="cluster watch",
        prefix=names.watch_workflow_id,
        source=Source.SETTINGS,
        needed_by="every workload of the cluster",
        meanwhile="changes of pods are seen late",
    ),
    Entity(
        type=names.NODE_MONITOR_WORKFLOW,
        title="node monitor",
        prefix=names.node_monitor_id,
        source=Source.SETTINGS,
        needed_by="every workload of the cluster",
        meanwhile="no silent node is found Down",
    ),
    Entity(
        type=names.PROVISIONER_WORKFLOW,
        title="provisioner",
        prefix=names.provisioner_id,
        source=Source.SETTINGS,
        needed_by="whoever waits for a node's power or its wipe",
        meanwhile="no node is booted, wiped or powered off",
    ),
    Entity(
        type=names.BROKER_WORKFLOW,
        title="checkpoint broker",
        prefix=names.broker_id,
        source=Source.DOCUMENT,
        needed_by="every workload of the cluster that saves its state",
        meanwhile="nobody is asked to save",
    ),
    Entity(
        type=names.QUEUE_WORKFLOW,
        title="queue",
        prefix=_several(lambda cluster: names.queue_id(cluster, "")),
        source=Source.DOCUMENT,
        needed_by="the workloads that name it",
        meanwhile="nobody is let in",
        several=True,
        fails_as_result=True,
    ),
    Entity(
        type=names.GRAPH_WORKFLOW,
        title="graph",
        prefix=_several(lambda cluster: names.graph_id(cluster, "", "")),
        source=Source.DOCUMENT,
        needed_by="its workloads",
        meanwhile="no other workload of it begins",
        several=True,
        fails_as_result=True,
    ),
    Entity(
        type=names.RENDEZVOUS_WORKFLOW,
        title="rendezvous",
        prefix=_several(lambda cluster: names.rendezvous_id(cluster, "", "")),
        source=Source.DOCUMENT,
        needed_by="the workload of that gang",
        meanwhile="members run on, and no new round begins",
        several=True,
    ),
)


def entity_of(workflow_type: str) -> Entity:
    """Return the kind of a workflow type.

    Raises:
        KeyError: if it is none of an entity.
    """
    return _BY_TYPE[workflow_type]


_BY_TYPE: Final = {entity.type: entity for entity in ENTITIES}


class Execution(StrEnum):
    """What Temporal says of the latest run of an entity."""

    ABSENT = "Absent"
    """Temporal knows of none."""
    RUNNING = "Running"
    ENDED = "Ended"
    """It completed, or was cancelled: its own decision or a person's."""
    FAILED = "Failed"
    LOST = "Lost"
    """It was terminated, or timed out."""


@dataclass(frozen=True, slots=True)
class Sight:
    """An entity as Temporal describes it."""

    workflow_id: str
    execution: Execution
    run_id: str = ""
    since: datetime | None = None
    """When it closed; of one that runs, when the first of its tasks failed of those that failed in a row."""
    failures: int = 0
    """How many of its workflow tasks failed or timed out in a row until now."""
    failure: str = ""
    """What the failed task said; empty where tasks only timed out, as they do when a worker dies."""
    reason: str = ""
    """By which it was terminated, or failed."""


class Act(StrEnum):
    """What the watchdog does."""

    NOTHING = "Nothing"
    END = "End"
    """Terminate it: no later task can succeed. The next look begins it anew."""
    BEGIN = "Begin"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an entity stands, and what is done about it."""

    healthy: bool
    act: Act = Act.NOTHING
    says: str = ""
    """What is wrong, for a person; empty where nothing is."""


_WELL: Final = Verdict(healthy=True)


def judge(entity: Entity, sight: Sight, now: datetime, patience: timedelta) -> Verdict:
    """Return how an entity stands, and what is done about it.

    Args:
        entity: its kind.
        sight: what Temporal says of it.
        now: the time.
        patience: how long tasks fail before the entity is ended: during a rolling upgrade a worker of another release
            may take the task in the meantime.
    """
    match sight.execution:
        case Execution.RUNNING:
            return _running(sight, now, patience)
        case Execution.ENDED:
            return _WELL
        case Execution.ABSENT:
            act = Act.BEGIN if entity.source is Source.SETTINGS else Act.NOTHING
            return Verdict(healthy=False, act=act, says="its workflow is not there")
        case Execution.FAILED if entity.fails_as_result:
            return _WELL
        case Execution.FAILED:
            # What fails as soon as it begins is not begun in a tight loop.
            waits = sight.since is not None and now - sight.since < patience
            act = Act.NOTHING if waits else Act.BEGIN
            return Verdict(healthy=False, act=act, says=f"its workflow failed{_at(sight)}{_because(sight.reason)}")
        case Execution.LOST:
            says = f"its workflow was terminated{_at(sight)}{_because(sight.reason)}"
            return Verdict(healthy=False, act=Act.BEGIN, says=says)


def _running(sight: Sight, now: datetime, patience: timedelta) -> Verdict:
    if sight.failures < FAILURES:
        return _WELL
    if not sight.failure:
        # Workers that die with a task in hand, or a task that takes too long: another worker may succeed.
        return Verdict(healthy=False, says=f"{sight.failures} tasks of its workflow timed out in a row")
    persists = sight.since is not None and now - sight.since >= patience
    says = f"its workflow has failed its tasks{_at(sight, 'since')}{_because(sight.failure)}"
    return Verdict(healthy=False, act=Act.END if persists else Act.NOTHING, says=says)


def is_needed(sight: Sight, depended_on: bool) -> bool:
    """Whether an entity that was begun by a document is begun anew.

    One that a person terminated and that nobody depends on stays away. One that the watchdog itself ended comes back.
    """
    return depended_on or sight.reason.startswith(MARK)


def reason_of(verdict: Verdict) -> str:
    """Return the reason by which an entity is terminated, for the person who finds it in Temporal."""
    return shortened(f"{MARK}: {verdict.says}; it is begun anew from what the cluster shows")


def sentence(entity: Entity, workflow_id: str, verdict: Verdict) -> str:
    """Say in one sentence what is wrong with an entity, and what that means to those who depend on it."""
    return f"{entity.name_of(workflow_id)}: {verdict.says}; until a worker has rebuilt it, {entity.meanwhile}"


def needs_of(
    workflow_id: str, *, queue: str = "", graph: str = "", gang: bool = False
) -> tuple[tuple[Entity, str], ...]:
    """Return the entities that a workload depends on, each with its workflow's id.

    Args:
        workflow_id: the workload's.
        queue: the queue that lets it in; empty if none does.
        graph: the graph that it belongs to; empty if to none.
        gang: whether its members meet in a rendezvous.
    """
    cluster, namespace, name = names.parse_workflow_id(workflow_id)
    found = [
        (names.CLUSTER_WATCH_WORKFLOW, names.watch_workflow_id(cluster)),
        (names.NODE_MONITOR_WORKFLOW, names.node_monitor_id(cluster)),
    ]
    if queue:
        found.append((names.QUEUE_WORKFLOW, names.queue_id(cluster, queue)))
    if graph:
        found.append((names.GRAPH_WORKFLOW, names.graph_id(cluster, namespace, graph)))
    if gang:
        found.append((names.RENDEZVOUS_WORKFLOW, names.rendezvous_id(cluster, namespace, name)))
    return tuple((entity_of(type_), workflow_id) for type_, workflow_id in found)


def concerns(entity: Entity, execution: Execution) -> bool:
    """Whether a workload is told how an entity stands that it depends on.

    One that is not there concerns it only where it must be: a queue and a graph were there before the workload was. A
    rendezvous begins with an attempt, and whether a cluster has a monitor of nodes is for its workers' settings to say.
    """
    return execution is not Execution.ABSENT or entity.type in {names.QUEUE_WORKFLOW, names.GRAPH_WORKFLOW}


def _at(sight: Sight, word: str = "at") -> str:
    return f" {word} {sight.since:%H:%M:%S} UTC" if sight.since is not None else ""


def _because(text: str) -> str:
    line = " ".join(text.split())
    return f" ({line[:160]})" if line else ""
