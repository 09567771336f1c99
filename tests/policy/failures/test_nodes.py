"""Which nodes are avoided, how many, and for how long (rows A17, U9), with the default durations."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import (
    Budget,
    Exclusion,
    Failure,
    Limits,
    OperationKind,
    Phase,
    Policy,
    State,
    Timings,
    Workload,
)
from holdfast.policy.failures.avoided_nodes import MARKED_KEPT, blamed_for, in_full, remembered, standing, without
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, Resumed, Retried, Suspended
from holdfast.profiles import PROFILES, appwrapper, manifests
from tests.policy.lives.life import RULES, START, Life, workload

ROW = pytest.mark.row
BOTH = pytest.mark.parametrize("policy", [appwrapper.POLICY, manifests.POLICY], ids=lambda each: each.profile)


def life(policy: Policy = appwrapper.POLICY, pods: int = 2, **more: Any) -> Life:
    return Life(spec=workload(pods, policy=policy), **more)


def patient(limit: int = 100) -> Policy:
    """AppWrapper's policy with a budget that lasts, so that nodes are what a test is about."""
    budgets = (Budget(name="restart", limit=limit),)
    return edit(appwrapper.POLICY, budgets=budgets)


def avoided(state: State) -> list[str]:
    assert state.attempt is not None
    return [node.name for node in state.attempt.avoided]


def charged(state: State) -> int:
    return state.used.get("restart", 0)


def fails_on(one: Life, *nodes: str) -> Life:
    """Let pods fail on these nodes, and its Job with them; then pass through the pause to the next attempt."""
    one.sees(running=2 - len(nodes), failed=len(nodes), nodes=nodes, job_failed=True)
    return one.after(seconds=90).sees(running=2)


@BOTH
@ROW("A17", level="pure")
def test_A17_a_marked_node_resets_at_once_without_charge_and_is_not_chosen_again(policy: Policy):
    one = life(policy).runs().sees(running=2, marked=("node-7",))
    assert one.state.phase is Phase.RESETTING
    assert one.now == START, "no grace: nothing heals while its pods stay there"
    assert one.kinds()[-2:] == ["observe", "remove"], "confirmed by a live look, as every failure"
    assert (one.state.restarts, charged(one.state)) == (1, 0)
    one.after(seconds=90)
    assert (one.attempt, avoided(one.state)) == (2, ["node-7"])
    (node,) = one.state.excluded
    assert (node.required, node.until) == (True, START + timedelta(hours=24))


@ROW("A17", level="pure")
def test_A17_a_mark_taken_back_before_the_live_look_resets_nothing():
    one = life(hold={OperationKind.OBSERVE}).runs().sees(running=2, marked=("node-7",))
    assert one.kinds()[-1] == "observe"
    one.view = {"running": 2}
    one.finish()
    one.hold.clear()
    one.settle().after(hours=1)
    assert (one.state.phase, one.state.restarts, one.state.excluded) == (Phase.RUNNING, 0, ())


@ROW("A17", level="pure")
@pytest.mark.parametrize("view", [{"pending": 2}, {"running": 1, "failed": 1, "job_failed": True}])
def test_A17_it_is_the_node_whatever_its_pods_are_doing(view: dict[str, Any]):
    one = life().settle().sees(**view, marked=("node-7",))
    assert one.state.phase is Phase.RESETTING
    assert (one.state.restarts, charged(one.state), [node.required for node in one.state.excluded]) == (1, 0, [True])


@ROW("A17", level="pure")
def test_A17_all_marked_nodes_are_avoided_however_many_they_are():
    """With some let back for others the reset, which is charged to nothing, would never end."""
    nodes = tuple(f"node-{number}" for number in range(6))
    one = life().runs().sees(running=2, marked=nodes).after(seconds=90)
    assert avoided(one.state) == list(nodes)
    assert (one.state.restarts, charged(one.state)) == (1, 0)


@ROW("A17", level="pure")
def test_A17_where_a_node_cannot_be_kept_off_there_is_no_circle_of_resets():
    one = life().runs().sees(running=2, marked=("node-7",)).after(seconds=90)
    one.sees(running=2, marked=("node-7",)).after(hours=10)
    assert (one.state.phase, one.state.restarts) == (Phase.RUNNING, 1)
    one.sees(running=2, marked=("node-7", "node-8"))
    assert (one.state.phase, one.state.restarts) == (Phase.RESETTING, 2)


