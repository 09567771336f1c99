"""A workload that its queue lets in: when it asks, what it holds, when it lets go (rows L9, L26, L27)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import OperationKind, Phase, Reason, SuspendMode
from holdfast.model.entities.queue import QueueNews, QueueOrder, Standing
from holdfast.model.gang.state import Gang
from holdfast.policy.loop.change import ComponentsChange, check_change, reconfigured
from holdfast.policy.sides.gang import GangScale, check_scale, scaled
from holdfast.policy.status.explain import explain_of
from holdfast.policy.status.queued import first_turn, owed
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, QueueMissing, QueueOrdered, QueueTold, Resumed, Suspended
from tests.policy.attempt.requeue_matrix import POLICIES
from tests.policy.lives.life import START, Life, workload

ROW = pytest.mark.row
ASKS, HOLDS, RELEASED = Standing.ASKS, Standing.HOLDS, Standing.RELEASED


class Queued(Life):
    """A workload's life, and a queue that is spoken for by hand."""

    def __init__(self, hold: set[OperationKind] | None = None, **fields: Any) -> None:
        fields = {"policy": POLICIES["on_node_failure"], "submitted_at": START, **fields}
        super().__init__(workload(queue="gpus", queued=True, **fields), hold=hold or set())
        self.state = edit(self.state, turn=first_turn(self.spec))
        self.said: list[tuple[int, Standing]] = []
        self.settle()

    def hears(self) -> QueueNews | None:
        """Let its queue hear what it has yet to hear."""
        news = owed(self.spec, self.state, "uid")
        if news is not None:
            self.said.append((news.turn, news.standing))
            self.tell(QueueTold(news))
        return news

    def told(self, admit: bool = True, turn: int | None = None, **fields: Any) -> Queued:
        assert self.state.turn is not None
        number = self.state.turn.number if turn is None else turn
        order = QueueOrder(uid="uid", turn=number, admit=admit, **{"why": "queue gpus lets it in", **fields})
        self.tell(QueueOrdered(order))
        return self

    def let_in(self, **fields: Any) -> Queued:
        self.hears()
        assert self.said[-1][1] is ASKS
        return self.told(**fields)

    @property
    def made(self) -> list[int]:
        return [number for kind, number, _ in self.ran if kind is OperationKind.CREATE]


def running() -> Queued:
    life = Queued().let_in()
    life.sees(running=2)
    assert life.state.phase is Phase.RUNNING
    return life


@ROW("L9", level="pure")
def test_L9_it_makes_nothing_before_its_queue_has_let_it_in() -> None:
    life = Queued()
    assert life.ran == []
    assert (life.state.phase, life.state.reason) == (Phase.PENDING, Reason.QUEUED)
    news = life.hears()
    assert news is not None
    assert (news.turn, news.standing, news.demand, news.submitted_at) == (1, ASKS, {"pods": 2000}, START)
    life.after(hours=24)
    assert life.hears() is None
    assert life.made == []
    told = explain_of(life.spec, life.state, life.now)
    assert told.now == "waiting in queue gpus since 2026-01-01 00:00:00 UTC; nothing of it is in the cluster"
    assert told.unblock.startswith("free quota in queue gpus, or wait: `holdfast queue show gpus`")
    life.told()
    assert life.made == [1]
    assert life.hears() is None, "whoever let it in knows that it holds its place"
    assert Reason.ADMITTED in [cause.reason for cause in life.state.causes]


@ROW("L9", level="pure")
def test_L9_without_its_queue_it_says_so_and_goes_on_waiting() -> None:
    life = Queued()
    life.tell(QueueMissing("its queue, gpus, is not there: `holdfast queue apply` brings it back"))
    assert life.state.message == "its queue, gpus, is not there: `holdfast queue apply` brings it back"
    assert "its queue, gpus, is not there" in explain_of(life.spec, life.state, life.now).why
    life.let_in()
    assert life.made == [1]


@ROW("L9", level="pure")
def test_L9_what_runs_goes_on_without_its_queue_and_says_at_its_end_that_it_holds_nothing() -> None:
    life = running()
    life.sees(succeeded=2, complete=True)
    assert life.state.phase is Phase.SUCCEEDED
    life.after(hours=1000)
    assert life.ended is Phase.SUCCEEDED
    life.hears()
    assert life.said == [(1, ASKS), (1, RELEASED)]
    assert life.hears() is None


def test_it_holds_its_place_until_nothing_of_it_is_left() -> None:
    life = running()
    life.hold = {OperationKind.REMOVE}
    life.tell(Suspended("making room", preempted=True))
    assert life.state.phase is Phase.SUSPENDING
    assert life.hears() is None
    life.hold = set()
    life.finish().settle()
    assert life.state.phase is Phase.SUSPENDED
    life.hears()
    assert life.said[-1] == (1, RELEASED)


