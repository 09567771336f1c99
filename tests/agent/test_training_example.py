"""The script of examples/elastic/train.yaml: the same result to the last bit, whoever took part in which step."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

SOURCE = Path(__file__).parents[2] / "examples" / "elastic" / "train.yaml"
LIMIT = 60


def members(script: Path, checkpoints: Path, size: int, pause: float = 0) -> list[subprocess.Popen[str]]:
    """Start a round of the script, without Holdfast."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "CHECKPOINTS": str(checkpoints),
        "STEP_SECONDS": str(pause),
    }
    return [
        subprocess.Popen(
            [sys.executable, str(script)],
            env=os.environ | told | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    parts = [one["template"] for one in yaml.safe_load(SOURCE.read_text())["spec"]["components"]]
    (found,) = (one for one in parts if one["kind"] == "ConfigMap")
    path = tmp_path / "train.py"
    path.write_text(found["data"]["train.py"])
    return path


def result(script: Path, checkpoints: Path, size: int) -> str:
    checkpoints.mkdir(exist_ok=True)
    round_ = members(script, checkpoints, size)
    said = [one.communicate(timeout=LIMIT) for one in round_]
    assert [one.returncode for one in round_] == [0] * size, said
    return said[0][0].splitlines()[-1]


def test_a_round_that_lost_a_member_is_gone_on_with_by_others_to_the_same_result(script: Path, tmp_path: Path) -> None:
    alone = result(script, tmp_path / "alone", 1)
    assert alone.startswith("result [")
    shared = tmp_path / "shared"
    shared.mkdir()
    first = members(script, shared, 3, pause=0.005)
    limit = time.monotonic() + LIMIT
    while not (shared / "checkpoint.json").exists():
        assert time.monotonic() < limit
        time.sleep(0.01)
    first[1].kill()
    survivors = [one.communicate(timeout=LIMIT)[1] for one in (first[0], first[2])]
    assert ["a peer is gone" in said or "reset" in said for said in survivors] == [True, True], survivors
    saved = json.loads((shared / "checkpoint.json").read_text())
    assert 0 < saved["step"] < 300
    assert result(script, shared, 2) == alone
