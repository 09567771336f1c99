"""Users' words are data: cut, one line, printable, and without markup, wherever they are stored or told (row X14)."""

from __future__ import annotations

import io
import logging
import random
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.activities.facts.pods import pod_facts
from holdfast.cli.common import output, render
from holdfast.cli.common.options import Output
from holdfast.client.views import ExplanationView
from holdfast.model import Explanation, Phase, Reason
from holdfast.model.words import TEXT_KEPT, escaped, plain, printable, shortened
from holdfast.policy.attempt.settle import enter
from holdfast.policy.status.explain import explain_of, markdown
from holdfast.policy.values.record import cause
from holdfast.worker.runtime import logs
from tests.policy.lives.life import START, Life, workload

NOW = datetime(2026, 1, 31, tzinfo=UTC)
PIECES = (
    *(
        "\x1b[2J",
        "\x1b]8;;http://evil.example\x07",
        "\x9b31m",
        "\r",
        "\n",
        "\n\n# heading",
        "\x00",
        "\x7f",
        "\x08\x08",
        "\t",
    ),
    *(
        "\u202e",
        "\u2066",
        "\u200b",
        "\u2028",
        "\ud800",
        "\ufeff",
        "|",
        "[click](http://evil.example)",
        "<img src=x>",
        "`",
        "\\",
    ),
    *("https://evil.example", "HTTP://x.y/z", "www.evil.example", "WWW.x", "mailto:a@b.example", "ftp://x", "@"),
    *("![x](y)", "]|[", "worker-3 exited 137", "naïve", "日本語", " ", "     "),
)
ROW = pytest.mark.row("X14", level="pure")
LINKED = re.compile(r"://|www\.", re.IGNORECASE)
"""What GitHub's Markdown turns into a link by itself."""


def hostile(seed: int) -> str:
    choose = random.Random(seed)
    return "x" + "".join(choose.choices(PIECES, k=choose.randrange(1, 200))) + "x"


def pod(text: str) -> dict[str, Any]:
    ended = {"exitCode": 1, "reason": "Error", "message": text, "finishedAt": "2026-01-31T00:00:00Z"}
    return {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"holdfast.dev/attempt": "1"}},
        "status": {
            "phase": "Failed",
            "message": text,
            "containerStatuses": [{"name": "m", "state": {"terminated": ended}}],
        },
    }


def unescaped(text: str) -> str:
    """Return what is left of a Markdown text without what is escaped."""
    return "".join(part[1:] if index else part for index, part in enumerate(text.replace("\\\\", "\\.").split("\\")))


@ROW
@pytest.mark.parametrize("seeds", [range(each, each + 50) for each in range(0, 200, 50)], ids=str)
def test_no_word_of_others_moves_a_cursor_makes_a_line_or_marks_up(
    seeds: range, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in seeds:
        check(hostile(seed), capsys)


def check(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert plain(text).isprintable()
    assert plain(plain(text)) == plain(text)
    assert shortened(text).isprintable()
    assert len(shortened(text)) <= TEXT_KEPT
    assert set(printable(text)) & {chr(code) for code in (*range(32), *range(127, 160))} <= {"\n"}
    assert not set(unescaped(escaped(text))) & set("`[]<|@")
    assert not LINKED.search(unescaped(escaped(text)))

    message = pod_facts(pod(text)).message
    assert message.isprintable()
    assert len(message) <= TEXT_KEPT

    spec = workload()
    calm, state = Life(spec).state, Life(spec).state
    for words in ("calm", text):
        state = enter(cause(calm, Reason.RESETTING, words, START), Phase.RESETTING, Reason.RESETTING, words, START)
        assert state.message.isprintable()
        assert state.causes[-1].message.isprintable()
    told = markdown(explain_of(spec, state, START))
    quiet = markdown(
        explain_of(
            spec,
            enter(cause(calm, Reason.RESETTING, "calm", START), Phase.RESETTING, Reason.RESETTING, "calm", START),
            START,
        )
    )
    assert len(told.split("\n")) == len(quiet.split("\n"))
    assert all(line.isprintable() for line in told.split("\n"))
    assert not set(unescaped(told)) & set("`[]<@")
    assert not LINKED.search(unescaped(told))
    assert unescaped(told).count("|") == unescaped(quiet).count("|")

    view = ExplanationView(
        explanation=Explanation.model_validate({**explain_of(spec, state, START).model_dump(), "why": text}), fresh=True
    )
    output.emit({}, Output.TABLE, lambda: render.explanation(view, NOW))
    assert all(line.isprintable() for line in capsys.readouterr().out.split("\n"))


@ROW
@pytest.mark.parametrize("format", ["json", "console"])
def test_no_word_of_others_makes_a_log_line(format: Any) -> None:
    before = logging.getLogger().handlers[:]
    try:
        for seed in range(50):
            out = io.StringIO()
            logs.configure(format, stream=out)
            logging.getLogger("holdfast").warning("a pod said %s", hostile(seed))
            (line,) = out.getvalue().rstrip("\n").split("\n")
            assert not {one for one in line if ord(one) < 32 or 127 <= ord(one) < 160}
    finally:
        logging.getLogger().handlers[:] = before
