"""Failures as Temporal stores them: messages and stacks go through the codec; a codec's own stay readable (row X6).

Ordinary failures have no stack trace: in Temporal's UI it hid the message. The worker's log has it (row E9).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from temporalio.api.failure.v1 import Failure
from temporalio.converter import (
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadConverter,
)
from temporalio.exceptions import FailureError

from holdfast.errors import Undecodable

_OWN = __name__.partition(".")[0] + "."


def is_ordinary(exception: BaseException) -> bool:
    """Whether an exception was raised to say something: it is Temporal's, or of a class that Holdfast defines."""
    return isinstance(exception, FailureError) or type(exception).__module__.startswith(_OWN)


@contextmanager
def _without_stacks(exception: BaseException) -> Generator[None]:
    """Hide the stack traces of an exception and of what led to it."""
    chain: list[BaseException] = []
    each: BaseException | None = exception
    while each is not None and each not in chain:
        chain.append(each)
        each = each.__cause__ or each.__context__
    hidden = [each.__traceback__ for each in chain]
    try:
        for each in chain:
            each.__traceback__ = None
        yield
    finally:
        for each, trace in zip(chain, hidden, strict=True):
            each.__traceback__ = trace


class Failures(DefaultFailureConverter):
    """Leaves the stack traces of ordinary failures out, and lets an activity with undecodable payloads be tried again.

    The SDK itself gives up on undecodable heartbeats.
    """

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Convert an exception."""
        if is_ordinary(exception):
            with _without_stacks(exception):
                super().to_failure(exception, payload_converter, failure)
        else:
            super().to_failure(exception, payload_converter, failure)
        if isinstance(exception.__cause__, Undecodable) and failure.HasField("application_failure_info"):
            failure.application_failure_info.non_retryable = False


class EncodedFailures(Failures, DefaultFailureConverterWithEncodedAttributes):
    """The same, with message and stack encoded; who lacks the key can still read which key is missing."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Convert an exception."""
        if isinstance(exception, Undecodable):
            Failures().to_failure(exception, payload_converter, failure)
            return
        super().to_failure(exception, payload_converter, failure)
