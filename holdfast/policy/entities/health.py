"""The entity workflows of a cluster: what depends on each, what starts it, and how an unhealthy one is repaired (D2).

Pure. The watchdog of a worker carries out the verdicts of `judge`; `explain` and `doctor` show them to a person.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from holdfast import names
from holdfast.model.words import shortened

FAILURES: Final = 3
"""The number of consecutive failed workflow tasks after which an entity counts as failing."""
DEADLOCK: Final = "[TMPRL1101]"
"""Marks the failure message of a task that a worker had no time for: the entity is not at fault."""
TIMED_OUT: Final = "it timed out"
"""The reason of an entity whose run exceeded Temporal's timeout."""
PAUSE: Final = timedelta(seconds=30)
"""The longest wait before a failed entity is started again: it may fail as soon as it starts."""
PATIENCE_MAXIMUM: Final = timedelta(hours=1)
"""The limit of the patience with an entity, which doubles each time the entity is terminated."""
MARK: Final = "holdfast watchdog"
"""The prefix of the reason with which the watchdog terminates an entity."""


class Source(StrEnum):
    """The source that requires an entity to exist, and that holds its input."""

    SETTINGS = "Settings"
    """The settings of the cluster's workers: each cluster has one such entity."""
    DOCUMENT = "Document"
    """The document with which a person or a workload started it; the history of its last run contains it."""


