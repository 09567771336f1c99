"""How a workload saves its state, given as settings: annotations of manifests and JobSets, and `--set` (row L32)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import yaml

from holdfast import formats
from holdfast.errors import InvalidWorkload
from holdfast.model import Checkpoint, CheckpointProtocol, OnUnresponsive, Workload
from tests.e2e.peers.jobsets import jobset, replicated

ROW = pytest.mark.row
HTTP = {"checkpoint": "http", "checkpointPort": "8080"}


def manifest(**settings: str) -> str:
    document: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "annotations": {f"holdfast.dev/{key}": value for key, value in settings.items()}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "busybox"}]}}},
    }
    return yaml.safe_dump(document)


def read(text: str, **changes: str) -> Workload:
    (found,) = formats.read(text, cluster="dev", overrides=changes)
    return found


def refused(text: str, **changes: str) -> str:
    with pytest.raises(InvalidWorkload) as error:
        read(text, **changes)
    return str(error.value)


@ROW("L32", level="pure")
def test_L32_all_of_it_can_be_annotations():
    settings = {
        **HTTP,
        "checkpointPath": "/save",
        "checkpointTimeout": "2m",
        "checkpointExtension": "30s",
        "checkpointOnUnresponsive": "Kill",
    }
    assert read(manifest(**settings)).checkpoint == Checkpoint(
        protocol=CheckpointProtocol.HTTP,
        port=8080,
        path="/save",
        timeout=timedelta(minutes=2),
        extension=timedelta(seconds=30),
        on_unresponsive=OnUnresponsive.KILL,
    )
    assert read(manifest()).checkpoint is None


@ROW("L32", level="pure")
def test_L32_it_can_be_given_on_the_way():
    assert read(manifest(), checkpoint="annotation").checkpoint == Checkpoint(protocol=CheckpointProtocol.ANNOTATION)


@ROW("L32", level="pure")
def test_L32_a_jobset_names_the_replicated_jobs_that_save():
    text = yaml.safe_dump(jobset("train", replicated("driver"), replicated("workers")))
    found = read(text, checkpoint="annotation", checkpointComponents="driver")
    assert found.savers == ("driver",)
    assert read(text, checkpoint="annotation").savers == ("driver", "workers")


@ROW("U14", level="pure")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"checkpoint": "pigeon"}, "holdfast.dev/checkpoint"),
        ({"checkpoint": "http"}, "[holdfast.dev/checkpointPort]: missing"),
        ({"checkpoint": "http", "checkpointPort": "many"}, "holdfast.dev/checkpointPort"),
        ({**HTTP, "checkpointTimeout": "soon"}, "holdfast.dev/checkpointTimeout"),
        ({**HTTP, "checkpointOnUnresponsive": "Shrug"}, "holdfast.dev/checkpointOnUnresponsive"),
        ({**HTTP, "checkpointComponents": "nobody"}, "names no component with pods"),
        ({"checkpointTimeout": "2m"}, "is only for what sets checkpoint, too"),
    ],
)
def test_U14_what_is_wrong_is_told_with_the_annotations_name(settings: dict[str, str], said: str):
    assert said in refused(manifest(**settings))
