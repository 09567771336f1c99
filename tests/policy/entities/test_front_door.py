"""Each way in which a custom resource and its workflow can stand to each other, and what becomes of it (F3, F7)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from holdfast.model import Phase, Reason
from holdfast.policy.entities.front_door import IN_FORCE, Act, Resource, Run, judge, unchecked

ROW = pytest.mark.row
OWN, LIVING = Run("u", running=True), "still there"
TERMINATED = Run("u", running=False, word="Terminated")
COMPLETED = Run("u", running=False, word="Completed")
ANOTHER = Run("v", running=True, name="team/jobset/train")
ANOTHERS_END = Run("v", running=False, word="Completed")
UNREADABLE = Run("", running=False, word="Terminated")
NEW, CLAIMED = Resource("u"), Resource("u", life="u", held=True)
RUNNING = Resource("u", life="u", held=True, shown=Phase.RUNNING)
FAILED = Resource("u", life="u", shown=Phase.FAILED)
HELD = replace(FAILED, held=True)
UNMARKED = replace(RUNNING, held=False, marked=False)
OVERWRITTEN = replace(RUNNING, life="w", marked=False)
COPY = Resource("u", life="w", held=True)


def deleted(resource: Resource) -> Resource:
    return replace(resource, deleting=True)


TABLE: list[tuple[str, Resource, Run | None, Act, str]] = [
    ("applied just now", NEW, None, Act.BEGIN, ""),
    ("applied under the name of one that has ended", NEW, ANOTHERS_END, Act.BEGIN, ""),
    ("applied under the name of one there is", NEW, ANOTHER, Act.HOLD, "`holdfast cancel team/jobset/train` ends it"),
    ("marked, and the worker died", CLAIMED, None, Act.BEGIN, ""),
    ("begun, and the worker died", CLAIMED, OWN, Act.LEAVE, ""),
    ("begun, and its workflow ended before it said anything", CLAIMED, TERMINATED, Act.HOLD, "is Terminated"),
    ("alive", RUNNING, OWN, Act.LEAVE, ""),
    (
        "alive, and its workflow ended by hand",
        RUNNING,
        TERMINATED,
        Act.HOLD,
        "its workflow is Terminated. Nobody decides",
    ),
    ("alive, and its workflow ended by hand and unreadable", RUNNING, UNREADABLE, Act.HOLD, "is Terminated. Nobody"),
    (
        "begun, and its workflow ended unreadable before it said anything",
        CLAIMED,
        UNREADABLE,
        Act.HOLD,
        "is Terminated",
    ),
    ("applied just now, and perhaps begun", NEW, UNREADABLE, Act.HOLD, "is Terminated. Nobody decides"),
    ("deleted, its workflow ended by hand and unreadable", deleted(RUNNING), UNREADABLE, Act.RELEASE, ""),
    ("alive, and Temporal forgot it", RUNNING, None, Act.HOLD, "Temporal does not know its workflow any more"),
    ("alive, and its workflow id taken", RUNNING, ANOTHER, Act.HOLD, "taken by the workload with uid v"),
    ("alive, and its workflow id was taken", RUNNING, ANOTHERS_END, Act.HOLD, "was taken by the workload with uid v"),
    ("alive, and its marks taken off", UNMARKED, OWN, Act.MARK, ""),
    ("alive, and its marks overwritten by those of an earlier one", OVERWRITTEN, OWN, Act.MARK, ""),
    ("begun, and its marks overwritten before it said anything", replace(OVERWRITTEN, shown=None), OWN, Act.MARK, ""),
    ("overwritten, and its workflow ended by hand", OVERWRITTEN, TERMINATED, Act.HOLD, "remove the annotation"),
    ("over", FAILED, TERMINATED, Act.LEAVE, ""),
    ("over, and its workflow ended by hand before it let go", HELD, TERMINATED, Act.HOLD, "is Terminated"),
    ("over, and its workflow keeps what is left for a while", HELD, OWN, Act.LEAVE, ""),
    ("over, and Temporal forgot it", FAILED, None, Act.LEAVE, ""),
    ("a copy, or restored with a new uid", COPY, None, Act.HOLD, "the life of the one with uid w was another"),
    ("a copy of one that lives under its name", COPY, Run("w", running=True), Act.HOLD, "remove the annotation"),
    ("deleted before it was marked", deleted(NEW), None, Act.LEAVE, ""),
    ("deleted before its life began", deleted(CLAIMED), None, Act.RELEASE, ""),
    ("deleted while it lives", deleted(RUNNING), OWN, Act.LEAVE, ""),
    ("deleted while it lives, its marks overwritten", deleted(OVERWRITTEN), OWN, Act.MARK, ""),
    ("deleted while it lives, its marks and finalizer taken off", deleted(UNMARKED), OWN, Act.LEAVE, ""),
    ("deleted while it waits for another of its name", deleted(CLAIMED), ANOTHER, Act.RELEASE, ""),
    ("deleted, its workflow ended and let nothing go", deleted(RUNNING), COMPLETED, Act.RELEASE, ""),
    ("deleted after its end", deleted(FAILED), None, Act.LEAVE, ""),
    ("a copy, deleted", deleted(COPY), None, Act.RELEASE, ""),
]


@ROW("F3", level="pure")
@ROW("F7", level="pure")
@pytest.mark.parametrize(("resource", "run", "act", "why"), [one[1:] for one in TABLE], ids=[one[0] for one in TABLE])
def test_F7_what_becomes_of_a_custom_resource(resource: Resource, run: Run | None, act: Act, why: str) -> None:
    verdict = judge(resource, run)
    assert verdict.act is act
    assert why in verdict.why
    assert bool(verdict.why) is (act is Act.HOLD), "who waits says for what"


@ROW("F3", level="pure")
def test_F3_what_remains_of_one_that_nobody_removes_keeps_it() -> None:
    for resource, run in product(
        (deleted(CLAIMED), deleted(RUNNING), deleted(COPY)), (None, TERMINATED, ANOTHER, UNREADABLE)
    ):
        verdict = judge(resource, run, remains=True)
        assert (verdict.act, verdict.reason) == (Act.HOLD, Reason.DELETION_BLOCKED)
        assert "`holdfast sweep` does" in verdict.why
    assert judge(deleted(RUNNING), OWN, remains=True).act is Act.LEAVE, "its workflow removes it"


@ROW("F7", level="pure")
def test_F7_no_life_begins_twice_and_none_that_has_pods_is_let_go() -> None:
    runs = [None, OWN, TERMINATED, COMPLETED, ANOTHER, ANOTHERS_END, UNREADABLE]
    shown = [None, *Phase]
    for life, deleting, held, phase, run, remains in product(
        ("", "u", "w"), (False, True), (False, True), shown, runs, (False, True)
    ):
        verdict = judge(Resource("u", life, deleting, held, marked=held, shown=phase), run, remains=remains)
        if verdict.act is Act.BEGIN:
            assert not deleting
            assert phase is None
            assert life in {"", "u"}
            assert run is None or (run.uid not in {"u", ""} and not run.running)
        if verdict.act is Act.RELEASE:
            assert deleting
            assert held
            assert not remains
            assert run is None or run.uid != "u" or not run.running


BOUND = datetime(2026, 1, 1, tzinfo=UTC)


@ROW("F5", level="pure")
@pytest.mark.parametrize(
    ("created", "bound", "says"),
    [
        (BOUND - timedelta(days=1), BOUND, "is younger, so the API server has not checked who created it: delete it"),
        (BOUND, BOUND, "is younger"),
        (BOUND + IN_FORCE - timedelta(seconds=1), BOUND, "is younger"),
        (None, BOUND, "is younger"),
        (BOUND, None, "is missing, or denies nothing: apply Holdfast's policies, then delete it"),
        (BOUND + IN_FORCE, BOUND, ""),
    ],
    ids=["older", "as-old", "not-in-force", "no-time", "no-binding", "younger"],
)
def test_F5_what_the_api_server_has_not_checked_is_held(created: datetime | None, bound: datetime | None, says: str):
    verdict = unchecked(created, bound, "jobset-components.holdfast.dev")
    if not says:
        assert verdict is None
        return
    assert verdict is not None
    assert (verdict.act, verdict.reason) == (Act.HOLD, Reason.HELD)
    assert verdict.why.startswith("ValidatingAdmissionPolicyBinding jobset-components.holdfast.dev")
    assert says in verdict.why
