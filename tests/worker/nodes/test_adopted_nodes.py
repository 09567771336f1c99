"""A monitor that begins with an empty memory, and the marks of the one before it on nodes' objects (D11). Pure."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.facts import node_taints
from holdfast.activities.facts.node_annotations import patch_of, with_fault_label
from holdfast.activities.facts.nodes import Marks
from holdfast.model import NodeBook, NodeMarked, NodeSight, NodeState, NodeTimings, NodeWish, NodeWord
from holdfast.policy.nodes import fence
from holdfast.policy.nodes.monitor import looked, marked, on_node_news, plan, settle
from holdfast.worker.nodes.ledger import NodeLedger
from holdfast.worker.nodes.watch import node_facts

ROW = pytest.mark.row
START = datetime(2026, 1, 1, tzinfo=UTC)
US = "us"
SILENT = frozenset({NodeWord.DOWN, NodeWord.LOST, NodeWord.FENCING})


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def bare(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"u-{name}"}, "spec": {}, "status": {}}


def after(raw: dict[str, Any], patch: dict[str, Any] | None) -> dict[str, Any]:
    """Return a raw node after a merge patch of its annotations, labels and taints."""
    node = copy.deepcopy(raw)
    for field in ("annotations", "labels"):
        values = {**node["metadata"].get(field, {}), **(patch or {}).get("metadata", {}).get(field, {})}
        node["metadata"][field] = {key: value for key, value in values.items() if value is not None}
    if patch and "spec" in patch:
        node["spec"] = {"taints": patch["spec"]["taints"] or []}
    return node


def with_word(raw: dict[str, Any], word: NodeWord, heard: float = -600) -> dict[str, Any]:
    wish = NodeWish(name="n", uid="u", word=word, why="it was silent", since=at(heard + 90), heard=at(heard))
    return after(raw, patch_of(raw, wish, US))


def with_power_off(raw: dict[str, Any]) -> dict[str, Any]:
    return after(raw, node_taints.fence(raw, US, at(-400), "powered off at 11:53, by proof"))


class Begun:
    """A watch and a monitor that both begin now; objects are changed as the worker would, and looks are live."""

    def __init__(self, *nodes: dict[str, Any], timings: NodeTimings | None = None) -> None:
        self.timings = timings or NodeTimings()
        self.book, self.now = NodeBook(), 0.0
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self.renewals = dict.fromkeys(self.nodes, 0)
        self.words: list[tuple[float, str, NodeWord]] = []
        self.asks: list[str] = []
        self.withdrawn: list[str] = []
        self.until: datetime | None = None
        self.free_of_us: set[str] = set()
        """Nodes without a pod of this installation."""
        self.watches_anew(self.nodes)

    def watches_anew(self, nodes: dict[str, dict[str, Any]]) -> None:
        """Begin a watch, which lists all nodes and leases."""
        self.ledger = NodeLedger(self.timings)
        decode = node_facts(Marks(installation=US).faults)
        for name, raw in nodes.items():
            self.ledger.renewed(name, self._lease(name), at(self.now))
            facts = decode(raw)
            self.ledger.node(*(getattr(facts, field.name) for field in fields(facts)))

    def run(self, until: float, alive: Sequence[str]) -> None:
        while self.now < until:
            self.now += 1
            if self.now % 10 == 0:
                for name in alive:
                    self.renewals[name] += 1
                    self.ledger.renewed(name, f"r{self.renewals[name]}", at(self.now))
            seen = self.ledger.news(at(self.now), ())
            if seen is not None:
                self.ledger.told(seen)
                self.book = on_node_news(self.book, seen)
            if seen is not None or (self.until is not None and self.until <= at(self.now)):
                self._decide()

    def _decide(self) -> None:
        while True:
            self.book = settle(self.book, self.timings, at(self.now))
            wanted = plan(self.book, self.timings, at(self.now))
            self.until = wanted.until
            if wanted.mark:
                self.book = marked(self.book, [self._mark(wish) for wish in wanted.mark], at(self.now))
            elif wanted.ask:
                gone = [one.name for one in wanted.ask if one.withdraw]
                asked = [one.name for one in wanted.ask if not one.withdraw]
                self.withdrawn, self.asks = self.withdrawn + gone, self.asks + asked
                self.book = fence.after_requests(self.book, asked, gone, {}, at(self.now))
            elif wanted.look:
                sights = [NodeSight(name=one.name, uid=one.uid, renewed=self._lease(one.name)) for one in wanted.look]
                self.book = looked(self.book, sights, at(self.now), ())
            else:
                return

    def _lease(self, name: str) -> str:
        return f"r{self.renewals[name]}"

    def _mark(self, wish: NodeWish) -> NodeMarked:
        raw = self.nodes[wish.name]
        patch = patch_of(raw, wish, US) if wish.name not in self.free_of_us else None
        if wish.word not in SILENT:
            patch = node_taints.unfence(raw, US, patch)
        patch = with_fault_label(raw, wish, US, patch)
        self.nodes[wish.name] = after(raw, patch)
        self.words.append((self.now, wish.name, wish.word))
        return NodeMarked(name=wish.name, word=wish.word, ours=wish.word is NodeWord.FENCING)

    def is_free(self, name: str) -> bool:
        node = self.nodes[name]
        metadata = node["metadata"]
        return not (node["spec"].get("taints") or metadata.get("annotations") or metadata.get("labels"))


def taint_alone(raw: dict[str, Any]) -> dict[str, Any]:
    marked_node = with_word(raw, NodeWord.DOWN)
    del marked_node["metadata"]["annotations"]
    return marked_node


@ROW("D11", level="pure")
@pytest.mark.parametrize(
    "before",
    [
        with_word(bare("a"), NodeWord.DOWN),
        with_word(bare("a"), NodeWord.LOST),
        with_word(bare("a"), NodeWord.FENCING),
        with_word(bare("a"), NodeWord.FAULTY),
        with_word(bare("a"), NodeWord.RETURNING),
        with_power_off(with_word(bare("a"), NodeWord.FENCING)),
        with_power_off(with_word(bare("a"), NodeWord.LOST)),
        with_power_off(bare("a")),
        taint_alone(bare("a")),
    ],
    ids=["down", "lost", "fencing", "faulty", "returning", "off", "off-lost", "off-alone", "taint-alone"],
)
def test_D11_marks_of_the_monitor_before_are_taken_off_a_node_that_is_back(before: dict[str, Any]):
    begun = Begun(before, bare("b"))
    begun.run(120, alive=["a", "b"])
    assert begun.is_free("a"), begun.nodes["a"]
    record = begun.book.nodes.get("a")
    assert record is None or (record.state, record.word) == (NodeState.HEALTHY, NodeWord.NONE)
    assert [word for _, _, word in begun.words if word in {NodeWord.DOWN, NodeWord.LOST}] == [], (
        "no workload hears of it"
    )


def broken(raw: dict[str, Any]) -> dict[str, Any]:
    return {**raw, "status": {"conditions": [{"type": "CperHardwareErrorFatal", "status": "True"}]}}


@ROW("D21", level="pure")
def test_D21_a_broken_node_without_our_pods_bears_a_label_alone_until_it_is_sound_again():
    begun = Begun(broken(bare("a")), bare("b"))
    begun.free_of_us = {"a"}
    begun.run(20, alive=["a", "b"])
    node = begun.nodes["a"]
    assert (node["metadata"]["labels"], node["metadata"]["annotations"]) == ({"fault.holdfast.dev/us": "true"}, {})
    assert not node["spec"].get("taints"), "others' pods may go there"
    begun.nodes["a"] = {**node, "status": {}}
    begun.ledger.node("a", "u-a", "", "", None)
    begun.run(200, alive=["a", "b"])
    assert begun.is_free("a")


@ROW("D21", level="pure")
def test_D21_a_monitor_with_an_empty_memory_takes_the_label_off_a_node_that_is_sound():
    faulty = NodeWish(name="a", uid="u-a", word=NodeWord.FAULTY, why="broken", since=at(-60), heard=at(-60))
    begun = Begun(after(bare("a"), with_fault_label(bare("a"), faulty, US, None)), bare("b"))
    assert begun.nodes["a"]["metadata"]["labels"]
    begun.free_of_us = {"a"}
    begun.run(120, alive=["a", "b"])
    assert begun.is_free("a")
    still = Begun(broken(after(bare("a"), with_fault_label(bare("a"), faulty, US, None))), bare("b"))
    still.free_of_us = {"a"}
    still.run(500, alive=["a", "b"])
    assert still.nodes["a"]["metadata"]["labels"] == {"fault.holdfast.dev/us": "true"}


@ROW("D11", level="pure")
@pytest.mark.parametrize("word", [NodeWord.DOWN, NodeWord.LOST])
def test_D11_a_node_that_is_still_silent_stays_down_without_a_break(word: NodeWord):
    begun = Begun(with_word(bare("a"), word, heard=-95), bare("b"))
    begun.run(3, alive=["b"])
    assert begun.book.nodes["a"].state is NodeState.DOWN
    begun.run(500, alive=["b"])
    assert begun.book.nodes["a"].word is NodeWord.LOST
    expected = [] if word is NodeWord.LOST else [NodeWord.LOST]
    assert [said for _, _, said in begun.words] == expected, "no word in between that would let its pods be"
    begun.run(700, alive=["a", "b"])
    assert begun.is_free("a")


@ROW("D11", level="pure")
def test_D11_a_node_that_was_to_be_off_is_asked_for_again_and_one_that_is_back_is_left_on():
    fenced = NodeTimings(fence=True)
    begun = Begun(with_word(bare("a"), NodeWord.FENCING), bare("b"), timings=fenced)
    begun.run(9, alive=["b"])
    assert begun.asks == ["a"]
    back = Begun(with_word(bare("a"), NodeWord.FENCING), bare("b"), timings=fenced)
    back.run(120, alive=["a", "b"])
    assert back.withdrawn == ["a"], "the provisioner may still have been asked by the monitor before"
    assert back.is_free("a")


@ROW("D11", level="pure")
@pytest.mark.parametrize(("renewed", "proven"), [("r0", True), ("r9", False), ("", False)])
def test_D11_what_is_said_of_its_power_is_proof_for_the_silence_it_was_said_of_alone(renewed: str, proven: bool):
    raw = with_word(bare("a"), NodeWord.FENCING)
    raw = after(raw, node_taints.fence(raw, US, at(-400), "powered off", renewed))
    begun = Begun(raw, bare("b"), timings=NodeTimings(fence=True))
    begun.run(9, alive=["b"])
    assert begun.book.nodes["a"].word is (NodeWord.LOST if proven else NodeWord.FENCING)
    assert begun.asks == ([] if proven else ["a"])


@ROW("D11", level="pure")
def test_D11_what_others_have_said_is_not_adopted():
    raw = after(bare("a"), {"spec": {"taints": [{"key": names.node_taint("them"), "effect": "NoSchedule"}]}})
    begun = Begun(raw, bare("b"))
    begun.run(120, alive=["a", "b"])
    assert begun.words == []
    assert begun.nodes["a"] == raw


@ROW("D11", level="pure")
def test_D11_a_monitor_that_knows_better_is_not_misled_by_what_stood_there():
    """The watch is begun anew by another worker, whose first list still shows a mark that is being taken off."""
    before = with_word(bare("a"), NodeWord.DOWN)
    begun = Begun(before, bare("b"))
    begun.run(15, alive=["a", "b"])
    assert begun.book.nodes["a"].state is NodeState.RETURNING
    begun.watches_anew({**begun.nodes, "a": before})
    begun.run(100, alive=["a", "b"])
    assert begun.is_free("a")
    assert [word for _, _, word in begun.words] == [NodeWord.RETURNING, NodeWord.NONE]
