"""How a member speaks with its rendezvous: what is new at once, the heartbeat, and silence; in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.conversation import Conversation
from holdfast.agent.hub import Hub, Unreachable
from holdfast.agent.hub import Refused as HubRefused
from holdfast.agent.machine import End, Event, Member, Refused, Told, step
from holdfast.agent.messages import Directive, Kind, NotUnderstood, Report, State
from tests.agent.virtual import in_virtual_time

INIT = Report(State.INIT)
HEALTHY = Report(State.HEALTHY, 1)
WAIT = Directive(Kind.WAIT, revision=3, heartbeat=5.0)


@dataclass
class Said:
    """One announcement, and when."""

    at: float
    state: str
    seen: int
    held: float


class Rendezvous:
    """Stands at the other end: answers with its directive, held back as it was asked to, or does not answer."""

    def __init__(self) -> None:
        self.directive = WAIT
        self.holds = True
        self.away = False
        self.refuses = False
        self.faults: list[Exception] = []
        self.said: list[Said] = []
        self.cancelled = 0
        self.told: list[Event] = []
        self.new = asyncio.Event()
        self.talk = Conversation(self.exchange, dict, self.told.append, lambda: 0.0)

    async def exchange(self, announcement: Mapping[str, Any], held: float = 0.0) -> Directive:
        now = asyncio.get_running_loop().time()
        self.said.append(Said(now, announcement["report"]["state"], announcement["seen"], held))
        if self.faults:
            raise self.faults.pop()
        if self.away:
            raise Unreachable("away")
        if self.refuses:
            raise HubRefused("no")
        try:
            if self.holds and announcement["seen"] == self.directive.revision and held:
                self.new.clear()
                await asyncio.wait_for(self.new.wait(), held)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.directive

    def answer(self, directive: Directive) -> None:
        self.directive = directive
        self.new.set()

    def since(self, at: float) -> list[Said]:
        return [said for said in self.said if said.at >= at]


def talk(scene: Callable[[Rendezvous], Coroutine[Any, Any, None]]) -> Rendezvous:
    kept: list[Rendezvous] = []

    async def main() -> None:
        rendezvous = Rendezvous()
        kept.append(rendezvous)
        speaking = asyncio.ensure_future(rendezvous.talk.run())
        await scene(rendezvous)
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)

    in_virtual_time(main())
    return kept[0]


@pytest.mark.row("D55", level="pure")
@pytest.mark.parametrize("error", [OverflowError("cannot convert float infinity to integer"), UnicodeError("label")])
def test_D55_an_exchange_that_fails_by_a_fault_is_tried_again_after_a_pause(error: Exception) -> None:
    async def scene(rendezvous: Rendezvous) -> None:
        rendezvous.talk.say(INIT)
        rendezvous.faults = [error] * 5
        await asyncio.sleep(60)

    talked = talk(scene)
    assert not talked.faults
    assert any(isinstance(one, Told) for one in talked.told), "and it was answered in the end"
    assert not any(isinstance(one, Refused) for one in talked.told)


@pytest.mark.row("D55", level="pure")
def test_D55_a_fault_of_the_agents_own_ends_the_agent() -> None:
    def join() -> Mapping[str, Any]:
        raise TypeError("a fault")

    async def scene(rendezvous: Rendezvous) -> None:
        told: list[Event] = []
        talking = Conversation(rendezvous.exchange, join, told.append, lambda: 0.0)
        talking.say(INIT)
        await asyncio.wait_for(talking.run(), 60)
        (event,) = told
        assert event == Refused("a fault of the agent's own: TypeError: a fault")
        member, commands = step(Member(), event)
        assert commands == (End(2),)
        assert member.ended == 2

    talk(scene)


@pytest.mark.row("D55", level="pure")
@pytest.mark.parametrize(
    "wire",
    [
        {"kind": "Wait", "revision": float("inf")},
        {"kind": "Leave", "revision": 1, "exitCode": float("inf")},
        {"kind": "Wait", "revision": 1, "grace": "9" * 400 + "s"},
    ],
)
def test_D55_an_infinite_number_is_no_directive(wire: Any) -> None:
    with pytest.raises(NotUnderstood):
        Directive.read(wire)


@pytest.mark.row("D55", level="pure")
async def test_D55_a_host_of_which_no_query_can_be_made_is_not_reached(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    hub = Hub(f"http://{'a' * 70}.example", "u-1", str(token))
    with pytest.raises(Unreachable):
        await hub.exchange({})


def test_nothing_is_said_before_there_is_something_to_say() -> None:
    async def scene(rendezvous: Rendezvous) -> None:
        await asyncio.sleep(60)

    assert talk(scene).said == []


@pytest.mark.parametrize("holds", [True, False])
def test_the_heartbeat_is_kept_whether_answers_are_held_back_or_not(holds: bool) -> None:
    async def scene(rendezvous: Rendezvous) -> None:
        rendezvous.holds = holds
        rendezvous.talk.say(INIT)
        await asyncio.sleep(22)

    said = talk(scene).said
    assert [one.at for one in said] == [0.0, 0.0, 5.0, 10.0, 15.0, 20.0]
    assert [one.held for one in said] == [0.0, 5.0, 5.0, 5.0, 5.0, 5.0]
    assert [one.seen for one in said] == [0, 3, 3, 3, 3, 3]


def test_a_directive_reaches_the_member_at_once() -> None:
    async def scene(rendezvous: Rendezvous) -> None:
        rendezvous.talk.say(INIT)
        await asyncio.sleep(2)
        rendezvous.answer(replace(WAIT, revision=4))
        await asyncio.sleep(0.001)
        assert rendezvous.told[-1] == Told(replace(WAIT, revision=4), State.INIT)
        await asyncio.sleep(1)
        assert rendezvous.said[-1].seen == 4

    talk(scene)


def test_what_is_new_is_said_at_once_and_held_back_by_nobody() -> None:
    async def scene(rendezvous: Rendezvous) -> None:
        rendezvous.talk.say(INIT)
        await asyncio.sleep(2)
        rendezvous.talk.say(INIT)
        rendezvous.talk.say(HEALTHY)
        await asyncio.sleep(1)

    rendezvous = talk(scene)
    assert [(one.at, one.state, one.held) for one in rendezvous.since(1)] == [
        (2.0, "HEALTHY", 0.0),
        (2.0, "HEALTHY", 5.0),
    ]
    assert rendezvous.told[-1] == Told(WAIT, State.HEALTHY)


def test_what_nobody_answered_is_said_until_somebody_does() -> None:
    async def scene(rendezvous: Rendezvous) -> None:
        rendezvous.talk.say(INIT)
        await asyncio.sleep(2)
        rendezvous.away = True
        rendezvous.talk.say(HEALTHY)
        await asyncio.sleep(600)
        assert rendezvous.told[-1] == Told(WAIT, State.INIT)
        rendezvous.away = False
        await asyncio.sleep(6)
        assert rendezvous.told[-1] == Told(WAIT, State.HEALTHY)

    rendezvous = talk(scene)
    tries = rendezvous.since(2)
    assert {one.state for one in tries} == {"HEALTHY"}
    # Often enough to be no further from an answer than a heartbeat, and not so often as to be a burden.
    pauses = [second.at - first.at for first, second in itertools.pairwise(tries)]
    assert max(pauses) <= 5.0
    assert 600 / 5 <= len(tries) <= 600 / 2.5 + 10


def test_a_change_while_nobody_answers_is_the_next_thing_said() -> None:
    async def scene(rendezvous: Rendezvous) -> None:
        rendezvous.away = True
        rendezvous.talk.say(INIT)
        await asyncio.sleep(60)
        rendezvous.talk.say(HEALTHY)
        await asyncio.sleep(0.001)
        assert (rendezvous.said[-1].at, rendezvous.said[-1].state) == (60.0, "HEALTHY")

    talk(scene)


def test_a_heartbeat_of_nothing_is_no_storm() -> None:
    async def scene(rendezvous: Rendezvous) -> None:
        rendezvous.holds = False
        rendezvous.directive = replace(WAIT, heartbeat=0.0)
        rendezvous.talk.say(INIT)
        await asyncio.sleep(1)

    assert len(talk(scene).said) <= 25


def test_a_refusal_is_told_and_ends_the_conversation() -> None:
    async def scene(rendezvous: Rendezvous) -> None:
        rendezvous.refuses = True
        rendezvous.talk.say(INIT)
        await asyncio.sleep(60)

    rendezvous = talk(scene)
    assert rendezvous.told == [Refused("no")]
    assert len(rendezvous.said) == 1
