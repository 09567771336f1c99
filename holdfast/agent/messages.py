"""The messages of an agent: `holdfast.model.gang.wire`, written with the standard library alone.

The models there are the contract (decision record 0030), and a test checks this file against them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

PROTOCOL: Final = 1
FAILURES_MAXIMUM: Final = 4
ERROR_MAXIMUM: Final = 1024

_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ms|d|h|m|s)")
_SECONDS: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class NotUnderstood(Exception):
    """The answer of the rendezvous is not a directive."""


class State(Enum):
    """The state of an agent's workers, as written on the wire."""

    INIT = "INIT"
    HEALTHY = "HEALTHY"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    UNKNOWN = "UNKNOWN"


class Kind(Enum):
    """The kind of a directive."""

    WAIT = "Wait"
    RUN = "Run"
    REJOIN = "Rejoin"
    LEAVE = "Leave"
    FINISH = "Finish"


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of one worker. `code` is its exit code, or minus the signal that ended it."""

    local_rank: int
    code: int
    at: float
    """Seconds since the epoch."""
    error: str = ""

    def exit_code(self) -> int:
        """Return the agent's exit code after this failure; for a signal, 128 plus its number, as in a shell."""
        return self.code if self.code > 0 else 128 - self.code

    def wire(self) -> dict[str, Any]:
        """Return the failure in its wire format."""
        ended = {"exitCode": self.code} if self.code > 0 else {"signal": -self.code}
        return {"localRank": self.local_rank, **ended, "error": bounded(self.error), "at": instant(self.at)}


@dataclass(frozen=True, slots=True)
class Assignment:
    """A member's place in a round; the ranks are those of its first worker."""

    run_id: str
    round: int
    group_rank: int
    group_world_size: int
    rank: int
    world_size: int
    local_world_size: int
    role: str
    role_rank: int
    role_world_size: int
    master_address: str
    master_port: int
    restarts: int
    max_restarts: int

    @classmethod
    def read(cls, wire: Mapping[str, Any]) -> Assignment:
        """Read an assignment from the wire.

        Raises:
            KeyError, TypeError, ValueError: if it is not an assignment.
        """
        numbers = {
            name: int(wire[key])
            for name, key in (
                ("round", "round"),
                ("group_rank", "groupRank"),
                ("group_world_size", "groupWorldSize"),
                ("rank", "rank"),
                ("world_size", "worldSize"),
                ("local_world_size", "localWorldSize"),
                ("role_rank", "roleRank"),
                ("role_world_size", "roleWorldSize"),
                ("restarts", "restarts"),
                ("max_restarts", "maxRestarts"),
            )
        }
        master = wire["coordinator"]
        return cls(
            run_id=str(wire["runId"]),
            role=str(wire["role"]),
            master_address=str(master["address"]),
            master_port=int(master["port"]),
            **numbers,
        )


@dataclass(frozen=True, slots=True)
class Directive:
    """What a member must do now; it applies until the next directive."""

    kind: Kind = Kind.WAIT
    revision: int = 0
    assignment: Assignment | None = None
    exit_code: int = 0
    why: str = ""
    grace: float = 30.0
    """Seconds from TERM to KILL (row T13)."""
    heartbeat: float = 5.0
    """Seconds between announcements when nothing changes."""
    ask: bool = False
    """Whether to announce again at once, because another member has failed."""

    @classmethod
    def read(cls, wire: Any) -> Directive:
        """Read a directive from the wire.

        Raises:
            NotUnderstood: if it is not a directive, or contains something that this agent does not know.
        """
        try:
            if int(wire.get("protocol", PROTOCOL)) > PROTOCOL:
                raise NotUnderstood(f"protocol {wire['protocol']}: expected at most {PROTOCOL}; use a newer agent")
            kind = Kind(wire["kind"])
            return cls(
                kind=kind,
                revision=int(wire["revision"]),
                assignment=Assignment.read(wire["assignment"]) if kind is Kind.RUN else None,
                exit_code=int(wire.get("exitCode", 0)),
                why=str(wire.get("why", "")),
                grace=seconds(wire.get("grace", "30s")),
                heartbeat=seconds(wire.get("heartbeat", "5s")),
                ask=bool(wire.get("ask", False)),
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise NotUnderstood(f"not a directive: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class Report:
    """The state of a member's workers."""

    state: State
    round: int = 0
    failures: tuple[Failure, ...] = field(default=())
    stopping: bool = False
    """With FAILED: the member's other workers are still being stopped."""

    def wire(self, since: float) -> dict[str, Any]:
        """Return the report in its wire format, with its start in seconds since the epoch."""
        failures = sorted(self.failures, key=lambda failure: failure.at)[:FAILURES_MAXIMUM]
        return {
            "state": self.state.value,
            "round": self.round,
            "failures": [failure.wire() for failure in failures],
            "since": instant(since),
            **({"stopping": True} if self.stopping else {}),
        }


def bounded(text: str, at_most: int = ERROR_MAXIMUM) -> str:
    """Return the text, shortened to its end if it is too long: a traceback names the error at its end."""
    text = text.encode(errors="replace").decode()
    return text if len(text) <= at_most else "…" + text[1 - at_most :]


def instant(at: float) -> str:
    """Return a time, given in seconds since the epoch, in its wire format."""
    return datetime.fromtimestamp(at, UTC).isoformat()


def seconds(text: str) -> float:
    """Read a duration such as `90s`, `1m30s` or `0`.

    Raises:
        ValueError: if the text is not a duration.
    """
    if text.strip() == "0":
        return 0.0
    if not text or _DURATION_PART.sub("", text):
        raise ValueError(f"{text!r} is not a duration")
    span = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text))
    if not math.isfinite(span):
        raise ValueError(f"{text[:20]!r}… is longer than any duration")
    return span
