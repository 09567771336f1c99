"""What the random scripts submit: one workload, under two profiles, with copies and in order."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model import (
    Action,
    After,
    AtEnd,
    Bounded,
    Budget,
    Checkpoint,
    CheckpointProtocol,
    Component,
    Deletion,
    PodSet,
    Policy,
    StartStatus,
    StatusRule,
    SuspendMode,
    Timings,
    Workload,
)
from holdfast.model.spec.mount import Mount
from holdfast.policy.values.edit import edit
from holdfast.profiles import streams
from holdfast.profiles.rules import COMMON, RESTART
from tests.policy.lives.hands import ANCHOR

TIMINGS = Timings(
    admission_grace_period=timedelta(seconds=60),
    warmup_grace_period=timedelta(seconds=120),
    failure_grace_period=timedelta(seconds=30),
    retry_pause_period=timedelta(seconds=15),
    deletion_on_failure_grace_period=timedelta(seconds=40),
    forceful_deletion_grace_period=timedelta(seconds=90),
    success_ttl=timedelta(seconds=50),
)
POLICY = Policy(
    rules=COMMON,
    default=Action(charge=RESTART),
    budgets=(Budget(name=RESTART, limit=2),),
    timings=TIMINGS,
)


def workload(policy: Policy, copies: int | None = None, after: StartStatus | None = None) -> Workload:
    """Return the workload of every script: two Jobs, three pods; or several copies of the second, or that one later."""
    components = tuple(
        Component(
            name=name,
            template={"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}},
            pod_sets=(PodSet(path="template.spec.template", replicas=pods),),
            status=StatusRule(complete=("Complete",), failed=("Failed",)),
            copies=copies if name == "serve" else None,
            after=(After(component="train", status=after),) if after is not None and name == "serve" else (),
        )
        for name, pods in (("train", 2), ("serve", 1))
    )
    return Workload(name=ANCHOR, cluster="dev", components=components, policy=policy)


SPEC = workload(POLICY)
_STREAMS = edit(
    streams.POLICY,
    timings=edit(TIMINGS, failure_grace_period=timedelta(0), retry_pause_period=timedelta(0)),
)
STREAMS = workload(_STREAMS)
"""Its interrupted creation is replaced whole, its components are made again alone."""
COPIES = workload(POLICY, copies=3)
COPIES_STREAMS = workload(_STREAMS, copies=2)
_AT_ONCE = (Budget(name=RESTART, limit=0),)
KEPT = workload(edit(POLICY, deletion=Deletion(at_end=AtEnd.ACTIVE), budgets=_AT_ONCE), copies=3)
"""What has ended of it is held at its end, what is active is deleted; its first failure ends it."""
ORDERED = workload(POLICY, copies=2, after=StartStatus.READY)
ORDERED_STREAMS = workload(_STREAMS, after=StartStatus.COMPLETE)
_MOUNTS = (Mount(name="corpus", source="s3://datasets/corpus", path="/data"),)
READING = edit(SPEC, mounts=_MOUNTS)
"""Its data set is staged before each attempt, from a store that is often away."""
READING_STREAMS = edit(STREAMS, mounts=_MOUNTS)
_IN_PLACE = Deletion(suspend=SuspendMode.IN_PLACE)
PARKED = workload(edit(POLICY, deletion=_IN_PLACE), copies=2)
"""It is suspended where it is, and resumed as the same attempt."""
PARKED_ORDERED = workload(edit(POLICY, deletion=_IN_PLACE), after=StartStatus.READY)
PARKED_STREAMS = workload(edit(_STREAMS, deletion=_IN_PLACE))
_SAVES = Checkpoint(
    protocol=CheckpointProtocol.ANNOTATION, timeout=timedelta(seconds=100), extension=timedelta(seconds=40)
)
SAVING = edit(workload(POLICY), checkpoint=_SAVES)
"""It saves its state before it is suspended, and resumes from there."""
SAVING_BOUNDED = edit(SAVING, lifecycle=Bounded(walltime=timedelta(seconds=150)))
"""Its walltime may be over while it saves."""
SAVING_STREAMS = edit(workload(_STREAMS), checkpoint=edit(_SAVES, components=("train",)))
SAVING_PARKED = edit(PARKED, checkpoint=_SAVES)
