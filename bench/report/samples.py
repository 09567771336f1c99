"""What was measured, as data: samples, the machine they were taken on, and the files that keep them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

REPORTS = Path("reports/bench")
"""Where a run leaves its samples, tables and plots."""


class Machine(BaseModel):
    """Where something was measured."""

    model_config = ConfigDict(frozen=True)

    processor: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    load: float
    """Load average over a minute before the run: above a fraction of the cores, somebody else was working."""
    versions: dict[str, str] = Field(default_factory=dict)
    commit: str = ""


class Sample(BaseModel):
    """One run of one system at one size.

    `values` are numbers by name, whose unit is the name's ending (`_s`, `_mib`) or plain counts; `series` are the
    single measurements behind them.
    """

    model_config = ConfigDict(frozen=True)

    measure: str
    system: str
    size: dict[str, int] = Field(default_factory=dict)
    repeat: int = 0
    at: datetime
    values: dict[str, float]
    series: dict[str, list[float]] = Field(default_factory=dict)


class Recording(BaseModel):
    """All samples of one run of one measure."""

    measure: str
    machine: Machine
    settings: dict[str, str] = Field(default_factory=dict)
    """What the run was told beyond its defaults: settings of the worker, dynamic config of the server."""
    samples: list[Sample] = Field(default_factory=list[Sample])

    def save(self, folder: Path, earlier: Sequence[Recording] = ()) -> Path:
        """Write the file `<measure>.json`, with earlier runs before this; one that is broken off leaves what it had."""
        folder.mkdir(parents=True, exist_ok=True)
        path = _file(folder, self.measure)
        fresh = path.with_suffix(".new")
        fresh.write_bytes(_RECORDINGS.dump_json([*earlier, self], indent=1) + b"\n")
        os.replace(fresh, path)
        return path

    def earlier(self, folder: Path) -> list[Recording]:
        """Return the runs of its measure that a folder has, to which this one may be added.

        Raises:
            ValueError: if they are of another commit or had other settings: their samples are not of one kind.
        """
        found = _read(_file(folder, self.measure))
        for each in found:
            if (each.machine.commit, each.settings) != (self.machine.commit, self.settings):
                mine, theirs = (f"commit {it.machine.commit}, settings {it.settings}" for it in (self, each))
                path = _file(folder, self.measure)
                raise ValueError(f"{path} has samples of {theirs}; those of {mine} go into another folder (--out)")
        return found


_RECORDINGS = TypeAdapter(list[Recording])


def load(folder: Path) -> list[Recording]:
    """Return every recording of a folder, by the measures' names."""
    return [recording for path in sorted(folder.glob("*.json")) for recording in _read(path)]


def _file(folder: Path, measure: str) -> Path:
    return folder / f"{measure}.json"


def _read(path: Path) -> list[Recording]:
    return _RECORDINGS.validate_json(path.read_bytes()) if path.exists() else []


def samples_of(recordings: Iterable[Recording], measure: str) -> list[Sample]:
    """Return a measure's samples."""
    return [sample for recording in recordings if recording.measure == measure for sample in recording.samples]
