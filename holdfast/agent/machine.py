"""The state machine of a member: decides what to do with its workers. Pure: no clock and no process.

A member goes from joining (nothing runs) to running and stopping. From there it joins again, reports an outcome until
the rendezvous responds with a directive, or ends. Directives are levels: the member follows the current one from any
state, and a repeated directive changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from holdfast.agent import EXIT_REFUSED
from holdfast.agent.messages import Assignment, Directive, Failure, Kind, Report, State

EXIT_TERMINATED: Final = 143
"""The exit code of a shell for SIGTERM: the agent received a signal before its workers were done."""
UNTOLD: Final = Directive()
"""The directive until the first answer: change nothing."""


class Crew(Enum):
    """The state of a member's workers."""

    NONE = "none"
    RUNNING = "running"
    STOPPING = "stopping"


# Events of a member.


@dataclass(frozen=True, slots=True)
class Told:
    """The rendezvous answered: the current directive, and the state that it answered."""

    directive: Directive
    said: State


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker has ended; `failure` is set if it failed; `asked` tells whether the workers had been told to stop."""

    local_rank: int
    failure: Failure | None = None
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """No process of the round is left; `failure` is set if one failure ended all workers."""

    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Stuck:
    """Processes still exist after KILL; their state is unknown."""


@dataclass(frozen=True, slots=True)
class Signalled:
    """The agent itself received a signal to end."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The rendezvous has refused this agent for good."""

    why: str


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The time to announce the member's final state is over, and the rendezvous has not answered it."""


Event = Told | Ended | Gone | Stuck | Signalled | Refused | Abandoned

# Commands for the agent.


@dataclass(frozen=True, slots=True)
class Start:
    """Start the workers of a round."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the workers: TERM, and KILL after `grace` seconds."""

    grace: float


@dataclass(frozen=True, slots=True)
class End:
    """End the agent."""

    code: int


Command = Start | Stop | End


@dataclass(frozen=True, slots=True)
class Member:
    """The state of a member; only `step` creates a new one.

    Attributes:
        crew: The state of its workers.
        place: The round for which they were last started.
        unfinished: Local ranks of workers that have not exited with 0 by themselves.
        failures: Failures of workers in that round that were not asked to stop.
        outcome: The result of the round, once none of its processes run.
        stuck: Whether processes remain that KILL does not end.
        directive: The last directive.
        signalled: Whether the agent itself received a signal to end.
        refused: Why the rendezvous refused it for good; empty if it did not.
        ended: The exit code, once there is nothing left to do.
    """

    crew: Crew = Crew.NONE
    place: Assignment | None = None
    unfinished: frozenset[int] = frozenset()
    failures: tuple[Failure, ...] = ()
    outcome: State = State.INIT
    stuck: bool = False
    directive: Directive = UNTOLD
    signalled: bool = False
    refused: str = ""
    ended: int | None = None

    def report(self) -> Report:
        """Return the report for the rendezvous.

        It reports a failure at once, while the member still stops its other workers: the charge depends on it
        (row D42). A member that stops for another reason is HEALTHY until no process of the round runs.
        """
        number = self.place.round if self.place else 0
        if self.stuck:
            return Report(State.UNKNOWN, number)
        if self.failures and (self.crew is not Crew.NONE or self.outcome is State.FAILED):
            return Report(State.FAILED, number, self.failures, stopping=self.crew is not Crew.NONE)
        if self.crew is not Crew.NONE:
            return Report(State.HEALTHY, number)
        return Report(self.outcome, number)


def step(member: Member, event: Event) -> tuple[Member, tuple[Command, ...]]:
    """Return the member after the event, and the commands to run, in order."""
    if member.ended is not None:
        return member, ()
    taken, commands = _take(member, event)
    followed, more = _follow(taken)
    return followed, (*commands, *more)


