"""The wire between a member's agent and its gang's rendezvous: announcements and directives (rows T1-T13).

In one exchange an agent posts an `Announcement`, its complete current state, and receives a `Directive`, its complete
current order. Both are levels, not edges: either may be lost, repeated or answered by another process, and the next one
contains everything again. Decision record 0030.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from holdfast import names
from holdfast.model.base import Duration, Time
from holdfast.model.gang.status import CloseReason
from holdfast.model.observation import Payload

PROTOCOL: Final = 1
"""The version of this protocol. Unknown fields are ignored, so only a change of meaning raises it."""
MEMBER_MAXIMUM: Final = 253
FAILURES_MAXIMUM: Final = 4
"""How many failed workers of one member are reported, the earliest first."""
ERROR_MAXIMUM: Final = 1024
"""The characters of a worker's error message, which is kept in history."""
LOCAL_MAXIMUM: Final = 1024
EXIT_AGAIN: Final = 75
"""The exit code of an agent that must leave while its index is wanted: its Job recreates the pod (`EX_TEMPFAIL`)."""
WAIT_MAXIMUM: Final = timedelta(seconds=30)
"""The longest time for which an announcement may ask to be held until there is news."""

Short = Annotated[str, Field(max_length=256)]
_MEMBER = names.DNS_SUBDOMAIN.pattern.replace(r"\Z", "$")
"""The pattern with the end marker of pydantic and JSON schemas, which allows no newline after it."""
Member = Annotated[str, Field(min_length=1, max_length=MEMBER_MAXIMUM, pattern=_MEMBER)]


class MemberState(StrEnum):
    """The state of an agent's workers; the names are torchelastic's where it has one."""

    INIT = "INIT"
    """No worker runs, and the agent would join the next round: at its start, and after it was told to rejoin."""
    HEALTHY = "HEALTHY"
    """All workers of its round run; this state, repeated within the keep-alive, is the heartbeat."""
    SUCCEEDED = "SUCCEEDED"
    """All workers have ended with 0."""
    FAILED = "FAILED"
    """A worker has failed. It is reported at once: the others of this member are stopped, or `stopping` (row D42)."""
    STOPPED = "STOPPED"
    """All workers have been stopped because the agent itself was told to end (SIGTERM): it leaves (row T13)."""
    UNKNOWN = "UNKNOWN"
    """The agent cannot tell. Nothing is done, and nothing is charged (row T12)."""


ROUND_MAXIMUM: Final = 2**53
"""The highest number of a round or of a directive that is read: a pod may claim any."""


class WorkerFailure(Payload):
    """How one worker failed."""

    local_rank: Annotated[int, Field(ge=0, lt=LOCAL_MAXIMUM)]
    exit_code: Annotated[int, Field(ge=0, le=255)] | None = None
    """None if a signal ended it, or if it could not be started."""
    signal: Annotated[int, Field(ge=1, le=64)] | None = None
    error: Annotated[str, Field(max_length=ERROR_MAXIMUM)] = ""
    """The message of the error file the worker wrote (`TORCHELASTIC_ERROR_FILE`), or the agent's description."""
    at: Time

    @model_validator(mode="after")
    def _is_a_failure(self) -> Self:
        if self.exit_code == 0:
            raise ValueError("exitCode: 0: a worker that ended with 0 has not failed")
        if self.exit_code is not None and self.signal is not None:
            raise ValueError(f"signal: {self.signal}: expected none beside exit code {self.exit_code}")
        return self


def bounded(text: str, at_most: int = ERROR_MAXIMUM) -> str:
    """Return the text within the limit: its end, if it is too long, since a traceback names the error there."""
    return text if len(text) <= at_most else "…" + text[1 - at_most :]


class Join(Payload):
    """The identity of a member. The pod and the namespace come from the token, not from here (decision record 0030)."""

    member: Member
    """Its place in the gang, to which failures are charged: it outlives the pod that holds it (the pod's name)."""
    pod_uid: Annotated[str, Field(min_length=1, max_length=63)]
    attempt: Annotated[int, Field(ge=1)]
    """The workload's attempt; an agent of another one is told to leave."""
    incarnation: Annotated[str, Field(min_length=1, max_length=63)]
    """An id that is new for each agent process."""
    started_at: Time
    """When that process began. Of two incarnations of one member the later one is valid, the other is told to leave:
    `life` decides, or this time if `life` is equal."""
    node: Short = ""
    role: Annotated[str, Field(min_length=1, max_length=63)] = "default"
    local_world_size: Annotated[int, Field(ge=1, le=LOCAL_MAXIMUM)] = 1
    """How many workers it starts (`--nproc-per-node`)."""
    address: Annotated[str, Field(min_length=1, max_length=MEMBER_MAXIMUM)]
    """The address at which the other members reach it."""
    port: Annotated[int, Field(ge=1, le=65535)]
    """A port that is free there now, in case it becomes the coordinator; another one after each round."""
    life: Annotated[int, Field(ge=0, exclude_if=lambda value: not value)] = 0
    """The number of this agent among its member's agents, as the hub saw them come; agents do not set it (row D56)."""
    index: Annotated[int | None, Field(ge=0, exclude_if=lambda value: value is None)] = None
    """The pod's completion index in its Indexed Job. The hub sets it from the pod; agents do not (row D39)."""


