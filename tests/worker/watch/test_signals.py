"""When signals go out: what bounds how many."""

from __future__ import annotations

import pytest

from holdfast.activities.facts.workload_key import WorkloadKey
from holdfast.worker.watch.facts import Urgency
from holdfast.worker.watch.signals import Signals


@pytest.mark.parametrize(("most", "taken"), [(-10, 0), (0, 0), (7, 7), (10_000, 200)])
def test_no_more_go_than_there_are_slots_and_tokens(most: int, taken: int) -> None:
    signals = Signals(200)
    for index in range(1000):
        signals.want(WorkloadKey("ns", f"w{index}"), Urgency.URGENT, 0.0)
    assert len(signals.take(1.0, most)) == taken
    # What did not go has cost nothing.
    assert len(signals.take(1.0, 10_000)) == 200 - taken
