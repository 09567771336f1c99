"""The samples kept in the repository: docs/performance.md says what they give, and they are enough to make it again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bench.report import plots, tables, targets, write
from bench.report.layouts import LAYOUTS
from bench.report.published import KEPT, POINTS, compact, keep, merged, thinned
from bench.report.samples import Machine, Recording, Sample, load, samples_of

ROOT = Path(__file__).parents[2]
SAVED = Path(__file__).parent / "samples"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MACHINE = Machine(processor="a processor", cores=2, memory_gib=24, kernel="6", python="3.11", load=0.1, commit="abc")


def taken(hour: int, *cases: tuple[str, int]) -> Recording:
    """Return a recording of `start` with a sample of each (system, n), taken so many hours after noon."""
    at = NOON + timedelta(hours=hour)
    samples = [
        Sample(measure="start", system=system, size={"n": n}, at=at, values={"running_s": float(hour)})
        for system, n in cases
    ]
    return Recording(measure="start", machine=MACHINE, samples=samples)


def told(recordings: list[Recording]) -> list[tuple[str, int, float]]:
    """Return system, n and value of each sample of `start`."""
    found = samples_of(recordings, "start")
    return [(sample.system, sample.size["n"], sample.values["running_s"]) for sample in found]


def test_the_figures_of_the_document_are_what_the_kept_samples_give(tmp_path: Path) -> None:
    """After other tables, plots or targets: `python -m bench tables --from published --publish`."""
    document = ROOT / write.DOCUMENT
    assert write.section(document) == write.generated(KEPT, tmp_path)
    shown = {path.name for path in (document.parent / write.IMAGES).glob("*.png")}
    assert shown == {path.name for path in tmp_path.glob("*.png")}


def test_no_file_of_kept_samples_is_large() -> None:
    assert {path.name: size for path in KEPT.glob("*") if (size := path.stat().st_size) > 128 * 1024} == {}


def test_published_samples_give_the_same_again(tmp_path: Path) -> None:
    document, kept = tmp_path / "performance.md", tmp_path / "kept"
    document.write_text(f"before\n{write.BEGIN}\nstale figures\n{write.END}\nafter\n")
    write.publish(load(SAVED), document, kept)
    first = document.read_text(), {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    write.publish(load(kept), document, kept)
    assert (document.read_text(), {path: path.read_bytes() for path in tmp_path.rglob("*.json")}) == first


def test_what_is_kept_gives_every_figure_that_the_whole_samples_give(tmp_path: Path) -> None:
    keep([compact(each) for each in load(SAVED)], tmp_path)
    assert write.markdown(load(tmp_path), []) == write.markdown(load(SAVED), [])


def test_series_that_no_figure_is_of_are_left_out_and_drawn_ones_thinned() -> None:
    long = [float(each) for each in range(1000)]
    series = {"decided_s": long, "running_at_s": long, "at_s": long, "memory_mib": long, "each_late_s": long}
    sample = taken(0, ("Holdfast", 1000)).samples[0].model_copy(update={"series": series})
    kept = compact(Recording(measure="start", machine=MACHINE, samples=[sample])).samples[0].series
    assert {name: len(each) for name, each in kept.items()} == {
        "decided_s": 1000,  # Its tail is a figure.
        "running_at_s": POINTS,
        "at_s": POINTS,
        "memory_mib": POINTS,
    }


def test_every_series_that_is_drawn_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a plot reads and `plots.SERIES` lacks would be missing from what is kept."""
    read: dict[str, set[str]] = {}

    class Noted(dict[str, list[float]]):
        def __getitem__(self, name: str) -> list[float]:
            read.setdefault(measure, set()).add(name)
            return super().__getitem__(name)

        def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
            read.setdefault(measure, set()).add(name)
            return super().get(name, default)

    found = load(SAVED)
    for recording in found:
        measure = recording.measure
        noted = [sample.model_copy(update={"series": Noted(sample.series)}) for sample in recording.samples]
        for plot in plots.PLOTS.values():
            figure = plot([recording.model_copy(update={"samples": noted})])
            if figure is not None:
                plots.plt.close(figure)
    assert read == {name: set(series) for name, series in plots.SERIES.items()}


def test_a_thinned_series_keeps_its_shape_and_its_last() -> None:
    assert thinned([float(each) for each in range(1, 101)], 4) == [25.0, 50.0, 75.0, 100.0]
    assert thinned([1.0, 2.0, 3.0], 60) == [1.0, 2.0, 3.0]
    assert thinned([], 60) == []


def test_newer_samples_of_a_system_at_a_size_replace_the_kept_ones() -> None:
    kept = [taken(0, ("plain", 100), ("plain", 300), ("Holdfast", 100))]
    fresh = [taken(1, ("Holdfast", 100)), taken(2, ("Holdfast", 100), ("Holdfast", 300))]
    assert told(merged(kept, fresh)) == [
        ("plain", 100, 0.0),
        ("plain", 300, 0.0),
        ("Holdfast", 100, 1.0),
        ("Holdfast", 100, 2.0),
        ("Holdfast", 300, 2.0),
    ]


def test_older_samples_do_not_replace_the_kept_ones() -> None:
    kept = [taken(1, ("Holdfast", 100))]
    assert told(merged(kept, [taken(0, ("Holdfast", 100), ("plain", 100))])) == [
        ("plain", 100, 0.0),
        ("Holdfast", 100, 1.0),
    ]


def test_merging_what_was_just_kept_changes_nothing() -> None:
    fresh = [taken(1, ("Holdfast", 100)), taken(2, ("plain", 100))]
    assert merged(fresh, fresh) == fresh
    assert merged([], fresh) == fresh == merged(fresh, [])


def test_what_is_kept_is_all_that_is_there(tmp_path: Path) -> None:
    keep(load(SAVED), tmp_path)
    found = [taken(1, ("Holdfast", 100)), taken(2, ("plain", 100))]
    keep(found, tmp_path)
    assert load(tmp_path) == found
    assert tables.tables(LAYOUTS, load(tmp_path)) == tables.tables(LAYOUTS, found)


def test_every_target_has_the_series_it_is_of() -> None:
    names = {target.value for target in targets.read()}
    sample = taken(0, ("Holdfast", 1)).samples[0].model_copy(update={"series": {name: [1.0] for name in names}})
    kept = compact(Recording(measure="crowd", machine=MACHINE, samples=[sample])).samples[0]
    assert set(kept.series) == names
