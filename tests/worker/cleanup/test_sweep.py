"""The sweeper's plan: what is found in a cluster, and what Temporal says, to a verdict. Pure, and mostly one table."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import names
from holdfast.activities.operations.remains import Remains
from holdfast.model.calls.cluster import PlannedComponent
from holdfast.worker.cleanup.sweep import AttemptLeft, Judgement, Left, Life, RunFact, Verdict, find, judge
from holdfast.worker.cleanup.sweep_delete import of_attempt, to_remove, together
from holdfast.worker.cleanup.sweep_lookup import Item

UID = "11111111-0000-4000-8000-000000000001"
OTHER = "22222222-0000-4000-8000-000000000002"
WORKFLOW = "workload/dev/research/train"


def anchor(uid: str = UID, *, held: bool = True, installation: str = "ours", **spec: Any) -> dict[str, Any]:
    return {
        "kind": names.ANCHOR_KIND,
        "metadata": {
            "name": "train",
            "namespace": "research",
            "uid": f"anchor-{uid}",
            "labels": {names.LABEL_INSTALLATION: installation, names.LABEL_WORKLOAD_UID: uid},
            "finalizers": [names.FINALIZER] if held else [],
        },
        "spec": {"workloadUid": uid, "workflowId": WORKFLOW, **spec},
    }


def attempt(number: int, uid: str = UID, *, installation: str = "ours", **spec: Any) -> dict[str, Any]:
    return {
        "kind": names.ATTEMPT_KIND,
        "metadata": {
            "name": f"train-a{number}",
            "namespace": "research",
            "uid": f"attempt-{number}",
            "labels": {
                names.LABEL_INSTALLATION: installation,
                names.LABEL_WORKLOAD_UID: uid,
                names.LABEL_ATTEMPT: str(number),
            },
        },
        "spec": {"workloadUid": uid, "workflowId": WORKFLOW, "attempt": number, **spec},
    }


def copied(thing: dict[str, Any]) -> dict[str, Any]:
    """Return an object as a copy of it in another namespace: only the API server's own words differ."""
    return {
        **thing,
        "metadata": {**thing["metadata"], "namespace": "hostile", "uid": f"copy-{thing['metadata']['uid']}"},
    }


def left(*numbers: int, anchored: bool = True) -> Left:
    attempts = tuple(AttemptLeft(f"train-a{number}", f"attempt-{number}", number) for number in numbers)
    return Left("research", "train", UID, WORKFLOW, anchored, attempts)


def run(word: str, uid: str = UID, **facts: Any) -> RunFact:
    return RunFact(uid=uid, running=word == "Running", word=word, **facts)