def test_what_is_resumed_asks_anew_and_says_that_it_waits() -> None:
    life = running()
    life.tell(Suspended("making room"))
    life.hears()
    life.tell(Resumed())
    assert (life.state.phase, life.state.reason) == (Phase.PENDING, Reason.QUEUED)
    assert life.made == [1]
    life.hears()
    assert life.said[1:] == [(1, RELEASED), (2, ASKS)]
    life.told(turn=1)
    assert life.made == [1], "what was said to its first request is no answer to its second"
    life.told()
    assert life.made == [1, 2]


@ROW("L9", level="pure")
@ROW("J14", level="pure")
def test_L9_J14_what_is_suspended_again_while_it_waits_to_be_resumed_in_place_waits_for_no_queue() -> None:
    policy = POLICIES["on_node_failure"]
    life = Queued(policy=edit(policy, deletion=edit(policy.deletion, suspend=SuspendMode.IN_PLACE)))
    life.state = edit(life.state, shows_waits=True)  # As every run does that begins now.
    life.let_in().sees(running=2)
    life.tell(Suspended("making room", preempted=True)).tell(Resumed())
    assert (life.state.phase, life.state.reason) == (Phase.SUSPENDED, Reason.QUEUED)
    assert life.state.attempt is not None
    assert life.state.attempt.suspended
    assert explain_of(life.spec, life.state, life.now).unblock.startswith("free quota in queue gpus, or wait")
    life.tell(Suspended("not now"))
    assert (life.state.phase, life.state.reason) == (Phase.SUSPENDED, Reason.SUSPEND_REQUESTED)
    told = explain_of(life.spec, life.state, life.now)
    assert (told.why, told.unblock) == ("suspended: not now", "`holdfast resume default/train-llm`")
    life.hears()
    assert life.said[-1] == (2, RELEASED)
    life.tell(Resumed())
    assert (life.state.phase, life.state.reason) == (Phase.SUSPENDED, Reason.QUEUED)
    life.let_in()
    assert (life.state.phase, life.made) == (Phase.RUNNING, [1])


@ROW("L26", level="pure")
@ROW("L27", level="pure")
def test_L26_L27_a_requeue_lets_go_and_asks_in_one_word_with_its_first_submission() -> None:
    life = running()
    life.sees(running=1, failed=1, cls="NodeLost", why="NodeLost")
    assert (life.state.phase, life.state.reason) == (Phase.PENDING, Reason.QUEUED)
    heard = list[QueueNews]()
    for _ in range(600):
        news = life.hears()
        if news is not None:
            heard.append(news)
        life.after(seconds=1)
    assert [(one.turn, one.standing, one.requeued, one.submitted_at) for one in heard] in (
        [(2, ASKS, True, START)],
        [(1, RELEASED, False, None), (2, ASKS, True, START)],
    )
    assert life.made == [1]
    life.told()
    assert life.made == [1, 2]


def test_what_is_cancelled_while_it_waits_asks_no_more() -> None:
    life = Queued()
    life.hears()
    life.tell(Cancelled("not wanted"))
    assert life.ended is Phase.CANCELLED
    life.hears()
    assert life.said == [(1, ASKS), (1, RELEASED)]
    life.told()
    assert life.made == []


def test_what_is_let_in_as_it_is_suspended_lets_go_again() -> None:
    life = Queued()
    life.hears()
    life.tell(Suspended("not now"))
    life.told()
    life.hears()
    assert life.made == []
    assert life.said[-1][1] is RELEASED


def test_what_is_submitted_suspended_asks_for_nothing_before_it_is_resumed() -> None:
    life = Queued(suspend=True)
    assert life.hears() is None
    assert life.state.phase is Phase.SUSPENDED
    life.tell(Resumed())
    assert life.hears() is not None
    life.told()
    assert life.made == [1]


def test_a_queue_that_does_not_know_is_told_how_it_stands() -> None:
    life = running()
    life.told(admit=False, again=True, turn=0, why="queue gpus asks how it stands")
    life.hears()
    assert life.said == [(1, ASKS), (1, HOLDS)]
    assert life.hears() is None
    waiting = Queued()
    waiting.hears()
    waiting.told(admit=False, again=True, turn=0, why="queue gpus asks how it stands")
    waiting.hears()
    assert waiting.said == [(1, ASKS), (1, ASKS)]


