"""Another policy on what really happened: the same says the same, and each difference is said and charged once."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import Action, ActionKind, Budget, Observation, Phase, Policy, Timings
from holdfast.past import Story, story_of
from holdfast.past.other import compared
from holdfast.past.tasks import Signalled
from tests.past.recorded import NAMES, runs, story


def timed(lived: Story, **timings: timedelta) -> Policy:
    policy = lived.spec.policy
    return policy.model_copy(update={"timings": Timings(**{**policy.timings.model_dump(by_alias=False), **timings})})


def limited(lived: Story, limit: int | None) -> Policy:
    return lived.spec.policy.model_copy(update={"budgets": (Budget(name="restart", limit=limit),)})


def verdicts(result: Any) -> list[tuple[str, str]]:
    return [(point.real.split(" (")[0], point.verdict) for point in result.points]


@pytest.mark.parametrize("name", NAMES)
async def test_the_same_policy_decides_the_same_at_every_point(name: str):
    lived = await story(name)
    result = compared(lived, lived.spec.policy)
    assert result.points
    assert {point.verdict for point in result.points} == {"same"}
    assert all(point.budgets == point.other_budgets for point in result.points)
    assert result.parted_at is None
    assert result.other_outcome == result.outcome is not None


@pytest.mark.parametrize("name", NAMES)
async def test_the_same_policy_decides_the_same_where_the_beginning_is_no_longer_kept(name: str):
    """Whatever the run before has handed on: figures, what members have used, and the clock of a grace."""
    lived = await runs(name)
    for first in range(1, len(lived)):
        rest = story_of(lived[first:])
        result = compared(rest, rest.spec.policy)
        assert {point.verdict for point in result.points} <= {"same"}, f"from run {first + 1} on"
        assert all(point.budgets == point.other_budgets for point in result.points)


async def test_a_rule_that_has_acted_as_often_as_it_may_is_charged_no_more_later():
    lived = await story("continue-as-new")
    policy = timed(lived, failure_grace_period=timedelta(minutes=5))
    limited_rules = tuple(one.model_copy(update={"action": once(one.action)}) for one in policy.rules)
    policy = policy.model_copy(update={"rules": limited_rules, "default": once(policy.default)})
    later = [point for point in compared(lived, policy).points if point.verdict == "later" and "reset" in point.real]
    assert [point.note.partition(";")[0] for point in later][:2] == [
        "then it resets, charged to restart",
        "then it fails, since rule default has acted as often as it may",
    ]
    assert later[-1].other_budgets[0].used == 1


def once(action: Action) -> Action:
    return action.model_copy(update={"limit": 1})


async def test_a_smaller_budget_fails_where_reality_restarted():
    lived = await story("failed")
    result = compared(lived, limited(lived, 1))
    resets = [point for point in result.points if point.real.startswith(("reset", "fail"))]
    assert [point.verdict for point in resets] == ["same", "instead", "instead", "same"]
    assert resets[1].other == "fail (RetryLimitExceeded)"
    assert [point.other_budgets[0].used for point in resets] == [1, 1, 1, 1]
    assert result.parted_at == resets[1].at
    assert result.other_outcome is Phase.FAILED


async def test_a_larger_budget_goes_on_where_reality_failed():
    lived = await story("failed")
    result = compared(lived, limited(lived, 4))
    last = next(point for point in result.points if point.real.startswith("fail"))
    assert (last.verdict, last.other_budgets[0].used) == ("instead", 4)
    assert result.outcome is Phase.FAILED
    assert result.other_outcome is None
    assert "not known" in result.end


async def test_a_longer_grace_decides_later():
    lived = await story("reset")
    result = compared(lived, timed(lived, failure_grace_period=timedelta(minutes=5)))
    (reset,) = [point for point in result.points if point.real.startswith("reset")]
    assert reset.verdict == "later"
    assert reset.other.startswith("not before")
    assert "healed" in reset.note
    assert reset.other_budgets[0].used == 1
    assert result.parted_at == reset.at


async def test_a_shorter_grace_decides_earlier_and_charges_once():
    lived = await story("reset")
    result = compared(lived, timed(lived, failure_grace_period=timedelta(0)))
    (reset,) = [point for point in result.points if point.other.startswith("reset")]
    assert reset.verdict == "earlier"
    assert reset.real.startswith("reset")
    assert reset.other_budgets[0].used == reset.budgets[0].used == 1
    assert [point.verdict for point in result.points if point is not reset] == ["same"] * (len(result.points) - 1)


async def test_a_shorter_grace_resets_what_really_healed():
    (run,) = await runs("reset")
    looking = next(index for index, task in enumerate(run.tasks) if task.begun == ("observe",))
    seen = [wish.value for task in run.tasks[:looking] for wish in task.wishes if isinstance(wish, Signalled)]
    well, ill = (one for one in seen[-2:] if isinstance(one, Observation))
    healthy = Signalled("observe", well.model_copy(update={"revision": ill.revision + 1}))
    healing = dataclasses.replace(run.tasks[looking], wishes=(healthy,), results=(), begun=(), statuses=())
    lived = story_of([dataclasses.replace(run, tasks=(*run.tasks[:looking], healing))])
    assert not lived.contradictions
    result = compared(lived, timed(lived, failure_grace_period=timedelta(0)))
    (reset,) = [point for point in result.points if point.verdict != "same"]
    assert (reset.verdict, reset.other.split(" (")[0]) == ("not really", "reset")
    assert reset.real.startswith("healed at")
    assert (reset.budgets[0].used, reset.other_budgets[0].used) == (0, 1)
    assert result.outcome is None


async def test_what_the_other_policy_ignores_is_not_decided_at_all():
    lived = await story("reset")
    ignoring = lived.spec.policy.model_copy(
        update={"rules": (), "default": Action(kind=ActionKind.IGNORE, charge=None)}
    )
    result = compared(lived, ignoring)
    (reset,) = [point for point in result.points if point.real.startswith("reset")]
    assert (reset.verdict, reset.other, reset.other_budgets[0].used) == ("not at all", "", 0)


async def test_a_shorter_pause_creates_earlier():
    lived = await story("reset")
    result = compared(lived, timed(lived, retry_pause_period=timedelta(milliseconds=50)))
    assert [(point.other, point.verdict) for point in result.points if point.verdict != "same"] == [
        ("create attempt 2", "earlier")
    ]
    later = compared(lived, timed(lived, retry_pause_period=timedelta(minutes=5)))
    assert [(point.real, point.verdict) for point in later.points if point.verdict != "same"] == [
        ("create attempt 2", "later")
    ]
