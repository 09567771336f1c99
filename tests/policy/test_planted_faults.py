"""The oracle can fail: each planted fault is noticed, as the breach of the very law that it breaks."""

from __future__ import annotations

from random import Random

import pytest

from tests.policy.faults import FAULTS, Fault
from tests.policy.oracle import Violation
from tests.policy.play import Play
from tests.policy.script import walk

SCRIPTS = 400
MOVES = 60


def script(seed: int, fault: Fault | None = None) -> Violation | None:
    """Play a random script; return what law it broke, if any."""
    play = Play(activities=fault.activities) if fault is not None else Play()
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
        found = next(((seed, one) for seed in range(SCRIPTS) if (one := script(seed, fault)) is not None), None)
    assert found is not None, f"{SCRIPTS} scripts, and nobody noticed: {fault.name}"
    seed, violation = found
    print(f"MEASURED {fault.name}: noticed by script {seed}: {str(violation)[:200]}")
    assert violation.law is fault.law, f"script {seed}: {violation}"
    # Without the fault the same script breaks nothing: it is the fault that was noticed.
    assert script(seed) is None