class TestFind:
    def test_objects_of_a_workload_come_together(self) -> None:
        plan = {"name": "main", "apiVersion": "batch/v1", "kind": "Job", "objectName": "main"}
        found = find([attempt(2), anchor(), attempt(1, plan=[plan])], "ours", "dev")
        (one,) = found.left
        assert (one.namespace, one.name, one.workload_uid, one.workflow_id) == ("research", "train", UID, WORKFLOW)
        assert one.anchor
        assert [each.number for each in one.attempts] == [1, 2]
        assert one.attempts[0].plan == (
            PlannedComponent(name="main", api_version="batch/v1", kind="Job", object_name="main"),
        )
        assert one.sentence() == "anchor, attempts 1 and 2"
        assert one.problem == ""

    @pytest.mark.row("X8", level="pure")
    @pytest.mark.parametrize("life", [Life(run("Running", attempt=2)), Life(run("Terminated")), Life()])
    def test_X8_copies_in_another_namespace_are_never_touched_and_spare_nothing(self, life: Life) -> None:
        own = [anchor(), attempt(1), attempt(2)]
        copies = [copied(one) for one in (anchor(), attempt(1), attempt(99))]
        alone, beside = find(own, "ours", "dev"), find([*copies, *own], "ours", "dev")
        (mine,) = [one for one in beside.left if one.namespace == "research"]
        (theirs,) = [one for one in beside.left if one.namespace == "hostile"]
        assert (mine,) == alone.left
        assert judge(theirs, life).verdict is Verdict.DOUBT
        assert judge(theirs, life).doomed == ()
        assert "is in namespace hostile, and its workflow" in theirs.problem
        items = [Item(one, judge(one, life)) for one in (mine, theirs)]
        assert all(item.left is mine for item in to_remove(items, unknown=True))

    def test_what_holds_nothing_any_more_is_settled(self) -> None:
        found = find([anchor(held=False), anchor(OTHER)], "ours", "dev")
        assert (found.settled, [one.workload_uid for one in found.left]) == (1, [OTHER])

    def test_an_attempt_that_came_after_the_end_is_found_with_its_released_anchor(self) -> None:
        (one,) = find([anchor(held=False), attempt(3)], "ours", "dev").left
        assert (one.anchor, one.sentence()) == (False, "attempt 3")

    def test_what_is_not_this_installations_is_counted_and_nothing_else(self) -> None:
        nobodys = anchor()
        nobodys["metadata"]["labels"] = {}
        renamed = attempt(1, workflowId="workload/prod/research/train")
        found = find(
            [anchor(installation="theirs"), attempt(1, installation="theirs"), nobodys, renamed], "ours", "dev"
        )
        assert (found.left, found.foreign, found.settled) == ((), 4, 0)

    @pytest.mark.parametrize(
        ("thing", "says"),
        [
            (attempt(1, workflowId="somebody"), "expected workload/<cluster>/<namespace>/<name>"),
            (attempt(1, workflowId="workload/dev/other/train"), "is of another"),
            (attempt(1, attempt=2), "not its attempt's number"),
            (attempt(1, plan=[{"name": 3}]), "a plan that this release cannot read"),
            (anchor(workflowId="workload/dev/research/eval"), "is not named eval"),
        ],
        ids=["no id", "namespace", "number", "plan", "anchor's name"],
    )
    def test_what_contradicts_itself_is_in_doubt(self, thing: dict[str, Any], says: str) -> None:
        (one,) = find([thing], "ours", "dev").left
        assert says in one.problem
        verdict = judge(one, Life())
        assert (verdict.verdict, verdict.doomed, verdict.releases) == (Verdict.DOUBT, (), False)

    def test_a_label_that_contradicts_the_uid_is_in_doubt(self) -> None:
        thing = attempt(1)
        thing["metadata"]["labels"][names.LABEL_WORKLOAD_UID] = OTHER
        assert "not its workload's uid" in find([thing], "ours", "dev").left[0].problem

    def test_two_workflows_that_claim_one_uid_are_in_doubt(self) -> None:
        found = find([anchor(), attempt(1, workflowId="workload/dev/research/eval")], "ours", "dev")
        assert "others of the same workload" in found.left[0].problem


DEAD = run("Terminated", phase="Running", attempt=2)
CASES = {
    # what is there, what Temporal says -> the verdict, which attempts go, whether the anchor is let go of, and deleted
    "terminated": (left(1, 2), Life(DEAD), Verdict.ENDED, [1, 2], True, True),
    "cancelled, not cleaned up": (left(2), Life(run("Canceled", phase="Cancelled")), Verdict.ENDED, [2], True, True),
    "failed: the anchor is the record": (left(2), Life(run("Failed", phase="Failed")), Verdict.ENDED, [2], True, False),
    "succeeded: the same": (left(), Life(run("Completed", phase="Succeeded")), Verdict.ENDED, [], True, False),
    "closed before it said who it is": (left(1), Life(run("Terminated", said=False)), Verdict.ENDED, [1], True, True),
    "a later run of the name, ours closed": (
        left(1), Life(run("Running", OTHER, attempt=1), DEAD), Verdict.ENDED, [1], True, True,
    ),
    "a later run closed too": (left(1), Life(run("Completed", OTHER), DEAD), Verdict.ENDED, [1], True, True),
    "running": (left(3), Life(run("Running", attempt=3)), Verdict.ALIVE, [], False, False),
    "running, past one": (left(2, 3), Life(run("Running", attempt=3)), Verdict.STRAY, [2], False, False),
    "running, past one, held": (
        left(2, 3),
        Life(run("Running", attempt=3, held=True)),
        Verdict.DOUBT,
        [],
        False,
        False,
    ),
    "running, past two": (left(1, 2, 3, 4), Life(run("Running", attempt=3)), Verdict.STRAY, [1, 2], False, False),
    "running behind the cluster": (left(3), Life(run("Running", attempt=1)), Verdict.ALIVE, [], False, False),
    "running, nothing made yet": (left(), Life(run("Running", attempt=0)), Verdict.ALIVE, [], False, False),
    "running, attempt untold": (left(1), Life(run("Running")), Verdict.DOUBT, [], False, False),
    "running, untold, no attempts": (left(), Life(run("Running")), Verdict.ALIVE, [], False, False),
    "running, and does not say who it is": (
        left(1), Life(run("Running", OTHER, said=False), DEAD), Verdict.DOUBT, [], False, False,
    ),
    "running, ours by first run alone": (left(1), Life(run("Running", said=False)), Verdict.DOUBT, [], False, False),
    "over, with a memo that cannot be read": (
        left(1), Life(run("Terminated", "", unreadable="no key")), Verdict.UNKNOWN, [1], True, True,
    ),
    "running, with a memo that cannot be read": (
        left(1), Life(run("Running", "", unreadable="no key")), Verdict.DOUBT, [], False, False,
    ),
    "never heard of": (left(1, 2), Life(), Verdict.UNKNOWN, [1, 2], True, True),
    "another run of the name only": (left(1), Life(run("Running", OTHER, attempt=9)), Verdict.UNKNOWN, [1], True, True),
    "another closed run of the name only": (left(1), Life(run("Failed", OTHER)), Verdict.UNKNOWN, [1], True, True),
    "ours listed as running beside another": (
        left(1), Life(run("Running", OTHER), run("Running")), Verdict.DOUBT, [], False, False,
    ),
}  # fmt: skip


