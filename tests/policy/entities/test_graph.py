"""Graphs of workloads: which begin, which cannot any more, what a graph comes to (row L31)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.model import Phase, Reason
from holdfast.model.entities import graph as model
from holdfast.model.entities.graph import (
    EDGES_MAXIMUM,
    ITEMS_MAXIMUM,
    Edge,
    EdgeKind,
    Graph,
    GraphNews,
    GraphNode,
    GraphState,
    ItemPhase,
)
from holdfast.policy.entities import graph as policy
from tests.refusing import lines_run, missed, places

pytestmark = pytest.mark.row("L31", level="pure")
MEBIBYTE = 1 << 20
S, F, C = Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED


def node(name: str, *after: str, tasks: int | None = None) -> GraphNode:
    """A node from what it comes after, written `extract` or `extract:Failure`."""
    edges = [one.partition(":") for one in after]
    return GraphNode(
        name=name, tasks=tasks, after=tuple(Edge(node=one, on=EdgeKind(on or "Success")) for one, _, on in edges)
    )


def graph(*nodes: GraphNode) -> Graph:
    return Graph(name="etl", cluster="dev", nodes=nodes)


class Life:
    """A graph, lived by hand."""

    def __init__(self, *nodes: GraphNode, arrive: bool = True) -> None:
        self.graph = graph(*nodes)
        self.state = policy.begun(self.graph)
        self.admitted: list[str] = []
        self.refused: dict[str, tuple[str, Reason]] = {}
        if arrive:
            self.arrive(*self.graph.items)

    def arrive(self, *items: str) -> None:
        for item in items:
            self.state = policy.on_workload_news(
                self.graph, self.state, GraphNews(item=item, workload_uid=f"uid-{item}")
            )
        self._step()

    def end(self, item: str, outcome: Phase, released: bool = True) -> None:
        news = GraphNews(item=item, workload_uid=f"uid-{item}", outcome=outcome, released=released)
        self.state = policy.on_workload_news(self.graph, self.state, news)
        self._step()

    def cancel(self, why: str) -> None:
        self.state = policy.cancelled(self.state, why)
        self._step()

    def _step(self) -> None:
        self.state, orders = policy.step(self.graph, self.state)
        for order in orders:
            assert order.uid == f"uid-{order.item}"
            if order.admit:
                self.admitted.append(order.item)
            else:
                self.refused[order.item] = (order.why, order.reason)
        again, none = policy.step(self.graph, self.state)
        assert (again, none) == (self.state, ()), "a second step changes nothing"

    @property
    def over(self) -> Phase | None:
        return policy.over(self.graph, self.state)

    def phases(self, *items: str) -> list[ItemPhase]:
        return [self.state.items[item].phase for item in items]


@pytest.mark.parametrize(
    ("on", "outcome", "begins"),
    [
        ("Success", S, True),
        ("Success", F, False),
        ("Success", C, False),
        ("Failure", S, False),
        ("Failure", F, True),
        ("Failure", C, False),
        ("Any", S, True),
        ("Any", F, True),
        ("Any", C, True),
    ],
)
def test_L31_each_edge_at_each_terminal_state(on: str, outcome: Phase, begins: bool):
    life = Life(node("a"), node("b", f"a:{on}"))
    assert life.admitted == ["a"]
    assert life.state.items["b"].phase is ItemPhase.BLOCKED
    life.end("a", outcome, released=False)
    assert life.admitted == (["a", "b"] if begins else ["a"])
    if not begins:
        why, reason = life.refused["b"]
        assert reason is Reason.DEPENDENCY_UNSATISFIABLE
        assert why == ("a has not failed" if on == "Failure" else "a has not succeeded")


def test_L31_what_cannot_begin_any_more_is_cancelled_and_with_it_what_waits_for_its_success():
    life = Life(node("a"), node("b", "a"), node("c", "b"), node("d", "c:Any"), node("e", "c:Failure"), node("f"))
    life.end("a", F)
    assert {name: why for name, (why, _) in life.refused.items()} == {
        "b": "a has not succeeded",
        "c": "b has not succeeded",
        "e": "c has not failed",
    }
    assert life.admitted == ["a", "f"]
    for name in ("b", "c", "e"):
        life.end(name, C)
    assert life.admitted == ["a", "f", "d"]
    life.end("d", S)
    assert life.over is None
    life.end("f", S)
    assert life.over is Phase.FAILED


def test_L31_a_failure_that_something_follows_upon_is_not_the_graphs():
    life = Life(node("a"), node("b", "a"), node("mend", "a:Failure"))
    life.end("a", F)
    life.end("b", C)
    assert life.admitted == ["a", "mend"]
    life.end("mend", S)
    assert life.over is Phase.SUCCEEDED


def test_L31_what_a_person_cancels_alone_cancels_the_graph_unless_something_follows():
    life = Life(node("a"), node("b"))
    life.end("a", C)
    life.end("b", S)
    assert life.over is Phase.CANCELLED
    life = Life(node("a"), node("b", "a:Any"))
    life.end("a", C)
    life.end("b", S)
    assert life.over is Phase.SUCCEEDED


def test_L31_corresponding_tasks_follow_each_its_own():
    life = Life(node("a", tasks=3), node("b", "a:Corresponding", tasks=3))
    life.end("a-1", S)
    assert life.admitted == ["a-0", "a-1", "a-2", "b-1"]
    life.end("a-0", F)
    assert life.refused == {"b-0": ("a-0 has not succeeded", Reason.DEPENDENCY_UNSATISFIABLE)}
    life.end("a-2", S)
    assert life.admitted[-1] == "b-2"


def test_L31_of_a_node_with_tasks_all_must_have_ended():
    life = Life(node("a", tasks=3), node("all", "a"), node("any", "a:Any"), node("mend", "a:Failure"))
    life.end("a-0", S)
    life.end("a-1", F)
    assert list(life.refused) == ["all"]
    assert life.admitted == ["a-0", "a-1", "a-2"]
    life.end("a-2", S)
    assert life.admitted[3:] == ["any", "mend"]


def test_L31_mutex_keeps_two_apart_until_the_first_holds_nothing_any_more():
    life = Life(node("a"), node("b", "a:Mutex"), node("c", "b:Mutex"))
    assert life.admitted == ["a", "c"]
    life.end("a", S, released=False)
    assert life.admitted == ["a", "c"]
    life.end("a", S)
    life.end("c", F, released=False)
    assert life.admitted == ["a", "c"]
    assert policy.status(life.graph, life.state).waits == {"b": "c to be gone"}
    life.end("c", F)
    assert life.admitted == ["a", "c", "b"]


def test_L31_tasks_that_exclude_each_other_run_one_by_one():
    life = Life(node("a", "a:Mutex", tasks=3))
    for index in range(3):
        assert life.admitted == [f"a-{one}" for one in range(index + 1)]
        life.end(f"a-{index}", S)
    assert life.over is Phase.SUCCEEDED


def test_a_workload_that_is_not_submitted_yet_is_waited_for():
    life = Life(node("a"), node("b", "a"), arrive=False)
    assert life.admitted == []
    life.arrive("a")
    life.end("a", S)
    assert (life.admitted, life.over) == (["a"], None)
    assert "1 is not submitted yet" in policy.status(life.graph, life.state).message
    life.arrive("b")
    assert life.admitted == ["a", "b"]


def test_one_that_was_given_up_before_it_came_is_told_when_it_comes():
    life = Life(node("a"), node("b", "a"), arrive=False)
    life.arrive("a")
    life.end("a", F)
    assert life.refused == {}
    assert life.over is Phase.FAILED  # Nobody is waited for who would only be turned away.
    life.arrive("b")
    assert list(life.refused) == ["b"]
    assert life.over is None
    life.end("b", C)
    assert life.over is Phase.FAILED


def test_one_that_was_given_up_and_comes_with_its_end_has_ended():
    life = Life(node("a"), node("b", "a"), arrive=False)
    life.arrive("a")
    life.end("a", F)
    life.end("b", C)
    assert (life.refused, life.phases("b"), life.over) == ({}, [ItemPhase.CANCELLED], Phase.FAILED)


def test_what_is_said_twice_or_late_changes_nothing_and_the_first_outcome_counts():
    life = Life(node("a"), node("b", "a"))
    life.end("a", F, released=False)
    assert list(life.refused) == ["b"]
    life.end("a", S)
    assert life.phases("a") == [ItemPhase.FAILED]
    assert life.admitted == ["a"]


def test_a_failed_one_that_is_revived_is_there_again():
    life = Life(node("a"), node("b", "a:Any"), node("c", "a:Mutex", "b"))
    life.end("a", F)
    assert life.admitted == ["a", "b"]
    news = GraphNews(item="a", workload_uid="uid-a")
    life.state = policy.on_workload_news(life.graph, life.state, news)
    life.end("b", S)
    assert life.admitted == ["a", "b"]
    life.end("a", S)
    assert life.admitted == ["a", "b", "c"]


def test_a_stranger_is_turned_away():
    life = Life(node("a"))
    for item, uid, why in (("a", "uid-2", "counted another workload"), ("x", "uid-x", "has no such workload")):
        order = policy.stranger(life.state, GraphNews(item=item, workload_uid=uid))
        assert order is not None
        assert (order.item, order.uid, order.admit) == (item, uid, False)
        assert why in order.why
        assert (
            policy.on_workload_news(life.graph, life.state, GraphNews(item=item, workload_uid=uid, outcome=S))
            == life.state
        )
    assert policy.stranger(life.state, GraphNews(item="a", workload_uid="uid-a")) is None


def test_one_whose_workflow_is_closed_is_not_waited_for():
    life = Life(node("a"), node("b", "a"))
    order = policy.Order("a", "uid-a", True, "")
    life.state = policy.gone(life.state, order)
    life.arrive()
    assert life.phases("a", "b") == [ItemPhase.CANCELLED, ItemPhase.REFUSED]


def test_L31_a_graph_that_is_cancelled_ends_all_that_have_not():
    life = Life(node("a"), node("b", "a"), node("c"), node("d", "c"), arrive=False)
    life.arrive("a", "b", "c")
    life.end("a", S)
    life.cancel("no time")
    assert life.refused == dict.fromkeys(("b", "c"), ("no time", Reason.CANCEL_REQUESTED))
    assert life.over is None
    for name in ("b", "c"):
        life.end(name, C)
    assert life.over is Phase.CANCELLED


def test_a_graph_that_is_cancelled_ends_what_a_person_has_revived():
    life = Life(node("a"), node("b", "a:Failure"))
    life.end("a", F, released=False)
    life.end("b", S)
    life.cancel("no time")
    assert life.refused == {"a": ("no time", Reason.CANCEL_REQUESTED)}
    assert life.over is None
    life.end("a", C)
    assert (life.phases("a"), life.over) == ([ItemPhase.FAILED], Phase.CANCELLED)


def test_the_page_in_the_ui_says_what_waits_for_what():
    life = Life(node("a"), node("b", "a"), node("c", "b:Any"), arrive=False)
    life.arrive("a", "b")
    assert policy.details(life.graph, life.state).splitlines() == [
        "**Running**: 0 of 3 workloads have ended; 1 is not submitted yet: submit its file again if that was "
        "broken off (1 Awaited, 1 Blocked, 1 Admitted)",
        "",
        "| workload | is | waits for |",
        "|---|---|---|",
        "| a | Admitted |  |",
        "| b | Blocked | a to succeed |",
        "| c | Awaited | b to end |",
    ]
    life.arrive("c")
    life.end("a", F)
    life.cancel("no time")
    assert policy.details(life.graph, life.state).splitlines() == [
        "**Running**: 1 of 3 workloads have ended (2 Refused, 1 Failed)",
        "",
        "| workload | is | waits for |",
        "|---|---|---|",
        "| b | Refused | a has not succeeded |",
        "| c | Refused | its graph was cancelled |",
        "",
        "Cancelled: no time",
    ]


def test_what_is_told_and_kept_stays_small_at_the_maximum():
    long = [f"{'n' * 59}{index}" for index in range(100)]
    given_graph = graph(
        *map(node, long), node("m", *long, tasks=100), *(node(f"x{index}", *long) for index in range(99))
    )
    assert sum(len(one.after) for one in given_graph.nodes) == EDGES_MAXIMUM
    life = Life(*given_graph.nodes)
    waiting = policy.status(life.graph, life.state)
    assert waiting.waits["m-0"] == f"{'; '.join(f'{one} to succeed' for one in long[:3])} and 97 more"
    assert len(waiting.model_dump_json()) < MEBIBYTE
    for name in long:
        life.state = policy.on_workload_news(
            life.graph, life.state, GraphNews(item=name, workload_uid=f"uid-{name}", outcome=S, released=True)
        )
    _, orders = policy.step(life.graph, life.state)
    assert len(orders) == 199
    assert sum(len(order.why) for order in orders) < MEBIBYTE
    life.cancel("because " * 1000)
    assert len(life.state.model_dump_json()) < MEBIBYTE
    assert len(policy.details(life.graph, life.state)) < 20_000


NO_GRAPHS: list[tuple[Callable[[], list[GraphNode]], str]] = [
    (lambda: [node("a", "b")], r"nodes\[0\].after\[0\].node: 'b' names no node"),
    (lambda: [node("a", "a")], r"nodes\[0\].after\[0\].node: 'a' would wait for itself"),
    (lambda: [node("a", "a:Mutex")], r"'a' would wait for itself"),
    (lambda: [node("a"), node("a")], r"nodes\[1\].name: 'a' is used twice"),
    (lambda: [node("a", tasks=2), node("a-1")], r"nodes\[1\].name: 'a-1' is a name in 'a' too"),
    (lambda: [node("a", "b"), node("b", "c"), node("c", "a")], r"these wait for each other for ever: (\w -> ){3}\w"),
    (lambda: [node("a"), node("b", "a", "a")], r"nodes\[1\].after\[1\].node: 'a' is given twice, on Success"),
    (
        lambda: [node("a", tasks=2), node("b", "a:Corresponding", tasks=3)],
        r"'b' has 3 tasks and 'a' 2: expected as many",
    ),
    (lambda: [node("a"), node("b", "a:Corresponding")], r"'b' has no tasks and 'a' none"),
    (lambda: [node("a", tasks=900), node("b", tasks=101)], r"1,001 workloads: expected at most 1,000"),
    (lambda: [node("Bad_Name")], r"'Bad_Name': expected a DNS label"),
    (
        lambda: [node(f"n{i}", *(f"n{j}" for j in range(i))) for i in range(150)],
        r"11,175 dependencies: expected at most 10,000",
    ),
]
"""Nodes that make no graph, and words of their refusal."""


@pytest.mark.parametrize(("nodes", "expected"), NO_GRAPHS)
def test_L31_what_is_no_graph_is_refused_with_the_place_and_what_is_allowed(
    nodes: Callable[[], list[GraphNode]], expected: str
):
    with pytest.raises(ValidationError, match=expected):
        graph(*nodes())


def test_each_place_that_refuses_a_graph_is_reached():
    files = [Path(model.__file__)]
    with lines_run(files) as run:
        for nodes, _ in NO_GRAPHS:
            with pytest.raises(ValidationError):
                graph(*nodes())
        with pytest.raises(ValidationError, match="expected a DNS label"):
            Graph(name="Etl", cluster="dev", nodes=(node("a"),))
    left = missed(places(files, {"ValueError"}), run)
    assert not left, f"nothing is refused at {left}: add a line to NO_GRAPHS"


def test_L31_too_many_edges_are_refused():
    names = [f"n{index}" for index in range(150)]
    nodes = [node(name, *names[:index]) for index, name in enumerate(names)]
    with pytest.raises(ValidationError, match="11,175 dependencies: expected at most 10,000"):
        graph(*nodes)


def test_L31_being_kept_apart_is_no_order():
    assert graph(node("a", "b:Mutex"), node("b", "a:Mutex")).before == {"a": (), "b": ()}


def test_L31_a_chain_of_a_thousand_ends_and_one_failure_cancels_the_rest_at_once():
    names = [f"n{index}" for index in range(ITEMS_MAXIMUM)]
    nodes = [node(name, *names[max(0, index - 1) : index]) for index, name in enumerate(names)]
    random.Random(7).shuffle(nodes)
    life = Life(*nodes)
    life.end("n0", S)
    life.end("n1", F)
    assert life.admitted == ["n0", "n1"]
    assert len(life.refused) == ITEMS_MAXIMUM - 2
    assert len(life.state.model_dump_json()) < 256 * 1024


@st.composite
def lives(draw: st.DrawFn) -> tuple[Graph, int]:
    nodes = list[GraphNode]()
    for index in range(draw(st.integers(1, 6))):
        tasks = draw(st.sampled_from([None, None, 2]))
        after = dict[str, Edge]()
        for other in draw(st.sets(st.integers(0, max(0, index - 1)), max_size=3)) if index else ():
            kinds = [EdgeKind.SUCCESS, EdgeKind.FAILURE, EdgeKind.ANY, EdgeKind.MUTEX]
            if tasks is not None and nodes[other].tasks == tasks:
                kinds.append(EdgeKind.CORRESPONDING)
            after[nodes[other].name] = Edge(node=nodes[other].name, on=draw(st.sampled_from(kinds)))
        nodes.append(GraphNode(name=f"n{index}", tasks=tasks, after=tuple(after.values())))
    return graph(*nodes), draw(st.integers(0, 2**32))


@given(lives())
def test_L31_however_a_graph_is_lived_it_ends_and_its_edges_hold(drawn: tuple[Graph, int]):
    given_graph, seed = drawn
    chance = random.Random(seed)
    life = Life(*given_graph.nodes, arrive=False)
    waiting, running = list(life.graph.items), list[str]()
    told = 0
    while life.over is None or waiting:
        if waiting and (chance.random() < 0.5 or not (running or life.refused)):
            life.arrive(waiting.pop(chance.randrange(len(waiting))))
        running += life.admitted[told:]
        told = len(life.admitted)
        refused = [one for one in life.refused if not life.state.items[one].released]
        _apart(life.graph, life.state, running)
        if running and chance.random() < 0.7:
            one = running.pop(chance.randrange(len(running)))
            outcome = chance.choice([S, S, F, C])
            if chance.random() < 0.3:
                life.end(one, outcome, released=False)
            life.end(one, outcome)
        elif refused:
            life.end(chance.choice(refused), C)
    for name, item in life.state.items.items():
        place, index = life.graph.items[name]
        came = all(_met(life.graph, life.state, edge, index) for edge in place.after)
        assert (name in life.admitted) == came, (name, item)


def _apart(given_graph: Graph, state: GraphState, running: Iterable[str]) -> None:
    there = {given_graph.items[one][0].name for one in running}
    for one in given_graph.nodes:
        for edge in one.after:
            assert edge.on is not EdgeKind.MUTEX or not {one.name, edge.node} <= there, (one.name, edge.node, state)


def _met(given_graph: Graph, state: GraphState, edge: Edge, index: int) -> bool:
    """The rule in its plainest words, once all have ended."""
    other = next(one for one in given_graph.nodes if one.name == edge.node)
    ends = [state.items[one].phase for one in other.items]
    match edge.on:
        case EdgeKind.SUCCESS:
            return all(one is ItemPhase.SUCCEEDED for one in ends)
        case EdgeKind.FAILURE:
            return any(one is ItemPhase.FAILED for one in ends)
        case EdgeKind.CORRESPONDING:
            return ends[index] is ItemPhase.SUCCEEDED
        case EdgeKind.ANY | EdgeKind.MUTEX:
            return True
