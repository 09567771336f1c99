"""An admission queue: who is let in, in which order and which cycle, and what it remembers (rows L9, L26, L27)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.model.entities.queue import Queue, QueueNews, Standing, StopPolicy, Strategy
from holdfast.policy.entities import queue as policy
from holdfast.policy.values.edit import edit
from tests.policy.lives.life import START

ROW = pytest.mark.row
ASKS, HOLDS, RELEASED = Standing.ASKS, Standing.HOLDS, Standing.RELEASED


def queue(pods: int | None = 4, strategy: Strategy = Strategy.BEST_EFFORT_FIFO, **fields: Any) -> Queue:
    quota = {"pods": str(pods)} if pods is not None else {}
    return Queue(name="gpus", cluster="dev", quota=quota, strategy=strategy, **fields)


class Life:
    """A queue, lived by hand; its workloads are called by letters, and ask for two pods each unless said otherwise."""

    def __init__(self, given: Queue | None = None, workloads: Iterable[str] = (), kueue: bool = False) -> None:
        self.state = policy.begun(given or queue())
        self.now = START
        self.let_in: list[str] = []
        self.turns: dict[str, int] = {}
        self.asked: list[str] = []
        self.looked(workloads, kueue=kueue)
        if not self.state.awaited:
            self.looked(kueue=kueue)

    def looked(self, workloads: Iterable[str] = (), gone: Iterable[str] = (), kueue: bool = False) -> None:
        given = policy.Seen(kueue, tuple(f"workload/dev/ns/{one}" for one in workloads), tuple(gone))
        self.state, orders = policy.on_look(self.state, given, self.now)
        assert all(order.given.again and not order.given.admit for order in orders)
        self.asked += [order.workload.rpartition("/")[2] for order in orders]

    def hears(self, name: str, standing: Standing, pods: int = 2, **fields: Any) -> policy.QueueOrder | None:
        fields = {"uid": name, "turn": self.turns.get(name, 1), "submitted_at": self.now, **fields}
        said = QueueNews(workload=f"workload/dev/ns/{name}", standing=standing, demand={"pods": pods * 1000}, **fields)
        self.state = policy.replaced(self.state, said)
        self.state, answer = policy.on_workload_news(self.state, said, self.now)
        return answer

    def asks(self, *named: str, pods: int = 2, **fields: Any) -> list[str]:
        """Some ask, one after another in time of submission, and are looked at together; who is let in by that."""
        for name in named:
            self.now += timedelta(seconds=1)
            self.turns[name] = self.turns.get(name, 0) + 1
            self.hears(name, ASKS, pods, **fields)
        return self.step()

    def comes_back(self, name: str, submitted: datetime) -> list[str]:
        return self.asks(name, requeued=True, submitted_at=submitted)

    def ends(self, name: str) -> list[str]:
        self.hears(name, RELEASED)
        return self.step()

    def step(self) -> list[str]:
        self.state, orders = policy.step(self.state)
        assert all(order.given.admit for order in orders)
        found = [order.given.uid for order in orders]
        self.let_in += found
        return found

    def later(self) -> list[str]:
        """Let time pass until the queue wakes by itself."""
        wakes = policy.wakes(self.state, self.now)
        assert wakes is not None
        self.now = wakes
        return self.step()

    def why(self, name: str) -> str:
        (line,) = [one for one in policy.status(self.state).lines if one.name == name]
        return line.why

    @property
    def used(self) -> str:
        return policy.status(self.state).used.get("pods", "0")


@ROW("L9", level="pure")
def test_L9_as_many_are_let_in_as_the_quota_has_room_for_and_the_next_as_one_lets_go() -> None:
    one = Life()
    assert one.asks("a", "b", "c") == ["a", "b"]
    assert one.used == "4"
    assert one.why("c") == "it requests 2 pods, and 0 of 4 are free"
    assert one.ends("a") == ["c"]
    assert one.ends("b") == one.ends("c") == []
    assert one.used == "0"


@ROW("L9", level="pure")
def test_priority_goes_before_submission_and_submission_before_the_name() -> None:
    one = Life(queue(0))
    one.asks("late", pods=1)
    one.asks("low", pods=1, submitted_at=START - timedelta(hours=1))
    one.asks("high", pods=1, priority=9)
    one.asks("also", pods=1, submitted_at=START - timedelta(hours=1))
    assert [line.name for line in policy.status(one.state).lines] == ["high", "also", "low", "late"]
    assert [line.position for line in policy.status(one.state).lines] == [1, 2, 3, 4]


@ROW("L9", level="pure")
def test_by_best_effort_the_next_that_has_room_goes_and_strictly_nobody_does() -> None:
    loose, strict = Life(queue(3)), Life(queue(3, Strategy.STRICT_FIFO))
    for one in (loose, strict):
        one.asks("a")
        one.asks("b")
    assert loose.asks("c", pods=1) == ["c"]
    assert strict.asks("c", pods=1) == []
    assert strict.why("c") == "it comes after ns/b, which has no room yet"
    assert strict.why("b") == "it requests 2 pods, and 1 of 3 is free"
    assert strict.ends("a") == ["b", "c"]


@ROW("L9", level="pure")
def test_what_asks_for_more_than_there_will_ever_be_keeps_nobody_waiting() -> None:
    one = Life(queue(3, Strategy.STRICT_FIFO))
    assert one.asks("huge", pods=9) == []
    assert one.asks("b") == ["b"]
    assert one.why("huge") == "it cannot be admitted with this quota: it requests 9 pods, and the whole quota is 3"
    one.state = policy.configured(one.state, queue(11))
    assert one.step() == ["huge"]


@ROW("L9", level="pure")
def test_what_no_quota_names_is_not_bounded() -> None:
    one = Life(queue(None))
    assert one.asks("a", "b", pods=10_000) == ["a", "b"]
    assert policy.status(one.state).used == {"pods": "20000"}


@ROW("L9", level="pure")
def test_a_smaller_quota_takes_nothing_from_those_that_were_let_in() -> None:
    one = Life()
    one.asks("a", "b")
    one.state = policy.configured(one.state, queue(2))
    assert one.step() == []
    assert one.used == "4"
    assert one.asks("c") == []
    assert one.ends("a") == []
    assert one.ends("b") == ["c"]


@ROW("L9", level="pure")
def test_a_held_queue_lets_nobody_in_and_takes_nothing_back() -> None:
    one = Life()
    one.asks("a")
    one.state = policy.configured(one.state, queue(stop_policy=StopPolicy.HOLD))
    assert one.asks("b") == []
    assert one.why("b") == "its queue is held: stopPolicy Hold"
    assert policy.status(one.state).message == "it is held: stopPolicy Hold"
    one.state = policy.configured(one.state, queue())
    assert one.step() == ["b"]


@ROW("L26", level="pure")
def test_L26_what_came_back_goes_before_what_was_submitted_later() -> None:
    one = Life(queue(2))
    began = one.now
    assert one.asks("a", submitted_at=began) == ["a"]
    assert one.asks("b") == []
    # It lets go and asks again in one word: there is room, and it is not given away to b, which is younger.
    assert one.comes_back("a", began) == []
    assert one.later() == ["a"]
    assert one.ends("a") == ["b"]


@ROW("L26", level="pure")
def test_L26_what_came_back_goes_after_what_was_submitted_earlier() -> None:
    one = Life(queue(2))
    one.asks("b", submitted_at=one.now + timedelta(hours=1))
    one.asks("a", submitted_at=one.now)
    assert one.comes_back("b", one.now + timedelta(hours=1)) == ["a"]
    assert one.ends("a") == ["b"]


@ROW("L27", level="pure")
def test_L27_what_came_back_in_a_cycle_is_let_in_in_the_next_at_the_earliest() -> None:
    one = Life(queue(2))
    one.asks("a")
    assert one.comes_back("a", START) == []
    came = one.state.cycle
    assert one.why("a") == f"requeued in cycle {came}: there is room, and it is admitted in the next cycle"
    assert policy.wakes(one.state, one.now) == one.now + policy.CYCLE
    assert one.later() == ["a"]
    assert one.state.items["a"].cycle == came + 1 == one.state.cycle


@ROW("L27", level="pure")
def test_what_did_not_fail_asks_anew_without_waiting_for_a_cycle() -> None:
    one = Life(queue(2))
    one.asks("a")
    one.hears("a", RELEASED)
    assert one.asks("a") == ["a"]


@ROW("L9", level="pure")
def test_a_word_that_comes_twice_or_late_changes_nothing() -> None:
    one = Life()
    one.asks("a")
    one.asks("a", pods=1)  # Its second request: the first one's place is free again.
    assert one.let_in == ["a", "a"]
    assert one.used == "1"
    before = one.state
    one.hears("a", RELEASED, turn=1)
    one.hears("a", ASKS, turn=1)
    assert one.state == before
    # One that asks for what it was already told to have has lost the answer.
    answer = one.hears("a", ASKS, pods=1)
    assert answer is not None
    assert answer.admit
    assert answer.turn == 2
    assert one.state == before


@ROW("L9", level="pure")
def test_a_queue_that_has_just_begun_lets_nobody_in_before_it_has_heard_who_holds_something() -> None:
    fresh = policy.begun(queue())
    assert policy.looks(fresh, START)
    one = Life(workloads=["a", "b"])
    assert one.asked == ["a", "b"]
    assert one.asks("new") == []
    assert one.why("new") == "its queue has just started: 2 workloads have not said yet what they use"
    one.hears("a", HOLDS, turn=7)
    assert one.step() == []
    one.hears("b", RELEASED)
    assert one.step() == ["new"]
    assert one.used == "4"
    assert one.why("a") == "admitted before"


@ROW("L9", level="pure")
def test_before_its_first_look_nobody_is_let_in() -> None:
    one = Life()
    one.state = policy.begun(queue())
    assert one.asks("a") == []
    assert one.why("a") == "its queue has just started, and has not seen its cluster yet"
    assert policy.wakes(one.state, one.now) is None
    one.looked()
    assert one.step() == ["a"]


@ROW("L9", level="pure")
def test_L9_one_whose_admission_was_forgotten_takes_its_quota_again_once_a_look_finds_that_it_has_begun() -> None:
    one = Life(queue(2))
    one.hears("a", ASKS)  # It runs, and the queue's workflow was reset to before it was let in.
    assert one.asks("b", priority=10) == ["b"]
    begun = policy.Seen(False, ("workload/dev/ns/a", "workload/dev/ns/b"), (), begun=("a", "of another queue"))
    one.state, orders = policy.on_look(one.state, begun, one.now)
    assert [(order.workload, order.given.again) for order in orders] == [("workload/dev/ns/a", True)]
    one.hears("a", HOLDS)
    one.hears("b", RELEASED)
    assert one.asks("c") == []
    one.hears("a", RELEASED)
    assert one.step() == ["c"]


@ROW("L9", level="pure")
def test_one_that_cannot_be_asked_how_it_stands_is_not_awaited() -> None:
    one = Life(queue(2), workloads=["x"])
    one.state = policy.gone(one.state, policy.Order("workload/dev/ns/x", policy.QueueOrder(uid="", again=True, why="")))
    assert one.asks("a") == ["a"]


@ROW("L9", level="pure")
def test_L9_one_that_was_submitted_anew_is_not_forgotten_with_the_one_that_had_its_name() -> None:
    one = Life(queue(2))
    assert one.asks("a") == ["a"]
    assert one.asks("b") == []
    seen = policy.Seen(kueue=False, workloads=("workload/dev/ns/a",), gone=())  # Somebody has terminated b.
    for _ in range(policy.SETTLING):
        one.state, _ = policy.on_look(one.state, seen, one.now)
    one.state, (order,) = policy.on_look(one.state, seen, one.now)
    assert order.workload == "workload/dev/ns/b"
    item = one.state.items["b"]
    one.state = edit(
        one.state, items={**{key: each for key, each in one.state.items.items() if key != "b"}, "b2": item}
    )
    assert "b2" in policy.gone(one.state, order).items
    old = edit(one.state, items={**one.state.items, "b": item})
    assert "b" not in policy.gone(old, order).items


@ROW("D13", level="pure")
def test_D13_one_that_was_terminated_as_it_waited_is_forgotten_once_it_is_submitted_again() -> None:
    one = Life(queue(2))
    one.asks("a", "b")
    one.asks("b", uid="b2")  # Somebody has terminated b.
    assert set(one.state.items) == {"a", "b2"}
    one.hears("b", ASKS, uid="b0", submitted_at=START)
    assert set(one.state.items) == {"a", "b2", "b0"}, "what comes late of an earlier one replaces nothing"
    one.hears("b", ASKS, uid="b3")
    assert set(one.state.items) == {"a", "b2", "b3"}, "of two of one time none is known to be the earlier"
    assert one.ends("a") == ["b2"]


@ROW("D13", level="pure")
def test_D13_one_that_was_terminated_as_it_ran_keeps_its_quota_until_a_look_once_it_is_submitted_again() -> None:
    one = Life(queue(2))
    one.asks("a")
    assert one.asks("a", uid="a2") == []
    assert (set(one.state.items), set(one.state.doubted)) == ({"a", "a2"}, {"a"})
    assert policy.looks(one.state, one.now), "at once"
    one.looked(["a"], gone=["a"])
    assert one.step() == ["a2"]


@ROW("D13", level="pure")
def test_D13_one_that_holds_quota_and_cannot_be_told_keeps_it_until_a_look_proves_that_no_pod_is_left() -> None:
    one = Life(queue(2))
    assert one.asks("a") == ["a"]
    # Its pods run. It asks again, since its memory was restored; then somebody terminates its workflow.
    answer = one.hears("a", ASKS)
    assert answer is not None
    one.state = policy.gone(one.state, policy.Order("workload/dev/ns/a", answer))
    assert one.asks("b") == [], "admitted beyond the quota while the pods of another run"
    assert policy.looks(one.state, one.now), "a look at the cluster is due at once"
    one.looked(["b"])
    assert one.step() == []
    one.looked(["b"], gone=["a"])
    assert one.step() == ["b"]


@ROW("D13", level="pure")
def test_D13_one_that_was_let_in_and_is_gone_is_counted_out_by_the_look_that_follows_at_once() -> None:
    one = Life(queue(2))
    assert one.asks("a") == ["a"]
    assert one.asks("b") == []
    one.state = policy.gone(
        one.state, policy.Order("workload/dev/ns/a", policy.QueueOrder(uid="a", admit=True, why=""))
    )
    assert one.step() == []
    assert policy.wakes(one.state, one.now) == one.now
    one.looked(["b"], gone=["a"])
    assert one.step() == ["b"]
    assert not policy.looks(one.state, one.now)


@ROW("D13", level="pure")
def test_D13_two_looks_settle_a_doubt_and_an_open_workload_is_asked_again() -> None:
    one = Life(queue(2))
    one.asks("a")
    one.state = policy.gone(
        one.state, policy.Order("workload/dev/ns/a", policy.QueueOrder(uid="a", admit=True, why=""))
    )
    one.looked(["a"])  # This look may have begun before the doubt.
    assert policy.wakes(one.state, one.now) == one.now + policy.LOOK_SOON
    one.looked(["a"])
    assert one.asked == ["a", "a"]
    assert policy.wakes(one.state, one.now) is None, "nobody waits, and nothing is in doubt any more"
    # It has not had the word that lets it in, and is told again.
    answer = one.hears("a", ASKS)
    assert answer is not None
    assert answer.admit


@ROW("L9", level="pure")
def test_what_was_terminated_by_hand_is_counted_out_by_a_look_at_the_cluster() -> None:
    one = Life(queue(2))
    one.asks("a", "b")
    assert not policy.looks(one.state, one.now)
    assert policy.wakes(one.state, one.now) == START + policy.LOOK_EVERY
    one.now = START + policy.LOOK_EVERY
    assert policy.looks(one.state, one.now)
    one.looked(gone=["a"])
    assert one.step() == ["b"]
    assert policy.wakes(one.state, one.now) is None, "nobody waits: the cluster is left alone"


@ROW("L9", level="pure")
def test_where_kueue_is_installed_it_steps_aside() -> None:
    one = Life(queue(1), kueue=True)
    assert one.asks("a", "b") == ["a", "b"]
    assert policy.status(one.state).message.startswith("Kueue is installed")


@ROW("L9", level="pure")
@pytest.mark.parametrize(
    ("seen", "counts"),
    [
        (policy.Seen(kueue=False, workloads=(), gone=()), ("pods", "nvidia.com/gpu")),
        (policy.Seen(kueue=True, workloads=(), gone=()), ()),
        (policy.Seen(kueue=False, workloads=(), gone=(), kueue_namespaces=("ns",)), ()),
    ],
    ids=["a quota", "Kueue", "Kueue in its namespace"],
)
def test_L9_who_is_let_in_is_told_what_the_queue_counts(seen: policy.Seen, counts: tuple[str, ...]) -> None:
    one = Life(edit(queue(), quota={"pods": "4", "nvidia.com/gpu": "2"}))
    one.hears("a", ASKS)
    one.state, _ = policy.on_look(one.state, seen, one.now)
    one.state, (order,) = policy.step(one.state)
    again = one.hears("a", ASKS)
    assert again is not None
    assert (order.given.counts, again.counts) == (counts, counts)


@ROW("F19", level="pure")
def test_F19_it_steps_aside_in_the_namespaces_that_kueue_manages_and_nowhere_else() -> None:
    one = Life(queue(2))
    assert one.asks("a", "b") == ["a"]
    there = tuple(item.workload for item in one.state.items.values())
    seen = policy.Seen(kueue=False, workloads=there, gone=(), kueue_namespaces=("other",))
    one.state, _ = policy.on_look(one.state, seen, one.now)
    assert one.step() == []
    seen = policy.Seen(kueue=False, workloads=there, gone=(), kueue_namespaces=("ns", "other"))
    one.state, _ = policy.on_look(one.state, seen, one.now)
    assert one.step() == ["b"], "it counts nothing of what Kueue decides"
    told = policy.status(one.state)
    assert told.message.endswith("Kueue decides in ns, other, and this queue lets in what is there")
    assert told.used == {"pods": "0"}


@ROW("L9", level="pure")
@pytest.mark.parametrize(("bound", "most"), [("ITEMS_MAXIMUM", 2), ("MEMORY_MAXIMUM", 460)])
def test_a_queue_that_is_full_turns_away_and_asks_again_once_there_is_room(
    monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(policy, bound, most)
    one = Life()
    one.asks("a", "b")
    answer = one.hears("c", ASKS)
    assert answer is not None
    assert not answer.admit
    assert "is full" in answer.why
    assert one.hears("d", HOLDS) is None
    assert "d" in one.state.items, "what holds something is never overlooked"
    assert not policy.looks(one.state, one.now)
    for name in "abd":
        one.ends(name)
    assert policy.looks(one.state, one.now)
    one.looked(["c"])
    assert one.asked == ["c"]
    assert not policy.looks(one.state, one.now)


@ROW("L9", level="pure")
def test_a_queue_that_is_to_end_lets_nobody_in_and_ends_once_it_is_empty() -> None:
    one = Life()
    one.asks("a")
    one.state = policy.closing(one.state, "moved")
    assert one.asks("b") == []
    assert one.why("b") == "its queue is to be deleted: moved"
    one.ends("a")
    assert not policy.over(one.state)
    one.ends("b")
    assert policy.over(one.state)
    one.state = policy.configured(one.state, queue())
    assert not policy.over(one.state), "who says what it is to be wants it to be there"
    assert policy.closing(one.state, "").closing == "a person asked for it"


@ROW("L9", level="pure")
def test_the_page_in_the_ui_says_what_is_taken_and_who_is_next() -> None:
    one = Life()
    one.asks("a", "b", "c")
    assert policy.details(one.state).splitlines() == [
        "**2 admitted, 1 waiting**: 1 waiting; ns/c is first: it requests 2 pods, and 0 of 4 are free (cycle 1)",
        "",
        "| resource | taken | quota |",
        "|---|---|---|",
        "| pods | 4 | 4 |",
        "",
        "| next | priority | since | waits because |",
        "|---|---|---|---|",
        "| ns/c | 0 | 2026-01-01 00:00:03 | it requests 2 pods, and 0 of 4 are free |",
    ]
    assert "nobody waits" in policy.details(Life().state)


@ROW("L9", level="pure")
@ROW("L27", level="pure")
@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_the_quota_is_kept_and_nobody_is_passed_or_forgotten(seed: int) -> None:
    """Random lives: requests, ends, requeues and late words, in any order."""
    chance = random.Random(seed)
    quota = chance.randint(1, 8)
    strategy = chance.choice(list(Strategy))
    one = Life(queue(quota, strategy))
    holds, waits = dict[str, int](), dict[str, tuple[int, datetime, int]]()
    for number in range(120):
        name = f"w{chance.randrange(12)}"
        act = chance.random()
        came_back: str | None = None
        if name in holds and act < 0.3:
            came_back, submitted = name, one.state.items[name].since
            pods = holds.pop(name)
            waits[name] = (pods, submitted, number)
            found = one.asks(name, pods=pods, requeued=True, submitted_at=submitted)
        elif name in holds and act < 0.7:
            holds.pop(name)
            found = one.ends(name)
        elif name not in holds and name not in waits:
            pods = chance.randint(1, quota)
            found = one.asks(name, pods=pods)
            waits[name] = (pods, one.state.items[name].since, number)
        else:
            one.hears(name, chance.choice(list(Standing)), turn=one.turns.get(name, 1) - 1)
            found = one.step()
        assert came_back not in found, "let in in the cycle in which it came back"
        for each in found:
            holds[each] = waits.pop(each)[0]
        assert sum(holds.values()) <= quota
        if strategy is Strategy.STRICT_FIFO and found:
            latest = max(one.state.items[each].since for each in found)
            passed = [name for name, (_, since, _) in waits.items() if since < latest and name != came_back]
            assert not passed, "somebody was passed"
    for _ in range(200):
        if not waits:
            break
        for name in sorted(holds):
            holds.pop(name)
            for each in [*one.ends(name), *one.step()]:
                holds[each] = waits.pop(each)[0]
        for each in one.step():
            holds[each] = waits.pop(each)[0]
    assert not waits, "somebody was forgotten"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": "Bad_Name"}, "expected a DNS label"),
        ({"cluster": "a b"}, "expected a DNS label"),
        ({"quota": {"cpu": "many"}}, "cpu: 'many' is not a quantity"),
        ({"quota": {"": "1"}}, "expected a resource, such as pods"),
        ({"quota": "all"}, "valid dictionary"),
        ({"quota": {f"r{number}": "1" for number in range(33)}}, "at most 32 items"),
        ({"strategy": "LIFO"}, "StrictFIFO"),
        ({"stopPolicy": "Drain"}, "Hold"),
        ({"cohort": "a"}, "Extra inputs"),
    ],
)
def test_a_queue_that_cannot_be_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Queue.model_validate({"name": "gpus", "cluster": "dev", **fields})


def test_numbers_of_a_document_are_amounts() -> None:
    assert Queue.model_validate({"name": "q", "cluster": "c", "quota": {"cpu": 8, "memory": "1Gi"}}).room == {
        "cpu": 8000,
        "memory": 1024**3 * 1000,
    }


def test_one_that_ends_before_it_has_said_how_it_stands_is_not_awaited_for_ever() -> None:
    one = Life(workloads=["a", "b"])
    one.hears("b", HOLDS)
    assert one.asks("c") == []
    assert policy.wakes(one.state, one.now) == one.state.looked_at + policy.LOOK_SOON  # type: ignore[operator]
    one.looked(["a", "b", "c"])
    assert one.asked == ["a", "b", "a"], "it is asked again while it is there"
    one.looked(["b", "c"])
    assert one.step() == ["c"]


def test_one_that_the_list_did_not_have_at_first_is_asked_by_the_next_look() -> None:
    one = Life(queue(2), workloads=["a"])
    one.hears("a", RELEASED)
    one.looked(["a", "late"])
    assert one.asked == ["a", "a", "late"]
    assert one.asks("c") == []
    for name, standing in (("a", RELEASED), ("late", HOLDS)):
        one.hears(name, standing)
    assert one.step() == []
    assert one.ends("late") == ["c"]
    one.looked(["a", "c"])
    assert one.asked == ["a", "a", "late"], "from then on those that ask for nothing are left alone"


def test_who_looks_is_not_woken_to_look() -> None:
    one = Life(queue(2))
    one.asks("a", "b")
    one.now += policy.LOOK_EVERY
    assert policy.wakes(one.state, one.now) == one.now
    assert policy.wakes(one.state, one.now, looking=True) is None


def test_one_that_waits_and_is_not_in_the_list_is_forgotten_if_it_cannot_be_told() -> None:
    one = Life(queue(2))
    one.asks("a", "b")
    given = policy.Seen(False, ("workload/dev/ns/a",), ())
    state, (order,) = policy.on_look(one.state, given, one.now)
    assert order.workload == "workload/dev/ns/b"
    assert set(policy.gone(state, order).items) == {"a"}


def test_what_is_asked_for_when_it_is_let_in_is_what_is_counted() -> None:
    one = Life(queue(8))
    one.asks("a", pods=1)
    answer = one.hears("a", ASKS, 8, turn=1)
    assert answer is not None
    assert answer.admit
    assert one.asks("b", pods=1) == []


def test_one_whose_memory_is_of_an_earlier_time_is_told_where_to_count_on() -> None:
    one = Life(queue(2))
    one.asks("a")
    one.ends("a")
    one.asks("a")
    answer = one.hears("a", ASKS, turn=1)
    assert answer is not None
    assert (answer.again, answer.turn, answer.admit) == (True, 2, False)


def test_without_a_time_of_submission_the_first_request_is_what_its_place_goes_by() -> None:
    one = Life(queue(2))
    one.asks("a", submitted_at=None)
    first = one.state.items["a"].since
    one.asks("b")
    one.asks("a", submitted_at=None, requeued=True)
    assert one.state.items["a"].since == first


def test_a_queue_that_is_to_end_looks_for_those_that_ended_without_a_word() -> None:
    one = Life(queue(2))
    one.asks("a")
    one.state = policy.closing(one.state, "the team moved")
    assert policy.wakes(one.state, one.now) == one.state.looked_at + policy.LOOK_EVERY  # type: ignore[operator]
    one.looked(gone=["a"])
    assert policy.over(one.state)


def test_a_word_of_nobody_is_none() -> None:
    with pytest.raises(ValidationError, match="workload"):
        QueueNews(workload="x", uid="u", turn=1, standing=ASKS)