@ROW("A17", level="pure")
@pytest.mark.parametrize("policy", [Policy(rules=RULES), PROFILES["streams"]], ids=["older", "streams"])
def test_A17_a_policy_that_says_nothing_of_hardware_lets_its_pods_run(policy: Policy):
    one = life(policy).runs().sees(running=2, marked=("node-7",)).after(hours=10)
    assert (one.state.phase, one.state.restarts, one.state.unhealthy) == (Phase.RUNNING, 0, None)


@ROW("A17", level="pure")
def test_A17_a_used_up_budget_is_no_hindrance():
    one = life(patient(limit=0)).runs().sees(running=2, marked=("node-7",)).after(seconds=90)
    assert (one.attempt, one.state.phase) == (2, Phase.RESUMING)


@BOTH
@ROW("U9", level="pure")
def test_U9_the_node_of_a_failed_pod_is_not_preferred_again(policy: Policy):
    one = life(policy).runs().sees(running=1, failed=1)
    assert one.state.excluded == (), "within the grace it may heal"
    one.after(minutes=1)
    assert one.state.phase is Phase.RESETTING
    (node,) = one.state.excluded
    assert (node.name, node.required, node.marked) == ("node-7", False, False), "it never makes a pod unschedulable"
    assert node.why == "train-0 exited 1 on node-7"


@ROW("U9", level="pure")
def test_U9_a_job_that_gave_up_blames_the_nodes_of_its_failed_pods():
    one = fails_on(life().runs(), "node-3", "node-5")
    assert avoided(one.state) == ["node-3", "node-5"]


@ROW("U9", level="pure")
def test_U9_healed_within_the_grace_blames_nobody():
    one = life().runs().sees(running=1, failed=1).after(seconds=50).sees(running=2).after(hours=1)
    assert one.state.excluded == ()


@ROW("U9", level="pure")
def test_U9_a_poison_pod_never_avoids_more_than_three_nodes_the_oldest_comes_back_first():
    one = life(patient()).runs()
    for number in range(12):
        fails_on(one, f"node-{number}")
        assert avoided(one.state) == [f"node-{each}" for each in range(max(0, number - 2), number + 1)]
    fails_on(one, "node-10")
    assert avoided(one.state) == ["node-9", "node-11", "node-10"], "blamed anew, it is the newest"
    assert charged(one.state) == 13


@ROW("U9", level="pure")
@pytest.mark.parametrize("limit", [0, 1, 5])
def test_U9_the_cap_is_the_policys(limit: int):
    one = life(edit(patient(), exclusion=Exclusion(limit=limit))).runs()
    for number in range(8):
        fails_on(one, f"node-{number}")
    assert avoided(one.state) == [f"node-{each}" for each in range(8 - limit, 8)]


@ROW("U9", level="pure")
@pytest.mark.parametrize(("hours", "still"), [(23.9, ["node-7"]), (24.1, [])])
def test_U9_a_node_is_let_back_when_its_time_is_over(hours: float, still: list[str]):
    one = fails_on(life().runs(), "node-7")
    assert avoided(one.state) == ["node-7"]
    one.after(hours=hours).tell(Suspended()).tell(Resumed())
    assert (one.attempt, avoided(one.state)) == (3, still)


@ROW("U9", level="pure")
def test_U9_what_an_attempt_avoids_stays_the_same_while_it_lives():
    one = fails_on(life().runs(), "node-7").after(hours=30)
    assert avoided(one.state) == ["node-7"], "its Job may still make pods"


@ROW("U9", level="pure")
@pytest.mark.parametrize("why", ["Preempting", "PreemptionByScheduler", "EvictionByEvictionAPI"])
def test_U9_a_displaced_pod_does_not_blame_its_node(why: str):
    one = life().runs().sees(running=1, failed=1, cls="NodeLost", why=why).after(minutes=1)
    assert (one.state.phase, one.state.excluded, charged(one.state)) == (Phase.RESETTING, (), 1)


@ROW("U9", level="pure")
def test_U9_a_node_that_was_lost_is_blamed():
    one = life().runs().sees(running=1, failed=1, cls="NodeLost", why="NodeShutdown").after(minutes=1)
    assert [node.name for node in one.state.excluded] == ["node-7"]


@ROW("U9", level="pure")
def test_U9_a_suspended_workload_remembers_and_a_retried_failure_begins_with_all_nodes():
    policy = edit(patient(limit=1), timings=Timings(deletion_on_failure_grace_period=timedelta(hours=1)))
    one = fails_on(life(policy).runs(), "node-7").tell(Suspended()).tell(Resumed()).sees(running=2)
    assert avoided(one.state) == ["node-7"]
    one.sees(failed=1, running=1, job_failed=True)
    assert one.state.phase is Phase.FAILED
    one.tell(Retried("somebody has looked at the node"))
    assert avoided(one.state) == []