def test_one_whose_memory_was_restored_counts_on_from_what_its_queue_knows() -> None:
    life = Queued()
    life.hears()
    life.told(admit=False, again=True, turn=4, why="queue gpus knows of its request 4")
    life.hears()
    assert life.said == [(1, ASKS), (4, ASKS)]
    life.told()
    assert life.made == [1]


def test_an_order_without_a_reason_lets_nobody_in() -> None:
    life = Queued()
    life.hears()
    life.told(admit=False, why="")
    life.after(hours=1)
    assert life.made == []


def test_why_it_waits_is_what_its_queue_says() -> None:
    life = Queued()
    life.hears()
    life.told(admit=False, why="its queue is full: it remembers at most 5,000 workloads")
    assert life.made == []
    assert life.state.message.startswith("its queue is full")


@ROW("L9", level="pure")
def test_L9_a_gang_grows_beyond_what_its_queue_has_admitted_only_once_it_asks_anew() -> None:
    life = Queued(gang=Gang(min=2, max=4, spares=1))
    life.state = edit(life.state, shows_waits=True)
    check_scale(life.spec, life.state, GangScale(max=8))  # It waits, and asks for whatever size it has.
    life.let_in().sees(running=2)
    for size in (GangScale(max=4), GangScale(max=1), GangScale(max=4, min=4)):
        check_scale(life.spec, life.state, size)
    with pytest.raises(ValueError, match="max: 7") as refused:
        check_scale(life.spec, life.state, GangScale(max=7))
    assert str(refused.value) == (
        "max: 7: it would request 8 pods: expected at most 5 pods, as admitted by its queue, gpus: "
        "suspend it, make the change, and resume it"
    )
    assert scaled(life.spec, life.state, GangScale(max=7)), "what an earlier release has accepted stays readable"
    life.tell(Suspended("to grow"))
    life.hears()
    check_scale(life.spec, life.state, GangScale(max=7))
    life.spec = scaled(life.spec, life.state, GangScale(max=7))
    life.tell(Resumed("larger"))
    news = life.hears()
    assert news is not None
    assert (news.standing, news.demand, life.made) == (ASKS, {"pods": 8000}, [1])


def requesting(life: Queued, **requests: str) -> ComponentsChange:
    component = life.spec.components[0]
    container = {"name": "main", "image": "i", "resources": {"requests": requests}}
    template = {**component.template, "spec": {"template": {"spec": {"containers": [container]}}}}
    return ComponentsChange(components=(component.model_copy(update={"template": template}),))


@ROW("L9", level="pure")
def test_L9_a_component_may_not_request_more_than_its_queue_has_admitted() -> None:
    life = Queued()
    check_change(life.spec, life.state, requesting(life, cpu="2"))
    life.spec = reconfigured(life.spec, requesting(life, cpu="2"))
    life.let_in(counts=("cpu",)).sees(running=2)
    check_change(life.spec, life.state, requesting(life, cpu="1"))
    with pytest.raises(ValueError, match="components: ") as refused:
        check_change(life.spec, life.state, requesting(life, cpu="2500m"))
    told = "components: it would request 5 cpu: expected at most 4 cpu, as admitted by its queue, gpus: "
    assert str(refused.value) == told + "suspend it, make the change, and resume it"
    over = edit(life.state, outcome=Phase.FAILED)
    with pytest.raises(ValueError, match="gpus: submit it anew"):
        check_change(life.spec, over, requesting(life, cpu="2500m"))


@ROW("L9", level="pure")
@pytest.mark.parametrize("counts", [("pods", "cpu"), (), None], ids=["the quota", "Kueue decides", "an older queue"])
def test_L9_what_its_queue_does_not_count_may_grow(counts: tuple[str, ...] | None) -> None:
    life = Queued().let_in(counts=counts)
    life.sees(running=2)
    check_change(life.spec, life.state, requesting(life, memory="1Gi"))
    if counts:
        with pytest.raises(ValueError, match="expected at most 0 cpu"):
            check_change(life.spec, life.state, requesting(life, memory="1Gi", cpu="1"))
    else:
        check_change(life.spec, life.state, requesting(life, memory="1Gi", cpu="1"))


@ROW("L9", level="pure")
def test_L9_where_kueue_decides_a_gang_may_grow() -> None:
    life = Queued(gang=Gang(min=2, max=4))
    life.let_in(counts=()).sees(running=2)
    check_scale(life.spec, life.state, GangScale(max=8))


def test_one_that_no_queue_lets_in_owes_nobody_a_word() -> None:
    life = Life(spec=workload(queue="gpus")).settle()
    assert [number for kind, number, _ in life.ran if kind is OperationKind.CREATE] == [1]
    assert owed(life.spec, life.state, "uid") is None
    assert life.state.turn is None
    assert life.now - START < timedelta(minutes=1)
