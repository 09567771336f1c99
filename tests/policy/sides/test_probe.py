"""When a workload's pods are asked whether they serve, and what their silence comes to (rows L28, L29)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import Failure, FailureClass, OperationKind, Phase, Probe, Reason, State, Unbounded, Workload
from holdfast.policy.sides.probe import probed, silence
from holdfast.policy.values.events import Cancelled, ProbeEnded, Resumed, Suspended
from holdfast.profiles import PROFILES
from tests.policy.lives.life import START, Life, workload

ROW = pytest.mark.row
POLICY = PROFILES["lattice-service"]


def service(profile: str = "lattice-service", **more: Any) -> Workload:
    more = {"probe": Probe(port=8080), "lifecycle": Unbounded(), **more}
    return workload(2, policy=PROFILES[profile], **more)


def life(profile: str = "lattice-service", **more: Any) -> Life:
    return Life(spec=service(profile), **more).runs()


def asked(one: Life) -> int | None:
    return probed(one.spec, one.state)


def silent(attempt: int = 1, node: str = "node-7") -> ProbeEnded:
    failure = silence(attempt, START, "train", "train-0", node, "GET :8080/ failed 3 times in a row: HTTP 503")
    return ProbeEnded(attempt, failure)


@ROW("L28", level="pure")
def test_L28_pods_are_asked_from_when_all_run_and_only_then():
    one = Life(spec=service()).settle()
    assert asked(one) is None, "they start"
    one.sees(running=1, pending=1)
    assert asked(one) is None
    one.sees(running=2)
    assert asked(one) == 1
    assert asked(life("appwrapper").sees(running=1, pending=1)) == 1, "one is made again: the others go on being asked"


@ROW("L28", level="pure")
def test_L28_nobody_is_asked_without_a_probe():
    assert probed(workload(2), Life().runs().state) is None


@ROW("L28", level="pure")
@pytest.mark.parametrize("hold", [set[OperationKind](), {OperationKind.REMOVE}])
def test_L28_asking_ends_with_a_suspension_and_begins_with_the_next_attempt(hold: set[OperationKind]):
    one = life(hold=hold).tell(Suspended())
    assert asked(one) is None
    if hold:
        one.finish().settle()
        one.hold.clear()
    one.tell(Resumed()).sees(running=2)
    assert asked(one) == 2


@ROW("L28", level="pure")
def test_L28_asking_ends_with_the_workload():
    assert asked(life().tell(Cancelled())) is None
    one = life("lattice-batch").sees(running=1, failed=1)
    assert one.state.outcome is Phase.FAILED
    assert asked(one) is None


@ROW("L28", level="pure")
def test_L28_a_policy_that_would_ignore_a_silent_pod_has_nobody_asked():
    assert asked(life("jobset")) is None
    assert asked(life("streams")) is None
    assert asked(life("appwrapper")) == 1


@ROW("L28", level="pure")
@ROW("L29", level="pure")
def test_L29_a_silent_service_is_requeued_as_any_failure_that_is_confirmed():
    one = life().tell(silent())
    assert (one.state.phase, one.state.restarts, one.state.used) == (Phase.PENDING, 1, {"restart": 1})
    assert one.kinds()[-2:] == ["observe", "remove"]
    assert any("train-0: ProbeFailed on node-7: GET :8080/ failed 3 times" in each.message for each in one.state.causes)
    one.after(minutes=10).sees(running=2)
    assert (one.attempt, asked(one)) == (2, 2)
    assert one.state.attempt is not None
    assert one.state.attempt.told is None


@ROW("L29", level="pure")
def test_L29_at_its_maximum_it_has_failed():
    one = life()
    for attempt in (1, 2, 3):
        one.tell(silent(attempt)).after(minutes=10).sees(running=2)
        assert (one.attempt, one.state.phase) == (attempt + 1, Phase.RUNNING)
    one.tell(silent(4))
    assert (one.state.outcome, one.state.reason) == (Phase.FAILED, Reason.MAX_REQUEUE_EXCEEDED)


@ROW("L29", level="pure")
@pytest.mark.parametrize("profile", ["lattice-batch", "lattice-interactive"])
def test_L29_where_the_policy_says_so_a_silent_service_has_failed(profile: str):
    one = life(profile).tell(silent())
    assert (one.state.outcome, one.state.restarts) == (Phase.FAILED, 0)
    assert one.state.outcome_failure is not None
    assert one.state.outcome_failure.cls is FailureClass.PROBE


@ROW("L28", level="pure")
def test_L28_silence_of_an_attempt_that_has_gone_says_nothing_of_the_next():
    one = life().tell(silent()).after(minutes=10).sees(running=2)
    one.tell(silent(1)).after(hours=1)
    assert (one.attempt, one.state.phase, one.state.restarts) == (2, Phase.RUNNING, 1)


@ROW("L28", level="pure")
def test_L28_what_was_counted_is_handed_to_whoever_asks_next():
    one = life().tell(ProbeEnded(1, None, {"uid-1": 2}))
    assert one.state.attempt is not None
    assert one.state.attempt.probe_failing == {"uid-1": 2}
    assert (asked(one), one.state.phase) == (1, Phase.RUNNING)
    assert State.model_validate_json(one.state.model_dump_json()) == one.state


def test_a_failure_says_whose_it_is():
    failure: Failure = silence(1, START + timedelta(minutes=1), "train", "train-0", "node-7", "no answer within 5 s")
    assert failure.sentence() == "train-0: ProbeFailed on node-7: no answer within 5 s"
