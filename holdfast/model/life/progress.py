"""What is known of a workload's steps: the words of its pods, and the bounded memory of the worker (rows P1, P2)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.model.base import Time
from holdfast.model.observation import Payload

STEP_MAXIMUM = 10**15
BOUND_MAXIMUM = 30 * 86_400.0
"""The longest bound of a phase, in seconds."""

Count = Annotated[int, Field(ge=0, le=STEP_MAXIMUM)]


class Step(Payload):
    """What one pod tells of itself: the JSON of its file, its annotation or its HTTP answer."""

    step: Count | None = None
    total: Count | None = None
    """How many steps there will be, if the program knows."""
    saved: Count | None = None
    """The last step that it has saved: a claim, until the checkpoint confirms it."""
    phase: Annotated[str, Field(max_length=63, pattern=r"^[!-~]*$")] = ""
    """What it does instead of stepping, such as `saving`; empty: it steps."""
    bound: Annotated[float | None, Field(gt=0, le=BOUND_MAXIMUM)] = None
    """How long that phase may last, in seconds."""


class PodStep(Payload):
    """The step of one running pod, as read in one round."""

    uid: str
    name: str
    node: str = ""
    told: Step | None = None
    """None: it told nothing that can be read."""
    restarts: int = 0
    """How often its containers have restarted in it."""
    hidden: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it could not be connected to, so that nobody knows whether it tells anything."""

    @property
    def program(self) -> str:
        """What tells its program from the one before it in the same pod."""
        return f"{self.uid}/{self.restarts}" if self.restarts else self.uid


class StepRecord(Payload):
    """What a workload's steps have taught so far: at most about 1 KiB, whatever the step rate and pod count."""

    attempt: int
    at: Time
    """When its pods were last read."""
    pods: str = ""
    """A digest of its running pods and their restarts: new programs begin anew; empty: none was read yet."""
    step: int | None = None
    """The highest step that its pods told, most recently."""
    leader: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """The uid of a pod that told this step; empty: none told one."""
    mute: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether that pod told nothing when it was last asked, although it was not hidden."""
    total: int | None = None
    saved: int | None = None
    """The highest step that a pod claims to have saved in this attempt."""
    phase: str = ""
    phase_pod: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """The uid of a pod that is in this phase; empty: none is in a phase."""
    phase_bound: float | None = None
    quiet: float = 0.0
    """Seconds in sight without a new step, or without an end of the phase."""
    fresh: bool = True
    """Whether its pods are new and have not made a second step: the first one may compile."""
    unseen: bool = False
    """Whether the time since the last step is not the whole length of a step: it is not learned from."""
    behind: str = ""
    """The only pod that is behind all the others; empty: none, or several."""
    behind_node: str = ""
    samples: tuple[float, ...] = ()
    """The latest step times, in seconds."""
    longest: float = 0.0
    """The longest time between two readings of a new step over the whole life, in seconds."""
    stall_told: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """When the workflow was last told that this attempt stands still; None: never."""

    def begun(self, attempt: int, at: Time) -> StepRecord:
        """Return the record of a new attempt, or of one restarted in place: it knows the step times from before."""
        return StepRecord(attempt=attempt, at=at, samples=self.samples, longest=self.longest)


class Fall(Payload):
    """The step at which the workload has failed, and how many times in a row (row P4)."""

    step: int
    times: int = 1
    alone: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """The component, or copy of one, that was restarted alone for it; empty: the workload was restarted."""
