"""How the steps of a workload are followed, given as settings: annotations, and `--set` (row P1)."""

from __future__ import annotations

from datetime import timedelta

import pytest
import yaml

from holdfast.model import Progress, ProgressSource
from tests.e2e.peers.jobsets import jobset, replicated
from tests.formats.settings.test_checkpoint_settings import manifest, read, refused

ROW = pytest.mark.row
HTTP = {"progress": "http", "progressPort": "9470"}


@ROW("P1", level="pure")
def test_P1_all_of_it_can_be_annotations():
    settings = {
        **HTTP,
        "progressPath": "/step",
        "progressPeriod": "5s",
        "progressBound": "4m",
        "progressMultiple": "20",
        "progressMinimum": "2m",
        "progressFirstStep": "10m",
        "progressPhaseBound": "30m",
        "progressPoisonLimit": "2",
        "progressExecutions": "9",
    }
    assert read(manifest(**settings)).progress == Progress(
        source=ProgressSource.HTTP,
        port=9470,
        path="/step",
        period=timedelta(seconds=5),
        bound=timedelta(minutes=4),
        multiple=20,
        minimum=timedelta(minutes=2),
        first_step=timedelta(minutes=10),
        phase_bound=timedelta(minutes=30),
        poison_limit=2,
        executions=9,
    )
    assert read(manifest()).progress is None
    assert read(manifest(), progress="annotation").progress == Progress()


@ROW("P1", level="pure")
def test_P1_a_jobset_names_the_replicated_jobs_that_tell_their_step():
    text = yaml.safe_dump(jobset("train", replicated("driver"), replicated("workers")))
    found = read(text, progress="annotation", progressComponents="driver")
    assert found.progress is not None
    assert found.progress.components == ("driver",)


@ROW("P1", level="pure")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"progress": "pigeon"}, "holdfast.dev/progress"),
        ({"progress": "http"}, "[holdfast.dev/progressPort]: missing"),
        ({"progress": "annotation", "progressPort": "80"}, "expected none, since source annotation asks no endpoint"),
        ({**HTTP, "progressPort": "many"}, "holdfast.dev/progressPort"),
        ({**HTTP, "progressBound": "soon"}, "holdfast.dev/progressBound"),
        ({**HTTP, "progressBound": "10s"}, "expected at least 1m, four periods"),
        ({**HTTP, "progressMultiple": "2"}, "holdfast.dev/progressMultiple"),
        ({**HTTP, "progressPoisonLimit": "1"}, "holdfast.dev/progressPoisonLimit"),
        ({**HTTP, "progressComponents": "nobody"}, "expected a component with pods"),
        ({"progressBound": "2m"}, "is only for what sets progress, too"),
    ],
)
def test_P1_what_is_wrong_is_told_with_the_annotations_name(settings: dict[str, str], said: str):
    assert said in refused(manifest(**settings))
