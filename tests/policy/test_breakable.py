"""One source for what may be broken off: what property tests live is what production lives (row D31)."""

from __future__ import annotations

import pytest

from holdfast.model import OperationKind
from holdfast.past import life as past
from tests.policy import flow
from tests.policy.life import Life


@pytest.mark.row("D31", level="pure")
def test_D31_the_flow_of_the_property_tests_breaks_off_what_the_workflow_does():
    life = Life()
    breakable = {kind for kind in OperationKind if past.is_breakable(life.spec, life.state, kind)}
    assert breakable == set(OperationKind) - {OperationKind.PREPARE, OperationKind.CREATE}
    own = getattr(flow, "BREAKABLE", None)
    assert own is None or own == breakable, "the flow has a list of its own, and it differs"
    assert flow.is_breakable is past.is_breakable