@dataclass(frozen=True, slots=True)
class Entity:
    """One kind of entity workflow."""

    type: str
    """Its workflow type."""
    title: str
    """Its name for people."""
    prefix: Callable[[str], str]
    """Returns its workflow id for a cluster, or the prefix of all ids if a cluster has several."""
    source: Source
    needed_by: str
    """What depends on it."""
    meanwhile: str
    """What happens late, or does not happen, while it is away."""
    several: bool = False
    fails_as_result: bool = False
    """Whether a failed workflow is a final result, as for a graph that failed."""
    ends_if_cancelled: bool = False
    """Whether a cancellation through Temporal tells it to end, as its command does; it cuts off any other."""

    def query(self, cluster: str) -> str:
        """Return Temporal's list filter for a cluster's entities of this kind, open and closed."""
        prefix = self.prefix(cluster)
        which = f"WorkflowId STARTS_WITH '{prefix}'" if self.several else f"WorkflowId = '{prefix}'"
        return f"WorkflowType = '{self.type}' AND {which}"

    def query_watched(self, cluster: str) -> str:
        """Return the filter for those of them that run, and those that did not end by a decision."""
        ends = ["Running", "Terminated", "TimedOut"]
        ends += [] if self.fails_as_result else ["Failed"]
        ends += [] if self.ends_if_cancelled else ["Canceled"]
        listed = ", ".join(f"'{end}'" for end in ends)
        return f"{self.query(cluster)} AND ExecutionStatus IN ({listed})"

    def name_of(self, workflow_id: str) -> str:
        """Return the name, for people, of the entity with this id: `queue gpus`."""
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
        ends_if_cancelled=True,
    ),
    Entity(
        type=names.QUEUE_WORKFLOW,
        title="queue",
        prefix=_several(lambda cluster: names.queue_id(cluster, "")),
        source=Source.DOCUMENT,
        needed_by="the workloads that name it",
        meanwhile="no workload is admitted",
        several=True,
        fails_as_result=True,
        ends_if_cancelled=True,
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
        ends_if_cancelled=True,
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
        KeyError: if no entity has this workflow type.
    """
    return _BY_TYPE[workflow_type]


_BY_TYPE: Final = {entity.type: entity for entity in ENTITIES}


class Execution(StrEnum):
    """The status of the latest run of an entity in Temporal."""

    ABSENT = "Absent"
    """Temporal knows no run."""
    RUNNING = "Running"
    ENDED = "Ended"
    """It completed, by its own decision or a person's."""
    CANCELLED = "Cancelled"
    """It was cancelled through Temporal, and did not complete."""
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
    """When it closed; if it runs, when the first of its consecutive failed tasks failed."""
    failures: int = 0
    """How many of its workflow tasks have failed or timed out since the last one that succeeded."""
    latest: datetime | None = None
    """When the last of its tasks failed, as far as the history shows."""
    is_cut: bool = False
    """Whether the history since the last task that succeeded is so long that only a part of it was read."""
    failure: str = ""
    """The message of the failed task; empty if tasks only timed out, as they do when a worker dies."""
    reason: str = ""
    """The reason for its termination or failure."""
    undecodable: str = ""
    """Why the worker that had its last task could not decode it; empty if that did not happen (row X6)."""


class Act(StrEnum):
    """The action of the watchdog."""

    NOTHING = "Nothing"
    END = "End"
    """Terminate it: no later task can succeed. The next look starts it again."""
    BEGIN = "Begin"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The health of an entity, and the action to take."""

    healthy: bool
    act: Act = Act.NOTHING
    says: str = ""
    """The problem, for a person; empty if there is none."""
    brief: str = ""
    """`says` without the words of a failure, which Temporal would store in clear; empty: it has none."""
    until: str = "a worker has rebuilt it"
    """The event that ends the problem, for a person."""
    remedy: str = "a worker with the role watch begins it anew: look whether one runs, and at its log"
    """What a person can do."""


_WELL: Final = Verdict(healthy=True)


def judge(entity: Entity, sight: Sight, now: datetime, patience: timedelta, first: Sight | None = None) -> Verdict:
    """Return the health of an entity, and the action to take.

    Args:
        entity: its kind.
        sight: the entity as Temporal describes it.
        now: the time.
        patience: how long tasks may fail before the entity is terminated: during a rolling upgrade a worker of another
            release may take the task in the meantime.
        first: the sight in which this watchdog first found it failing, from `first_of`: the entity is terminated only
            if another task has failed since. None: the caller does not terminate it.
    """
    match sight.execution:
        case Execution.RUNNING:
            return _running(sight, now, patience, first)
        case Execution.ENDED if entity.source is Source.SETTINGS:
            return Verdict(
                healthy=False,
                says=f"its workflow was stopped{_at(sight)}",
                until="a worker with the role watch starts",
                remedy="restart a worker with the role watch: no watchdog begins what was told to stop",
            )
        case Execution.ENDED:
            return _WELL
        case Execution.ABSENT:
            return _absent(entity)
        case Execution.FAILED if entity.fails_as_result:
            return _WELL
        case Execution.CANCELLED if entity.ends_if_cancelled:
            return _WELL
        case Execution.CANCELLED:
            return Verdict(healthy=False, act=Act.BEGIN, says=f"its workflow was cancelled{_at(sight)}")
        case Execution.FAILED:
            # An entity that fails as soon as it starts is not restarted in a tight loop.
            waits = sight.since is not None and now - sight.since < min(patience, PAUSE)
            act = Act.NOTHING if waits else Act.BEGIN
            return Verdict(healthy=False, act=act, says=f"its workflow failed{_at(sight)}{_because(sight.reason)}")
        case Execution.LOST:
            how = "ended" if sight.reason == TIMED_OUT else "was terminated"
            says = f"its workflow {how}{_at(sight)}{_because(sight.reason)}"
            return Verdict(healthy=False, act=Act.BEGIN, says=says)


def _absent(entity: Entity) -> Verdict:
    says = "its workflow is not there"
    if entity.source is Source.SETTINGS:
        return Verdict(healthy=False, act=Act.BEGIN, says=says)
    if entity.type == names.RENDEZVOUS_WORKFLOW:
        return Verdict(healthy=False, says=says, until="its workload begins it", remedy="look at that workload")
    return Verdict(healthy=False, says=says, until="its document is applied again", remedy="apply its document again")


def is_failing(sight: Sight) -> bool:
    """Whether an entity's tasks fail with a message: the entity may have to be terminated."""
    fails = sight.failures >= FAILURES and bool(sight.failure) and not sight.undecodable
    return sight.execution is Execution.RUNNING and fails


def is_fault(message: str) -> bool:
    """Whether a task failure with this message may be the entity's fault, not that of a worker without time."""
    return DEADLOCK not in message


def first_of(first: Sight | None, sight: Sight) -> Sight:
    """Return the sight in which the current series of failures was first seen.

    Args:
        first: the first sight from earlier looks; None if the entity was healthy at the last look.
        sight: the current sight, which is failing.
    """
    if first is None or first.run_id != sight.run_id:
        return sight
    went_on = not sight.is_cut and first.since is not None and sight.since is not None and sight.since > first.since
    return sight if went_on else first  # It went on in between: a new series.


def patience_with(patience: timedelta, ends: int) -> timedelta:
    """Return the patience with an entity after so many terminations: another one may not help either."""
    return max(patience, min(patience * 2 ** min(ends, 20), PATIENCE_MAXIMUM))


def _running(sight: Sight, now: datetime, patience: timedelta, first: Sight | None) -> Verdict:
    if sight.failures < FAILURES:
        return _WELL
    if sight.undecodable:
        # A worker lacks a key. The entity is held: to begin it anew would lose what it knows.
        return Verdict(
            healthy=False,
            says=f"a worker cannot decode its workflow's tasks{_because(sight.undecodable)}",
            until="a worker has the key",
            remedy="add the key to the workers' key file: see docs/how-to/encryption.md",
        )
    if not sight.failure:
        # Workers died during a task, or a task takes too long: another worker may succeed.
        return Verdict(
            healthy=False,
            says=f"{sight.failures} tasks of its workflow in a row took too long",
            until="it goes on",
            remedy="look at the logs of the workers that serve it, and whether they have enough CPU",
        )
    began = [each.since for each in (first, sight) if each is not None and each.since is not None]
    persists = bool(began) and now - min(began) >= patience and (first is None or _tried_since(first, sight))
    brief = f"its workflow has failed its tasks{_at(sight, 'since')}"
    act = Act.END if persists else Act.NOTHING
    return Verdict(healthy=False, act=act, says=f"{brief}{_because(sight.failure)}", brief=brief)


def _tried_since(first: Sight, sight: Sight) -> bool:
    """Whether another task has failed: the first sight may show only the trace of a fault that has passed."""
    if sight.failures > first.failures:
        return True
    return first.latest is not None and sight.latest is not None and sight.latest > first.latest


def is_needed(sight: Sight, depended_on: bool) -> bool:
    """Whether an entity that a document started is started again.

    If nothing depends on it, it stays away, unless the watchdog itself terminated it.
    """
    return depended_on or sight.reason.startswith(MARK)


def reason_of(verdict: Verdict) -> str:
    """Return the reason with which an entity is terminated, for the person who finds it in Temporal."""
    return shortened(f"{MARK}: {verdict.brief or verdict.says}; it is begun anew from what the cluster shows")


def sentence(entity: Entity, workflow_id: str, verdict: Verdict) -> str:
    """Say in one sentence what is wrong with an entity, and what that means for its dependents."""
    return f"{entity.name_of(workflow_id)}: {verdict.says}; until {verdict.until}, {entity.meanwhile}"


def needs_of(
    workflow_id: str, *, queue: str = "", graph: str = "", gang: bool = False, saves: bool = False
) -> tuple[tuple[Entity, str], ...]:
    """Return the entities that a workload depends on, each with its workflow's id.

    Args:
        workflow_id: the workload's.
        queue: the queue that admits it; empty if it has none.
        graph: the graph that it belongs to; empty if it has none.
        gang: whether its members meet in a rendezvous.
        saves: whether it saves its state on request.
    """
    cluster, namespace, name = names.parse_workflow_id(workflow_id)
    found = [
        (names.CLUSTER_WATCH_WORKFLOW, names.watch_workflow_id(cluster)),
        (names.NODE_MONITOR_WORKFLOW, names.node_monitor_id(cluster)),
        # A node that falls silent is powered off before the workload's pods on it are replaced.
        (names.PROVISIONER_WORKFLOW, names.provisioner_id(cluster)),
    ]
    if saves:
        found.append((names.BROKER_WORKFLOW, names.broker_id(cluster)))
    if queue:
        found.append((names.QUEUE_WORKFLOW, names.queue_id(cluster, queue)))
    if graph:
        found.append((names.GRAPH_WORKFLOW, names.graph_id(cluster, namespace, graph)))
    if gang:
        found.append((names.RENDEZVOUS_WORKFLOW, names.rendezvous_id(cluster, namespace, name)))
    return tuple((entity_of(type_), workflow_id) for type_, workflow_id in found)


def concerns(entity: Entity, execution: Execution) -> bool:
    """Whether the state of an entity that a workload depends on is shown for the workload.

    An absent entity matters only if it must exist: a queue and a graph existed before the workload. A rendezvous starts
    with an attempt, and whoever runs the cluster decides whether it has a node monitor, a provisioner, a broker.
    """
    if may_be_unwanted(entity, execution):
        return False
    return execution is not Execution.ABSENT or entity.type in {names.QUEUE_WORKFLOW, names.GRAPH_WORKFLOW}


def may_be_unwanted(entity: Entity, execution: Execution) -> bool:
    """Whether an entity was stopped that a cluster can do without: its workers may be configured so."""
    return execution is Execution.ENDED and entity.type in {names.NODE_MONITOR_WORKFLOW, names.PROVISIONER_WORKFLOW}


def _at(sight: Sight, word: str = "at") -> str:
    return f" {word} {sight.since:%H:%M:%S} UTC" if sight.since is not None else ""


def _because(text: str) -> str:
    line = " ".join(text.split())
    return f" ({line[:160]})" if line else ""
