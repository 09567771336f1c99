"""The local pages' templates, from values as workers answer them: what is not healthy, too (rows E1 and X14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.cli.page import html
from holdfast.cli.page.draw import gang_cells
from holdfast.cli.page.graph import Arrow, Box, GraphDrawing
from holdfast.cli.page.timeline import timeline_of
from holdfast.cli.workloads.history_text import instant
from holdfast.client import ActivityView, ExplanationView
from holdfast.client.silence import Silence
from holdfast.model import NodeBook, NodeRecord, NodeState, NodeWord
from holdfast.model.gang.status import GangPhase
from holdfast.policy.nodes.provisioner_status import status as provisioner
from holdfast.policy.status.explain import explain_of
from tests.cli.page.test_html import HOSTILE, Elements
from tests.cli.text.test_gang_text import status as gang
from tests.cli.text.test_node_text import BEFORE, NOW, told
from tests.cli.text.test_queue_text import line
from tests.cli.text.test_queue_text import status as queue
from tests.past.recorded import story

pytestmark = pytest.mark.row("E1", level="pure")


COMMON: Mapping[str, Any] = {"path": "/", "cluster": "dev", "now": NOW}


def shown(template: str, **values: Any) -> Elements:
    return Elements(html.page(template, **{**COMMON, **values}))


async def workload(said: Mapping[str, Any] = {}, **changes: Any) -> Elements:
    """The page of a workload that was last heard of while its attempt was removed."""
    record = await story("node-down")
    turn = record.turns[8]
    view = ExplanationView(explanation=explain_of(turn.spec, turn.after, turn.at), fresh=True, **said)
    life = timeline_of(record, NOW)
    values: dict[str, Any] = {
        **html.of_life(life),
        "namespace": "research",
        "name": "train",
        "problem": "",
        "graph": "",
        "graph_drawing": None,
        "graph_problem": "",
        "view": view,
        **changes,
    }
    return shown("workload.html", **values)


async def test_a_gang_names_the_members_that_are_not_in_its_round():
    members = gang(waiting=("a",), absent={"train-0-x": "silent for 15s"}, charged={"train-1-x": 2})
    text = (await workload({"gang": members})).text
    for said in (
        "round 3 is running with 3 members (2 to 4 allowed)",
        "silent for 15s",
        "waits for a place",
        "in the round",
    ):
        assert said in text
    assert "Gang" not in (await workload()).text


def test_a_gang_is_drawn_with_a_cell_for_each_member_that_there_may_be():
    assert gang_cells(gang()) == ("Running", "Running", "Running", "Pending")
    assert gang_cells(gang(phase=GangPhase.FORMING, present=1, max=2)) == ("Resuming", "Pending")
    assert len(gang_cells(gang(present=5000, max=5000))) == 256


async def test_where_no_worker_answers_it_says_since_when_and_what_to_do():
    silence = Silence(why="no worker answers: since 02:00:00", remedy="start one")
    activity = ActivityView(type="create", state="Scheduled", attempt=3, since=NOW - timedelta(minutes=1))
    said = {"silence": silence, "activities": (activity,), "entities": ("its queue is away",), "queue": "gpus: place 2"}
    text = (await workload(said)).text
    for each in ("since 02:00:00. This is what was last recorded. start one", "taken it for 60s", "away", "place 2"):
        assert each in text


@pytest.mark.row("D36", level="pure")
async def test_D36_while_no_worker_answers_a_time_that_passed_is_overdue():
    silence = Silence(why="no worker answers: since 02:00:00")
    turn = (await story("launch-elsewhere")).turns[2]
    told = explain_of(turn.spec, turn.after, turn.at)
    at = told.next[0].at
    stale = ExplanationView(explanation=told, fresh=False, silence=silence)
    text = (await workload(view=stale, now=at + timedelta(hours=1))).text
    assert f"{at:%Y-%m-%d %H:%M:%S} overdue: admission grace ends (" in text
    assert "Holdfast acts on this once a worker answers" in text
    none = stale.model_copy(update={"explanation": told.model_copy(update={"next": ()})})
    assert "nothing happens until a worker answers" in (await workload(view=none)).text
    fresh = (await workload(now=at + timedelta(hours=1))).text
    assert "overdue" not in fresh
    assert "once a worker answers" not in fresh


async def test_a_life_is_shown_although_the_workload_says_nothing_of_itself():
    text = (await workload(view=None, problem="it was terminated from outside")).text
    assert "it was terminated from outside" in text
    assert "attempt 3" in text


async def test_what_comes_next_has_its_time():
    text = (await workload()).text
    assert "admission grace" in text
    assert "2026-11-22 16:40:1" in text


def test_queues_are_listed_as_they_wait_and_silent_ones_with_the_reason():
    text = shown("queues.html", queues=[queue(waiting=7)], silent={"night": "no worker answers"}).text
    assert text.index("team/next") < text.index("team/now")
    for said in ("16 used of 16", "2 used of no limit", "and 6 more", "night does not answer: no worker answers"):
        assert said in text
    assert "every workload begins as soon as it is submitted" in shown("queues.html", queues=[], silent={}).text


def test_one_thing_is_counted_as_one():
    quota = line("train", 1, "").model_copy(update={"demand": {"pods": "1"}})
    assert "1 pod<" in html.page("queues.html", **COMMON, queues=[queue(lines=(quota,))], silent={})
    assert "1 node with a lease" in shown("nodes.html", book=NodeBook(nodes={}, total=1), provisioner=None).text


async def test_a_life_of_one_restart_counts_it_as_one_and_what_came_before_the_first_attempt_as_none():
    life = timeline_of(await story("node-down"), NOW)
    early = life.history.causes[0].model_copy(update={"attempt": 0})
    history = life.history.model_copy(update={"restarts": 1, "causes": (early,)})
    values = html.of_life(replace(life, history=history))
    drawn = replace(values["drawing"], left_out=1)
    told = await workload(**{**values, "drawing": drawn})
    assert "of which 1 restart" in told.text
    assert "1 restarts" not in told.text
    assert "The first 1 attempt is not drawn" in told.text
    page = html.page("report.html", explanation=None, now=NOW, policy="", **values)
    assert f'<td class="time">{instant(early.time)}</td><td>\u2013</td>' in page


def test_nodes_are_listed_with_their_requests():
    record = NodeRecord(name="node-3", since=BEFORE, at=NOW, state=NodeState.DOWN, word=NodeWord.FENCING, why="silent")
    book = NodeBook(nodes={"node-3": record.model_copy(update={"unasked": "no one"})}, total=9)
    text = shown("nodes.html", book=book, provisioner=provisioner(told(), set(), NOW)).text
    for said in (
        "9 nodes with a lease",
        "Down, waiting for power-off",
        "silent; no one",
        "pending for 5m",
        "Done, 5m ago",
    ):
        assert said in text
    assert "node-7, for 5m: waits for wipe" in text
    neither = shown("nodes.html", book=None, provisioner=None).text
    assert "no monitor of nodes" in neither
    assert "No provisioner" in neither


@pytest.mark.row("X14", level="pure")
async def test_users_words_are_text_on_every_page():
    hostile = line("x", 1, HOSTILE).model_copy(update={"name": HOSTILE})
    record = NodeRecord(name="n", since=BEFORE, at=NOW, why=HOSTILE)
    box = Box(0, 0, "Running", HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    drawn = GraphDrawing(1, 1, (1, 1), (box,), (Arrow("M0,0", apart=False, title=HOSTILE),), HOSTILE)
    pages = [
        shown("problem.html", problem=HOSTILE),
        shown("queues.html", queues=[queue(message=HOSTILE, lines=(hostile,))], silent={HOSTILE: HOSTILE}),
        shown("nodes.html", book=NodeBook(nodes={HOSTILE: record}), provisioner=None),
        await workload(
            {"queue": HOSTILE},
            problem=HOSTILE,
            graph=HOSTILE,
            graph_drawing=drawn,
            graph_problem=HOSTILE,
            namespace=HOSTILE,
        ),
    ]
    for page in pages:
        assert "<script>alert(1)</script>" in page.text
        assert [given.get("src") for tag, given in page.found if tag == "script"] == ["/live.js"]
        assert not [name for _, given in page.found for name in given if name.startswith("on")]
        assert "img" not in {tag for tag, _ in page.found}
        assert "\x1b" not in page.text
