"""What is asked of nodes' machines, its order, what waits and for how long: the provisioner without a service (L15)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.entities.provisioner import (
    OUTCOMES_KEPT,
    PENDING_MAXIMUM,
    FenceAsk,
    NodeAction,
    NodeAsk,
    NodeRequest,
    Progress,
    ProvisionerState,
    Result,
)
from holdfast.model.words import escaped
from holdfast.policy.nodes import provisioner as policy
from holdfast.policy.nodes.fences import FENCES_BYTES
from holdfast.policy.nodes.provisioner_status import details, pending, status
from holdfast.policy.values.edit import edit
from tests.policy.lives.life import START

ROW = pytest.mark.row
BOOT, WIPE, OFF = NodeAction.BOOT, NodeAction.WIPE, NodeAction.POWER_OFF
RELEASE, FENCED = NodeAction.RELEASE, NodeAction.FENCED
HERE, THERE = "https://bmc", "https://other"


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


@dataclass
class Play:
    """A provisioner on a clock of the test's own: whom to ask is found at once, and tries come to what is said."""

    state: ProvisionerState = field(default_factory=lambda: ProvisionerState(cluster="c", cluster_uid="u"))
    now: float = 0
    busy: set[int] = field(default_factory=set[int])
    services: dict[str, str] = field(default_factory=dict[str, str])
    """By node, where it is not `HERE`."""

    def ask(self, action: NodeAction, node: str, **fields: object) -> int:
        ask = NodeAsk.model_validate({"node": node, "action": action, **fields})
        assert policy.refusal(self.state, ask, self.busy) == ""
        self.state, request = policy.on_request(self.state, ask, at(self.now))
        self.enlist()
        return request.number

    def refusal(self, action: NodeAction, node: str, **fields: object) -> str:
        return policy.refusal(self.state, NodeAsk.model_validate({"node": node, "action": action, **fields}), self.busy)

    def fence(self, node: str, renewed: str = "r0") -> None:
        self.state = policy.fence(self.state, FenceAsk(node=node, uid=f"uid-{node}", renewed=renewed), at(self.now))
        self.enlist()

    def enlist(self) -> None:
        for one in self.plan().enlist:
            service = self.services.get(one.node, HERE) if one.action.by_service else ""
            self.state = policy.enlisted(self.state, one.number, f"uid-{one.node}", service, "", at(self.now))

    def plan(self) -> policy.Plan:
        return policy.plan(self.state, self.busy, at(self.now))

    def begin(self) -> list[int]:
        numbers = [one.number for one in self.plan().begin]
        for number in numbers:
            self.state = policy.begun(self.state, number, at(self.now))
        self.busy |= set(numbers)
        return numbers

    def ends(self, number: int, result: Result = Result.DONE, said: str = "", **fields: object) -> None:
        self.busy.discard(number)
        progress = fields.pop("progress", Progress())
        fields.setdefault("reached", result is not Result.AWAY)
        self.state = policy.on_try_ended(self.state, number, result, said, progress, at(self.now), **fields)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    def request(self, number: int) -> NodeRequest:
        return next(one for one in self.state.pending if one.number == number)


@ROW("L15", level="pure")
def test_L15_requests_are_begun_in_the_order_of_asking_and_at_most_so_many_at_once():
    play = Play(ProvisionerState(cluster="c", cluster_uid="u", at_once=2))
    numbers = [play.ask(BOOT, f"n{number}") for number in range(4)]
    assert play.begin() == numbers[:2]
    assert play.begin() == []
    play.ends(numbers[1])
    assert play.begin() == numbers[2:3]
    play.ends(numbers[0])
    assert play.begin() == numbers[3:]
    assert [one.number for one in play.state.outcomes] == [numbers[1], numbers[0]]