@ROW("U9", level="pure")
def test_U9_a_pod_made_again_alone_prefers_another_node():
    one = life(PROFILES["streams"]).runs().sees(failed=1, running=1, job_failed=True)
    assert "replace" in one.kinds()
    assert avoided(one.state) == ["node-7"]
    assert [node.required for node in one.state.excluded] == [False]


def test_a_node_marked_after_it_was_blamed_is_avoided_for_certain():
    one = fails_on(life().runs(), "node-7")
    one.sees(running=2, marked=("node-7",))
    (node,) = one.state.excluded
    assert (node.required, node.marked) == (True, True)


def test_marked_nodes_are_bounded_and_do_not_use_up_the_cap():
    failure = Failure(cls="Hardware", scope="Member", reason="Mark", time=START)  # type: ignore[arg-type]
    marks = [edit(failure, node=f"bad-{number:02d}") for number in range(MARKED_KEPT + 5)]
    excluded = remembered((), blamed_for(appwrapper.POLICY, marks, START), Exclusion(limit=0), START)
    assert [node.name for node in excluded] == [f"bad-{number:02d}" for number in range(5, MARKED_KEPT + 5)]
    assert standing(excluded, Exclusion(), START + timedelta(hours=24)) == ()


def told(one: Life) -> str:
    explanation = explain_of(one.spec, one.state, one.now)
    return "\n".join([explanation.why, explanation.now, *(each.what for each in explanation.next), explanation.unblock])


@ROW("U11", level="pure")
def test_U11_the_way_to_the_next_attempt_names_the_nodes_it_keeps_off():
    one = life(hold={OperationKind.REMOVE}).runs().sees(running=2, marked=("node-7",))
    text = told(one)
    assert "train-0: NodeMarkedForEviction on node-7: label example.com/health=EVICT (rule marked-node)" in text
    assert "once all is gone: retry pause 1m30s, then attempt 2 (must avoid node-7)" in text
    one.finish()
    one.settle()
    assert "attempt 2 (must avoid node-7) is created" in told(one)


@ROW("U11", level="pure")
def test_U11_unhealthy_says_which_node_will_be_avoided():
    text = told(life().runs().sees(running=1, failed=1))
    assert "reset (restart 1 of 3), then attempt 2 (avoids node-7 if it can)" in text


@ROW("U11", level="pure")
def test_U11_waiting_for_room_says_which_nodes_are_kept_off_until_when_and_what_helps():
    one = life().runs().sees(running=2, marked=("node-7",)).after(seconds=90).sees(pending=2)
    text = told(one)
    assert "0 of 2 pods running; must avoid node-7 until 2026-01-02 00:00 UTC (train-0: NodeMarkedForEviction" in text
    assert "if no other node has room, make some; node-7 is let back in attempts begun after 2026-01-02 00:00" in text
    status = status_of(one.spec, one.state, one.now, "uid")
    assert [node.name for node in status.avoided] == ["node-7"]


def test_words_for_many_nodes():
    policy = appwrapper.POLICY
    failure = Failure(cls="App", scope="Member", reason="Error", time=START, subject="pod")  # type: ignore[arg-type]
    some = blamed_for(policy, [edit(failure, node=f"n{each}") for each in range(5)], START)
    assert without(some) == "avoids n0, n1, n2 and 2 more if it can"
    assert without(()) == ""
    assert in_full(some).endswith("; and 2 more")


def test_the_memory_of_nodes_survives_a_new_run():
    one = fails_on(life().runs(), "node-7").sees(running=2, marked=("node-8",))
    again = State.model_validate_json(one.state.model_dump_json())
    assert again.excluded == one.state.excluded
    assert again.attempt == one.state.attempt


def test_a_cancelled_workload_blames_nobody():
    one = life().runs().sees(running=1, failed=1).tell(Cancelled())
    assert one.state.excluded == ()


@pytest.mark.parametrize("limit", [-1, 33])
def test_a_cap_out_of_range_is_refused(limit: int):
    with pytest.raises(ValueError, match="limit"):
        Exclusion(limit=limit)


def test_the_operators_limits_do_not_touch_it():
    one = Life(spec=workload(policy=appwrapper.POLICY), limits=Limits(grace_period_maximum=timedelta(minutes=1)))
    one.runs().sees(running=2, marked=("node-7",))
    assert one.state.excluded[0].until == START + timedelta(hours=24)
    assert isinstance(one.spec, Workload)
