"""The status and the explanation, for people and programs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.model.base import Time
from holdfast.model.life.data import DataSet
from holdfast.model.life.facts import Barrier, Cause, Claims, ExcludedNode
from holdfast.model.life.report import Condition, CopyRestarts
from holdfast.model.observation import CopyCounts, Failure, Payload, PodCounts, Waiting
from holdfast.model.spec.checkpoint import CheckpointRequest, Saved
from holdfast.model.vocabulary import Phase, Reason


class BudgetStatus(Payload):
    """A budget and what is left of it."""

    name: str
    limit: int | None
    """None: no limit."""
    used: int
    """Of a budget that each member has for itself: by the member that has used most."""
    under_way: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """Restarts whose removal may have begun, and which are charged once it is known that it has (record 0086)."""

    def sentence(self) -> str:
        """Say how much is used: `restart 2 of 3`, or `restart 2 of 3, 1 under way`."""
        return f"{self.name} {self.share()}"

    def share(self) -> str:
        """Say how much is used, without its name: `2 of 3`."""
        limit = f" of {self.limit}" if self.limit is not None else ", no limit"
        return f"{self.used}{limit}" + (f", {self.under_way} under way" if self.under_way else "")

    def in_full(self) -> str:
        """Say how much is used, where nothing around it says what that is: `restart budget 2 of 3 used`."""
        limit = f" of {self.limit} used" if self.limit is not None else " used, no limit"
        more = f", {self.under_way} under way" if self.under_way else ""
        return f"{self.name} budget {self.used}{limit}{more}"


class Deadline(Payload):
    """The next time at which something happens without intervention, and what."""

    at: Time
    what: str

    def sentence(self) -> str:
        """Return what follows the time of a deadline: `failure grace ends (worker-0 exited 137)`."""
        name, _, cause = self.what.partition(": ")
        if not name.endswith(("grace", "pause")) and not name.startswith("wait in queue"):
            return self.what
        return f"{name} ends ({cause})" if cause else f"{name} ends"


class GangSize(Payload):
    """The wanted size of a workload's gang; the rendezvous has the state of its members."""

    min: int
    max: int
    spares: int = 0


class Status(Payload):
    """A workload's state for people and programs: answer of the query `status` and result of the workflow."""

    name: str
    namespace: str
    cluster: str
    uid: str
    phase: Phase
    reason: Reason
    message: str = ""
    since: Time
    attempt: int = 0
    executions: int = 0
    restarts: int = 0
    requeues: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """How often it was requeued: a requeue request must expect this number (row L25)."""
    submitted_at: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """When it was submitted, which no requeue changes (row L26)."""
    by: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """The user who submitted it, as verified by the API server; empty: unverified (row F13)."""
    sensitive: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it waits for a person after any loss, and longer for a silent node (rows L4, L7)."""
    walltime_until: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """When the walltime of its living attempt is over (row L18)."""
    budgets: tuple[BudgetStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()
    pods: PodCounts = PodCounts()
    waiting: Annotated[tuple[Waiting, ...], Field(exclude_if=lambda value: not value)] = ()
    """What the pods that do not run yet wait for."""
    copies: Annotated[dict[str, CopyCounts], Field(exclude_if=lambda value: not value)] = {}
    """The counts of each component that is made in copies."""
    copy_restarts: Annotated[dict[str, dict[int, CopyRestarts]], Field(exclude_if=lambda value: not value)] = {}
    """By component and index: the copies that were restarted alone (row J23)."""
    gang: Annotated[GangSize | None, Field(exclude_if=lambda value: value is None)] = None
    """The size of an elastic gang (rows T6, T8)."""
    next: Deadline | None = None
    later: Annotated[tuple[Deadline, ...], Field(exclude_if=lambda value: not value)] = ()
    """What follows `next`, as in its explanation."""
    unblock: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """As in its explanation."""
    avoided: tuple[ExcludedNode, ...] = ()
    """The nodes that its pods avoid or, while it has no pods, that its next pods will avoid."""
    failure: Failure | None = None
    """Why it failed, once it has."""
    checkpoint: Annotated[CheckpointRequest | None, Field(exclude_if=lambda value: value is None)] = None
    """The latest request to save its state, and its result."""
    saved: Annotated[Saved | None, Field(exclude_if=lambda value: value is None)] = None
    """The last complete checkpoint, from which the next attempt resumes."""
    steps: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """Where its steps stand and their bound, as last told; empty if they are not followed (row P1)."""
    data: Annotated[tuple[DataSet, ...], Field(exclude_if=lambda value: not value)] = ()
    """The versions of the data sets that it reads, once they are known."""
    claims: Annotated[Claims | None, Field(exclude_if=lambda value: value is None)] = None
    """Claims of its pods that outlived the last attempt that is gone: the next one mounts them (row D25)."""
    barrier: Annotated[Barrier | None, Field(exclude_if=lambda value: value is None)] = None
    """The barrier at which the pods of the living attempt wait, or have waited (row J24)."""
    resumed_from: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """The checkpoint from which the living attempt, or what was made again of it last, resumed."""
    causes: tuple[Cause, ...] = ()
    causes_total: int = 0

    def __str__(self) -> str:
        """Say it in one line, for a prompt and for logs (row E12)."""
        counts = ", ".join((self.pods.sentence(), f"attempt {self.attempt}", *(one.sentence() for one in self.budgets)))
        text = f"{self.namespace}/{self.name} {self.phase.value} ({self.reason.value}): {counts}"
        return f"{text}; {self.message}" if self.message else text

    def __repr__(self) -> str:
        return f"<Status {self}>"


class Explanation(Payload):
    """Why the workload is in its phase, and what comes next: answer of the query `explain`."""

    name: str
    phase: Phase
    reason: Reason
    since: Time
    attempt: int
    next_attempt: int | None = None
    budgets: tuple[BudgetStatus, ...] = ()
    gang: Annotated[GangSize | None, Field(exclude_if=lambda value: value is None)] = None
    why: str
    now: str
    next: tuple[Deadline, ...] = ()
    kept: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """The storage that outlives its attempts, and how to have it deleted with them (row D25)."""
    by: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """As in its status."""
    unblock: str = ""
    """What a person can do about it, if anything."""
    causes: tuple[Cause, ...] = ()