@ROW("L15", level="pure")
def test_L15_of_one_node_one_request_comes_after_the_other_whatever_the_first_waits_for():
    play = Play()
    wipe, boot, other = play.ask(WIPE, "a"), play.ask(BOOT, "a"), play.ask(BOOT, "b")
    assert play.begin() == [wipe, other]
    play.ends(wipe, Result.WAITS, "2 pods are on it")
    assert play.begin() == [], "its boot waits for its wipe"
    assert "after request 1 of the same node (wipe)" in status(play.state, play.busy, at(play.now)).waits[boot]
    play.now = 2
    assert play.begin() == [wipe]
    play.ends(wipe)
    assert play.begin() == [boot]


@ROW("L15", level="pure")
def test_L15_while_the_service_is_away_nothing_is_lost_and_the_first_alone_asks_again_ever_more_rarely():
    play = Play()
    numbers = [play.ask(BOOT, f"n{number}") for number in range(12)]
    first = play.begin()
    assert first == numbers[:8]
    for number in first:
        play.ends(number, Result.AWAY, "connection refused")
    tried: list[float] = []
    for _ in range(12):
        assert play.begin() == []
        until = play.plan().until
        assert until is not None
        play.now = (until - START).total_seconds()
        tried.append(play.now)
        assert play.begin() == numbers[:1], "the first alone"
        assert play.begin() == []
        play.ends(numbers[0], Result.AWAY, "connection refused")
    waits = [after - before for before, after in zip([0.0, *tried], tried, strict=False)]
    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]
    shown = status(play.state, play.busy, at(play.now))
    assert "has not answered since" in shown.message
    assert all(f"{HERE} does not answer: connection refused; next try at" in why for why in shown.waits.values())
    play.now += 300
    assert play.begin() == numbers[:1]
    play.ends(numbers[0])
    assert play.state.away == {}
    assert play.begin() == numbers[1:9], "it drains in order"
    assert len(play.state.pending) == 11


@ROW("L15", level="pure")
def test_L15_another_service_goes_on_and_so_does_what_needs_none():
    play = Play(services={"b": THERE})
    away = play.ask(BOOT, "a")
    assert play.begin() == [away]
    play.ends(away, Result.AWAY, "timed out")
    other, released = play.ask(BOOT, "b"), play.ask(RELEASE, "a", why="it holds nothing")
    assert play.begin() == [released, other]


@ROW("L15", level="pure")
def test_L15_a_node_to_be_wiped_is_in_quarantine_until_that_is_done_or_a_person_says_so():
    play = Play()
    wipe = play.ask(WIPE, "a")
    assert set(play.state.quarantined) == {"a"}
    play.begin()
    play.ends(wipe, Result.AWAY, "503")
    assert set(play.state.quarantined) == {"a"}
    play.now = 2
    play.begin()
    play.ends(wipe)
    assert play.state.quarantined == {}

    failed = play.ask(WIPE, "b")
    play.begin()
    play.ends(failed, Result.REFUSED, "no such action (405)")
    assert play.state.pending == ()
    assert "has failed: no such action (405)" in play.state.quarantined["b"].why
    assert "quarantine: `b`" in details(play.state, play.busy, at(play.now))
    assert "why: missing" in play.refusal(RELEASE, "b")
    released = play.ask(RELEASE, "b", why="its disks were changed")
    assert "request 3 (release) is pending, which says the opposite" in play.refusal(WIPE, "b")
    assert play.begin() == [released]
    play.ends(released)
    assert play.state.quarantined == {}


@ROW("L15", level="pure")
def test_L15_a_release_takes_back_a_wipe_that_has_not_begun_and_no_other():
    play = Play()
    wipe = play.ask(WIPE, "a")
    play.begin()
    play.ends(wipe, Result.WAITS, "1 pod is on it")
    play.ask(RELEASE, "a", why="not needed")
    assert [(one.number, one.result) for one in play.state.outcomes] == [(wipe, Result.WITHDRAWN)]

    begun = play.ask(WIPE, "b")
    play.begin()
    assert "is pending, and its drives are being erased" in play.refusal(RELEASE, "b", why="not needed")
    play.ends(begun, Result.WAITS, "0 of 1 drives are erased", progress=Progress(ordered={"d": ()}))
    assert "its drives are being erased" in play.refusal(RELEASE, "b", why="not needed")


