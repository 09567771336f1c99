"""Which failures have a stack trace where Temporal stores them, encrypted or not."""

from __future__ import annotations

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultPayloadConverter
from temporalio.exceptions import ApplicationError

from holdfast.activities.kube.errors import Unreachable
from holdfast.codec.failures import EncodedFailures, Failures
from holdfast.errors import HoldfastError

PAYLOADS = DefaultPayloadConverter()


def failure_of(converter: Failures, error: BaseException, cause: BaseException | None = None) -> Failure:
    """Return the failure of a raised error, its encoded parts written back."""
    try:
        try:
            raise cause or error
        except BaseException:
            if cause is None:
                raise
            raise error from cause
    except BaseException as raised:
        trace, failure = raised.__traceback__, Failure()
        converter.to_failure(raised, PAYLOADS, failure)
        assert raised.__traceback__ is trace, "logs need it still"
    each: Failure = failure
    while True:
        if each.HasField("encoded_attributes"):
            said = PAYLOADS.from_payload(each.encoded_attributes)
            each.message, each.stack_trace = said["message"], said["stack_trace"]
        if not each.HasField("cause"):
            return failure
        each = each.cause


@pytest.mark.row("E9", level="pure")
@pytest.mark.parametrize("converter", [Failures(), EncodedFailures()], ids=["plain", "encoded"])
@pytest.mark.parametrize(
    "error",
    [ApplicationError("refused", type="Refused"), Unreachable(0, "Unreachable", "refused"), HoldfastError("refused")],
    ids=lambda error: type(error).__name__,
)
def test_E9_an_ordinary_failure_has_its_message_and_no_stack_trace(converter: Failures, error: Exception) -> None:
    failure = failure_of(converter, error, cause=ConnectionError("no route"))
    assert (failure.message, failure.stack_trace) == ("refused", "")
    assert (failure.cause.message, failure.cause.stack_trace) == ("no route", "")


@pytest.mark.row("E9", level="pure")
@pytest.mark.parametrize("converter", [Failures(), EncodedFailures()], ids=["plain", "encoded"])
def test_E9_a_defect_keeps_its_stack_trace(converter: Failures) -> None:
    failure = failure_of(converter, KeyError("nodes"))
    assert failure.message == "'nodes'"
    assert "test_failures.py" in failure.stack_trace


def test_E9_errors_that_led_to_each_other_in_a_circle_end() -> None:
    first, second = ApplicationError("first"), ApplicationError("second")
    first.__context__, second.__context__ = second, first
    first.__suppress_context__ = True
    assert failure_of(Failures(), first).message == "first"
