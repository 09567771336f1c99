"""Whose a sample of the worker is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.measures.profile import OWNERS, REST, owned, owner_of, sampled

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("frames", "owner"),
    [
        (["run (asyncio/base_events.py)", "advance (holdfast/policy/loop/advance.py)"], "decisions"),
        (["turn (holdfast/policy/loop/turn.py)", "model_copy (pydantic/main.py)"], "documents"),
        (["make (holdfast/activities/objects/make.py)", "create (holdfast/activities/kube/client.py)"], "HTTP"),
        (["make (holdfast/activities/objects/make.py)", "sorted (<string>)"], "activities"),
        (["activate (temporalio/worker/_workflow_instance.py)"], "workflow tasks"),
        (["main (somewhere.py)"], REST),
    ],
)
def test_a_sample_is_its_innermost_known_functions(frames: list[str], owner: str):
    assert owner_of(frames) == owner


def test_the_shares_are_of_all_samples_and_the_largest_comes_first():
    waits = "run (asyncio/x.py);select (selectors.py:452) 90"
    stacks = ["a (asyncio/x.py) 1", "a (asyncio/x.py);b (holdfast/policy/y.py) 3", "", waits]
    assert owned(stacks) == {"decisions": 0.75, "event loop": 0.25}
    assert list(owned(stacks)) == ["decisions", "event loop"]


def test_every_part_of_our_own_that_is_named_is_there():
    ours = [part for _, parts in OWNERS for part in parts if part.startswith("holdfast/")]
    assert ours
    assert [part for part in ours if not (ROOT / part).is_dir()] == []


def test_a_process_that_is_not_there_is_said_to_be_so(tmp_path: Path):
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    with pytest.raises(RuntimeError, match="py-spy has recorded nothing"), sampled(process.pid, tmp_path / "x", "raw"):
        pass