@ROW("L15", level="pure")
def test_L15_the_same_asked_again_is_the_same_request_and_the_opposite_is_refused():
    play = Play()
    boot = play.ask(BOOT, "a")
    assert play.ask(BOOT, "a") == boot
    assert play.ask(BOOT, "a", pxe=True) != boot
    assert "request 1 (boot) is pending, which says the opposite" in play.refusal(OFF, "a")
    assert play.refusal(OFF, "b") == ""
    forced = play.ask(OFF, "c", force=True)
    assert play.ask(OFF, "c") == forced
    play.fence("d")
    assert "its pods are moved once its power is off" in play.refusal(BOOT, "d")
    for name in ("", "A", "-a", "a b", "a/b", "x" * 254):
        assert "is no node's name" in play.refusal(BOOT, name)
    assert "pxe: expected with Boot alone" in play.refusal(WIPE, "a", pxe=True)
    assert "force: expected with PowerOff alone" in play.refusal(WIPE, "a", force=True)


@ROW("L15", level="pure")
def test_L15_what_fences_goes_before_others_and_a_persons_word_before_that():
    play = Play(ProvisionerState(cluster="c", cluster_uid="u", at_once=1))
    wipe, boot = play.ask(WIPE, "a"), play.ask(BOOT, "b")
    play.fence("a")
    assert play.begin() == [3, boot], "before the wipe of the same node, and in the place of no other's"
    play.ends(boot)
    play.ends(3, Result.AWAY, "connection refused")
    assert play.begin() == [], "all of that service wait"
    by_hand = play.ask(FENCED, "a", why="pulled the plug")
    assert play.begin() == [by_hand]
    play.ends(by_hand, off_since=at(7))
    assert [(one.number, one.result) for one in play.state.outcomes[1:]] == [(3, Result.DONE), (by_hand, Result.DONE)]
    (news,) = play.state.news
    assert (news.node, news.uid, news.at, news.why) == ("a", "uid-a", at(7), "powered off by hand: pulled the plug")
    assert policy.on_news_delivered(play.state, news).news == ()
    play.now = 2
    assert play.begin() == [wipe]


@ROW("L15", level="pure")
def test_L15_a_node_that_is_heard_again_is_not_powered_off_unless_that_has_begun():
    play = Play()
    play.fence("a")
    play.fence("a")
    assert len(play.state.pending) == 1, "asked again it is the same"
    play.state = policy.withdrawn(play.state, "a", "another", play.busy, at(1))
    assert len(play.state.pending) == 1, "it is of another node of that name"
    play.state = policy.withdrawn(play.state, "a", "uid-a", play.busy, at(1))
    assert [(one.result, one.said) for one in play.state.outcomes] == [(Result.WITHDRAWN, "the node is heard again")]
    play.fence("b")
    play.begin()
    assert len(policy.withdrawn(play.state, "b", "uid-b", play.busy, at(1)).pending) == 1, "it may be being cut"
    play.ends(2, Result.AWAY, "timed out", progress=Progress(sent=at(1)))
    assert len(policy.withdrawn(play.state, "b", "uid-b", play.busy, at(2)).pending) == 1
    play.fence("b", renewed="r1")
    assert (play.request(2).renewed, play.request(2).progress) == ("r1", Progress()), "by what it is heard of last"


