"""AppWrapper's annotations: they override the operator's defaults within the operator's limits, or are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import names
from holdfast.errors import InvalidWorkload
from holdfast.formats import read
from holdfast.formats.appwrapper.reader import ANNOTATIONS, DURATIONS, PREFIX
from holdfast.model import Budget, Failure, FailureClass, Limits, Policy, Scope, Timings, format_duration
from holdfast.policy.failures.rules import rulings
from holdfast.profiles import PROFILES
from tests.formats.documents import appwrapper, one
from tests.formats.documents import refusal as refused

RESET_AFTER = f"{names.GROUP}/restartBudgetResetAfter"
RUN_AS = f"{names.GROUP}/runAs"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def policy(**annotations: str) -> Policy:
    return one(appwrapper(annotations={f"{PREFIX}{key}": value for key, value in annotations.items()})).policy


def _written(span: timedelta | None) -> str | None:
    return format_duration(span) if span is not None else None


@pytest.mark.row("U10", level="pure")
def test_a_budget_is_renewed_by_health_only_where_our_own_annotation_says_so() -> None:
    assert policy().budget("restart").reset_after is None
    set_ = one(appwrapper(annotations={RESET_AFTER: "24h", f"{PREFIX}retryLimit": "5"})).policy.budget("restart")
    assert (set_.limit, set_.reset_after) == (5, timedelta(days=1))
    (problem,) = refused(appwrapper(annotations={RESET_AFTER: "0"}))
    assert "expected more than 0s" in str(problem)
    (overridden,) = read([appwrapper()], cluster="dev", overrides={"restartBudgetResetAfter": "1h"})
    assert overridden.policy.budget("restart").reset_after == timedelta(hours=1)


@pytest.mark.row("F5", level="pure")
def test_F5_the_account_that_it_is_made_as_is_named_by_our_own_annotation() -> None:
    assert one(appwrapper()).run_as == names.RUN_AS_DEFAULT
    assert one(appwrapper(annotations={RUN_AS: "builder"})).run_as == "builder"
    for unfit in ("", "No Account"):
        (problem,) = refused(appwrapper(annotations={RUN_AS: unfit}))
        assert problem.path == f"metadata.annotations[{RUN_AS}]"
        assert "expected a Kubernetes name" in str(problem)


@pytest.mark.row("A14", level="pure")
def test_without_annotations_the_documents_defaults_hold() -> None:
    assert one(appwrapper()).policy == PROFILES["appwrapper"]
    timings = PROFILES["appwrapper"].timings
    assert {name: _written(getattr(timings, name)) for name in Timings.model_fields} == {
        "admission_grace_period": "1m",
        "warmup_grace_period": "5m",
        "failure_grace_period": "1m",
        "retry_pause_period": "1m30s",
        "deletion_on_failure_grace_period": "0s",
        "forceful_deletion_grace_period": "10m",
        "success_ttl": "7d",
        "launch_grace_period": None,
        "submission_timeout": None,
    }
    assert PROFILES["appwrapper"].budget("restart").limit == 3
    assert Limits().grace_period_maximum == timedelta(hours=24)


@pytest.mark.row("A14", level="pure")
@pytest.mark.parametrize(("annotation", "field"), DURATIONS.items())
@pytest.mark.parametrize(
    ("text", "value"),
    [("30s", 30.0), ("1m30s", 90.0), ("1.5h", 5400.0), ("0", 0.0), ("250ms", 0.25), (".5s", 0.5), ("30h", 108_000.0)],
)
def test_each_duration_sets_its_own_wait_and_no_other(annotation: str, field: str, text: str, value: float) -> None:
    timings = one(appwrapper(annotations={annotation: text})).policy.timings
    assert timings == PROFILES["appwrapper"].timings.model_copy(update={field: timedelta(seconds=value)})


@pytest.mark.row("A14", level="pure")
def test_annotations_override_the_operators_defaults_and_leave_the_others() -> None:
    operators = PROFILES["appwrapper"].model_copy(
        update={
            "timings": Timings(failure_grace_period=timedelta(seconds=7), retry_pause_period=timedelta(seconds=8)),
            "budgets": (Budget(name="restart", limit=9),),
        }
    )
    document = appwrapper(annotations={f"{PREFIX}failureGracePeriodDuration": "3s"})
    (workload,) = read(document, cluster="dev", defaults={"appwrapper": operators})
    assert workload.policy.timings.failure_grace_period == timedelta(seconds=3)
    assert workload.policy.timings.retry_pause_period == timedelta(seconds=8)
    assert workload.policy.budget("restart").limit == 9


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("0", 0),
        ("5", 5),
        ("+5", 5),
        (" 7 ", 7),
        ("1000000", 1_000_000),
        ("1000001", None),
        ("2147483647", None),
    ],
)
def test_the_retry_limit(text: str, limit: int | None) -> None:
    assert policy(retryLimit=text).budget("restart").limit == limit


@pytest.mark.row("A14", level="pure")
def test_a_negative_grace_is_none_and_a_negative_ttl_is_refused() -> None:
    assert policy(failureGracePeriodDuration="-5s").timings.failure_grace_period == timedelta(0)
    (problem,) = refused(appwrapper(annotations={f"{PREFIX}successTTLDuration": "-5s"}))
    assert problem.path == f"metadata.annotations[{PREFIX}successTTLDuration]"


@pytest.mark.row("A14", level="pure")
@pytest.mark.row("U14", level="pure")
@pytest.mark.parametrize("annotation", DURATIONS)
@pytest.mark.parametrize(
    "text", ["", "soon", "5", "1h 30m", "5 s", "1d2x", "--5s", "-", "-x", "1e3s", "\u0661s", "999999999h"]
)
def test_a_malformed_duration_is_refused_with_the_annotations_name(annotation: str, text: str) -> None:
    (problem,) = refused(appwrapper(annotations={annotation: text}))
    assert problem.path == f"metadata.annotations[{annotation}]"
    assert "expected" in problem.message
    assert repr(text.removeprefix("-"))[1:-1] in problem.message


@pytest.mark.row("U14", level="pure")
@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("retryLimit", "-1", "expected a whole number from 0 to 2147483647 (found '-1')"),
        ("retryLimit", "three", "expected a whole number from 0 to 2147483647 (found 'three')"),
        ("retryLimit", "3.0", "expected a whole number from 0 to 2147483647"),
        ("retryLimit", "2147483648", "expected a whole number from 0 to 2147483647"),
        ("retryLimit", "1.5", "expected a whole number from 0 to 2147483647"),
        ("retryLimit", "99999999999", "expected a whole number from 0 to 2147483647"),
        ("terminalExitCodes", "", "expected exit codes from 0 to 255, parted by commas"),
        ("terminalExitCodes", "1,,2", "expected exit codes from 0 to 255"),
        ("terminalExitCodes", "1;2", "expected exit codes from 0 to 255"),
        (
            "retryableExitCodes",
            "256",
            "expected exit codes from 0 to 255, parted by commas, such as 1, 137 (found '256')",
        ),
        ("retryableExitCodes", "-1", "expected exit codes from 0 to 255"),
    ],
)
def test_a_malformed_annotation_is_refused_with_its_name(name: str, text: str, says: str) -> None:
    (problem,) = refused(appwrapper(annotations={f"{PREFIX}{name}": text}))
    assert problem.path == f"metadata.annotations[{PREFIX}{name}]"
    assert says in str(problem)


def test_other_peoples_annotations_are_let_be() -> None:
    assert one(appwrapper(annotations={"example.com/retryLimit": "x", "plain": "y"})).policy == PROFILES["appwrapper"]


_NUMBERS = st.decimals(min_value=0, max_value=10**7, places=3, allow_nan=False).map(lambda number: f"{number:f}")
_UNITS = st.sampled_from(["ns", "us", "ms", "s", "m", "h"])
_DURATIONS = st.builds(
    lambda sign, parts: sign + "".join(number + unit for number, unit in parts),
    st.sampled_from(["", "+", "-"]),
    st.lists(st.tuples(_NUMBERS, _UNITS), min_size=1, max_size=3),
)
_TEXTS = _DURATIONS | st.text(" 0123456789.+-dhmsunx", max_size=8)


@pytest.mark.row("A14", level="pure")
@given(
    annotations=st.dictionaries(st.sampled_from(ANNOTATIONS), _TEXTS),
    maximum=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=30)),
    ttl_maximum=st.none() | st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=30)),
)
@example({f"{PREFIX}failureGracePeriodDuration": "99999h"}, timedelta(hours=24), None)
@example({f"{PREFIX}successTTLDuration": "99999h"}, timedelta(hours=24), None)
def test_no_annotation_takes_a_wait_beyond_the_operators_maximum(
    annotations: dict[str, str], maximum: timedelta, ttl_maximum: timedelta | None
) -> None:
    try:
        submitted = one(appwrapper(annotations=annotations)).policy
    except InvalidWorkload as error:
        refused_at = {problem.path for problem in error.problems}
    else:
        refused_at = set[str]()
        _check_held(submitted, maximum, ttl_maximum)
    assert refused_at <= {f"metadata.annotations[{key}]" for key in annotations}


def _check_held(submitted: Policy, maximum: timedelta, ttl_maximum: timedelta | None) -> None:
    limits = Limits(grace_period_maximum=maximum, success_ttl_maximum=ttl_maximum)
    held = limits.clamp(submitted.timings)
    for name in Timings.model_fields:
        if name in {"submission_timeout", "launch_grace_period"}:
            continue  # No annotation of AppWrapper's sets it.
        value, asked = getattr(held, name), getattr(submitted.timings, name)
        top = limits.success_ttl_maximum if name == "success_ttl" else limits.grace_period_maximum
        assert value == (asked if top is None else min(asked, top))
        assert timedelta(0) <= value
        # Whatever was asked for, the deadline it leads to is on the calendar.
        assert datetime(2200, 1, 1, tzinfo=UTC) + value


def pod_failure(code: int | None, **fields: Any) -> Failure:
    values = {"cls": FailureClass.APP, "scope": Scope.MEMBER, "reason": "Error", "time": NOW, "subject": "train-0"}
    return Failure(**{**values, "exit_code": code, **fields})


@pytest.mark.row("A15", level="pure")
@pytest.mark.parametrize(
    ("annotations", "code", "rule", "kind", "grace"),
    [
        ({}, 1, "failed-pods", "Restart", True),
        ({"terminalExitCodes": "1, 137"}, 1, "terminal-exit-codes", "Fail", False),
        ({"terminalExitCodes": "1,137"}, 137, "terminal-exit-codes", "Fail", False),
        ({"terminalExitCodes": "1, 137"}, 2, "failed-pods", "Restart", True),
        ({"terminalExitCodes": "0,1"}, 0, "failed-pods", "Restart", True),
        ({"terminalExitCodes": "0"}, 1, "failed-pods", "Restart", True),
        ({"terminalExitCodes": "1"}, None, "failed-pods", "Restart", True),
        ({"retryableExitCodes": " 3 , 4"}, 3, "failed-pods", "Restart", True),
        ({"retryableExitCodes": "3,4"}, 5, "retryable-exit-codes", "Fail", False),
        ({"retryableExitCodes": "3,4"}, 0, "failed-pods", "Restart", True),
        ({"retryableExitCodes": "3,4"}, None, "failed-pods", "Restart", True),
        ({"retryableExitCodes": "3", "terminalExitCodes": "3"}, 3, "terminal-exit-codes", "Fail", False),
        ({"retryableExitCodes": "3", "terminalExitCodes": "5"}, 4, "retryable-exit-codes", "Fail", False),
    ],
)
def test_exit_codes_decide_at_once(
    annotations: dict[str, str], code: int | None, rule: str, kind: str, grace: bool
) -> None:
    (ruling,) = rulings(policy(**annotations), [pod_failure(code)])
    assert (ruling.rule, ruling.action.kind.value, ruling.action.grace) == (rule, kind, grace)


@pytest.mark.row("A15", level="pure")
def test_a_terminal_exit_code_decides_although_its_job_has_failed_in_the_same_second() -> None:
    job = Failure(cls=FailureClass.APP, scope=Scope.COMPONENT, reason="BackoffLimitExceeded", time=NOW, subject="train")
    for failures in ([job, pod_failure(1)], [pod_failure(1), job]):
        assert rulings(policy(terminalExitCodes="1"), failures)[0].rule == "terminal-exit-codes"
