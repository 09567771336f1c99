"""What a queue or a graph has decided and not told goes along into the next run, and is told once (D6)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.entities.graph import Graph, GraphNews, GraphState
from holdfast.model.entities.queue import Queue, QueueItem, QueueNews, QueueOrder, QueueState, Standing
from holdfast.policy.entities import graph as graph_policy
from holdfast.policy.entities import graph_outbox, queue_outbox
from holdfast.policy.entities import queue as queue_policy
from holdfast.policy.values.edit import edit
from tests.policy.lives.life import START

ROW = pytest.mark.row
WORDS = st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=30)


def news(number: int, turn: int, standing: Standing) -> QueueNews:
    return QueueNews(
        workload=f"workload/c/team/w-{number}",
        uid=f"w-{number}",
        turn=turn,
        standing=standing,
        demand={"pods": 1000},
        submitted_at=START,
    )


class Runs:
    """A queue whose runs end at any time; each tells the first few of what there is to tell."""

    def __init__(self) -> None:
        state = queue_policy.begun(Queue(name="q", cluster="c", quota={"pods": "3"}))
        state, _ = queue_policy.on_look(state, queue_policy.Seen(False, (), ()), START)
        self.state, _ = queue_policy.on_look(state, queue_policy.Seen(False, (), ()), START)
        self.waiting: tuple[queue_policy.Order, ...] = ()
        self.turns = dict.fromkeys(range(10), 0)
        self.admitted = dict[int, list[int]]()

    def says(self, number: int, *, lets_go: bool) -> None:
        """Have a workload ask for its next turn; or let go, if it was told that it was let in."""
        turn = self.turns[number]
        if lets_go and turn in self.admitted.get(number, []):
            self._hears(news(number, turn, Standing.RELEASED))
        elif not lets_go and (not turn or turn in self.admitted.get(number, [])):
            self._hears(news(number, turn, Standing.RELEASED))
            self.turns[number] = turn + 1
            self._hears(news(number, turn + 1, Standing.ASKS))

    def _hears(self, word: QueueNews) -> None:
        self.state, answer = queue_policy.on_workload_news(self.state, word, START)
        self.waiting += (queue_policy.Order(word.workload, answer),) if answer is not None else ()

    def run(self, tells: int) -> None:
        """Let in whom there is room for, tell some, and begin the next run."""
        self.state, orders = queue_policy.step(self.state)
        self.waiting += orders
        told, self.waiting = self.waiting[:tells], self.waiting[tells:]
        for order in told:
            if order.given.admit:
                self.admitted.setdefault(int(order.given.uid[2:]), []).append(order.given.turn)
        wire = queue_outbox.carried_over(self.state, self.waiting).model_dump_json()
        self.state, self.waiting = queue_outbox.taken_over(QueueState.model_validate_json(wire))


@ROW("D6", level="pure")
@settings(max_examples=60)
@given(st.lists(st.tuples(WORDS, st.integers(0, 4)), max_size=12))
def test_nobody_is_lost_or_let_in_twice_however_runs_end(script: list[tuple[list[tuple[int, bool]], int]]) -> None:
    one = Runs()
    for words, tells in script:
        for number, lets_go in words:
            one.says(number, lets_go=lets_go)
        one.run(tells)
        assert sum(item.admitted for item in one.state.items.values()) <= 3
    for _ in range(40):
        for number in range(10):
            one.says(number, lets_go=True)
        one.run(100)
    for number, turn in one.turns.items():
        assert one.admitted.get(number, []) == list(range(1, turn + 1)), "once for each time that it asked"


def test_an_answer_to_an_earlier_request_and_a_refusal_do_not_go_along() -> None:
    one = Runs()
    one.says(1, lets_go=False)
    one.state, orders = queue_policy.step(one.state)
    one.state, _ = queue_policy.on_workload_news(one.state, news(1, 2, Standing.ASKS), START + timedelta(seconds=1))
    full = queue_policy.Order("workload/c/team/w-2", QueueOrder(uid="w-2", turn=1, why="its queue is full"))
    ask = queue_policy.Order("workload/c/team/w-3", QueueOrder(uid="w-3", turn=4, again=True, why="restored"))
    state, again = queue_outbox.taken_over(queue_outbox.carried_over(one.state, (*orders, full, ask)))
    assert [(order.workload, order.given.turn, order.given.again) for order in again] == [(ask.workload, 4, True)]
    assert state == one.state


@ROW("D6", level="pure")
@pytest.mark.parametrize(
    ("known", "owed"),
    [
        ({"admitted": True}, [True]),
        ({"admitted": False}, [False]),
        ({"admitted": True, "turn": 2}, [False]),
        (None, []),
    ],
    ids=["it holds its place", "it has let go", "it holds another", "it is forgotten"],
)
def test_D6_one_that_was_let_in_is_told_so_by_the_next_run_if_that_is_still_so(
    known: dict[str, Any] | None, owed: list[bool]
) -> None:
    one, item = Runs(), QueueItem(workload="workload/c/team/w-1", turn=1, since=START)
    state = edit(one.state, items={"w-1": edit(item, **known)} if known is not None else {})
    order = queue_policy.Order(item.workload, QueueOrder(uid="w-1", turn=1, admit=True, why="queue q lets it in"))
    assert [each.owed for each in queue_outbox.carried_over(state, (order,)).items.values()] == owed


def test_of_too_many_that_are_to_be_asked_those_go_along_that_no_look_finds() -> None:
    again = [QueueOrder(turn=4, again=True, why="restored", uid=uid) for uid in ("",) * 600 + ("w-7",)]
    orders = [queue_policy.Order(f"workload/c/team/w-{number}", order) for number, order in enumerate(again)]
    owed = queue_outbox.carried_over(Runs().state, orders).owed
    assert (len(owed), owed[0].uid) == (queue_outbox.ASKED_MAXIMUM, "w-7")


@ROW("D6", level="pure")
def test_a_graph_tells_each_of_its_workloads_once_and_strangers_up_to_a_number() -> None:
    graph = Graph.model_validate({"name": "g", "cluster": "c", "nodes": [{"name": "a"}, {"name": "b"}]})
    state = graph_policy.begun(graph)
    for name in "ab":
        state = graph_policy.on_workload_news(graph, state, GraphNews(item=name, workload_uid=name))
    state, orders = graph_policy.step(graph, state)
    strangers = [graph_policy.Order(f"s-{one}", "uid", False, "no such workload") for one in range(2_000)]
    wire = graph_outbox.carried_over(state, (*orders, *strangers)).model_dump_json()
    after, again = graph_outbox.taken_over(GraphState.model_validate_json(wire))
    assert again == (*orders, *strangers[: graph_outbox.STRANGERS_MAXIMUM])
    assert after == state
