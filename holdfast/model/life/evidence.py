"""What was kept of an attempt before its removal: where it lies, and what of it could not be taken (row P3)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.model.observation import Payload
from holdfast.model.words import counted


class StacksRequest(Payload):
    """Where pods tell the stacks of their programs: over HTTP, where they tell their steps."""

    port: int
    components: tuple[str, ...] = ()
    """Whose pods are asked; empty: those of all components."""


class Evidence(Payload):
    """The evidence of one attempt: a document in the operator's store, or why there is none."""

    link: str = ""
    """`s3://bucket/key` of the document; empty: nothing is kept."""
    digest: str = ""
    """SHA-256 of the document as it is stored, in hexadecimal."""
    size: int = Field(default=0, ge=0)
    """Bytes of the document as it is stored."""
    pods: int = Field(default=0, ge=0)
    """How many pods it tells of."""
    logs: int = Field(default=0, ge=0)
    """How many logs it contains, each of one instance of a container."""
    stacks: Annotated[int, Field(ge=0, exclude_if=lambda value: value == 0)] = 0
    """How many pods have told the stacks of their program."""
    problem: str = ""
    """A message about what could not be taken or kept; empty: nothing is missing."""

    def sentence(self) -> str:
        """Describe it in one line: `evidence of 2 pods with 3 logs is kept at s3://…`."""
        if not self.link:
            return f"no evidence is kept: {self.problem}"
        stacks = f" and the stacks of {counted(self.stacks, 'program')}" if self.stacks else ""
        text = (
            f"evidence of {counted(self.pods, 'pod')} with {counted(self.logs, 'log')}{stacks} is kept at {self.link}"
        )
        return f"{text} ({self.problem})" if self.problem else text