@ROW("L15", level="pure")
@pytest.mark.parametrize("result", [Result.AWAY, Result.WAITS])
def test_L15_a_node_that_is_heard_again_during_a_try_is_not_tried_again(result: Result):
    play = Play()
    play.fence("a")
    play.fence("b")
    assert play.begin() == [1, 2]
    for node in ("a", "b"):
        play.state = policy.withdrawn(play.state, node, f"uid-{node}", play.busy, at(1))
    play.fence("b", renewed="r1")
    play.ends(1, result, "timed out")
    play.ends(2, result, "timed out")
    assert [(one.number, one.result) for one in play.state.outcomes] == [(1, Result.WITHDRAWN)]
    assert [one.number for one in play.state.pending] == [2], "it is silent again"
    assert (HERE in play.state.away) is (result is Result.AWAY)


@ROW("L15", level="pure")
def test_L15_a_node_that_is_heard_again_while_its_service_is_looked_up_is_not_tried():
    play = Play(ProvisionerState(cluster="c", cluster_uid="u"))
    for number, node in enumerate(("a", "b"), start=1):
        play.state = policy.fence(play.state, FenceAsk(node=node, uid=f"uid-{node}", renewed="r0"), at(0))
        play.state = policy.withdrawn(play.state, node, f"uid-{node}", {number}, at(0))
    play.state = policy.enlisted(play.state, 1, "uid-a", HERE, "", at(1))
    play.state = policy.not_enlisted(play.state, 2, "no worker", at(1))
    assert [one.result for one in play.state.outcomes] == [Result.WITHDRAWN, Result.WITHDRAWN]
    assert play.state.pending == ()


@ROW("L15", level="pure")
def test_L15_a_node_that_is_heard_again_as_its_power_is_being_cut_is_off_before_it_is_left_alone():
    play = Play()
    play.fence("a")
    assert play.begin() == [1]
    play.state = policy.withdrawn(play.state, "a", "uid-a", play.busy, at(1))
    play.ends(1, Result.WAITS, "its PowerState is On", progress=Progress(sent=at(0)))
    assert [one.number for one in play.state.pending] == [1]
    assert policy.withdrawn(play.state, "a", "uid-a", play.busy, at(2)).pending[0].number == 1


@ROW("D12", level="pure")
def test_D12_a_proof_for_an_earlier_silence_ends_no_request_for_a_later_one():
    play = Play()
    play.fence("a", renewed="r0")
    play.begin()
    play.fence("a", renewed="r7")  # Heard meanwhile, and silent again: the proof of r0 comes late.
    play.ends(1, said="powered off", progress=Progress(sent=at(1)), off_since=at(2), renewed="r0")
    assert (play.state.news, play.state.outcomes) == ((), ())
    assert (play.request(1).renewed, play.request(1).progress) == ("r7", Progress()), "its lease is read before a reset"
    assert play.begin() == [1]
    play.ends(1, said="powered off", off_since=at(9), renewed="r7")
    (news,) = play.state.news
    assert (news.node, news.renewed, news.at) == ("a", "r7", at(9))


@ROW("L15", level="pure")
def test_L15_one_refused_for_good_fails_alone_and_the_last_outcomes_are_kept():
    play = Play()
    for number in range(OUTCOMES_KEPT + 10):
        asked = play.ask(BOOT, f"n{number}")
        assert play.begin() == [asked]
        play.ends(asked, Result.REFUSED, "no such system (404)")
    assert len(play.state.outcomes) == OUTCOMES_KEPT
    assert play.state.outcomes[-1].node == f"n{OUTCOMES_KEPT + 9}"
    assert play.state.done == OUTCOMES_KEPT + 10
    assert status(play.state, play.busy, at(0)).outcomes[0].said == "no such system (404)"


def test_so_many_may_be_pending_and_no_more():
    play = Play()
    for number in range(PENDING_MAXIMUM):
        play.ask(BOOT, f"n{number}")
    assert "which is the most" in play.refusal(BOOT, "another")
    assert play.refusal(BOOT, "n7") == "", "it is asked already"
    fenced = policy.fence(play.state, FenceAsk(node="x", uid="u", renewed=""), at(0))
    assert fenced.pending[-1].node == "x", "fences have room of their own"
    assert pending(play.state)[BOOT] == PENDING_MAXIMUM
    assert len(play.state.model_dump_json()) < 256 * 1024


