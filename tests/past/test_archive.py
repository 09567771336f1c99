"""The archive read back: the runs of one life in their order, whatever else lies beside them (row O6)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.service import RPCError, RPCStatusCode
from typer.testing import CliRunner

from holdfast.activities.data.storage import Away, BadData, Entry
from holdfast.cli.app import app
from holdfast.cli.cluster import archive as command
from holdfast.client.past import from_files
from holdfast.codec.options import from_environment
from holdfast.errors import HoldfastError, NotReachable, WorkloadNotFound
from holdfast.past import archive, history_of
from holdfast.past.archive import Archive, Kept, opened

pytestmark = pytest.mark.row("O6", level="pure")
HISTORIES = Path(__file__).parents[1] / "replay" / "histories"
LIFE = [HISTORIES / f"continue-as-new-{number}.json" for number in range(1, 8)]
CONVERTER = from_environment()["data_converter"]
PLACE = "s3://kept/lives/workload/dev/research/train"


class Shelf:
    """What a store has, by the whole address of each object."""

    def __init__(self, *files: Path, fails: Exception | None = None) -> None:
        self._objects = {f"{PLACE}/{file.name}": file.read_bytes() for file in files}
        self._fails = fails

    async def list(self, source: str) -> list[Entry]:
        if self._fails is not None:
            raise self._fails
        under = f"{source}/"
        return [Entry(one.removeprefix(under), 1, "") for one in sorted(self._objects) if one.startswith(under)]

    async def put_new(self, source: str, key: str, data: bytes) -> bool:
        return self._objects.setdefault(f"{source}/{key}", data) is data

    async def find(self, source: str, key: str, at_most: int) -> bytes | None:
        return self._objects.get(f"{source}/{key}")


async def read(shelf: Shelf, workflow_id: str = "workload/dev/research/train") -> Any:
    return await Archive(cast("Any", shelf), "s3://kept/lives").story(workflow_id, CONVERTER)


async def test_a_life_of_several_runs_is_as_its_files_tell_it():
    expected = history_of(await from_files(LIFE, CONVERTER))
    assert history_of(await read(Shelf(*reversed(LIFE)))) == expected


async def test_of_two_lives_of_a_name_the_later_one_is_told():
    both = [*LIFE, HISTORIES / "happy-path.json"]
    lives = [await from_files(files, CONVERTER) for files in (LIFE, both[-1:])]
    latest = max(lives, key=lambda story: story.runs[-1].began_at)
    assert history_of(await read(Shelf(*both))) == history_of(latest)


async def test_what_comes_before_a_missing_run_is_left_out():
    there = LIFE[:2] + LIFE[3:]
    found = history_of(await read(Shelf(*there)))
    whole = history_of(await from_files(LIFE, CONVERTER))
    assert found.runs == whole.runs[3:]
    assert (found.phase, found.outcome, found.causes_total) == (whole.phase, whole.outcome, whole.causes_total)


async def test_what_is_not_there_and_what_cannot_be_read_is_said():
    with pytest.raises(WorkloadNotFound):
        await read(Shelf(*LIFE), "workload/dev/research/tr")
    with pytest.raises(NotReachable, match="HOLDFAST_DATA_ENDPOINT"):
        await read(Shelf(fails=Away("the store does not answer")))
    with pytest.raises(HoldfastError, match="archive s3://kept/lives: the store has no bucket kept"):
        await read(Shelf(fails=BadData("the store has no bucket kept")))


async def test_what_lies_deeper_is_another_workloads():
    shelf = Shelf(*LIFE)
    shelf._objects |= {f"{PLACE}/jobset/{one.name}": b"another's" for one in LIFE} | {f"{PLACE}/notes": b"none"}
    assert history_of(await read(shelf)) == history_of(await from_files(LIFE, CONVERTER))
    with pytest.raises(WorkloadNotFound):
        await read(shelf, "workload/dev/research")


async def test_a_list_that_was_cut_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archive, "OBJECTS_MAXIMUM", len(LIFE) - 1)
    with pytest.raises(HoldfastError, match="more than 6 objects: the list of them is not whole"):
        await read(Shelf(*LIFE))


@pytest.mark.timeout(10)
def test_runs_that_name_each_other_are_told_once():
    runs = [
        SimpleNamespace(run_id=one, previous_run_id=before, began_at=at)
        for at, (one, before) in enumerate([("a", "b"), ("b", "a"), ("alone", "alone")])
    ]
    assert archive._last_stretch(cast("Any", runs[:2])) == runs[:2]
    assert archive._last_stretch(cast("Any", runs)) == runs[2:]


class Temporal:
    """Temporal with one ended run of each id; the history of some cannot be had."""

    def __init__(self, *ids: str, **fails: RPCStatusCode) -> None:
        self._ids = ids
        self._fails = fails

    async def list_workflows(self, _query: str) -> AsyncIterator[Any]:
        for one in self._ids:
            yield SimpleNamespace(id=one, run_id="run")

    def get_workflow_handle(self, workflow_id: str, **_: Any) -> Any:
        async def fetch_history() -> Any:
            if (status := self._fails.get(workflow_id.rpartition("/")[2])) is not None:
                raise RPCError("it is broken", status, b"")
            return SimpleNamespace(to_json=lambda: "{}")

        return SimpleNamespace(fetch_history=fetch_history)


async def kept(temporal: Temporal, shelf: Shelf) -> list[Kept]:
    there = Archive(cast("Any", shelf), "s3://kept/lives")
    return [one async for one in there.keep(cast("Any", temporal), "dev")]


async def test_a_run_that_cannot_be_kept_does_not_keep_the_others_out():
    odd = [
        "workload/dev/../x",
        "workload/dev//x",
        "workload/dev/a/x\x1b",
        "workload/dev/a/b/x",
        "workload/dev/a/..",
        "x",
    ]
    shelf = Shelf()
    temporal = Temporal(*odd, "workload/dev/a/bad", "workload/dev/a/good", bad=RPCStatusCode.INTERNAL)
    told = await kept(temporal, shelf)
    assert [one.workflow_id for one in told if one.problem] == [*odd, "workload/dev/a/bad"]
    assert all("is not a workload's id" in one.problem for one in told[: len(odd)])
    assert told[-2].problem == "it is broken"
    assert told[-1] == Kept("workload/dev/a/good", "run", True)
    assert list(shelf._objects) == ["s3://kept/lives/workload/dev/a/good/run.json"]


async def test_a_temporal_that_is_away_ends_it():
    with pytest.raises(RPCError):
        await kept(Temporal("workload/dev/a/x", x=RPCStatusCode.UNAVAILABLE), Shelf())
    with pytest.raises(NotReachable):
        await kept(Temporal("workload/dev/a/x"), Shelf(fails=Away("the store does not answer")))


async def test_what_another_has_written_meanwhile_was_there(monkeypatch: pytest.MonkeyPatch):
    shelf = Shelf()

    async def put_new(*_: Any) -> bool:
        return False

    monkeypatch.setattr(shelf, "put_new", put_new)
    assert await kept(Temporal("workload/dev/a/x"), shelf) == [Kept("workload/dev/a/x", "run", False)]


def test_the_command_names_what_it_could_not_keep(monkeypatch: pytest.MonkeyPatch):
    @asynccontextmanager
    async def session(_place: Any) -> AsyncGenerator[Any]:
        yield SimpleNamespace(client=Temporal("workload/dev/a/x", "workload/dev/../x"), place="here")

    monkeypatch.setattr(command, "session", session)
    monkeypatch.setattr(archive, "opened", lambda source: Archive(cast("Any", Shelf()), source))
    done = CliRunner().invoke(app, ["archive", "s3://kept/lives", "--cluster", "dev", "-o", "json"])
    assert done.exit_code == 2
    assert json.loads(done.stdout) == {"archive": "s3://kept/lives", "written": 1, "there": 0, "missing": 1}
    assert "not kept: workload/dev/../x, run run" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("given", "kinds", "says"),
    [
        ("train", ("",), ""),
        ("research/appwrapper/train", ("",), ""),
        ("train", ("jobset",), ""),
        ("research/jobset/train", ("", "jobset"), ""),
        ("train", ("", "jobset"), "research/train is the name of 2 workloads"),
        ("research/jobset/train", ("",), "s3://kept/lives has only what `holdfast archive` kept there"),
    ],
)
def test_F7_a_life_of_each_kind_is_found_by_its_name(
    monkeypatch: pytest.MonkeyPatch, given: str, kinds: tuple[str, ...], says: str
):
    shelf = Shelf()
    for kind in kinds:
        place = "/".join(filter(None, ("s3://kept/lives/workload/dev/research", kind, "train")))
        shelf._objects |= {f"{place}/{file.name}": file.read_bytes() for file in LIFE}
    monkeypatch.setattr(archive, "opened", lambda source: Archive(cast("Any", shelf), source))
    asked = ["history", given, "--archive", "s3://kept/lives", "--cluster", "dev", "-n", "research", "-o", "json"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == (2 if says else 0), done.output
    assert says in done.stderr


@pytest.mark.parametrize("wrong", ["histories", "s3://bucket", "s3://bucket/", "s3://bucket/prefix/", "gs://b/prefix"])
def test_a_source_that_is_no_bucket_and_prefix_is_refused(wrong: str):
    with pytest.raises(HoldfastError, match="expected s3://bucket/prefix"):
        opened(wrong)
