"""The oracle can fail: each planted fault is noticed, as the breach of the very law that it breaks."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.model import Phase, Workload
from tests.fakes.ledger import Kind
from tests.policy.laws.faults import FAULTS, OWNERS, RESTORED, Fault
from tests.policy.laws.laws import Violation
from tests.policy.lives.carried import Activities
from tests.policy.lives.play import Play
from tests.policy.lives.script import walk
from tests.policy.lives.submitted import ORDERED, SPEC, STREAMS

SCRIPTS = 400
MOVES = 60


def script(seed: int, fault: Fault | None = None, spec: Workload = SPEC) -> Violation | None:
    """Play a random script; return what law it broke, if any."""
    play = Play(spec, fault.activities if fault is not None else Activities)
    try:
        walk(play, Random(seed), MOVES)
        play.ends_well()
    except Violation as violation:
        return violation
    return None


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_noticed_as_what_it_is(fault: Fault, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patched:
        fault.patch(patched)
        spec = ORDERED if fault.ordered else STREAMS if fault.streams else SPEC
        tried = ((seed, script(seed, fault, spec)) for seed in range(SCRIPTS))
        found = next(((seed, one) for seed, one in tried if one is not None), None)
    assert found is not None, f"{SCRIPTS} scripts, and nobody noticed: {fault.name}"
    seed, violation = found
    print(f"MEASURED {fault.name}: noticed by script {seed}: {str(violation)[:200]}")
    assert violation.law is fault.law, f"script {seed}: {violation}"
    # Without the fault the same script breaks nothing: it is the fault that was noticed.
    assert script(seed, spec=spec) is None


def with_a_restored_memory() -> Play:
    """Play a life whose memory is put back to its first attempt while the second one runs, and go on."""
    play = Play()
    play.goes_on(60)
    memory = play.flow.state
    assert (memory.phase, memory.restarts) == (Phase.RUNNING, 0)
    play.weather.replaces = False
    play.pod_ends(0, 1)
    play.goes_on(200)
    assert (play.flow.state.phase, play.flow.state.restarts) == (Phase.RUNNING, 1)
    play.flow.restored(memory)
    play.goes_on(400)
    return play


def test_what_lives_is_left_alone_by_a_memory_that_does_not_know_it():
    play = with_a_restored_memory()
    assert play.flow.state.held is not None
    assert [one.deleting for one in play.cluster.of(Kind.POD, 2)] == [None] * 3


def test_a_newer_attempts_snapshot_that_is_dropped_is_noticed(monkeypatch: pytest.MonkeyPatch):
    RESTORED.patch(monkeypatch)
    with pytest.raises(Violation) as found:
        with_a_restored_memory()
    assert found.value.law is RESTORED.law


def with_finalizers_stripped(fault: Fault | None = None) -> Play:
    """Play a life whose pods and owner a finalizer holds while it is forced out, until a person has them stripped."""
    play = Play(SPEC, fault.activities if fault is not None else Activities)
    play.goes_on(60)
    for thing in list(play.cluster.alive.values()):
        if thing.kind in {Kind.POD, Kind.OWNER}:
            play.weather.person_holds(thing)
    play.suspend()
    play.goes_on(120)
    assert play.flow.state.phase is Phase.SUSPENDING
    assert len(play.cluster.of(Kind.POD)) == 3, "the finalizers hold them against force"
    assert play.strip(), "and may be stripped"
    play.goes_on(60)
    return play


def test_finalizers_are_stripped_on_request_but_for_the_owners():
    play = with_finalizers_stripped()
    assert not play.cluster.of(Kind.POD)
    assert [one.kind for one in play.oracle.there()] == [Kind.OWNER]
    play.ends_well()


def test_stripping_the_owners_finalizers_is_noticed():
    with pytest.raises(Violation) as violation:
        with_finalizers_stripped(OWNERS)
    assert violation.value.law is OWNERS.law
