"""Ends that keep what is left of a workload until somebody cancels it (row J15), on virtual time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.formats.settings import Given, read_settings
from holdfast.model import Limits, Phase, Policy, Reason, Timings
from holdfast.policy.loop.change import PolicyChange, changed
from holdfast.policy.status.explain import explain_of
from holdfast.policy.values.events import Cancelled, Retried
from tests.policy.lives.life import RULES, Life, workload

ROW = pytest.mark.row


def life(**timings: timedelta | None) -> Life:
    return Life(spec=workload(policy=Policy(rules=RULES, timings=Timings(**timings))))  # type: ignore[arg-type]


@ROW("J15", level="pure")
def test_J15_a_success_without_a_ttl_keeps_what_is_left_until_it_is_cancelled():
    one = life(success_ttl=None).runs().sees(succeeded=2, complete=True)
    one.after(days=4_000)
    assert (one.state.phase, one.ended, one.kinds().count("remove")) == (Phase.SUCCEEDED, None, 0)
    explanation = explain_of(one.spec, one.state, one.now)
    assert explanation.now == "it has succeeded; its resources are kept until somebody cancels it"
    assert (explanation.next, explanation.unblock) == (
        (),
        "nothing has to be done; `holdfast cancel default/train-llm` removes its resources now",
    )
    one.tell(Cancelled())
    assert (one.ended, one.state.reason) == (Phase.SUCCEEDED, Reason.COMPLETED)


@ROW("J15", level="pure")
def test_J15_a_failure_may_be_kept_for_ever_too_and_retried():
    one = life(deletion_on_failure_grace_period=None).runs()
    for _ in range(4):
        one.sees(job_failed=True).after(seconds=90).sees(running=2)
    assert one.state.phase is Phase.FAILED
    one.after(days=400)
    assert (one.ended, one.state.attempt and one.state.attempt.stage.value) == (None, "Submitted")
    one.tell(Retried()).sees(running=2)
    assert one.state.phase is Phase.RUNNING


@ROW("J15", level="pure")
def test_J15_the_operators_own_ttl_ends_what_a_submitter_would_keep_for_ever():
    one = life(success_ttl=None)
    one.limits = Limits(success_ttl_maximum=timedelta(days=1))
    one.runs().sees(succeeded=2, complete=True).after(days=1)
    assert one.ended is Phase.SUCCEEDED


@ROW("J15", level="pure")
@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(minutes=1), timedelta(days=7)])
def test_J15_a_ttl_counts_from_the_end(ttl: timedelta):
    one = life(success_ttl=ttl).runs().sees(succeeded=2, complete=True)
    if ttl:
        one.after(seconds=ttl.total_seconds() - 1)
        assert one.ended is None
        one.after(seconds=1)
    assert one.ended is Phase.SUCCEEDED


def test_never_is_said_in_a_change_and_in_a_setting():
    policy = changed(Policy(), PolicyChange(timings={"successTtl": None}))
    assert (policy.timings.success_ttl, policy.timings.deletion_on_failure_grace_period) == (None, timedelta(0))
    with pytest.raises(ValueError, match="retryPausePeriod"):
        changed(Policy(), PolicyChange(timings={"retryPausePeriod": None}))
    settings, problems = read_settings(
        [Given("--set", "successTTL", "never"), Given("--set", "retryPausePeriod", "never")]
    )
    assert settings.timings == {"success_ttl": None}
    assert ["'never' is not a duration" in str(one) for one in problems] == [True]
    assert Policy.model_validate_json(policy.model_dump_json(by_alias=True)) == policy
