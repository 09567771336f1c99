"""A component that was complete, and that somebody deletes, stays complete (row D23)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model import ComponentView, OperationKind, Phase, PodCounts, Replacement
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Observed
from holdfast.profiles import PROFILES
from tests.policy.lives.elements import Elements, config, job, jobs

D23 = pytest.mark.row("D23", level="pure")


def life(*, new: bool = True, replacement: Replacement | None = None) -> Elements:
    prep = job("prep", replacement=replacement)
    one = Elements(spec=jobs(prep, job("train"), policy=PROFILES["appwrapper"]))
    one.state = edit(one.state, shows_waits=new)
    one.settle()
    one.pods(running=2)
    return one


def turns(one: Elements, name: str, **view: Any) -> Elements:
    """Let the watch tell how a component is now."""
    one.views = {**one.views, name: edit(one.views[name], uid=f"{name}-uid", **view)}
    one.tell(Observed(one.look()))
    return one


def deleted(one: Elements, name: str) -> Elements:
    """Somebody deletes it, and every live look and every watch that begins then finds nothing of it."""
    gone = PodCounts(expected=one.views[name].pods.expected)
    one.views = {**one.views, name: ComponentView(found=False, pods=gone)}
    one.tell(Observed(one.look()))
    return one


@D23
def test_D23_a_complete_component_that_somebody_deletes_is_no_failure_and_success_is_in_reach() -> None:
    one = turns(life(), "prep", complete=True)
    deleted(one, "prep").after(days=3)
    assert (one.state.phase, one.state.restarts, one.state.unhealthy) == (Phase.RUNNING, 0, None)
    one.state = edit(one.state, in_doubt=True)
    one.settle()
    assert one.kinds()[-1] == "observe", "a live look finds nothing of it either"
    assert (one.state.phase, one.state.restarts) == (Phase.RUNNING, 0)
    turns(one, "train", complete=True)
    assert one.state.outcome is Phase.SUCCEEDED


@D23
def test_D23_what_was_not_complete_goes_missing_as_ever() -> None:
    one = turns(life(), "train", complete=True)
    deleted(one, "prep")
    assert (one.state.phase, one.state.restarts) == (Phase.RESETTING, 1)


@D23
def test_D23_what_is_made_again_is_complete_again_only_once_it_is() -> None:
    one = turns(life(), "prep", complete=True)
    turns(one, "train", failed=True)
    one.after(minutes=5)
    assert one.attempt == 2
    deleted(one, "prep")
    assert one.state.restarts == 2


@D23
def test_D23_what_is_complete_as_soon_as_it_exists_goes_missing_as_ever() -> None:
    spec = jobs(job("train"), config(), policy=PROFILES["appwrapper"])
    one = Elements(spec=spec)
    one.state = edit(one.state, shows_waits=True)
    one.settle()
    one.pods("train", running=2)
    turns(one, "adl", complete=True)
    assert one.state.attempt is not None
    assert one.state.attempt.completed == ()
    deleted(one, "adl")
    assert one.state.restarts == 1


@D23
def test_D23_an_old_snapshot_of_an_object_before_tells_nothing() -> None:
    one = life()
    one.hold.add(OperationKind.OBSERVE)
    one.state = edit(one.state, in_doubt=True)
    turns(one, "prep", complete=True)
    assert one.state.attempt is not None
    assert one.state.attempt.completed == ()


@D23
def test_D23_a_run_of_an_earlier_release_goes_on_as_it_began() -> None:
    one = turns(life(new=False), "prep", complete=True)
    deleted(one, "prep")
    assert one.state.restarts == 1


@pytest.mark.row("S9", level="pure")
@pytest.mark.parametrize("replacement", [Replacement(deleted=True), Replacement(completed=True)])
def test_S9_what_is_made_again_once_complete_or_deleted_goes_by_that(replacement: Replacement) -> None:
    one = turns(life(replacement=replacement), "prep", complete=True)
    assert one.state.attempt is not None
    assert one.state.attempt.completed == ()
