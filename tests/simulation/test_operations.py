"""Operations of a simulated worker: what they hand over when they are broken off. Pure."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.activities.facts.pods import PodState
from holdfast.model import Attempt, Barrier, Limits, Operation, OperationKind, Report, Stage
from holdfast.model.calls.barrier import Lifted
from holdfast.model.calls.cluster import Replaced
from holdfast.model.life.state import STANDSTILL
from holdfast.policy.loop.submission import submitted
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import OperationInterrupted
from holdfast.simulation.cluster import nodes
from holdfast.simulation.cluster.saving import saved
from holdfast.simulation.cluster.world import World
from holdfast.simulation.effects import happen
from holdfast.simulation.operations import Activity
from holdfast.simulation.script.clock import START, Clock
from holdfast.simulation.script.events import Refuse
from holdfast.simulation.script.read import Latencies
from tests.e2e.ground.site import job
from tests.simulation.test_world import workload


def test_a_creation_that_is_broken_off_hands_over_what_it_made_and_how_long_it_has_borne():
    spec = workload(job("one"), job("two"))
    clock = Clock()
    world = World(spec, clock, Latencies(), 8)
    world.own(1)
    name = spec.components[1].name
    happen(world, Refuse(component=name), lambda given: given)
    state = submitted(spec, START)
    report = Report(sequence=1, phase=state.phase, reason=state.reason)
    operation = Operation(kind=OperationKind.CREATE, attempt=1, since=START, report=report)
    activity = Activity(spec, edit(state, operation=operation), operation, world, Limits())
    assert activity.go_on(interrupted=False) is None, "the second is refused for now"
    clock.now += timedelta(seconds=30)
    handed = activity.go_on(interrupted=True)
    assert isinstance(handed, OperationInterrupted)
    assert [one.kind for one in handed.objects] == ["Job"]
    assert handed.borne == 30


def passes(clock: Clock, seconds: float) -> None:
    """Let virtual time pass, and happen what is due."""
    end = clock.now + timedelta(seconds=seconds)
    while True:
        while (due := clock.take()) is not None:
            due()
        if clock.next is None or clock.next > end:
            break
        clock.now = clock.next
    clock.now = end


def test_D17_pods_that_are_held_hold_up_nothing_that_they_do_not_read():
    config = {"template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cfg"}}}
    spec = workload(config, job("one"), job("two"))
    names = tuple(one.name for one in spec.components)
    reader = edit(spec.components[1], config=names[:1])
    spec = spec.with_components((spec.components[0], reader, spec.components[2]))
    clock = Clock()
    world = World(spec, clock, Latencies(), 8)
    world.own(1)
    for component in spec.components:
        world.create(component, 1)
    passes(clock, 60)
    for pod in world.pods:
        if pod.thing.component.name == names[2]:
            pod.finalizer = "example.com/hold"
    state = submitted(spec, START)
    report = Report(sequence=1, phase=state.phase, reason=state.reason)
    launches = dict.fromkeys(names, 1)
    operation = Operation(kind=OperationKind.REPLACE, attempt=1, since=clock.now, report=report, launches=launches)
    attempt = Attempt(number=1, begun_at=START, stage=Stage.SUBMITTED, replacing=names, launches=launches)
    activity = Activity(spec, edit(state, attempt=attempt, operation=operation), operation, world, Limits())
    done, since = activity.go_on(interrupted=False), clock.now
    while done is None and clock.now < since + timedelta(minutes=5):
        passes(clock, 1)
        done = activity.go_on(interrupted=False)
    assert isinstance(done, Replaced)
    assert done.left == names[2:]
    assert [one.kind for one in done.objects] == ["ConfigMap", "Job"]
    assert clock.now - since < STANDSTILL + timedelta(seconds=60)


def test_a_pod_of_a_lost_node_hears_of_no_checkpoint():
    spec = workload(job("one"))
    (component,) = spec.components
    clock = Clock()
    world = World(spec, clock, Latencies(save=timedelta(seconds=5)), 8)
    world.own(1)
    world.create(component, 1)
    passes(clock, 60)
    nodes.lose(world, world.pods[0].node, START + timedelta(days=9))
    until = clock.now + timedelta(minutes=1)
    assert saved(world, 1, [component.name], 1, (1, 0), until) is None
    passes(clock, 61)
    answers = saved(world, 1, [component.name], 1, (1, 0), until)
    assert answers is not None
    assert (answers.done, answers.silent) == (1, 1), "the other pod is on a node that is there"


@pytest.mark.row("J24", level="pure")
def test_J24_the_barrier_waits_for_no_pod_that_has_succeeded():
    spec = workload(job("one"), job("two"))
    first, second = spec.components
    clock = Clock()
    world = World(spec, clock, Latencies(), 8)
    world.own(1)
    world.create(first, 1)
    passes(clock, 60)
    for pod in world.pods:
        pod.state = PodState.SUCCEEDED
    world.create(second, 1)
    state = submitted(spec, START)
    report = Report(sequence=1, phase=state.phase, reason=state.reason)
    operation = Operation(kind=OperationKind.BARRIER, attempt=1, since=clock.now, report=report)
    attempt = Attempt(number=1, begun_at=START, stage=Stage.SUBMITTED, barrier=Barrier(attempt=0, since=clock.now))
    activity = Activity(spec, edit(state, attempt=attempt, operation=operation), operation, world, Limits())
    assert activity.go_on(interrupted=False) is None, "the pods of the second do not run yet"
    passes(clock, 60)
    assert activity.go_on(interrupted=False) == Lifted(done=True)
