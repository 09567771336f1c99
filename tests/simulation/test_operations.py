"""Operations of a simulated worker: what they hand over when they are broken off. Pure."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model import Limits, Operation, OperationKind, Report
from holdfast.policy.edit import edit
from holdfast.policy.events import OperationInterrupted
from holdfast.policy.submitted import submitted
from holdfast.simulation.clock import START, Clock
from holdfast.simulation.happen import happen
from holdfast.simulation.happenings import Refuse
from holdfast.simulation.operations import Activity
from holdfast.simulation.script import Latencies
from holdfast.simulation.world import World
from tests.e2e.site import job
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
