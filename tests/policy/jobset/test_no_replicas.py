"""A replicated job of no Jobs: complete without any, but no success of its JobSet (rows J12, F11)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.formats.jobset import reader
from holdfast.model import ComponentView, CopyCounts, Phase, PodCounts, Reason
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Observed
from tests.e2e.peers.jobsets import jobset, replicated
from tests.policy.lives.elements import Elements

ROW = pytest.mark.row


def life(*jobs: dict[str, Any], **success: Any) -> Elements:
    document = jobset("train", *jobs, **({"successPolicy": success} if success else {}))
    one = Elements(spec=reader.read(document, cluster="dev"))
    one.state = edit(one.state, shows_waits=True)  # As every run does that begins now.
    return one.up()


def succeeds(one: Elements, name: str, count: int, succeeded: int) -> Elements:
    """Let so many of a replicated job's Jobs be complete, and the watch tell it."""
    copies = CopyCounts(expected=count, succeeded=succeeded)
    pods = PodCounts(expected=count, succeeded=succeeded, running=count - succeeded)
    one.views = {**one.views, name: ComponentView(pods=pods, complete=succeeded == count, copies=copies)}
    one.tell(Observed(one.look()))
    return one


@ROW("J12", level="pure")
@pytest.mark.parametrize("targets", [[], ["a", "b"]])
def test_J12_any_needs_a_job_that_has_succeeded(targets: list[str]):
    named = {"targetReplicatedJobs": targets} if targets else {}
    one = life(replicated("a", replicas=0), replicated("b", replicas=1), operator="Any", **named)
    assert one.state.phase is Phase.RUNNING
    assert succeeds(one, "b", 1, 1).state.phase is Phase.SUCCEEDED


@ROW("J12", level="pure")
def test_J12_all_of_no_jobs_is_reached_with_the_first_job_of_the_set_that_succeeds():
    jobs = (replicated("a", replicas=0), replicated("b", replicas=2))
    one = life(*jobs, operator="All", targetReplicatedJobs=["a"])
    assert one.state.phase is Phase.RUNNING
    assert succeeds(one, "b", 2, 1).state.phase is Phase.SUCCEEDED


@ROW("J12", level="pure")
def test_J12_all_of_some_jobs_and_of_none_is_reached_with_the_last():
    one = life(replicated("a", replicas=0), replicated("b", replicas=2))
    assert succeeds(one, "b", 2, 1).state.phase is Phase.RUNNING
    assert succeeds(one, "b", 2, 2).state.phase is Phase.SUCCEEDED


@ROW("J12", level="pure")
@ROW("F11", level="pure")
@pytest.mark.parametrize("operator", ["All", "Any"])
def test_F11_a_set_of_no_jobs_is_held_and_neither_succeeds_nor_fails(operator: str):
    one = life(replicated("a", replicas=0), operator=operator)
    one.tell(Observed(one.look()))
    one.after(days=1)
    assert (one.state.phase, one.state.reason, one.state.outcome) == (Phase.PENDING, Reason.HELD, None)
    assert one.state.message == "Job train-a (0 copies) is scaled to 0: no pod of the workload is to run"
    assert one.state.unhealthy is None