def test_what_cannot_be_enlisted_is_tried_again_and_what_is_refused_there_ends():
    play = Play()
    play.state, one = policy.on_request(play.state, NodeAsk(node="a", action=WIPE), at(0))
    play.state = policy.not_enlisted(play.state, one.number, "no worker", at(0))
    assert play.plan().enlist == ()
    assert play.plan().until == at(2)
    assert status(play.state, play.busy, at(0)).waits[one.number] == "no worker; next try at 00:00:02 UTC"
    play.now = 2
    assert [each.number for each in play.plan().enlist] == [one.number]
    play.state = policy.enlisted(play.state, one.number, "", "", "there is no node a", at(2))
    assert play.state.quarantined == {}
    assert play.state.outcomes[-1].said == "there is no node a"


def test_what_is_only_waited_for_is_looked_at_ever_more_rarely_and_every_minute_at_least():
    play, waits = Play(), list[float]()
    wipe = play.ask(WIPE, "a")
    for _ in range(7):
        assert play.begin() == [wipe]
        play.ends(wipe, Result.WAITS, "2 pods are on it")
        until = play.plan().until
        assert until is not None
        waits.append((until - at(play.now)).total_seconds())
        play.now += waits[-1]
    assert waits == [2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("", "waits for wipe (request 1)"),
        ("released", 'waits for wipe (request 1, asked for with the note "released")'),
    ],
)
def test_a_quarantine_names_its_request_and_the_reason_if_there_is_one(why: str, said: str):
    play = Play()
    play.ask(WIPE, "a", why=why)
    assert play.state.quarantined["a"].why == said


def test_a_try_that_names_no_renewal_proves_the_silence_that_was_asked_about():
    play = Play()
    play.fence("a", renewed="r3")
    (fence,) = play.begin()
    play.ends(fence, said="powered off")
    assert [one.renewed for one in play.state.news] == ["r3"]
    assert [one.fence for one in play.state.outcomes] == [True]


@pytest.mark.row("X13", level="pure")
@pytest.mark.parametrize("name", ["somebody" + "x" * 1016, "alice" + "\u3164" * 1019, "alice\n\n\n(verified)"])
def test_no_name_pushes_away_that_it_is_unverified(name: str):
    play = Play()
    play.ask(WIPE, "a", by=name)
    (request,) = play.state.pending
    assert request.by.endswith(" (unverified)")
    assert request.by.isprintable()
    assert "\u3164" not in request.by


@pytest.mark.row("X13", level="pure")
def test_the_page_in_the_ui_says_what_is_pending_away_and_in_quarantine():
    play = Play()
    play.ask(WIPE, "a", by="somebody")
    play.fence("b")
    assert play.begin() == [2, 1]
    play.ends(2, Result.AWAY, "timed out")
    assert details(play.state, play.busy, at(1)).splitlines() == [
        f"**{escaped(HERE)} has not answered since 2026-01-01 00:00:00 UTC; "
        "requests: 2 pending (1 is a power-off that pods wait for), 1 under way, 0 ended; "
        "1 node in quarantine**",
        "",
        f"- `{HERE}` **does not answer**: timed out; tries: 1, next at 00:00:02 UTC",
        f"- 2: **power off** `b`, asked 01-01 00:00:00 UTC by node monitor: {escaped(HERE)} "
        "does not answer: timed out; "
        "next try at 00:00:02 UTC",
        "- 1: **wipe** `a`, asked 01-01 00:00:00 UTC by somebody (unverified): is under way",
        "- quarantine: `a` since 01-01 00:00:00 UTC: waits for wipe (request 1)",
    ]


