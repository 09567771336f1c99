"""Whose logs are read, what is shown of them once, and when they are over (row E2)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.activities.kube.logs import parts
from holdfast.cli.workloads.log_sources import (
    Position,
    absent,
    decided,
    is_over,
    pod_of,
    sources,
    to_follow,
    wanted,
)
from holdfast.errors import HoldfastError
from holdfast.model import Death, Evidence, Failure, FailureClass, Phase, Reason, Scope
from holdfast.model.life.history import History, PastAttempt
from holdfast.model.observation import ITS_GANG
from tests.cli.text.test_render import NOW, status

pytestmark = pytest.mark.row("E2", level="pure")
RUNS = {"running": {"startedAt": "x"}}


def ended(instance: str) -> dict[str, Any]:
    return {"terminated": {"containerID": instance, "exitCode": 1}}


def pod(name: str, phase: str = "Running", **containers: dict[str, Any]) -> Any:
    return pod_of(
        {
            "metadata": {"name": name, "uid": f"uid-of-{name}"},
            "spec": {
                "initContainers": [{"name": "init"}] if "init" in containers else [],
                "containers": [{"name": one} for one in containers if one != "init"],
            },
            "status": {
                "phase": phase,
                "initContainerStatuses": [{"name": one, **told} for one, told in containers.items() if one == "init"],
                "containerStatuses": [{"name": one, **told} for one, told in containers.items() if told],
            },
        }
    )


def test_E2_pods_come_by_name_containers_in_their_order_and_are_named_where_there_are_several() -> None:
    two = pod("b", main={"state": RUNS, "containerID": "c-1"}, init={"state": ended("i-1")})
    found, silent = sources([two, pod("a", main={"state": ended("a-1")})])
    assert [(one.prefix, one.instance, one.ended) for one in found] == [
        ("a", "a-1", True),
        ("b/init", "i-1", True),
        ("b/main", "c-1", False),
    ]
    assert silent == ()
    assert [one.prefix for one in sources([two], "init").found] == ["b/init"]


def test_E2_what_has_not_started_is_said_in_one_line_without_control_characters() -> None:
    waits = pod("a", "Pending", main={"state": {"waiting": {"reason": "Image\x1b[2J\nPull"}}})
    found, silent = sources([waits, pod("b", "Pending", main={})])
    assert found == ()
    assert silent == ("a: has not started: Image\ufffd[2J Pull", "b: has not started: its pod is Pending")


def test_E2_a_container_that_no_pod_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(HoldfastError, match="-c 'x': expected one of main, side"):
        sources([pod("a", main={"state": RUNS}, side={"state": RUNS})], "x")
    assert sources([], "x").found == ()


def test_E2_the_previous_instance_is_that_before_the_last_restart() -> None:
    again = pod("a", main={"state": RUNS, "containerID": "c-2", "lastState": ended("c-1")}, side={"state": RUNS})
    (one,) = sources([again], previous=True).found
    assert (one.prefix, one.instance, one.ended, one.previous) == ("a/main", "c-1", True, True)
    loops = pod("a", main={"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended("c-1")})
    assert [(one.instance, one.ended) for one in sources([loops]).found] == [("c-1", True)]


def test_E2_an_instance_that_came_and_went_between_two_looks_is_followed_first() -> None:
    again = pod("a", main={"state": RUNS, "containerID": "c-2", "lastState": ended("c-1")})
    key = ("uid-of-a", "main")
    assert [one.instance for one in to_follow([again], None, set(), set())] == ["c-1"]
    assert to_follow([again], None, set(), {key}) == []
    assert [one.instance for one in to_follow([again], None, {(*key, "c-1")}, set())] == ["c-2"]
    assert to_follow([again], None, {(*key, "c-1"), (*key, "c-2")}, set()) == []


def test_E2_a_log_that_is_read_again_shows_no_line_twice_and_none_too_few() -> None:
    position, first = Position(), ["1", "2", "1", "3", "3"]
    assert position.reopen() == ""
    assert [position.take(at) for at in first] == [True] * 5, "two writers' lines are not in the order of their times"
    assert position.reopen() == "3"
    assert [position.take(at) for at in ("2", "3", "3", "3", "2", "4")] == [False, False, False, True, True, True]
    assert position.reopen() == "4"


def test_E2_an_attempt_that_has_not_begun_is_refused() -> None:
    assert (wanted(status(attempt=3), None), wanted(status(attempt=3), 2), wanted(status(attempt=0), None)) == (3, 2, 1)
    with pytest.raises(HoldfastError, match="--attempt 4: expected 1 to 3"):
        wanted(status(attempt=3), 4)


@pytest.mark.parametrize(
    ("phase", "attempt", "closed", "pods", "over"),
    [
        (Phase.PENDING, 0, False, 0, False),
        (Phase.RUNNING, 1, False, 1, False),
        (Phase.RUNNING, 1, False, 0, False),
        (Phase.RESETTING, 1, False, 1, False),
        (Phase.RESETTING, 1, False, 0, True),
        (Phase.SUSPENDED, 1, False, 0, True),
        (Phase.RUNNING, 2, False, 1, True),
        (Phase.SUCCEEDED, 1, False, 1, True),
        (Phase.RUNNING, 1, True, 1, True),
    ],
)
def test_E2_an_attempt_is_followed_until_nothing_more_comes_of_it(
    phase: Phase, attempt: int, closed: bool, pods: int, over: bool
) -> None:
    assert is_over(status(phase=phase, attempt=attempt), 1, closed=closed, pods=pods) is over


def test_E2_pods_that_are_gone_differ_from_pods_to_come() -> None:
    waits = status(phase=Phase.PENDING, attempt=0, message="waits in queue a")
    assert absent(waits, 1, "https://here") == "research/train-llm: attempt 1 has no pods yet: waits in queue a"
    gone = absent(status(attempt=2), 1, "https://here")
    assert gone.startswith("research/train-llm: no pod of attempt 1 is left at https://here")
    assert "no evidence of it was kept" in gone
    why = Evidence(problem="the store does not answer")
    assert "no evidence is kept: the store does not answer" in absent(status(attempt=2), 1, "https://here", why)


@pytest.mark.parametrize("phase", [Phase.SUSPENDED, Phase.CANCELLED, Phase.FAILED])
def test_E2_what_never_began_has_lost_no_logs(phase: Phase) -> None:
    never = status(phase=phase, attempt=0, message="its deletion was asked for")
    said = "research/train-llm: there are no logs: no attempt of it has begun: its deletion was asked for"
    assert absent(never, 1, "https://here") == said


def test_E2_an_attempt_that_was_refused_has_lost_no_logs_and_those_before_it_have() -> None:
    refused = status(phase=Phase.FAILED, reason=Reason.REFUSED, attempt=2, message="pods are forbidden")
    assert absent(refused, 2, "https://here") == (
        "research/train-llm: attempt 2 has no logs: it was refused: pods are forbidden"
    )
    assert "its logs went with its pods" in absent(refused, 1, "https://here")
    why = Evidence(problem="the store does not answer")
    assert "its logs went with its pods" in absent(refused, 2, "https://here", why), "it had pods"


def failure(**changes: Any) -> Failure:
    fields: dict[str, Any] = {"cls": FailureClass.APP, "scope": Scope.MEMBER, "reason": "Error", "time": NOW}
    return Failure.model_validate({**fields, "subject": "train-x", "exit_code": 7, **changes})


def history(*failures: Failure | None, last: Failure | None = None) -> History:
    attempts = tuple(PastAttempt(number=at, begun_at=NOW, failure=one) for at, one in enumerate(failures, start=1))
    where: dict[str, Any] = {"name": "train", "namespace": "research", "cluster": "dev", "uid": "u", "workflow_id": "w"}
    return History(**where, runs=(), begun_at=NOW, attempts=attempts, failure=last, complete=True, exact=True)


def test_E2_the_pod_that_decided_is_that_of_the_failure_that_ended_the_attempt() -> None:
    first, second = failure(), failure(attempt=3, subject="train-z")
    assert decided(history(first, None, None, last=second), None) == (3, second)
    assert decided(history(first, None, None, last=second), 1) == (1, first)
    with pytest.raises(HoldfastError, match="--failed: attempt 2 was not ended by a failure"):
        decided(history(first, None, None, last=second), 2)
    with pytest.raises(HoldfastError, match="--failed: no attempt was ended by a failure"):
        decided(history(None), None)
    death = Death(kind="Job", pod="train-y", time=NOW)
    assert first.pod == "train-x"
    assert failure(scope=Scope.COMPONENT, subject="train", death=death).pod == "train-y"
    assert failure(scope=Scope.COMPONENT, subject="train").pod == ""


@pytest.mark.parametrize("reason", [Reason.NO_PROGRESS, Reason.MEMBER_FAILED, Reason.MAX_ROUNDS_EXHAUSTED])
def test_E2_the_pod_to_blame_for_a_stall_or_a_failed_gang_decided(reason: Reason) -> None:
    scope = Scope.WORKLOAD if reason is Reason.NO_PROGRESS else Scope.COMPONENT
    assert failure(reason=reason, scope=scope, subject="train-63").pod == "train-63"
    assert failure(reason=reason, scope=scope, subject="").pod == ""
    assert failure(reason=reason, scope=scope, subject=ITS_GANG).pod == ""


@pytest.mark.parametrize("size", [1, 2, 3, 100])
async def test_E2_lines_come_whole_and_long_ones_in_parts(size: int) -> None:
    data = b"ab\n\nabcdefghij\nabcde"

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(data), size):
            yield data[at : at + size]

    expected = [(b"ab", True), (b"", True), (b"abcde", True), (b"fghij", False), (b"abcde", True)]
    assert [one async for one in parts(chunks(), 5)] == expected
