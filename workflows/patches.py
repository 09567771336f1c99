"""Every patch of the workflows, with the release that brought it.

A patch leaves a marker in history, and an earlier release cannot replay a history with a marker that it does not know.
So a worker that runs beside an earlier release, or may be replaced by one again, leaves later patches out (row O4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from holdfast import names

if TYPE_CHECKING:
    from temporalio.worker import PatchActivationInput

SUBMITTED: Final = "submitted-is-a-column"
REHEARSED: Final = "changes-are-rehearsed"
ANSWERS: Final = "answers-are-to-their-request"
CONTINUED: Final = "a-memory-needs-a-run-before"
HEARD: Final = "a-try-is-the-last-of-a-node-that-is-heard"
WITHDRAWN: Final = "a-stall-is-withdrawn"
ABOUT: Final = "an-order-is-about-one-submission"
REVOKED: Final = "a-configuration-revokes-an-end"
DOUBTED: Final = "a-queue-asks-those-that-have-begun"
SIZED: Final = "a-change-keeps-the-size-of-a-gang"
REPLACED: Final = "a-submission-replaces-the-one-before"
CLOSING: Final = "a-queue-shows-that-it-closes"

SINCE: Final = {
    SUBMITTED: "0.1",
    REHEARSED: "0.1",
    names.PATCH_CREATES: "0.2",
    names.PATCH_RESETS: "0.2",
    names.PATCH_WAITS: "0.3",
    ANSWERS: "0.2",
    CONTINUED: "0.2",
    HEARD: "0.2",
    WITHDRAWN: "0.3",
    names.PATCH_SLEEPS: "0.3",
    ABOUT: "0.3",
    REVOKED: "0.3",
    DOUBTED: "0.3",
    SIZED: "0.3",
    REPLACED: "0.3",
    CLOSING: "0.3",
}
"""The release that brought each patch."""


def activation(compatible_with: str) -> Callable[[PatchActivationInput], bool] | None:
    """Return what decides for a Temporal worker whether a workflow takes a patch that it meets for the first time.

    Replay never asks: there the history decides.

    Args:
        compatible_with: the earliest release that must be able to go on with each workflow, such as `0.1`; empty: this
            one, and every patch is taken.
    """
    if not compatible_with:
        return None
    earliest = release(compatible_with)
    return lambda asked: release(SINCE[asked.patch_id]) <= earliest


def release(version: str) -> tuple[int, int]:
    """Return the major and the minor number of a version: patch releases bring no patches."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