def _take(member: Member, event: Event) -> tuple[Member, tuple[Command, ...]]:
    match event:
        case Told():
            told = replace(member, directive=event.directive)
            return _heard(told, event.said), ()
        case Ended():
            return _one_less(member, event)
        case Gone():
            return _none_left(member, event), ()
        case Stuck():
            return (replace(member, stuck=True) if member.crew is Crew.STOPPING else member), ()
        case Signalled() if member.signalled:
            # A second signal stops the workers, or ends the agent, at once.
            if member.crew is not Crew.NONE:
                return member, (Stop(0.0),)
            return replace(member, ended=_exit_code(member)), ()
        case Signalled():
            return replace(member, signalled=True), ()
        case Refused():
            return replace(member, refused=event.why), ()
        case Abandoned():
            return _heard(member, member.outcome), ()


def _heard(member: Member, said: State) -> Member:
    """End a member that was signalled once the rendezvous knows its final state: STOPPED or SUCCEEDED."""
    last = member.crew is Crew.NONE and member.outcome in {State.STOPPED, State.SUCCEEDED} and said is member.outcome
    return replace(member, ended=_exit_code(member)) if last and member.signalled else member


def _one_less(member: Member, event: Ended) -> tuple[Member, tuple[Command, ...]]:
    if member.crew is Crew.NONE or event.asked:
        return member, ()
    if event.failure:
        left = replace(member, failures=_in_order((*member.failures, event.failure)))
    else:
        left = replace(member, unfinished=member.unfinished - {event.local_rank})
    if left.crew is Crew.RUNNING and (left.failures or not left.unfinished):
        # One failure stops the other workers. After success, too, leftover processes must not reach the next round.
        return replace(left, crew=Crew.STOPPING), (Stop(left.directive.grace),)
    return left, ()


def _none_left(member: Member, event: Gone) -> Member:
    if member.crew is Crew.NONE:
        return member
    failures = _in_order((*member.failures, event.failure)) if event.failure else member.failures
    if failures:
        outcome = State.FAILED
    elif not member.unfinished:
        outcome = State.SUCCEEDED
    else:
        outcome = State.INIT
    return replace(member, crew=Crew.NONE, failures=failures, outcome=outcome, stuck=False)


def _follow(member: Member) -> tuple[Member, tuple[Command, ...]]:
    """Follow the current directive from the member's current state."""
    if member.ended is not None:
        return member, (End(member.ended),)
    told = member.directive
    leaves = bool(member.refused) or told.kind in {Kind.LEAVE, Kind.FINISH}
    follows = _next_round(member)
    if member.crew is Crew.RUNNING:
        if leaves or member.signalled or told.kind is Kind.REJOIN or follows:
            return replace(member, crew=Crew.STOPPING), (Stop(told.grace),)
        return member, ()
    if member.crew is Crew.STOPPING:
        return member, ()
    if leaves:
        code = _exit_code(member)
        return replace(member, ended=code), (End(code),)
    if member.signalled:
        return _forgetful(member, State.STOPPED) if member.outcome is not State.SUCCEEDED else member, ()
    if told.kind is Kind.REJOIN:
        return _forgetful(member, State.INIT), ()
    if follows:
        started = replace(
            _forgetful(member, State.INIT),
            crew=Crew.RUNNING,
            place=follows,
            unfinished=frozenset(range(follows.local_world_size)),
        )
        return started, (Start(follows),)
    return member, ()


def _next_round(member: Member) -> Assignment | None:
    """Return the round that the directive assigns, if it is later than the last one of this member."""
    place = member.directive.assignment
    return place if place and (member.place is None or place.round > member.place.round) else None


def _forgetful(member: Member, outcome: State) -> Member:
    """Forget the failures of a past round, except for a member that leaves: its exit code depends on them."""
    failures = member.failures if outcome is State.STOPPED else ()
    return replace(member, outcome=outcome, failures=failures)


def _exit_code(member: Member) -> int:
    """Return the exit code: a failure of its own workers comes first, then a refusal or directive, then the signal."""
    if member.failures:
        return member.failures[0].exit_code()
    if member.refused:
        return EXIT_REFUSED
    if member.directive.kind in {Kind.LEAVE, Kind.FINISH}:
        return member.directive.exit_code
    return 0 if member.outcome is State.SUCCEEDED else EXIT_TERMINATED


def _in_order(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """Sort failures by time, then by rank: the earliest decides."""
    return tuple(sorted(failures, key=lambda failure: (failure.at, failure.local_rank)))
