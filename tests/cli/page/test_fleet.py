"""The page of the fleet: true ages and phases, and a link of its own for each workload (rows E1 and F7)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Summary
from holdfast.cli.page import html
from tests.cli.page.test_html import Elements
from tests.cli.text.test_listing import NOW, one
from tests.cli.text.test_queue_text import line
from tests.cli.text.test_queue_text import status as queue

pytestmark = pytest.mark.row("E1", level="pure")
JOBSET = "workload/dev/research/jobset/train"


def fleet(*found: Summary, cut: bool = False, lost: int = 0) -> Elements:
    values = {"counts": {}, "found": found, "cut": cut, "lost": lost, "phase": None, "namespace": "", "phases": []}
    return Elements(html.page("fleet.html", path="/", cluster="dev", now=NOW, **values))


def links(page: Elements) -> list[str | None]:
    found = [given.get("href") for tag, given in page.found if tag == "a"]
    return [each for each in found if each and each.startswith("/workloads/")]


def test_a_workload_is_as_old_as_its_submission_however_often_its_workflow_has_continued():
    page = fleet(one("train", 120, submitted_at=NOW - timedelta(days=30)))
    assert "30d" in page.text
    assert "2m" not in page.text


def test_a_workload_whose_workflow_was_ended_is_not_shown_as_running():
    page = fleet(one("train", reason="SufficientPodsReady", execution="Terminated"), lost=1)
    assert "workflow terminated (was Running)" in page.text
    assert "SufficientPodsReady" not in page.text
    assert "1 ended without an outcome" in page.text
    assert "no workloads" not in page.text


def test_a_cancellation_through_temporal_that_was_carried_out_is_an_outcome():
    page = fleet(one("train", phase="Cancelled", execution="Canceled"))
    assert "Cancelled" in page.text
    assert "workflow cancelled" not in page.text


def test_it_says_so_if_it_does_not_show_all():
    assert "newest first; these are the ones that Temporal lists first" in fleet(one("train"), cut=True).text
    assert "Temporal lists first" not in fleet(one("train")).text


def test_one_workload_is_one_and_what_has_not_begun_has_no_attempt():
    page = fleet(one("train", attempt=0))
    assert "1 workload, newest first" in page.text
    assert "2 workloads, newest first" in fleet(one("train"), one("eval")).text
    assert page.text.count("\u2013") == fleet(one("train", attempt=1)).text.count("\u2013") + 1


@pytest.mark.row("F7", level="pure")
def test_F7_two_kinds_of_one_name_have_two_links():
    both = ["/workloads/research/train", "/workloads/research/jobset/train"]
    page = fleet(one("train"), one("train", workflow_id=JOBSET))
    assert links(page) == both
    assert "research/jobset/train" in page.text
    lines = [line("train", number, "").model_copy(update={"namespace": "research"}) for number in (1, 2)]
    lines[1] = lines[1].model_copy(update={"workload": JOBSET})
    told = queue(lines=tuple(lines))
    shown = html.page("queues.html", path="/", cluster="dev", now=NOW, queues=[told], silent={})
    assert links(Elements(shown)) == both, "an older worker does not say the id"
