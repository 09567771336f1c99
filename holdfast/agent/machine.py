"""What a member does with its workers, given what it is told and what becomes of them: pure, no clock and no process.

A member goes from joining (nothing runs) to running, stopping, and from there to joining again, to an outcome that it
tells until somebody says what comes of it, or to its end. Directives are levels: the one that stands is followed from
wherever the member is, and saying it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from holdfast.agent.messages import Assignment, Directive, Failure, Kind, Report, State

EXIT_TERMINATED: Final = 143
"""As a shell has it for SIGTERM: the agent was told to end before its workers were done."""
EXIT_REFUSED: Final = 2
UNTOLD: Final = Directive()
"""What stands until the first answer: leave things as they are."""


class Crew(Enum):
    """What there is of workers."""

    NONE = "none"
    RUNNING = "running"
    STOPPING = "stopping"


# What happens to a member.


@dataclass(frozen=True, slots=True)
class Told:
    """The rendezvous answered: the directive that stands, and the state it answered to."""

    directive: Directive
    said: State


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker has ended; `failure` says how, if badly; `asked` whether the workers had been told to stop by then."""

    local_rank: int
    failure: Failure | None = None
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """No process of the round is left; `failure` stands for one that took all workers with it."""

    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Stuck:
    """What was killed is still there: nobody can tell what it does."""


@dataclass(frozen=True, slots=True)
class Signalled:
    """The agent itself was told to end."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The rendezvous will have nothing to do with this agent."""

    why: str


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Nobody has taken the member's last word, and there is no more time to say it."""


Event = Told | Ended | Gone | Stuck | Signalled | Refused | Abandoned

# What is to be done about it.


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
    """What is true of a member; only `step` makes a new one.

    Attributes:
        crew: What there is of its workers.
        place: The round they were last started for.
        unfinished: Local ranks of those that have not ended with 0 of their own accord.
        failures: Those that ended badly in that round without being asked to.
        outcome: What has come of the round, once nothing of it runs.
        stuck: Whether there are processes that not even KILL ends.
        directive: What it was last told.
        signalled: Whether the agent itself is to end.
        refused: Why the rendezvous will have nothing to do with it, if so.
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
        """Return what the rendezvous is to know.

        A failure is said at once, while the member still stops its other workers: who is charged is judged by it
        (row D42). Of what stops for another reason, it is HEALTHY until nothing of the round runs.
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
    """Return the member after the event, and what is to be done, in order."""
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
            # Whoever says it twice means it.
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
    """A member that was told to end does so once its last word is known: that it leaves, or that it has succeeded."""
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
        # One that failed takes the others with it; and what all have left behind is no part of the next round.
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
    """Do what the directive that stands asks of a member that is where this one is."""
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
    """Return the round that the directive asks for, if it is none that this member has run, or runs."""
    place = member.directive.assignment
    return place if place and (member.place is None or place.round > member.place.round) else None


def _forgetful(member: Member, outcome: State) -> Member:
    """What went wrong in a round that is past is nobody's concern, but of the exit code of one that leaves."""
    failures = member.failures if outcome is State.STOPPED else ()
    return replace(member, outcome=outcome, failures=failures)


def _exit_code(member: Member) -> int:
    """Its own workers' failure goes before what it was told, and that before the signal that ended it."""
    if member.failures:
        return member.failures[0].exit_code()
    if member.refused:
        return EXIT_REFUSED
    if member.directive.kind in {Kind.LEAVE, Kind.FINISH}:
        return member.directive.exit_code
    return 0 if member.outcome is State.SUCCEEDED else EXIT_TERMINATED


def _in_order(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """Of failures seen together the earliest decides, ties by rank."""
    return tuple(sorted(failures, key=lambda failure: (failure.at, failure.local_rank)))
