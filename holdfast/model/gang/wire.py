"""The wire between a member's agent and its gang's rendezvous: what an agent says, what it is to do (rows T1-T13).

One exchange: an agent posts an `Announcement`, the whole of what is true of it now, and is answered by a `Directive`,
the whole of what it is to do now. Both are levels, not edges: either may be lost, repeated or answered by another
process, and the next one says it all again. Decision record 0030.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from holdfast import names
from holdfast.model.base import Duration, Time
from holdfast.model.observation import Payload

PROTOCOL: Final = 1
"""What is spoken here. Unknown fields are ignored, so that only a change of meaning raises it."""
MEMBER_MAXIMUM: Final = 253
FAILURES_MAXIMUM: Final = 4
"""Workers of one member whose failures are told, the earliest first."""
ERROR_MAXIMUM: Final = 1024
"""Characters of what a worker says of its failure: they are kept in history."""
LOCAL_MAXIMUM: Final = 1024
EXIT_AGAIN: Final = 75
"""The exit code of an agent that is to leave while its index is wanted: its Job makes the pod again (`EX_TEMPFAIL`)."""
WAIT_MAXIMUM: Final = timedelta(seconds=30)
"""For how long an announcement may ask to be held until there is something new."""

Short = Annotated[str, Field(max_length=256)]
_MEMBER = names.DNS_SUBDOMAIN.pattern.replace(r"\Z", "$")
"""As pydantic and JSON schemas write an end that no newline may follow."""
Member = Annotated[str, Field(min_length=1, max_length=MEMBER_MAXIMUM, pattern=_MEMBER)]


class MemberState(StrEnum):
    """What an agent's workers are doing; the names are torchelastic's where it has one."""

    INIT = "INIT"
    """None runs, and it would join the next round: at its beginning, and after it was told to rejoin."""
    HEALTHY = "HEALTHY"
    """All run that its round asked for; and that, said again within the keep-alive, is the heartbeat."""
    SUCCEEDED = "SUCCEEDED"
    """All have ended with 0."""
    FAILED = "FAILED"
    """One has ended badly. It is said at once: the others of this member are stopped, or `stopping` (row D42)."""
    STOPPED = "STOPPED"
    """All have been stopped because the agent itself was told to end (SIGTERM): it leaves (row T13)."""
    UNKNOWN = "UNKNOWN"
    """The agent cannot tell. Nothing is done, and nothing is charged (row T12)."""


class WorkerFailure(Payload):
    """How one worker ended badly."""

    local_rank: Annotated[int, Field(ge=0, lt=LOCAL_MAXIMUM)]
    exit_code: Annotated[int, Field(ge=0, le=255)] | None = None
    """None where a signal ended it, or where it could not be started."""
    signal: Annotated[int, Field(ge=1, le=64)] | None = None
    error: Annotated[str, Field(max_length=ERROR_MAXIMUM)] = ""
    """The message of the error file the worker wrote (`TORCHELASTIC_ERROR_FILE`), or what the agent says of it."""
    at: Time

    @model_validator(mode="after")
    def _is_a_failure(self) -> Self:
        if self.exit_code == 0:
            raise ValueError("exitCode: 0: a worker that ended with 0 has not failed")
        if self.exit_code is not None and self.signal is not None:
            raise ValueError(f"signal: {self.signal}: expected none beside exit code {self.exit_code}")
        return self


def bounded(text: str, at_most: int = ERROR_MAXIMUM) -> str:
    """Return the text as it may be told: its end, where it is too long, since there a traceback says what it was."""
    return text if len(text) <= at_most else "…" + text[1 - at_most :]


class Join(Payload):
    """Who a member is. What a token proves (pod, namespace) is not taken from here (decision record 0030)."""

    member: Member
    """Its place in the gang, to which failures are charged: it outlives the pod that holds it (the pod's name)."""
    pod_uid: Annotated[str, Field(min_length=1, max_length=63)]
    attempt: Annotated[int, Field(ge=1)]
    """Of the workload; an agent of another one is told to leave."""
    incarnation: Annotated[str, Field(min_length=1, max_length=63)]
    """Made up anew by each agent process."""
    started_at: Time
    """When that process began. Of two incarnations of one member the later one is it, the other is told to leave: by
    `life`, and by this where that is the same."""
    node: Short = ""
    role: Annotated[str, Field(min_length=1, max_length=63)] = "default"
    local_world_size: Annotated[int, Field(ge=1, le=LOCAL_MAXIMUM)] = 1
    """How many workers it starts (`--nproc-per-node`)."""
    address: Annotated[str, Field(min_length=1, max_length=MEMBER_MAXIMUM)]
    """Where the other members reach it."""
    port: Annotated[int, Field(ge=1, le=65535)]
    """A port that is free there now, should it become the coordinator; another one after each round."""
    life: Annotated[int, Field(ge=0, exclude_if=lambda value: not value)] = 0
    """The how-manieth agent of its member this is, as the hub has seen them come; agents do not say it (row D56)."""
    index: Annotated[int | None, Field(ge=0, exclude_if=lambda value: value is None)] = None
    """The pod's completion index in its Indexed Job. The hub sets it from the pod; agents do not say it (row D39)."""


class Report(Payload):
    """What a member's workers are doing."""

    state: MemberState
    round: Annotated[int, Field(ge=0)] = 0
    """The round they were started for; 0: none yet. What is said of a round that is past changes nothing."""
    failures: Annotated[tuple[WorkerFailure, ...], Field(max_length=FAILURES_MAXIMUM)] = ()
    """With FAILED alone, the earliest first."""
    since: Time
    """When this state began, by the agent's clock: told, never compared with another machine's."""
    stopping: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """With FAILED: other workers of the member are still being stopped. Once none is left it says INIT."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        failed = self.state is MemberState.FAILED
        if failed and not self.failures:
            raise ValueError("failures: missing: FAILED names at least one worker that failed")
        if self.failures and not failed:
            raise ValueError(f"failures: {len(self.failures)}: expected none in state {self.state.value}")
        ran = self.state in {MemberState.HEALTHY, MemberState.SUCCEEDED, MemberState.FAILED}
        if ran and not self.round:
            raise ValueError(f"round: 0: expected the round whose workers are {self.state.value}")
        return self


class Announcement(Payload):
    """What an agent posts: as soon as anything of it changes, and else as often as the last directive said."""

    protocol: int = PROTOCOL
    join: Join
    report: Report
    sent: Time | None = None
    """When it was posted, by the agent's clock: by it the hub corrects the times of failures (row D43)."""
    seen: Annotated[int, Field(ge=0)] = 0
    """The revision of the last directive it has acted on; 0: none."""
    wait: Annotated[Duration, Field(le=WAIT_MAXIMUM)] = timedelta(0)
    """How long the answer may be held back until there is a directive of another revision; 0s: it is given at once."""


class Coordinator(Payload):
    """Where the workers of a round meet: at the member of group rank 0."""

    address: str
    port: int


class Assignment(Payload):
    """A member's place in a round. Ranks are contiguous, and another round gives others (row T11)."""

    run_id: str
    """Of the gang: the workload's uid and its attempt."""
    round: Annotated[int, Field(ge=1)]
    group_rank: Annotated[int, Field(ge=0)]
    group_world_size: Annotated[int, Field(ge=1)]
    """Members."""
    rank: Annotated[int, Field(ge=0)]
    """Of the member's first worker: worker i of it has `rank + i`."""
    world_size: Annotated[int, Field(ge=1)]
    """Workers."""
    local_world_size: Annotated[int, Field(ge=1)]
    role: str
    role_rank: Annotated[int, Field(ge=0)]
    """Of the member's first worker, among the workers of its role."""
    role_world_size: Annotated[int, Field(ge=1)]
    coordinator: Coordinator
    restarts: Annotated[int, Field(ge=0)]
    """What was charged to this member; `TORCHELASTIC_RESTART_COUNT`."""
    max_restarts: Annotated[int, Field(ge=0)]


class DirectiveKind(StrEnum):
    """What a member is to do."""

    WAIT = "Wait"
    """No round yet, no place in it, the finalization barrier, or nobody knows: what runs, runs on."""
    RUN = "Run"
    """Run the workers of the assignment's round, those of another one stopped first; while they run, or once they have
    ended, it changes nothing."""
    REJOIN = "Rejoin"
    """Stop the workers (TERM, the grace, KILL to the process group), then announce INIT."""
    LEAVE = "Leave"
    """Stop the workers and end: it is no member any more, while the gang goes on."""
    FINISH = "Finish"
    """Stop what still runs and end: the rendezvous is closed."""


class CloseReason(StrEnum):
    """Why a rendezvous is closed; torchelastic's words where it has them."""

    SUCCEEDED = "succeeded"
    RESTARTS_EXHAUSTED = "max_restarts_exhausted"
    EXIT_BARRIER_TIMEOUT = "exit_barrier_timeout"
    JOIN_TIMEOUT = "join_timeout"
    ROUNDS_EXHAUSTED = "max_rounds_exhausted"
    MEMBER_LOST = "member_lost"
    """A member was lost that no new round makes good: the workload's own budget decides (row T9)."""
    MEMBER_FAILED = "member_failed"
    """One failed after another had succeeded: there is no new round then (row T10)."""
    ENDED = "ended"
    """The workload's attempt ends, for reasons of its own."""


class Directive(Payload):
    """What a member is to do now. It stands until another one comes, for as long as nobody answers too."""

    protocol: int = PROTOCOL
    revision: Annotated[int, Field(ge=0)]
    """Another one with every other content; told back in `Announcement.seen`."""
    kind: DirectiveKind
    assignment: Assignment | None = None
    """With Run alone."""
    reason: CloseReason | None = None
    """With Finish alone."""
    exit_code: Annotated[int, Field(ge=0, le=255)] = 0
    """With Leave and Finish: what the agent ends with; where its own workers failed, theirs goes before it.

    Leave has 0 only where the member's index is not wanted any more, or has succeeded: its Job never makes a pod again
    for an index that ended with 0 (row D39).
    """
    why: str = ""
    """In words, for the agent's log."""
    deadline: datetime | None = None
    """When something else will be said at the latest (last call, join timeout, barrier); told, never acted upon."""
    grace: Duration = timedelta(seconds=30)
    """From TERM to KILL (row T13)."""
    heartbeat: Duration = timedelta(seconds=5)
    """How often to announce when nothing changes."""
    ask: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Announce again at once: another member has failed, and what belongs together is to be told together."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if (self.kind is DirectiveKind.RUN) != (self.assignment is not None):
            raise ValueError(f"assignment: expected with Run, and with nothing else; found {self.kind.value}")
        if (self.kind is DirectiveKind.FINISH) != (self.reason is not None):
            raise ValueError(f"reason: expected with Finish, and with nothing else; found {self.kind.value}")
        return self


class Refusal(Payload):
    """The answer to an announcement that is not accepted, with one of the statuses below."""

    error: str
    """What was expected, what was found, what to do."""


PATH: Final = "/rendezvous/v1/{workload}/announce"
"""POST, `Authorization: Bearer TOKEN`, an Announcement as JSON; 200 with a Directive, or a Refusal."""
STATUS_MALFORMED: Final = 400
"""No such message: the agent ends, with words."""
STATUS_UNPROVEN: Final = 401
"""The token is not accepted: read the file again, it is renewed there; then go on trying."""
STATUS_FOREIGN: Final = 403
"""The pod the token proves is not of this workload, or not the one that it says it is: the agent ends, with words."""
STATUS_ELSEWHERE: Final = 421
"""Another process serves this gang: try the next address that the host's name stands for."""
STATUS_LATER: Final = 503
"""Nobody knows yet: go on as before, and announce again."""