@given(st.data())
def test_whatever_comes_of_them_nothing_is_lost_and_no_node_has_two_at_once(data: st.DataObject):
    play = Play(ProvisionerState(cluster="c", cluster_uid="u", at_once=3), services={"n1": THERE})
    nodes, asked = [f"n{number}" for number in range(4)], 0
    for _ in range(data.draw(st.integers(5, 40))):
        play.now += data.draw(st.sampled_from([0, 1, 2, 60, 300]))
        match data.draw(st.sampled_from(["ask", "fence", "hear", "end", "end", "again"])):
            case "ask":
                node, action = data.draw(st.sampled_from(nodes)), data.draw(st.sampled_from(list(NodeAction)))
                if not play.refusal(action, node, why="because"):
                    play.ask(action, node, why="because")
            case "fence":
                play.fence(data.draw(st.sampled_from(nodes)))
            case "hear":
                node = data.draw(st.sampled_from(nodes))
                play.state = policy.withdrawn(play.state, node, f"uid-{node}", play.busy, at(play.now))
            case "end" if play.busy:
                results = [Result.DONE, Result.WAITS, Result.AWAY, Result.REFUSED]
                number = data.draw(st.sampled_from(sorted(play.busy)))
                play.ends(number, data.draw(st.sampled_from(results)), "so it is")
            case "again":
                assert policy.plan(play.state, play.busy, at(play.now)) == play.plan()
            case _:
                pass
        play.enlist()
        play.begin()
        busy = [one for one in play.state.pending if one.number in play.busy]
        assert len(busy) == len(play.busy)
        assert len({one.node for one in busy}) == len(busy)
        assert sum(not one.fence for one in busy) <= play.state.at_once
        for service in (HERE, THERE):
            assert sum(one.fence and one.service == service for one in busy) <= play.state.at_once
        asked = play.state.last
        assert len(play.state.pending) + play.state.done == asked, "each is pending, or has an outcome"
        wiped = {one.node for one in play.state.pending if one.action is WIPE}
        assert wiped <= set(play.state.quarantined)
    # Once the service answers and nothing new is asked, all come to an end.
    for _ in range(400):
        for number in sorted(play.busy):
            play.ends(number)
        if not play.begin():
            until = play.plan().until
            if until is None:
                break
            play.now = max(play.now, (until - START).total_seconds())
    assert play.state.pending == ()


def test_what_was_remembered_before_is_read_as_it_was():
    play = Play()
    play.ask(WIPE, "a", why="released", by="somebody")
    play.fence("b")
    play.begin()
    play.ends(2, Result.AWAY, "timed out", progress=Progress(sent=at(1), ordered={"d": ("t",)}, tasks={"d": "t"}))
    assert ProvisionerState.model_validate_json(play.state.model_dump_json()) == play.state
    assert edit(play.state, at_once=3).at_once == 3


@ROW("D10", level="pure")
def test_D10_five_hundred_nodes_lost_at_once_are_all_fenced_whatever_else_is_pending():
    play = Play(ProvisionerState(cluster="c", cluster_uid="u", at_once=8))
    for number in range(PENDING_MAXIMUM):
        play.ask(WIPE, f"w{number}")
    wiping = play.begin()
    assert len(wiping) == 8, "and each takes its time"
    for number in range(500):
        play.state = policy.fence(play.state, FenceAsk(node=f"n{number}", uid=f"u{number}", renewed="r"), at(play.now))
    fences = {one.number: one.node for one in play.state.pending if one.fence}
    assert len(fences) == 500, "none is dropped"
    rounds = 0
    while fences and rounds < 100:
        rounds += 1
        play.enlist()
        begun = [number for number in play.begin() if number in fences]
        assert begun, "they need no place of a wipe"
        play.now += 5
        for number in begun:
            play.ends(number, said="powered off", off_since=at(play.now))
            del fences[number]
    assert {news.node for news in play.state.news} == {f"n{number}" for number in range(500)}
    assert pending(play.state)[WIPE] == PENDING_MAXIMUM, "nor is any of the others"
    assert 500 * 5 / 8 <= play.now <= 500 * 5 / 8 + 10, "as many of one service at once as may be"


