"""Whose a wish is: each names the uid of the submission it is meant for, and no other takes it (row D46)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.model import Model


class Addressed(Model):
    """A change that somebody asks of a workload which is under way."""

    uid: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """Of the submission that it is meant for; empty: of whichever has the name."""


def misdirected(uid: str, own: str) -> str:
    """Return why a wish is not taken; empty if it is meant for this submission, or names none.

    Args:
        uid: Of the submission that the wish is meant for; empty where whoever wishes means the name alone.
        own: Of the submission that has the name now.
    """
    if not uid or uid == own:
        return ""
    return f"it is meant for the workload of uid {uid}, and this is {own}"
