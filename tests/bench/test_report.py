"""Tables and plots from saved samples: nothing is run, and the same samples always give the same text."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.plan import FULL, SMOKE
from bench.report import plots, write
from bench.report.figures import cases, number, percentile, spread, tail
from bench.report.layouts import LAYOUTS
from bench.report.samples import Machine, Recording, Sample, load
from bench.report.tables import requests, tables
from bench.report.targets import Target, held, read, table

SAVED = Path(__file__).parent / "samples"
MACHINE = Machine(processor="a processor", cores=2, memory_gib=24, kernel="6", python="3.11", load=0.1, commit="abc")


def recording(measure: str, *samples: tuple[str, int, dict[str, float]], **series: list[float]) -> Recording:
    """Return a recording of (system, n, values), each of them repeated as often as it is given."""
    found = [
        Sample(
            measure=measure,
            system=system,
            size={"n": n},
            at=datetime(2026, 1, 1, tzinfo=UTC),
            values=values,
            series=series,
        )
        for system, n, values in samples
    ]
    return Recording(measure=measure, machine=MACHINE, samples=found)


STARTS = recording(
    "start",
    ("plain", 300, {"running_s": 4.0}),
    ("plain", 300, {"running_s": 6.0}),
    ("plain", 300, {"running_s": 5.0}),
    ("Holdfast", 300, {"running_s": 12.0}),
    ("Holdfast", 300, {"running_s": 20.0}),
    ("Holdfast", 300, {"running_s": 13.0}),
    ("plain", 100, {"running_s": 1.0}),
)
TARGET = Target(row="a", what="all run", measure="start", value="running_s", size={"n": 300}, at_most=3, missed="slow")


def test_the_report_of_saved_samples_is_what_it_was() -> None:
    """After a wanted change: `python -m tests.bench.test_report` writes it again."""
    assert write.markdown(load(SAVED), ["times.png"]) + "\n" == (SAVED / "report.md").read_text()


def test_a_row_has_median_spread_and_the_multiple_of_the_base() -> None:
    text = tables(LAYOUTS, [STARTS])
    assert "| 300 | plain | 3 | 5 s (4-6) |" in text
    assert "| 300 | Holdfast | 3 | 13 s (12-20), 2.60 x |" in text
    assert text.index("| 100 | plain") < text.index("| 300 | plain")


def test_a_column_that_nothing_was_measured_for_is_left_out() -> None:
    assert "API requests" not in tables(LAYOUTS, [STARTS])


def test_a_target_relative_to_another_system() -> None:
    (verdict,) = held([TARGET.model_copy(update={"against": "plain"})], [STARTS])
    assert verdict.met
    assert verdict.shown == "2.60 x (13 / 5)"


def test_a_missed_target_stands_with_its_reason_and_a_met_one_without() -> None:
    missed, met = (TARGET.model_copy(update={"at_most": most}) for most in (12.0, 13.0))
    text = table(held([missed, met], [STARTS]))
    assert "| 13 | 12 | **missed** | slow |" in text
    assert "| 13 | 13 | met |  |" in text


def test_a_target_without_samples_is_not_left_out() -> None:
    text = table(held([TARGET, TARGET.model_copy(update={"against": "AppWrapper"})], [recording("latency")]))
    assert text.count("not measured") == 2


def test_a_target_of_a_tail_takes_all_runs_together() -> None:
    one, other = (recording("latency", ("Holdfast", 500, {}), decided_s=series) for series in ([0.1] * 98, [0.2, 9.0]))
    target = TARGET.model_copy(update={"measure": "latency", "value": "decided_s", "size": {"n": 500}, "take": "p99"})
    (verdict,) = held([target], [one, other])
    assert verdict.figure == 0.2


def test_every_target_and_every_table_is_of_a_measure_that_is_run() -> None:
    measures = {plan.measure for plan in FULL}
    assert measures == {layout.measure for layout in LAYOUTS}
    assert {plan.measure for plan in SMOKE} == {layout.measure for layout in LAYOUTS if layout.smoked}
    assert {target.measure for target in read()} <= measures


def test_plots_are_drawn_of_what_there_is(tmp_path: Path) -> None:
    drawn = plots.draw(load(SAVED), tmp_path)
    assert {path.stem for path in drawn} == set(plots.PLOTS)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    assert plots.draw([recording("start")], tmp_path) == []


def test_the_requests_of_a_life_are_told_by_kind_most_first() -> None:
    plain = ("plain", 3, {"requests": 0.0})
    ours = ("Holdfast", 3, {"requests": 3.0, "requests get pods": 1.0, "requests create jobs": 2.0})
    text = requests(recording("start", plain, ours).samples)
    assert "|  | Holdfast |" in text
    assert text.index("| create jobs | 2 |") < text.index("| get pods | 1 |")
    assert requests(STARTS.samples) == ""


def test_publishing_replaces_the_generated_section_alone(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text(f"before\n{write.BEGIN}\nstale figures\n{write.END}\nafter\n")
    kept = tmp_path / "kept"
    write.publish(load(SAVED), document, kept)
    first = document.read_text()
    assert first.startswith("before\n")
    assert first.endswith("\nafter\n")
    assert "stale figures" not in first
    assert "images/performance/times.png" in first
    write.publish(load(SAVED), document, kept)
    assert document.read_text() == first


def test_a_document_without_its_markers_is_refused(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text("nothing generated here\n")
    with pytest.raises(ValueError, match="between which the figures go"):
        write.publish(load(SAVED), document, tmp_path / "kept")
    assert list(tmp_path.iterdir()) == [document]
    assert document.read_text() == "nothing generated here\n"


def test_samples_survive_the_file(tmp_path: Path) -> None:
    STARTS.save(tmp_path)
    assert load(tmp_path) == [STARTS]


def test_a_run_replaces_the_samples_of_its_measure_unless_it_is_added_to_them(tmp_path: Path) -> None:
    for _ in range(3):
        STARTS.save(tmp_path, STARTS.earlier(tmp_path))
    recording("latency").save(tmp_path)
    assert [found.measure for found in load(tmp_path)] == ["latency", "start", "start", "start"]
    assert "| 300 | plain | 9 | 5 s (4-6) |" in tables(LAYOUTS, load(tmp_path))
    STARTS.save(tmp_path)
    assert "| 300 | plain | 3 | 5 s (4-6) |" in tables(LAYOUTS, load(tmp_path))


@pytest.mark.parametrize(
    "other",
    [
        STARTS.model_copy(update={"machine": MACHINE.model_copy(update={"commit": "def"})}),
        STARTS.model_copy(update={"settings": {"HOLDFAST_X": "1"}}),
    ],
)
def test_samples_of_another_commit_or_other_settings_are_not_added(tmp_path: Path, other: Recording) -> None:
    STARTS.save(tmp_path)
    with pytest.raises(ValueError, match=r"samples of commit abc, settings \{\}; .* another folder"):
        other.earlier(tmp_path)


@pytest.mark.parametrize(
    ("value", "shown"), [(1234.5, "1,234"), (12.34, "12.3"), (1.234, "1.23"), (0.0123, "0.012"), (3.0, "3"), (0.0, "0")]
)
def test_figures_have_the_digits_that_matter(value: float, shown: str) -> None:
    assert number(value) == shown


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(each) for each in range(1, 101)]
    assert (percentile(values, 99), percentile(values, 50), percentile([5.0], 99)) == (99.0, 50.0, 5.0)
    assert tail(values, "s") == "50.5 / 99 / 100 s"
    assert spread([2.0], "s") == "2 s"
    assert spread([], "s") == "-"


def test_cases_come_by_size_and_then_as_they_were_run() -> None:
    found = cases(STARTS.samples)
    assert [(case.size["n"], case.system) for case in found] == [(100, "plain"), (300, "plain"), (300, "Holdfast")]


if __name__ == "__main__":
    (SAVED / "report.md").write_text(write.markdown(load(SAVED), ["times.png"]) + "\n")
