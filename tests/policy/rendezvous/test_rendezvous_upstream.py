"""Where upstream leaves a gap: a loss that nobody notices, a budget that a fast leave and rejoin gets round (T5, T9).

Each test lives once as it is decided here, and once as upstream would have it: there it must fail.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from holdfast.model.gang.state import GangEvent, GangState, Lost, Said
from holdfast.model.gang.status import CloseReason, GangPhase
from holdfast.policy.rendezvous.step import Step, step
from holdfast.policy.values.edit import edit
from tests.policy.lives.gang import Decides, Meeting

ROW = pytest.mark.row


def deaf_to_losses(state: GangState, events: list[GangEvent], now: datetime) -> Step:
    """As upstream: a scale-down is not told to the agents, whose workers hang until their collectives time out."""
    return step(state, [one for one in events if not isinstance(one, Lost)], now)


def forgetful(state: GangState, events: list[GangEvent], now: datetime) -> Step:
    """As upstream: each agent counts its own restarts and begins anew at 0, and nobody counts rounds."""
    state = edit(state, gang=edit(state.gang, max_rounds=None))
    for one in events:
        old = state.members.get(one.join.member) if isinstance(one, Said) else None
        if isinstance(one, Said) and old is not None and old.join.incarnation != one.join.incarnation:
            state = edit(state, members={**state.members, one.join.member: edit(old, restarts=0)})
    return step(state, events, now)


def both(upstream: Decides) -> Callable[..., Any]:
    failing = pytest.mark.xfail(strict=True, raises=AssertionError, reason="the gap that upstream leaves")
    return pytest.mark.parametrize(
        "decides", [pytest.param(step, id="here"), pytest.param(upstream, id="upstream", marks=failing)]
    )


@ROW("T9", level="pure")
@both(deaf_to_losses)
def test_T9_a_scale_down_is_noticed_within_seconds(decides: Decides) -> None:
    one = Meeting(low=2, decides=decides).start("a", "b", "c", "d")
    one.now = at = one.now + one.state.gang.keep_alive
    one.loses("d")
    assert one.kinds == {"a": "Rejoin", "b": "Rejoin", "c": "Rejoin", "d": "Leave"}
    assert one.now == at


@ROW("T5", level="pure")
@both(forgetful)
def test_T5_leaving_and_coming_back_does_not_renew_a_members_budget(decides: Decides) -> None:
    one = Meeting(low=2, high=2, decides=decides).start("a", "b")
    for _ in range(20):
        one.fails("b").join("b").obey()
    assert one.state.closed is CloseReason.RESTARTS_EXHAUSTED
    assert len(one.rounds) == 4


@ROW("T5", level="pure")
@both(forgetful)
def test_T5_rounds_are_bounded_whoever_leaves_and_comes_back_under_whatever_name(decides: Decides) -> None:
    one = Meeting(low=2, high=2, max_rounds=6, decides=decides).start("a", "b-0")
    for number in range(20):
        one.loses(f"b-{number}").join(f"b-{number + 1}").obey().wait(5)
    assert one.state.closed is CloseReason.ROUNDS_EXHAUSTED
    assert len(one.rounds) == 6
    assert one.state.why.endswith("6 rounds began within 1h")


@ROW("T5", level="pure")
def test_T5_rounds_of_before_the_window_are_not_counted() -> None:
    one = Meeting(low=2, high=2, max_rounds=2, rounds_window="1m").start("a", "b")
    for number in range(6):
        one.wait(61).loses("b").join("b").obey()
        assert one.state.round == number + 2
    assert one.state.phase is GangPhase.RUNNING


@ROW("T5", level="pure")
def test_T5_a_newcomer_cannot_end_a_gang_whose_rounds_are_used_up() -> None:
    one = Meeting(low=1, high=4, max_rounds=1).start("a", "b").join("c")
    assert one.kinds == {"a": "Run", "b": "Run", "c": "Wait"}
