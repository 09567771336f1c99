"""What went and went again is news each time, however soon (row S7)."""

from __future__ import annotations

import pytest

from tests.fakes.watched import World


@pytest.mark.parametrize("between", [0.05, 0.2, 0.5, 5.0])
def test_S7_a_component_that_goes_again_before_its_coming_was_told_is_news(between: float):
    world = World()
    world.running()
    world.pass_time(60)
    world.job(gone=True)
    assert len(world.pass_time(5)) == 1
    world.job(uid="the-next")
    world.pass_time(between)
    world.job(uid="the-next", gone=True)
    assert world.pass_time(120), "the second one that went is never told"
