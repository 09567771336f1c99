"""A reset broken off at each of its requests, in each way in which a workflow breaks one off (record 0086)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast.model import Bounded, OperationKind, Phase
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import NotUnderstood, PolicyChanged
from tests.fakes.ledger import Kind
from tests.policy.lives.play import Play
from tests.policy.lives.submitted import SAVING

pytestmark = pytest.mark.row("A19", level="pure")
WALLTIME = edit(SAVING, lifecycle=Bounded(walltime=timedelta(seconds=100)))
REQUESTS = 12
"""More than a reset sends until its owner is being deleted."""


def resetting(*, walltime: bool = False) -> Play:
    """Play a life until the reset of its failed first attempt is under way, and has sent nothing."""
    play = Play(WALLTIME if walltime else SAVING)
    play.goes_on(60)
    assert play.flow.state.phase is Phase.RUNNING
    play.weather.replaces = False
    play.pod_ends(0, 1)
    while not under_way(play):
        play.cluster_goes_on()
        play.watch_tells()
        play.mail_arrives(-1)
        if play.flow.work is not None and not under_way(play):
            play.acts(1)
        play.jumps(1)
    return play


def under_way(play: Play) -> bool:
    operation = play.flow.state.operation
    return operation is not None and operation.kind is OperationKind.RESET


def marked(play: Play) -> bool:
    """Whether the removal has begun."""
    (anchor,) = play.cluster.of(Kind.ANCHOR)
    return bool(anchor.removal)


def forbids_restarts(play: Play) -> None:
    """Change the policy so that the next failure ends the workload."""
    policy = play.flow.state.policy
    play.signal(PolicyChanged(edit(policy, budgets=(edit(policy.budgets[0], limit=0),))))


def outlasts_its_walltime(play: Play) -> None:
    """Let the walltime end; as during any operation, the next news makes the workflow notice."""
    play.jumps(100)
    play.signal(NotUnderstood("observe", "it is no snapshot"))


BREAKS: dict[str, Callable[[Play], None]] = {
    "suspended": Play.suspend,
    "preempted": lambda play: play.suspend(preempted=True),
    "cancelled": Play.cancel,
    "policy changed": forbids_restarts,
    "walltime over": outlasts_its_walltime,
}
ENDS = {
    "suspended": Phase.SUSPENDED,
    "preempted": Phase.SUSPENDED,
    "cancelled": Phase.CANCELLED,
    "policy changed": Phase.FAILED,
    "walltime over": Phase.FAILED,
}


def charged(play: Play) -> int:
    return sum(play.flow.state.used.values())


@pytest.mark.parametrize("dies", [False, True], ids=["told", "died"])
@pytest.mark.parametrize("how", list(BREAKS))
def test_A19_the_restart_is_charged_exactly_if_the_removal_had_begun(how: str, dies: bool):
    begun: list[bool] = []
    for sent in range(REQUESTS):
        play = resetting(walltime=how == "walltime over")
        for _ in range(sent):
            if under_way(play):
                play.flow.act()
        if not under_way(play) or play.flow.result is not None:
            break
        begun.append(marked(play))
        if dies:
            play.worker_dies(last_request=True, stays=False)
            play.worker_comes()
        BREAKS[how](play)
        if under_way(play):
            assert play.flow.state.operation is not None
            assert play.flow.state.operation.interrupted
        play.told_to_break_off()
        if dies and play.zombies:
            play.late_request_lands()
        begun[-1] = begun[-1] or marked(play)
        if not begun[-1]:
            assert charged(play) == 0, f"request {sent}: nothing has begun"
            assert play.flow.state.attempt is not None
            assert play.cluster.of(Kind.OWNER, 1)[0].deleting is None, f"request {sent}: no look, no removal"
        play.goes_on(400)
        assert charged(play) == int(begun[-1]), f"request {sent}"
        ended = Phase.RUNNING if how == "policy changed" and begun[-1] else ENDS[how]
        assert play.flow.state.phase is ended, f"request {sent}"
        asked = [one for one in play.cluster.all if one.kind is Kind.POD and one.attempt == 1 and one.asked]
        if how in {"suspended", "preempted"}:
            assert bool(asked) is not begun[-1], f"request {sent}: its pods are asked to save before they go"
    assert set(begun) == {False, True}, "it was broken off before and after its removal had begun"


def test_A6_one_that_never_ran_leaves_alone_what_is_well_again():
    play = resetting()
    play.weather.replaces = True
    for job in play.cluster.of(Kind.COMPONENT, 1):
        job.verdict = ""
    play.cluster_goes_on()
    play.cluster_goes_on()
    forbids_restarts(play)
    play.told_to_break_off()
    play.goes_on(100)
    state = play.flow.state
    assert (state.phase, state.restarts, charged(play), state.executions) == (Phase.RUNNING, 0, 0, 1)
    assert not marked(play)
    play.ends_well()
