"""The report as HTML: nothing that users say becomes markup, and nothing is loaded (rows P7 and X14)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest
from markupsafe import escape

from holdfast.cli.common.render import age
from holdfast.cli.page import html
from holdfast.cli.page.timeline import NodeUse, Timeline, timeline_of
from holdfast.policy.status.explain import explain_of
from tests.past.recorded import NAMES, story

pytestmark = pytest.mark.row("P7", level="pure")
NOW = datetime(2027, 1, 1, tzinfo=UTC)
HOSTILE = "</style></title><script>alert(1)</script><img src=x onerror=alert(1)>\"'{{ 7 * 7 }}\x1b[31m\u202e"


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found = list[tuple[str, dict[str, str | None]]]()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


async def life(name: str = "node-down") -> Timeline:
    return timeline_of(await story(name), NOW)


def said_everywhere(life: Timeline) -> Timeline:
    """The same life, in which every text from outside is hostile."""
    told = {"message": HOSTILE}
    history = life.history.model_copy(
        update={
            **told,
            "by": HOSTILE,
            "notes": (HOSTILE,),
            "causes": tuple(one.model_copy(update=told) for one in life.history.causes),
            "attempts": tuple(one.model_copy(update={"why": HOSTILE}) for one in life.history.attempts),
        }
    )
    return replace(
        life,
        history=history,
        spans=tuple(replace(one, why=HOSTILE) for one in life.spans),
        dues=tuple(replace(one, what=HOSTILE) for one in life.dues),
        nodes=(NodeUse(HOSTILE, (HOSTILE,), HOSTILE),),
    )


@pytest.mark.row("X14", level="pure")
async def test_users_words_are_text_and_show_no_control_characters():
    plain = Elements(html.report(await life(), NOW))
    page = html.report(said_everywhere(await life()), NOW)
    found = Elements(page)
    assert {tag for tag, _ in found.found} <= {tag for tag, _ in plain.found}
    assert "script" not in {tag for tag, _ in found.found}
    assert not [name for _, attributes in found.found for name in attributes if name.startswith("on")]
    assert found.text.count("<script>alert(1)</script>") > 20
    assert "{{ 7 * 7 }}" in found.text
    assert "\x1b" not in page
    assert "\u202e" not in page


@pytest.mark.parametrize("name", NAMES)
async def test_it_names_nothing_to_load_and_forbids_it(name: str):
    page = html.report(await life(name), NOW)
    elements = Elements(page).found
    assert "http" not in page.replace("http-equiv", "")
    assert not [tag for tag, _ in elements if tag in {"script", "link", "img", "iframe", "object", "base", "form"}]
    assert not [value for _, given in elements for key, value in given.items() if key in {"src", "href", "style"}]
    assert "url(" not in page
    assert "@import" not in page
    (policy,) = [given["content"] for tag, given in elements if given.get("http-equiv") == "Content-Security-Policy"]
    assert policy == html.REPORT_POLICY
    assert policy.startswith("default-src 'none'")


async def test_it_has_every_attempt_cause_and_deadline_in_words():
    found = await life()
    text = Elements(html.report(found, NOW)).text
    for cause in found.history.causes:
        assert cause.message in text
    for due in found.dues:
        assert due.what in text
    for attempt in found.history.attempts:
        assert attempt.why in text


async def test_P7_what_lasted_longer_than_a_day_has_its_days():
    found = await life()
    first, *others = found.history.attempts
    days = {"ready_at": first.begun_at + timedelta(days=1), "removing_at": first.begun_at + timedelta(days=2)}
    late = first.model_copy(update=days)
    found = replace(found, history=found.history.model_copy(update={"attempts": (late, *others)}))
    page = html.report(found, NOW)
    for at in days.values():
        assert f'<td class="time">{at:%Y-%m-%d %H:%M:%S}</td>' in page
    cause = next(one for one in found.history.causes if one.attempt == first.number)
    assert f"<title>{cause.time:%Y-%m-%d %H:%M:%S} {escape(cause.message)}" in page


@pytest.mark.row("D36", level="pure")
async def test_D36_a_report_calls_no_time_that_passed_the_next_one():
    turn = (await story("launch-elsewhere")).turns[2]
    told = explain_of(turn.spec, turn.after, turn.at)
    (first, *_) = told.next
    assert first.what.startswith("admission grace: ")
    at, name = f"{first.at:%Y-%m-%d %H:%M:%S}", "admission grace ends ("
    late = Elements(html.report(await life(), first.at + timedelta(hours=1), told)).text
    assert f"{at} overdue: {name}" in late
    assert "Holdfast acts on this once a worker answers" in late
    soon = Elements(html.report(await life(), first.at - timedelta(seconds=1), told)).text
    assert f"{at} {name}" in soon
    assert "once a worker answers" not in soon


async def test_P7_where_the_time_went_is_said_in_words_and_drawn():
    found = await life()
    text = html.report(found, NOW)
    assert "Where the time went" in text
    for bucket, spent in found.ledger.milliseconds.items():
        assert (f"{bucket.value}: {age(timedelta(milliseconds=spent))}, " in text) is (spent > 0)
    for note in found.ledger.notes:
        assert str(escape(note)) in text
