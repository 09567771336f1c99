"""What each command that reads shows on terminals of 60, 100 and 160 columns, and in which colours (rows E7, E8)."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
import typer.main

from holdfast.cli.app import app
from holdfast.cli.common import output, render, screen
from holdfast.cli.common.options import Output
from holdfast.client.views import StatusView
from holdfast.model import Deadline
from tests.cli.text.screens import GOLDEN, SCREENS, WIDTHS, commands, helped, shown
from tests.cli.text.test_render import NOW, status

NAMES = ("NAMESPACE", "NAME", "PHASE", "REASON")
ROWS = (
    ("research", "train-llm-with-a-long-name", "Resetting", "InsufficientPodsReady"),
    ("research", "x", "Failed", "RetryLimitExceeded"),
)


@pytest.mark.row("E7", level="pure")
@pytest.mark.row("E8", level="pure")
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCREENS)
def test_E8_the_screen_is_the_golden_one_and_nothing_is_wider_than_it(name: str, width: int) -> None:
    text = shown(SCREENS[name], width)
    assert text == (GOLDEN / f"{name}-{width}.txt").read_text(), "python -m tests.cli.text.screens writes them again"
    folds = [line for line in text.splitlines() if not line.startswith("`")]  # A command is never broken.
    assert max(map(len, folds)) <= width


@pytest.mark.row("E8", level="pure")
def test_E8_every_golden_screen_is_compared() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == {f"{name}-{width}" for name in SCREENS for width in WIDTHS}


@pytest.mark.row("E8", level="pure")
@pytest.mark.parametrize("path", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_E8_no_help_is_wider_than_the_terminal(path: tuple[str, ...]) -> None:
    assert max(map(len, helped(*path, width=60).splitlines())) <= 60


@pytest.mark.row("E7", level="pure")
@pytest.mark.parametrize("name", [name for name in SCREENS if name.startswith(("explain", "status"))])
def test_E7_sentences_have_at_most_100_characters_and_times_a_zone(name: str) -> None:
    text = SCREENS[name]()
    said = [line[11:] for line in text.splitlines() if re.match(r"(why|now|next|unblock|message|           )", line)]
    if name != "explain-stale":  # What a server says is not shortened.
        assert [line for line in said if len(line) > screen.SENTENCE] == []
    assert re.findall(r"\d\d:\d\d:\d\d(?! UTC)", text) == []


@pytest.mark.row("E7", level="pure")
def test_E7_a_cause_is_said_once() -> None:
    for name in ("explain-unhealthy", "explain-stale", "status-unhealthy", "status-refused", "explain-refused"):
        text = SCREENS[name]()
        cause = "is not enabled" if "refused" in name else "train-0 exited 1"
        assert text.count(cause) == 1, name


@pytest.mark.row("E7", level="pure")
def test_E7_conditions_are_shown_where_they_are_abnormal_and_all_where_that_is_asked_for() -> None:
    assert "QuotaReserved" not in SCREENS["status-unhealthy"]()
    assert "QuotaReserved yes" in SCREENS["status-unhealthy-wide"]()
    assert "PodsReady" not in SCREENS["status-starting"](), "pods that start are not ready, which is no news"


@pytest.mark.row("E7", level="pure")
@pytest.mark.parametrize("name", ["explain-stale", "status-unhealthy", "status-unhealthy-wide"])
def test_E7_nothing_says_that_all_pods_run_where_one_has_failed(name: str) -> None:
    text = SCREENS[name]()
    assert "1 of 2 pods running, 1 failed" in text
    assert "all expected pods run" not in text


@pytest.mark.row("E7", level="pure")
def test_E7_a_deadline_repeats_no_cause() -> None:
    coming = (Deadline(at=NOW + timedelta(seconds=5), what="failure grace: a exited 1"),)
    assert render.deadlines(coming, NOW, "a exited 1 on node-7") == "02:14:55 UTC (in 5s) failure grace ends"
    assert render.deadlines(coming, NOW, "b is lost") == "02:14:55 UTC (in 5s) failure grace ends (a exited 1)"


@pytest.mark.row("E8", level="pure")
@pytest.mark.parametrize("width", [40, 60])
def test_E8_a_command_is_never_broken_and_a_long_one_has_a_line_of_its_own(width: int) -> None:
    line = "unblock    once there is room on nodes, `holdfast retry research/train-llm --reason x`, or `x y`"
    with screen.wide(width):
        lines = screen.folded(line).splitlines()
    long = [each for each in lines if len(each) > width]
    assert long == ([] if width == 60 else ["`holdfast retry research/train-llm --reason x`,"])
    assert " ".join(" ".join(lines).split()) == " ".join(line.split()), "nothing is lost or added"
    assert any("`holdfast retry research/train-llm --reason x`" in each for each in lines)


@pytest.mark.row("E8", level="pure")
def test_E8_in_a_pipe_no_table_folds() -> None:
    with screen.wide(None):
        assert screen.table(NAMES, ROWS).splitlines()[1] == "research   " + "  ".join(ROWS[0][1:])
    assert len(screen.table(NAMES, ROWS).splitlines()) == 3


@pytest.mark.row("E8", level="pure")
def test_E8_a_cell_folds_between_words() -> None:
    rows = (("train-llm-with-a-long-name", "it requests 16 nvidia.com/gpu, and 0 of 16 are free"),)
    with screen.wide(60):
        assert screen.table(("NAME", "REASON"), rows).splitlines() == [
            "NAME                        REASON",
            "train-llm-with-a-long-name  it requests 16 nvidia.com/gpu,",
            "                            and 0 of 16 are free",
        ]


@pytest.mark.row("E8", level="pure")
@pytest.mark.parametrize("width", [40, 60])
def test_E8_a_row_becomes_lines_where_a_name_would_be_cut(width: int) -> None:
    with screen.wide(width):
        assert screen.table(NAMES, ROWS[:1]).splitlines() == [
            *(["NAMESPACE research  NAME train-llm-with-a-long-name"] if width == 60 else []),
            *(["NAMESPACE research", "  NAME train-llm-with-a-long-name"] if width == 40 else []),
            *(["  PHASE Resetting  REASON InsufficientPodsReady"] if width == 60 else []),
            *(["  PHASE Resetting", "  REASON InsufficientPodsReady"] if width == 40 else []),
        ]


@pytest.mark.row("E8", level="pure")
def test_E8_a_mark_without_a_head_stands_before_what_it_marks() -> None:
    with screen.wide(25):
        lines = screen.table(
            ("TIME", "PHASE", "", "WHAT"), [("+10m", "Running", ">", "creating-attempt-1")]
        ).splitlines()
    assert lines == ["TIME +10m  PHASE Running", "  WHAT > creating-attempt-1"]


WIDE = "为更重要的训练腾出节点、请在今晚八点以后再继续运行这个任务、届时会有足够的图形处理器可用"
"""What may be given as a reason: most characters take two columns of a terminal, and there are no spaces."""


@pytest.mark.row("E8", level="pure")
@pytest.mark.parametrize("width", [60, 100])
def test_E8_wide_characters_are_counted_as_the_columns_that_they_take(width: int) -> None:
    with screen.wide(width):
        said = screen.folded(f"message    suspend was asked for: {WIDE}; " + "cafe\u0301" * 30)
        table = screen.table(("NAME", "PHASE", "MESSAGE"), [("train", "Suspended", WIDE), ("训练", "Running", "")])
        laid_out = [*said.splitlines(), *screen.folded(table).splitlines()]
    assert max(map(screen.cells, laid_out)) <= width
    assert "".join(said.split()).count(WIDE) == 1, "nothing is lost or added"
    assert all(line.startswith(" " * 11) for line in said.splitlines()[1:])


@pytest.mark.row("E8", level="pure")
def test_E8_columns_line_up_below_wide_characters() -> None:
    with screen.wide(60):
        lines = screen.table(("NAME", "PHASE"), [("训练", "Running"), ("train", "Failed")]).splitlines()
    assert lines == ["NAME   PHASE", "训练   Running", "train  Failed"]


@pytest.mark.row("E8", level="pure")
def test_E8_phases_alone_have_a_colour_and_deadlines_that_are_near() -> None:
    assert screen.painted("x  Failed  attempt 3") == "x  \x1b[31mFailed\x1b[0m  attempt 3"
    assert screen.painted("why        it Failed to start") == "why        it Failed to start"
    assert screen.painted("next       02:14:55 UTC (in 5s) a") == "next       02:14:55 UTC \x1b[1;33m(in 5s)\x1b[0m a"
    assert screen.painted("next       02:24:55 UTC (in 10m5s) a") == "next       02:24:55 UTC (in 10m5s) a"
    assert screen.painted("NOT OK  temporal") == "\x1b[31mNOT OK\x1b[0m  temporal"


@pytest.mark.row("E8", level="pure")
@pytest.mark.parametrize(
    ("terminal", "environment", "coloured"),
    [(True, {}, True), (True, {"NO_COLOR": "1"}, False), (True, {"TERM": "dumb"}, False), (False, {}, False)],
)
def test_E8_colour_is_for_terminals_that_want_it(
    terminal: bool,
    environment: dict[str, str],
    coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    for name, value in {"NO_COLOR": "", "TERM": "xterm", "COLUMNS": "60", **environment}.items():
        monkeypatch.setenv(name, value)
    output.emit({}, Output.TABLE, lambda: "x  Failed  \x1b[2Jwiped " + "word " * 20)
    printed = capsys.readouterr().out
    assert ("\x1b[31m" in printed) is coloured
    assert "\x1b[2J" not in printed, "what others say moves no cursor"
    assert (len(printed.splitlines()) > 1) is terminal


@pytest.mark.row("E8", level="pure")
@pytest.mark.parametrize(("columns", "width"), [("20", 60), ("130", 130), ("500", 200)])
def test_E8_widths_go_from_60_to_200(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", columns)
    assert screen.columns() == width


@pytest.mark.row("E12", level="pure")
def test_E12_a_status_prints_short() -> None:
    told = status(attempt=2)
    line = (
        "research/train-llm Running (SufficientPodsReady): 3 of 4 pods running, 1 pending, attempt 2, restart 0 of 3; "
        "all expected pods run"
    )
    assert str(told) == line
    assert repr(told) == f"<Status {line}>"
    assert str(StatusView(status=told, fresh=True)) == line
    assert repr(StatusView(status=told, fresh=False)) == f"<StatusView {line} (as last recorded)>"
