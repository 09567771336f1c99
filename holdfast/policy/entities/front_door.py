"""The verdict on a custom resource that requests a workload: whether its life begins, goes on, or is over (F3, F7)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from holdfast import names
from holdfast.model import Phase, Reason


@dataclass(frozen=True, slots=True)
class Resource:
    """The fields of a custom resource that the verdict uses."""

    uid: str
    life: str = ""
    """The uid in its annotation: the uid of the resource whose life began; empty before that."""
    deleting: bool = False
    held: bool = False
    """Whether it has Holdfast's finalizer."""
    marked: bool = True
    """Whether it has all marks by which the watch finds it: Holdfast's finalizer, its labels, its annotation."""
    shown: Phase | None = None
    """The phase that its workflow has reported; None before its first report."""


@dataclass(frozen=True, slots=True)
class Run:
    """The latest run under the resource's workflow id."""

    uid: str
    """The uid of the workload that the run belongs to; empty if the run has ended, and cannot be read."""
    running: bool
    word: str = "Running"
    """Temporal's name for the status of the run."""
    name: str = ""
    """The workload as commands take it."""


class Act(StrEnum):
    """The action to take."""

    LEAVE = "leave"
    """Do nothing: its workflow decides, or it is over."""
    BEGIN = "begin"
    """Begin its life."""
    MARK = "mark"
    """Mark it again, so that the watch finds it."""
    HOLD = "hold"
    """Do nothing, and give the reason in its status."""
    RELEASE = "release"
    """Remove Holdfast's finalizer: nothing of the workload is left."""


class Verdict(NamedTuple):
    """The action to take, and its reason in the status of the resource."""

    act: Act
    why: str = ""
    reason: Reason = Reason.HELD


_LEAVE = Verdict(Act.LEAVE)


def judge(resource: Resource, run: Run | None, *, remains: bool = False) -> Verdict:
    """Return the action to take on a custom resource.

    Args:
        resource: The resource as the API server shows it.
        run: The latest run under its workflow id; None if Temporal knows none.
        remains: Whether attempts of it are in the cluster; read only if its deletion waits for nothing else.
    """
    own = run is not None and run.uid == resource.uid
    if resource.deleting:
        return _deleted(resource, run, remains=remains)
    if resource.shown is not None and resource.shown.ended and not resource.held:
        return _LEAVE
    if own and run is not None and run.running:  # It is no copy, whatever its annotation says.
        return _decided_for(resource)
    if resource.life and resource.life != resource.uid:
        return Verdict(
            Act.HOLD,
            f"it is a copy, or was restored: the life of the one with uid {resource.life} was another; remove the "
            f"annotation {names.ANNOTATION_LIFE} and the finalizer {names.FINALIZER} to have it run",
        )
    if run is None:
        if resource.shown is None:
            return Verdict(Act.BEGIN)
        return Verdict(Act.HOLD, f"Temporal does not know its workflow any more. {_AGAIN}")
    if own or not run.uid:
        return Verdict(Act.HOLD, f"its workflow is {run.word}. {_AGAIN}")
    if run.running:
        taken = f"its workflow id is taken by the workload with uid {run.uid}, which is there"
        return Verdict(Act.HOLD, f"{taken}: `holdfast cancel {run.name}` ends it", Reason.BLOCKED)
    if resource.shown is None:
        return Verdict(Act.BEGIN)
    return Verdict(Act.HOLD, f"its workflow id was taken by the workload with uid {run.uid}. {_AGAIN}")


IN_FORCE: Final = timedelta(seconds=5)
"""How long after its creation a binding is surely in force: each API server reads new policies within a few seconds."""


def unchecked(created: datetime | None, bound: datetime | None, binding: str) -> Verdict | None:
    """Return the verdict on a resource whose creator the API server has not checked (F5); None if it has.

    Args:
        created: When the resource was created.
        bound: When the policy was bound that checks who creates one; None if it is not bound, or denies nothing.
        binding: The name of that ValidatingAdmissionPolicyBinding.
    """
    if bound is None:
        why = (
            f"ValidatingAdmissionPolicyBinding {binding}, which has the API server check who creates it, is missing, "
            "or denies nothing"
        )
        return Verdict(Act.HOLD, f"{why}: apply Holdfast's policies, then delete it, and apply it again")
    if created is None or created < bound + IN_FORCE:
        why = f"ValidatingAdmissionPolicyBinding {binding} is younger, so the API server has not checked who created it"
        return Verdict(Act.HOLD, f"{why}: delete it, and apply it again")
    return None


_AGAIN = "Nobody decides for it: delete it, and apply it again; `holdfast sweep` removes what is left of it"


def _decided_for(resource: Resource) -> Verdict:
    """Return the verdict on a resource whose workflow runs."""
    return _LEAVE if resource.marked else Verdict(Act.MARK)


def _deleted(resource: Resource, run: Run | None, *, remains: bool) -> Verdict:
    if not resource.held:
        return _LEAVE
    if run is not None and run.uid == resource.uid and run.running:
        return _decided_for(resource)
    if remains:
        why = "it is being deleted, and no workflow removes what is left of it: `holdfast sweep` does"
        return Verdict(Act.HOLD, why, Reason.DELETION_BLOCKED)
    return Verdict(Act.RELEASE)