class TestJudge:
    @pytest.mark.parametrize(("found", "life", "verdict", "goes", "releases", "deletes"), CASES.values(), ids=CASES)
    def test_verdict(
        self, found: Left, life: Life, verdict: Verdict, goes: list[int], releases: bool, deletes: bool
    ) -> None:
        given = judge(found, life)
        assert given.verdict is verdict
        assert [one.number for one in given.doomed] == goes
        assert (given.releases, given.deletes_anchor) == (releases, deletes)
        assert given.why
        assert not given.why.endswith(".")

    @pytest.mark.row("X6", level="pure")
    def test_X6_a_workload_whose_key_is_lost_goes_if_it_has_ended_and_a_person_says_so(self) -> None:
        lost = [
            Item(left(1), judge(left(1), Life(run(word, "", unreadable="no key")))) for word in ("Failed", "Running")
        ]
        assert to_remove(lost, unknown=False) == ()
        assert to_remove(lost, unknown=True) == (lost[0],)

    @pytest.mark.parametrize("name", CASES)
    def test_a_running_workflow_of_the_same_uid_loses_nothing_it_may_need(self, name: str) -> None:
        found, life, *_ = CASES[name]
        given = judge(found, life)
        current = life.current
        if current is not None and current.running and current.uid == UID:
            assert not given.releases
            assert all(one.number < (current.attempt or 0) for one in given.doomed)

    def test_the_reasons_can_be_read(self) -> None:
        assert judge(left(1), Life(DEAD)).why == "its workflow is over: Terminated while Running"
        assert judge(left(1), Life(run("Completed", phase="Succeeded"))).why == "its workflow is over: Succeeded"
        assert "a late worker's leftover" in judge(left(2, 3), Life(run("Running", attempt=3))).why
        unreadable = judge(left(1), Life(run("Terminated", "", unreadable="no key")))
        why = "its workflow is over (Terminated), and its memo cannot be read (no key): unless its key is lost, "
        assert unreadable.why.startswith(why)
        assert "retention is over" in judge(left(1), Life()).why
        assert "no run of it that was workload" in judge(left(1), Life(run("Failed", OTHER))).why

    def test_only_positive_answers_are_acted_on_unless_a_person_says_so(self) -> None:
        items = [Item(left(1), Judgement(verdict, "")) for verdict in Verdict]
        assert {one.judgement.verdict for one in to_remove(items, unknown=False)} == {Verdict.ENDED, Verdict.STRAY}
        assert {one.judgement.verdict for one in to_remove(items, unknown=True)} == {
            Verdict.ENDED, Verdict.STRAY, Verdict.UNKNOWN,
        }  # fmt: skip


def pod(name: str, number: int | None) -> dict[str, Any]:
    labels = {names.LABEL_WORKLOAD_UID: UID} | ({names.LABEL_ATTEMPT: str(number)} if number else {})
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}}


class TestRemains:
    def test_of_a_living_workload_only_the_attempts_own_is_waited_for(self) -> None:
        every = Remains(
            None, (), (pod("set-1", 1), pod("set-2", 2)), (pod("old", 1), pod("new", 2), pod("whose", None))
        )
        one = of_attempt(every, 1)
        assert [each["metadata"]["name"] for each in one.pods] == ["old", "whose"]
        assert [each["metadata"]["name"] for each in one.between] == ["set-1"]

    def test_what_several_attempts_left_is_counted_once(self) -> None:
        one, two = Remains(None, (), (), (pod("a", 1), pod("b", 2))), Remains(None, (), (), (pod("b", 2),))
        assert together([one, two]).total == 2
        assert together([]).gone

    def test_a_component_that_is_a_pod_is_counted_once(self) -> None:
        planned = PlannedComponent(name="a", api_version="v1", kind="Pod", object_name="a")
        one = together([Remains(None, ((planned, pod("a", 1)),), (pod("b", 1),), (pod("a", 1), pod("b", 1)))])
        assert (len(one.components), len(one.between), len(one.pods)) == (1, 1, 1)
