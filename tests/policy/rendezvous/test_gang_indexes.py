"""Which members go when a gang shrinks, and with what code: those whose index the Job drops, and no other (row D39)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.agent.machine import Member, Told, step
from holdfast.agent.messages import Directive, State
from holdfast.model.gang.status import GangPhase
from holdfast.model.gang.wire import DirectiveKind
from holdfast.policy.rendezvous.orders import answer
from tests.policy.lives.gang import Meeting

ROW = pytest.mark.row


def three(**settings: Any) -> Meeting:
    """Three members run; `zero`, of index 0, arrived last."""
    one = Meeting(low=3, high=3, **settings)
    for name, index in (("one", 1), ("two", 2), ("zero", 0)):
        one.wait(1).join(name, index=index)
    one.obey()
    assert one.state.participants == ("one", "two", "zero")
    return one


def exits(one: Meeting, name: str) -> int:
    """Return what the agent of a member ends with, told what it is told now."""
    wire = one.told[name].model_dump(mode="json", by_alias=True)
    ended, _ = step(Member(), Told(Directive.read(wire), State.INIT))
    assert ended.ended is not None
    return ended.ended


@ROW("D39", level="pure")
def test_D39_a_scale_down_evicts_the_index_that_the_job_drops_whoever_arrived_last() -> None:
    one = three().resizes(2, 2)
    assert one.kinds == {"one": "Rejoin", "two": "Leave", "zero": "Rejoin"}
    assert exits(one, "two") == 0, "its index is not wanted any more"
    one.obey()
    assert one.kinds == {"one": "Run", "two": "Leave", "zero": "Run"}
    assert one.world == 2
    assert one.left == dict.fromkeys(("one", "two", "zero"), 3)


@ROW("D39", level="pure")
def test_D39_while_a_round_forms_too_and_one_that_joins_late_is_not_taken() -> None:
    one = Meeting(low=3, high=3).join("zero", index=0).join("two", index=2).resizes(1, 2)
    assert one.kinds == {"zero": "Wait", "two": "Leave"}
    one.join("another", index=2)
    assert one.kind("another") is DirectiveKind.LEAVE
    one.join("one", index=1).obey()
    assert set(one.state.participants) == {"zero", "one"}


@ROW("D39", level="pure")
def test_D39_with_spares_who_is_too_many_waits_and_is_not_evicted() -> None:
    one = Meeting(low=3, high=3, spares=1).start("a", index=0).join("b", index=1).join("c", index=2).join("d", index=3)
    one.obey()
    assert set(one.state.participants) == {"a", "b", "c"}
    one.resizes(2, 2).obey()
    assert one.kind("d") is DirectiveKind.LEAVE, "the Job has three pods: index 3 goes"
    assert sorted(told.kind.value for name, told in one.told.items() if name != "d") == ["Run", "Run", "Wait"]
    one.wait(3600).obey()
    assert one.state.phase is GangPhase.RUNNING
    assert sum(told.kind is DirectiveKind.LEAVE for told in one.told.values()) == 1


@ROW("D39", level="pure")
def test_D39_who_finds_no_place_or_is_evicted_while_its_index_is_wanted_ends_with_another_code_than_0() -> None:
    one = three().join("late", index=0).wait(599)
    one.wait(2)
    assert one.kind("late") is DirectiveKind.LEAVE
    assert exits(one, "late") != 0
    one.evicts("two")
    assert exits(one, "two") != 0


@ROW("D39", level="pure")
def test_D39_an_agent_whose_place_a_later_one_holds_ends_with_another_code_than_0() -> None:
    one = three()
    old = one.joins["one"]
    one.wait(1).join("one", index=1)
    told = answer(one.state, old)
    assert told is not None
    assert (told.kind, told.why) == (DirectiveKind.LEAVE, "a later agent holds its place")
    assert told.exit_code != 0
    assert told.grace == timedelta(seconds=30)


@ROW("D39", level="pure")
def test_D39_who_has_succeeded_and_leaves_ends_with_0() -> None:
    one = three().succeeds("one").evicts("one")
    assert one.kind("one") is DirectiveKind.LEAVE
    assert exits(one, "one") == 0
