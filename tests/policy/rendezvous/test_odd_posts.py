"""Posts that no honest agent makes, and posts whose fate is unknown: no pod harms another's gang (rows X9, D43, T9)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from holdfast.model.gang.wire import ROUND_MAXIMUM, Announcement, Join, MemberState, Report, WorkerFailure
from holdfast.policy.rendezvous.clocks import AGENTS_KEPT, Clocks
from tests.policy.rendezvous.test_gang_hub import Scene

ROW = pytest.mark.row
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)
FIRST = datetime.min.replace(tzinfo=UTC)


def join(incarnation: str = "i") -> Join:
    return Join(
        member="a", pod_uid="p", attempt=1, incarnation=incarnation, started_at=NOW, address="10.0.0.1", port=29500
    )


def failed(at: datetime, sent: datetime | None, incarnation: str = "i") -> Announcement:
    failures = (WorkerFailure(local_rank=0, signal=9, at=at),)
    report = Report(state=MemberState.FAILED, round=1, failures=failures, since=NOW)
    return Announcement(join=join(incarnation), report=report, sent=sent)


@ROW("D43", level="pure")
@pytest.mark.parametrize("sent", [None, NOW, FIRST, LAST])
@pytest.mark.parametrize("at", [FIRST, NOW - timedelta(seconds=1), NOW + timedelta(days=1), LAST])
def test_D43_no_failure_is_later_than_now_whatever_a_pod_says_of_the_time(at: datetime, sent: datetime | None):
    report = Clocks().hears(failed(at, sent), NOW)
    assert all(one.at <= NOW for one in report.failures)


@ROW("X9", level="pure")
def test_X9_of_the_agents_that_a_member_claims_only_the_last_are_remembered():
    clocks = Clocks()
    for number in range(500):
        clocks.hears(failed(NOW, NOW, f"i{number}"), NOW)
    assert len(clocks.behind) == len(clocks.corrected) == AGENTS_KEPT
    assert "i499" in clocks.behind


@ROW("X9", level="pure")
def test_X9_a_round_beyond_any_is_refused():
    with pytest.raises(ValidationError, match="round"):
        Report(state=MemberState.HEALTHY, round=ROUND_MAXIMUM + 1, since=NOW)


@ROW("X9", level="pure")
@pytest.mark.parametrize("at", [FIRST, LAST])
def test_X9_a_failure_at_any_time_is_decided_on(at: datetime):
    """Releases before told the rendezvous of times that no hub has bounded."""
    one = Scene(high=2)
    one.running("a", "b")
    failures = (WorkerFailure(local_rank=0, signal=9, at=at),)
    report = Report(state=MemberState.FAILED, round=1, failures=failures, since=NOW)
    assert one.hub.hears(Announcement(join=one.joins["a"], report=report), one.at)
    one.wait(20, ("a", "b"))
    one.tell()
    assert one.state.members["a"].restarts == 1


@ROW("T9", level="pure")
def test_T9_one_that_is_heard_again_after_a_loss_whose_fate_is_unknown_is_news():
    one = Scene(high=3)
    one.running("a", "b", "c")
    one.attach()
    for name in ("a", "b", "c"):
        one.says(name, MemberState.HEALTHY, 1)
    one.wait(1, ("a", "b", "c"))
    one.tell()
    one.wait(15, ("a", "b"))
    batch, _ = one.hub.batch(one.at, one.now)
    assert list(batch.losses) == ["c"]
    one.hub.news.unsure(batch)  # The rendezvous has taken it in, perhaps; its answer did not come.
    assert one.says("c", MemberState.HEALTHY, 1), "else it would stay silent for the rendezvous"
