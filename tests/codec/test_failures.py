"""Which failures have a stack trace where Temporal stores them, encrypted or not."""

from __future__ import annotations

from types import TracebackType

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultPayloadConverter
from temporalio.exceptions import ApplicationError

from holdfast.activities.kube.errors import Unreachable
from holdfast.codec.failures import EncodedFailures, Failures
from holdfast.errors import HoldfastError

PAYLOADS = DefaultPayloadConverter()


def raised(error: BaseException) -> TracebackType:
    """Raise an error, so that it has a stack trace, and return that."""
    with pytest.raises(type(error)) as caught:
        raise error
    assert error.__traceback__ is caught.tb
    return caught.tb


def failure_of(converter: Failures, error: BaseException, cause: BaseException | None = None) -> Failure:
    """Return the failure of a raised error, its encoded parts written back."""
    if cause is not None:
        raised(cause)
    error.__cause__ = cause
    trace, failure = raised(error), Failure()
    converter.to_failure(error, PAYLOADS, failure)
    assert error.__traceback__ is trace, "logs need it still"
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
    second.__suppress_context__ = True  # The SDK would follow the circle for ever.
    failure = Failure()
    Failures().to_failure(first, PAYLOADS, failure)
    assert (failure.message, failure.cause.message) == ("first", "second")
