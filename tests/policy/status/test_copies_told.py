"""When a JobSet's status is written for its Jobs' sake alone: at what others decide by, not with each Job (row F16)."""

from __future__ import annotations

import pytest

from holdfast import formats
from holdfast.model import CopyCounts, OperationKind, Phase, Reason, Report
from holdfast.policy.status.report import landmarks, report_of, shows_copies
from holdfast.policy.values.edit import edit
from tests.formats.jobset.test_jobset_resource import resource
from tests.policy.lives.life import Life, workload

ROW = pytest.mark.row


def told(**counts: int) -> Report:
    copies = {"a": CopyCounts(expected=100, **counts)}
    return Report(sequence=1, phase=Phase.RUNNING, reason=Reason.SUFFICIENT_PODS_READY, copies=copies)


@ROW("F16", level="pure")
@pytest.mark.parametrize(
    ("before", "after", "turns"),
    [
        (told(), told(active=1), True),
        (told(active=1), told(active=60, ready=40), False),
        (told(active=60), told(active=100), True),
        (told(active=100, ready=99), told(active=100, ready=100), True),
        (told(active=90, ready=90, succeeded=10), told(active=80, ready=80, succeeded=20), False),
        (told(active=90, ready=90, succeeded=10), told(active=89, ready=89, succeeded=10, failed=1), True),
        (told(active=1, succeeded=99), told(succeeded=100), True),
        (told(active=1), told(active=1, suspended=1), True),
    ],
)
def test_F16_the_status_is_written_again_at_landmarks_alone(before: Report, after: Report, *, turns: bool):
    assert (landmarks(before) != landmarks(after)) is turns
    assert before.says_the_same_as(after), "an operation under way is not begun anew for a count"


@ROW("F16", level="pure")
def test_F16_only_what_stands_in_the_cluster_with_copies_says_how_they_stand():
    jobset = formats.asking(resource(), cluster="c")
    assert shows_copies(jobset)
    submitted = jobset.model_copy(update={"source": jobset.source.model_copy(update={"generation": None})})
    assert not shows_copies(submitted)
    life = Life(spec=workload()).runs()
    assert not shows_copies(life.spec)
    plain = report_of(life.spec, life.state)
    assert (plain.copies, plain.used, plain.failure) == ({}, {}, None)
    assert "copies" not in plain.model_dump()


@ROW("F16", level="pure")
def test_F16_counts_that_others_decide_by_are_told_by_a_report_of_their_own():
    jobset = formats.asking(resource(), cluster="c")
    life = Life(spec=jobset).runs()
    life.hold.add(OperationKind.REPORT)
    seen = life.state.observation
    assert seen is not None
    counts = {"a": CopyCounts(expected=2, ready=1, active=2), "b": CopyCounts(expected=1, ready=1, active=1)}
    (view,) = seen.components.values()
    views = {name: edit(view, copies=one) for name, one in counts.items()}
    life.state = edit(life.state, observation=edit(seen, components=views))
    life.settle()
    operation = life.state.operation
    assert operation is not None
    assert (operation.kind, operation.report.copies) == (OperationKind.REPORT, counts)
