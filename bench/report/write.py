"""Writing what samples say: tables and plots into a folder, and the generated section of docs/performance.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.report import plots, targets
from bench.report.layouts import LAYOUTS
from bench.report.published import KEPT, compact, keep
from bench.report.samples import Machine, Recording, load, samples_of
from bench.report.tables import requests, tables

DOCUMENT = Path("docs/performance.md")
IMAGES = Path("images/performance")
"""The folder of the plots, beside the document."""
BEGIN, END = "<!-- begin: python -m bench tables -->", "<!-- end -->"


def write(recordings: Sequence[Recording], folder: Path) -> Path:
    """Write `report.md` and the plots into a folder, and return the report's path."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = plots.draw(recordings, folder)
    path = folder / "report.md"
    images = [*(each.name for each in drawn), *(path.name for path in folder.glob("*.svg"))]
    path.write_text("# Measured\n" + markdown(recordings, images) + "\n")
    return path


def publish(recordings: Sequence[Recording], document: Path = DOCUMENT, kept: Path = KEPT) -> Path:
    """Write the generated section of a document and the plots beside it, and keep the samples that they are of.

    Raises:
        ValueError: if the document lacks the lines between which the section stands.
    """
    before, stale, after = parts(document)
    keep([compact(each) for each in recordings], kept)
    # From what is kept, not from what was measured: so that it can be made again, and nothing else.
    images = document.parent / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    for path in images.glob("*.png"):
        path.unlink()
    fresh = generated(kept, images)
    if fresh != stale:
        document.write_text(f"{before}{BEGIN}{fresh}{END}{after}")
    return document


def generated(kept: Path, images: Path) -> str:
    """Draw the plots of the kept samples into a folder, and return the section of the document."""
    recordings = load(kept)
    drawn = [str(IMAGES / each.name) for each in plots.draw(recordings, images)]
    return f"\n{markdown(recordings, drawn)}\n"


def section(document: Path = DOCUMENT) -> str:
    """Return the generated section of a document as it stands.

    Raises:
        ValueError: if the document lacks the lines between which the section stands.
    """
    return parts(document)[1]


def parts(document: Path, begin: str = BEGIN, end: str = END) -> tuple[str, str, str]:
    """Return what a document has before, in and after a generated section.

    Raises:
        ValueError: if the document lacks the lines between which the section stands.
    """
    before, begins, rest = document.read_text().partition(begin)
    stale, ends, after = rest.partition(end)
    if not begins or not ends:
        raise ValueError(f"{document}: expected the lines {begin!r} and {end!r}, between which the figures go")
    return before, stale, after


def markdown(recordings: Sequence[Recording], images: Sequence[str]) -> str:
    """Return machine, targets, tables and plots as Markdown."""
    written = [_machines(recordings), "### Targets\n" + targets.table(targets.held(targets.read(), recordings))]
    written += [tables(LAYOUTS, recordings), requests(samples_of(recordings, "start"))]
    written += [f"![{Path(image).stem}]({image})" for image in images]
    return "\n\n".join(part for part in written if part)


def lacks(folder: Path) -> list[str]:
    """Return which tables and plots a folder lacks, and which samples say that something went wrong."""
    recordings = load(folder)
    found = [
        f"no samples of {layout.measure}"
        for layout in LAYOUTS
        if layout.smoked
        and not any(recording.samples for recording in recordings if recording.measure == layout.measure)
    ]
    found += [f"no plot {name}" for name in plots.PLOTS if not (folder / f"{name}.png").exists()]
    for recording in recordings:
        for sample in recording.samples:
            wrong = [name for name in ("missing", "wrong") if sample.values.get(name)]
            found += [f"{recording.measure}, {sample.system}: {name} is {sample.values[name]:g}" for name in wrong]
    return found


def _machines(recordings: Sequence[Recording]) -> str:
    lines: list[str] = []
    for recording in recordings:
        if recording.samples:
            begun = min(sample.at for sample in recording.samples)
            told = ", ".join(f"{name}={value}" for name, value in recording.settings.items())
            line = f"- {recording.measure}: {begun:%Y-%m-%d %H:%M} UTC, {machine(recording.machine)}"
            lines.append(line + (f"; {told}" if told else ""))
    return "\n".join(lines)


def machine(found: Machine) -> str:
    """Say in one line what a machine is."""
    versions = ", ".join(f"{name} {number}" for name, number in found.versions.items())
    return (
        f"{found.cores} cores ({found.processor}), {found.memory_gib:.0f} GiB, Linux {found.kernel}, "
        f"Python {found.python}, {versions}; commit {found.commit}; load before {found.load:g}"
    )