@ROW("D10", level="pure")
def test_D10_nodes_whose_services_are_their_own_wait_for_no_other():
    play = Play()
    nodes = [f"n{number}" for number in range(100)]
    play.services = {node: f"https://{node}.bmc" for node in nodes}
    for node in nodes:
        play.fence(node)
    play.enlist()
    begun = play.begin()
    assert len(begun) >= 50
    waits = status(play.state, play.busy, at(0)).waits
    assert {waits[one.number] for one in play.state.pending if one.number not in begun} == {
        "waits for its turn: 64 fences under way, and no more at once"
    }
    for number in begun:
        play.ends(number, Result.AWAY, "timed out")
    assert len(begun) + len(play.begin()) == 100, "one that is away takes no place"


@ROW("D10", level="pure")
def test_D10_what_waits_says_for_what():
    play = Play(ProvisionerState(cluster="c", cluster_uid="u", at_once=1))
    play.fence("a")
    play.fence("b")
    boot, other = play.ask(BOOT, "c"), play.ask(BOOT, "d")
    assert play.begin() == [1, boot]
    said = status(play.state, play.busy, at(0))
    assert said.waits[2] == f"waits for its turn: 1 fence of {HERE} under way, and no more at once"
    assert said.waits[other] == "waits for its turn: 1 request under way, and no more at once"
    assert "2 are power-offs that pods wait for" in said.message


@ROW("D10", level="pure")
def test_D10_memory_is_bounded_in_bytes_and_what_has_no_room_says_so():
    play = Play()
    for number in range(PENDING_MAXIMUM):
        play.ask(BOOT, f"b{number}", why="w" * 200)
    long = "n" * 240
    for number in range(2_000):
        ask = FenceAsk(node=f"{long}{number}", uid="u" * 36, renewed="r" * 27, why="w" * 200)
        play.state = policy.fence(play.state, ask, at(play.now))
    fences = [one for one in play.state.pending if one.fence]
    assert len(fences) >= 400
    for one in fences:
        service = f"https://{one.node}.bmc:8443"
        play.state = policy.enlisted(play.state, one.number, one.uid, service, "", at(0))
        play.state = policy.on_try_ended(play.state, one.number, Result.WAITS, "é" * 200, Progress(sent=at(0)), at(0))
    assert len(play.state.model_dump_json()) < 1024 * 1024
    assert sum(len(one.model_dump_json().encode()) for one in play.state.pending if one.fence) <= FENCES_BYTES
    told = status(play.state, play.busy, at(0)).message
    assert told.startswith(f"{2_000 - len(fences):,} power-offs that were asked for have found no room so far")


@ROW("D10", level="pure")
def test_D10_a_fence_of_a_service_that_is_away_makes_room_for_one_that_may_be_done():
    play = Play()
    number = 0
    while not play.state.turned_away:
        play.state = policy.fence(play.state, FenceAsk(node=f"n{number}", uid="u" * 36, renewed="r"), at(0))
        number += 1
    for one in play.state.pending:
        play.state = policy.enlisted(play.state, one.number, one.uid, HERE, "", at(0))
    (first, *_) = play.begin()
    play.ends(first, Result.AWAY, "timed out")
    turned_away = play.state.turned_away
    while not any(one.result is Result.WITHDRAWN for one in play.state.outcomes):
        number += 1
        play.state = policy.fence(play.state, FenceAsk(node=f"n{number}", uid="u" * 36, renewed="r"), at(0))
    assert (play.state.pending[-1].node, play.state.turned_away) == (f"n{number}", turned_away)
    (gone,) = [one for one in play.state.outcomes if one.result is Result.WITHDRAWN]
    assert gone.said == f"{HERE} is away, and others wait: it is asked for again"
    assert play.request(first).node == "n0", "whoever asks whether it is back stays"