class Report(Payload):
    """The state of a member's workers."""

    state: MemberState
    round: Annotated[int, Field(ge=0, le=ROUND_MAXIMUM)] = 0
    """The round for which they were started; 0: none yet. A report about a past round changes nothing."""
    failures: Annotated[tuple[WorkerFailure, ...], Field(max_length=FAILURES_MAXIMUM)] = ()
    """Only with FAILED; the earliest first."""
    since: Time
    """When this state began, by the agent's clock: shown, never compared with another machine's clock."""
    stopping: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """With FAILED: other workers of the member are still being stopped. Once none is left, the agent reports INIT."""

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
    """The post of an agent: as soon as its state changes, and otherwise at the heartbeat of the last directive."""

    protocol: int = PROTOCOL
    join: Join
    report: Report
    sent: Time | None = None
    """When it was posted, by the agent's clock: with it the hub corrects the times of failures (row D43)."""
    seen: Annotated[int, Field(ge=0, le=ROUND_MAXIMUM)] = 0
    """The revision of the last directive it has acted on; 0: none."""
    wait: Annotated[Duration, Field(le=WAIT_MAXIMUM)] = timedelta(0)
    """How long the answer may be held until there is a directive of another revision; 0s: it is sent at once."""


class Coordinator(Payload):
    """The address where the workers of a round meet: the member of group rank 0."""

    address: str
    port: int


class Assignment(Payload):
    """A member's place in a round. Ranks are contiguous, and change with each round (row T11)."""

    run_id: str
    """The id of the gang's run: the workload's uid and its attempt."""
    round: Annotated[int, Field(ge=1)]
    group_rank: Annotated[int, Field(ge=0)]
    group_world_size: Annotated[int, Field(ge=1)]
    """The number of members."""
    rank: Annotated[int, Field(ge=0)]
    """The rank of the member's first worker; its worker i has `rank + i`."""
    world_size: Annotated[int, Field(ge=1)]
    """The number of workers."""
    local_world_size: Annotated[int, Field(ge=1)]
    role: str
    role_rank: Annotated[int, Field(ge=0)]
    """The rank of the member's first worker among the workers of its role."""
    role_world_size: Annotated[int, Field(ge=1)]
    coordinator: Coordinator
    restarts: Annotated[int, Field(ge=0)]
    """The restarts charged to this member; `TORCHELASTIC_RESTART_COUNT`."""
    max_restarts: Annotated[int, Field(ge=0)]


class DirectiveKind(StrEnum):
    """The order for a member."""

    WAIT = "Wait"
    """No round yet, no place in it, the finalization barrier, or not known yet: running workers keep running."""
    RUN = "Run"
    """Run the workers of the assignment's round, after stopping those of another round. It changes nothing while they
    run, or once they have ended."""
    REJOIN = "Rejoin"
    """Stop the workers (TERM, the grace, KILL to the process group), then announce INIT."""
    LEAVE = "Leave"
    """Stop the workers and end: the agent is no longer a member, while the gang goes on."""
    FINISH = "Finish"
    """Stop what still runs and end: the rendezvous is closed."""


class Directive(Payload):
    """The current order for a member. It stays valid until another one arrives, also while no answer comes."""

    protocol: int = PROTOCOL
    revision: Annotated[int, Field(ge=0)]
    """It changes with every change of the content; the agent returns it in `Announcement.seen`."""
    kind: DirectiveKind
    assignment: Assignment | None = None
    """Only with Run."""
    reason: CloseReason | None = None
    """Only with Finish."""
    exit_code: Annotated[int, Field(ge=0, le=255)] = 0
    """With Leave and Finish: the agent's exit code; if its own workers failed, theirs takes precedence.

    Leave has 0 only if the member's index is no longer wanted, or has succeeded: its Job never recreates a pod for an
    index that ended with 0 (row D39).
    """
    why: str = ""
    """A text for the agent's log."""
    deadline: datetime | None = None
    """When the next directive follows at the latest (last call, join timeout, barrier); shown, never acted upon."""
    grace: Duration = timedelta(seconds=30)
    """The time from TERM to KILL (row T13)."""
    heartbeat: Duration = timedelta(seconds=5)
    """The interval of announcements while nothing changes."""
    ask: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Announce again at once: another member has failed, and related failures must be reported together."""

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
    """The expectation, the finding, and what to do."""


PATH: Final = "/rendezvous/v1/{workload}/announce"
"""POST an Announcement as JSON with `Authorization: Bearer TOKEN`; the answer is 200 with a Directive, or a Refusal."""
STATUS_MALFORMED: Final = 400
"""The message is malformed: the agent ends with an error text."""
STATUS_UNPROVEN: Final = 401
"""The token is not accepted: read its file again, where it is renewed, and keep trying."""
STATUS_FOREIGN: Final = 403
"""The token's pod is not of this workload, or not the claimed one: the agent ends with an error text."""
STATUS_ELSEWHERE: Final = 421
"""Another process serves this gang: try the next address of the host name."""
STATUS_LIMITED: Final = 429
"""Too many requests, with `Retry-After`: go on as before, and announce again later."""
STATUS_LATER: Final = 503
"""The answer is not known yet: go on as before, and announce again."""
