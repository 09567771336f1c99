"""The addressee of a request: each names the uid of its submission, and every other refuses it (row D46)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.model import Model


class Addressed(Model):
    """A requested change to a running workload."""

    uid: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """The uid of the submission that it is meant for; empty: the submission that has the name now."""


def misdirected(uid: str, own: str) -> str:
    """Return why a request is refused; empty if it is meant for this submission, or names none.

    Args:
        uid: The uid of the submission that the request is meant for; empty if it is addressed by name alone.
        own: The uid of the submission that has the name now.
    """
    if not uid or uid == own:
        return ""
    return f"it is meant for the workload of uid {uid}, and this is {own}"
