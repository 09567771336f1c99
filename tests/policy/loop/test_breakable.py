"""One turn for all who live a workload's life: what property tests live is what production lives (row D31)."""

from __future__ import annotations

import pytest

from holdfast.model import OperationKind
from holdfast.past import life as past
from holdfast.policy.loop import turn as loop
from holdfast.policy.loop.breakable import is_breakable
from holdfast.simulation import run as simulation
from holdfast.workflows import workload as production
from tests.policy.lives import flow
from tests.policy.lives.life import Life


@pytest.mark.row("D31", level="pure")
def test_D31_all_who_live_a_life_take_the_same_turn():
    life = Life()
    breakable = {kind for kind in OperationKind if is_breakable(life.spec, life.state, kind)}
    assert breakable == set(OperationKind) - {OperationKind.PREPARE, OperationKind.CREATE, OperationKind.RESET}
    assert {one.turn for one in (past, simulation, production, flow)} == {loop.turn}
