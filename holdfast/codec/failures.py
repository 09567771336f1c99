"""Failures as Temporal stores them: messages and stacks go through the codec; a codec's own stay readable (row X6)."""

from __future__ import annotations

from temporalio.api.failure.v1 import Failure
from temporalio.converter import (
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadConverter,
)

from holdfast.errors import Undecodable


class Failures(DefaultFailureConverter):
    """Lets an activity whose payloads cannot be decoded be tried again: the SDK gives up on undecodable heartbeats."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Convert an exception."""
        super().to_failure(exception, payload_converter, failure)
        if isinstance(exception.__cause__, Undecodable) and failure.HasField("application_failure_info"):
            failure.application_failure_info.non_retryable = False


class EncodedFailures(Failures, DefaultFailureConverterWithEncodedAttributes):
    """The same, with message and stack encoded; who lacks the key can still read which key is missing."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Convert an exception."""
        if isinstance(exception, Undecodable):
            Failures().to_failure(exception, payload_converter, failure)
            failure.stack_trace = ""
            return
        super().to_failure(exception, payload_converter, failure)
