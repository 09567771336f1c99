"""What a member does: each event in each state of it, in tables; no process and no clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.machine import (
    EXIT_REFUSED,
    EXIT_TERMINATED,
    Abandoned,
    Command,
    Crew,
    End,
    Ended,
    Event,
    Gone,
    Member,
    Refused,
    Signalled,
    Start,
    Stop,
    Stuck,
    Told,
    step,
)
from holdfast.agent.messages import Assignment, Directive, Failure, Kind, State

PLACE = Assignment(
    run_id="u-1",
    round=1,
    group_rank=0,
    group_world_size=2,
    rank=0,
    world_size=4,
    local_world_size=2,
    role="default",
    role_rank=0,
    role_world_size=4,
    master_address="10.0.0.7",
    master_port=29500,
    restarts=0,
    max_restarts=3,
)
SECOND = replace(PLACE, round=2, group_rank=1, rank=2)
GRACE = 30.0
CRASH = Failure(1, 3, 10.0, "ValueError")
KILLED = Failure(0, -9, 11.0)


def told(kind: Kind, said: State = State.INIT, **more: Any) -> Told:
    return Told(Directive(kind, **more), said)


def run(place: Assignment = PLACE) -> Told:
    return told(Kind.RUN, assignment=place, revision=place.round)


def live(*events: Event) -> tuple[Member, list[tuple[Command, ...]]]:
    """Live through the events, and return the member and what each of them led to."""
    member, led = Member(), []
    for event in events:
        member, commands = step(member, event)
        led.append(commands)
    return member, led


def state(member: Member) -> tuple[State, int]:
    report = member.report()
    return report.state, report.round


RUNNING = (run(),)
FAILED = (*RUNNING, Ended(1, CRASH), Ended(0, Failure(0, -15, 12.0), asked=True), Gone())
SUCCEEDED = (*RUNNING, Ended(0), Ended(1), Gone())
REJOIN = told(Kind.REJOIN, revision=7)
WAIT = told(Kind.WAIT, revision=8)


@pytest.mark.row("D42", level="pure")
def test_D42_a_failure_is_said_at_once_and_the_next_round_waits_until_all_have_stopped() -> None:
    member, led = live(run(), Ended(1, CRASH))
    assert led[-1] == (Stop(GRACE),)
    said = member.report()
    assert (said.state, said.round, said.failures) == (State.FAILED, 1, (CRASH,)), "its time is what it is judged by"
    assert said.wire(0.0)["stopping"] is True
    for event in (REJOIN, run(SECOND)):
        member, commands = step(member, event)
        assert commands == (), "two rounds never run at once"
        assert member.report().state is State.FAILED
    member, commands = step(member, Gone())
    assert commands == (Start(SECOND),)
    assert live(run(), Ended(1, CRASH), REJOIN, Gone())[0].report().state is State.INIT


@pytest.mark.parametrize(
    ("events", "state_", "commands"),
    [
        pytest.param((), (State.INIT, 0), None, id="at first nothing runs, and it would join"),
        pytest.param((WAIT,), (State.INIT, 0), (), id="told to wait it waits"),
        pytest.param((run(),), (State.HEALTHY, 1), (Start(PLACE),), id="told to run it runs"),
        pytest.param((run(), run()), (State.HEALTHY, 1), (), id="what runs is not started again"),
        pytest.param((run(), WAIT), (State.HEALTHY, 1), (), id="told to wait, what runs runs on"),
        pytest.param((run(), Ended(0)), (State.HEALTHY, 1), (), id="one that is done waits for the others"),
        pytest.param((run(), Ended(0), Ended(1)), (State.HEALTHY, 1), (Stop(GRACE),), id="what all left is stopped"),
        pytest.param(SUCCEEDED, (State.SUCCEEDED, 1), (), id="all done, nothing left: it has succeeded"),
        pytest.param((*SUCCEEDED, run()), (State.SUCCEEDED, 1), (), id="a round it has done is not run again"),
        pytest.param((*SUCCEEDED, WAIT), (State.SUCCEEDED, 1), (), id="at the barrier it waits"),
        pytest.param((run(), Ended(1, CRASH)), (State.FAILED, 1), (Stop(GRACE),), id="one failed: the others stop"),
        pytest.param(FAILED, (State.FAILED, 1), (), id="all stopped: it has failed"),
        pytest.param((*FAILED, run()), (State.FAILED, 1), (), id="nothing restarts of its own accord"),
        pytest.param((*FAILED, WAIT), (State.FAILED, 1), (), id="it stays failed until somebody says what comes of it"),
        pytest.param((*FAILED, REJOIN), (State.INIT, 1), (), id="failed and told to rejoin, it would join again"),
        pytest.param((*FAILED, run(SECOND)), (State.HEALTHY, 2), (Start(SECOND),), id="a newer round is one to run"),
        pytest.param((run(), REJOIN), (State.HEALTHY, 1), (Stop(GRACE),), id="told to rejoin it stops first"),
        pytest.param((run(), REJOIN, REJOIN), (State.HEALTHY, 1), (), id="it is not stopped twice"),
        pytest.param((run(), REJOIN, Gone()), (State.INIT, 1), (), id="stopped, it would join"),
        pytest.param((run(), REJOIN, Gone(), run(SECOND)), (State.HEALTHY, 2), (Start(SECOND),), id="and runs again"),
        pytest.param((run(), REJOIN, run(SECOND)), (State.HEALTHY, 1), (), id="two rounds never run at once"),
        pytest.param(
            (run(), run(SECOND)),
            (State.HEALTHY, 1),
            (Stop(GRACE),),
            id="a round is ended by the next",
        ),
        pytest.param(
            (run(), run(SECOND), Gone()), (State.HEALTHY, 2), (Start(SECOND),), id="and only then the next is begun"
        ),
        pytest.param((run(SECOND), run(PLACE)), (State.HEALTHY, 2), (), id="a round that is past is not run"),
        pytest.param((REJOIN,), (State.INIT, 0), (), id="one that runs nothing has nothing to stop"),
    ],
)
@pytest.mark.row("T3", level="pure")
@pytest.mark.row("T6", level="pure")
def test_directives_are_levels(
    events: tuple[Event, ...], state_: tuple[State, int], commands: tuple[Command, ...] | None
) -> None:
    member, led = live(*events)
    assert state(member) == state_
    if commands is not None:
        assert led[-1] == commands


def test_T3_workers_that_were_asked_to_stop_have_not_failed() -> None:
    trapped = (run(), REJOIN, Ended(0, asked=True), Ended(1, Failure(1, 1, 9.0), asked=True), Gone())
    assert state(live(*trapped)[0]) == (State.INIT, 1)
    again = live(*trapped, run(SECOND), Ended(0), Ended(1), Gone())[0]
    assert state(again) == (State.SUCCEEDED, 2)


def test_T3_of_failures_seen_together_the_earliest_is_told_first() -> None:
    member, _ = live(run(), Ended(0, KILLED), Ended(1, CRASH), Gone())
    assert member.report().failures == (CRASH, KILLED)


def test_a_round_begins_without_the_failures_of_the_last() -> None:
    member, _ = live(*FAILED, REJOIN, run(SECOND), told(Kind.FINISH, exit_code=0), Gone())
    assert member.ended == 0


@pytest.mark.row("T13", level="pure")
def test_T13_a_member_told_to_end_stops_its_workers_says_that_it_leaves_and_ends_once_that_is_known() -> None:
    member, led = live(run(), Signalled(), Gone())
    assert led == [(Start(PLACE),), (Stop(GRACE),), ()]
    assert state(member) == (State.STOPPED, 1)
    # What was said before is still being answered: that is no answer to this.
    member, commands = step(member, told(Kind.RUN, State.HEALTHY, assignment=SECOND))
    assert (state(member), commands) == ((State.STOPPED, 1), ())
    member, commands = step(member, told(Kind.WAIT, State.STOPPED))
    assert commands == (End(EXIT_TERMINATED),)


@pytest.mark.parametrize(
    ("events", "code"),
    [
        pytest.param((Signalled(), Told(Directive(), State.STOPPED)), EXIT_TERMINATED, id="before its first round"),
        pytest.param((run(), Signalled(), Gone(), Abandoned()), EXIT_TERMINATED, id="nobody takes its last word"),
        pytest.param((run(), Signalled(), Gone(), Signalled()), EXIT_TERMINATED, id="asked twice it waits for nobody"),
        pytest.param((*SUCCEEDED, Signalled(), told(Kind.WAIT, State.SUCCEEDED)), 0, id="after its success"),
        pytest.param((*FAILED, Signalled(), told(Kind.WAIT, State.STOPPED)), 3, id="after its failure"),
        pytest.param((told(Kind.FINISH, exit_code=0),), 0, id="the gang has succeeded"),
        pytest.param((*SUCCEEDED, told(Kind.FINISH, exit_code=0)), 0, id="it has succeeded with the gang"),
        pytest.param((*SUCCEEDED, told(Kind.FINISH, exit_code=1)), 1, id="the gang has failed in spite of it"),
        pytest.param((run(), told(Kind.FINISH, exit_code=1), Gone()), 1, id="another member ended the gang"),
        pytest.param((*FAILED, told(Kind.FINISH, exit_code=1)), 3, id="its own worker's code goes before"),
        pytest.param((run(), Gone(KILLED), told(Kind.FINISH, exit_code=1)), 137, id="a signal is told as a shell does"),
        pytest.param((run(), told(Kind.LEAVE, exit_code=0), Gone()), 0, id="told to leave"),
        pytest.param((Refused("no"),), EXIT_REFUSED, id="refused"),
        pytest.param((run(), Refused("no"), Gone()), EXIT_REFUSED, id="refused while it runs"),
    ],
)
def test_how_an_agent_ends(events: tuple[Event, ...], code: int) -> None:
    member, led = live(*events)
    assert led[-1] == (End(code),)
    assert not any(isinstance(command, End) for commands in led[:-1] for command in commands)
    assert step(member, run(SECOND)) == (member, ())


@pytest.mark.row("T4", level="pure")
def test_T4_a_closed_rendezvous_stops_what_still_runs_before_the_agent_ends() -> None:
    _, led = live(run(), told(Kind.FINISH, exit_code=1, grace=5.0))
    assert led[-1] == (Stop(5.0),)


def test_a_second_signal_kills_at_once() -> None:
    _, led = live(run(), Signalled(), Signalled())
    assert led[-1] == (Stop(0.0),)


@pytest.mark.row("T12", level="pure")
def test_T12_what_survives_KILL_is_unknown_until_it_is_gone() -> None:
    member, _ = live(run(), REJOIN, Stuck())
    assert state(member) == (State.UNKNOWN, 1)
    assert state(step(member, Gone())[0]) == (State.INIT, 1)
    assert state(live(run(), Stuck())[0]) == (State.HEALTHY, 1)


def test_a_keeper_that_was_killed_is_a_failure_of_its_member() -> None:
    member, _ = live(run(), Gone(KILLED))
    assert state(member) == (State.FAILED, 1)
    assert member.report().failures == (KILLED,)


EVENTS = st.sampled_from(
    [
        run(),
        run(SECOND),
        run(replace(PLACE, round=3)),
        WAIT,
        REJOIN,
        told(Kind.LEAVE),
        told(Kind.FINISH, exit_code=1),
        told(Kind.WAIT, State.STOPPED),
        Ended(0),
        Ended(1),
        Ended(1, CRASH),
        Ended(0, KILLED, asked=True),
        Gone(),
        Stuck(),
        Signalled(),
        Abandoned(),
    ]
)


@given(st.lists(EVENTS, max_size=20))
def test_two_rounds_never_run_at_once_and_nothing_runs_after_the_end(events: list[Event]) -> None:
    member, alive, ended = Member(), False, False
    for event in events:
        if isinstance(event, Gone | Ended) and not alive:
            continue  # there is nobody it could have happened to
        if isinstance(event, Gone):
            alive = False
        member, commands = step(member, event)
        for command in commands:
            assert not ended
            match command:
                case Start():
                    assert not alive
                    assert not member.signalled
                    alive = True
                case Stop():
                    assert alive
                case End():
                    assert not alive
                    ended = True
        assert alive == (member.crew is not Crew.NONE)
        report = member.report()
        # What the wire refuses: a failure is named with FAILED, and with nothing else.
        assert (report.state is State.FAILED) == bool(report.failures)
        assert report.round or report.state in {State.INIT, State.STOPPED}
