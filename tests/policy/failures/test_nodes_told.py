"""How nodes that are avoided are told of, joined and let back, in tables (rows A17, U9, U11)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model import (
    Action,
    ExcludedNode,
    Exclusion,
    Failure,
    FailureClass,
    Match,
    NodeAvoidance,
    OperationKind,
    Policy,
    Reason,
    Rule,
    Scope,
    Timings,
)
from holdfast.policy.failures.avoided_nodes import blamed_for, in_full, remembered, room_needed, without
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.values.decision import Replace
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Retried
from holdfast.policy.verdicts.decide import decide
from holdfast.profiles.streams import POLICY as STREAMS
from tests.policy.failures.test_nodes import life
from tests.policy.lives.elements import Elements, streams
from tests.policy.lives.life import START, Life
from tests.policy.lives.moments import moment

ROW = pytest.mark.row
HOUR = timedelta(hours=1)


def node(name: str, hours: int = 24, *, must: bool = False, marked: bool = False) -> ExcludedNode:
    until = START + hours * HOUR
    return ExcludedNode(name=name, since=START, until=until, why=f"why {name}", required=must, marked=marked)


MUST = tuple(node(f"m{n}", must=True) for n in range(1, 6))
MAY = tuple(node(f"p{n}") for n in range(1, 6))


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ((), ""),
        (MUST[:1], "must avoid m1"),
        (MUST[:3], "must avoid m1, m2, m3"),
        (MUST[:4], "must avoid m1, m2, m3 and 1 more"),
        (MAY[:1], "avoids p1 if it can"),
        (MAY[:5], "avoids p1, p2, p3 and 2 more if it can"),
        ((*MAY[:1], *MUST[:1]), "must avoid m1 and avoids p1 if it can"),
    ],
)
def test_three_nodes_are_named_and_the_others_counted(nodes: tuple[ExcludedNode, ...], words: str):
    assert without(nodes) == words


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ((), ""),
        (MUST[:1], "must avoid m1 until 2026-01-02 00:00 UTC (why m1)"),
        (MAY[:1], "avoids p1 until 2026-01-02 00:00 UTC if it can (why p1)"),
        (
            (*MAY[:3], MUST[0]),
            "must avoid m1 until 2026-01-02 00:00 UTC (why m1); "
            "avoids p1 until 2026-01-02 00:00 UTC if it can (why p1); "
            "avoids p2 until 2026-01-02 00:00 UTC if it can (why p2); and 1 more",
        ),
    ],
)
def test_in_full_those_kept_off_for_certain_come_first(nodes: tuple[ExcludedNode, ...], words: str):
    assert in_full(nodes) == words


def test_what_helps_is_told_by_the_node_that_is_let_back_first():
    assert room_needed(MAY) == ""
    assert room_needed((node("late", 9, must=True), node("soon", 2, must=True), node("p", 1))) == (
        "if no other node has room, make some; soon is let back in attempts begun after 2026-01-01 02:00 UTC"
    )


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        (node("n", 2), node("n", 5), node("n", 5)),
        (node("n", 5), node("n", 2), node("n", 5)),
        (node("n", must=True), node("n"), node("n", must=True)),
        (node("n"), node("n", must=True), node("n", must=True)),
        (node("n", marked=True), node("n"), node("n", marked=True)),
        (node("n"), node("n", marked=True), node("n", marked=True)),
    ],
)
def test_blamed_twice_a_node_is_avoided_as_the_stricter_says(
    first: ExcludedNode, second: ExcludedNode, joined: ExcludedNode
):
    assert remembered((second,), (first,), Exclusion(), START) == (joined,)


def test_what_had_expired_is_forgotten_when_its_node_is_blamed_anew():
    old = node("n", 1, must=True, marked=True)
    now = START + HOUR
    anew = edit(node("n", 25), since=now)
    assert remembered((old,), (anew,), Exclusion(), now) == (anew,)


def failed_on(name: str, **fields: object) -> Failure:
    common = {"cls": FailureClass.APP, "scope": Scope.MEMBER, "reason": "Error", "time": START, "subject": "train-0"}
    return Failure.model_validate({**common, "node": name, **fields})


def test_of_two_failures_on_one_node_the_stricter_rule_counts():
    must = Rule(name="must", action=Action(avoid=NodeAvoidance.REQUIRE))
    rules = (edit(must, match=edit(must.match, exit_codes=(7,))),)
    policy = Policy(rules=rules, default=Action(avoid=NodeAvoidance.PREFER))
    (one,) = blamed_for(policy, [failed_on("n", exit_code=1), failed_on("n", exit_code=7)], START)
    assert (one.required, one.marked, one.since, one.until) == (True, False, START, START + timedelta(hours=24))
    assert one.why == "train-0 exited 1 on n"


@ROW("U9", level="pure")
def test_U9_a_component_restarted_alone_avoids_the_node_it_failed_on():
    rule = Rule(name="alone", action=Action(unit=Scope.COMPONENT, grace=False, avoid=NodeAvoidance.PREFER))
    one = Elements(spec=streams(3, Policy(timings=Timings(), rules=(rule,))), hold={OperationKind.REPLACE}).up()
    one.hold.add(OperationKind.OBSERVE)
    one.pods("pe-1", failed=1)
    seen = one.look(live=True)
    found = tuple(edit(each, node=f"node-of-{each.component}") for each in seen.failures)
    assert one.state.operation is not None
    one.state = edit(one.state, operation=None)
    one.state = edit(one.state, observation=edit(seen, failures=found), looked_at=one.now)
    one.settle()
    assert [(each.name, each.since) for each in one.state.excluded] == [("node-of-pe-1", one.now)]
    assert one.state.message.endswith("; what is made again avoids node-of-pe-1 if it can")
    assert one.state.causes[-1].message == one.state.message
    assert one.state.attempt is not None
    assert one.state.attempt.avoided == one.state.excluded


@ROW("L4", level="pure")
@pytest.mark.parametrize(
    ("sensitive", "reason", "excluded"),
    [
        (False, Reason.NODE_DOWN, ["n1"]),
        (True, Reason.NODE_DOWN, []),
        (True, Reason.NODE_STILL_DOWN, ["n1"]),
    ],
)
def test_L4_what_is_made_again_avoids_a_node_once_that_is_down_for_its_workload(
    sensitive: bool, reason: Reason, excluded: list[str]
):
    lost = Match(classes=(FailureClass.NODE_LOST,))
    rule = Rule(name="lost", match=lost, action=Action(charge=None, avoid=NodeAvoidance.PREFER))
    policy = edit(STREAMS, rules=(rule,))
    one = Elements(spec=edit(streams(3, policy), sensitive=sensitive), hold={OperationKind.OBSERVE}).up()
    one.deleted("pe-1")
    failure = failed_on("n1", cls=FailureClass.NODE_LOST, reason=reason, component="pe-1", attempt=1)
    seen = edit(one.look(live=True), failures=(failure,))
    decision = decide(one.spec, edit(one.state, observation=seen, looked_at=one.now), one.now)
    assert isinstance(decision, Replace)
    assert [each.name for each in decision.exclude] == excluded


@ROW("U11", level="pure")
def test_U11_room_is_asked_for_only_while_pods_wait_for_it():
    one = life().runs().sees(running=2, marked=("node-7",)).after(seconds=90).sees(running=1, pending=1)
    assert explain_of(one.spec, one.state, one.now).unblock.startswith("if no other node has room, make some; node-7")
    one.sees(running=2)
    assert explain_of(one.spec, one.state, one.now).unblock == ""


@ROW("U11", level="pure")
def test_U11_status_tells_the_nodes_of_the_living_attempt_or_those_of_the_next():
    one = life().runs().sees(running=2, marked=("node-7",))
    later = one.now + timedelta(hours=24)
    assert [each.name for each in status_of(one.spec, one.state, one.now, "uid").avoided] == ["node-7"]
    assert status_of(one.spec, one.state, one.now, "uid", later).avoided == (), "the next attempt begins without"
    one.after(seconds=90)
    assert [each.name for each in status_of(one.spec, one.state, one.now, "uid", later).avoided] == ["node-7"]
    assert status_of(one.spec, Life().state, one.now, "uid").avoided == ()


@ROW("U11", level="pure")
def test_U11_what_follows_without_a_pause_names_the_nodes_too():
    one = moment("held")
    one.hold = {OperationKind.REMOVE}
    one.state = edit(one.state, excluded=(node("n", must=True), node("gone", 0)))
    one.tell(Retried())
    assert explain_of(one.spec, one.state, one.now).next[-1].what == "once all is gone: attempt 5 (must avoid n)"
