"""The archive read back: the runs of one life in their order, whatever else lies beside them (row O6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.activities.data.storage import Away, BadData, Entry
from holdfast.client.past import from_files
from holdfast.codec.options import from_environment
from holdfast.errors import HoldfastError, NotReachable, WorkloadNotFound
from holdfast.past import history_of
from holdfast.past.archive import Archive, opened

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


@pytest.mark.parametrize("wrong", ["histories", "s3://bucket", "s3://bucket/", "s3://bucket/prefix/", "gs://b/prefix"])
def test_a_source_that_is_no_bucket_and_prefix_is_refused(wrong: str):
    with pytest.raises(HoldfastError, match="expected s3://bucket/prefix"):
        opened(wrong)
