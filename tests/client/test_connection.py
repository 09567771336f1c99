"""What an error of Temporal's is to whoever called: a server that is away is another thing than a refusal."""

from __future__ import annotations

import pytest
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.connection import Place, explained
from holdfast.errors import NotReachable

PLACE = Place("127.0.0.1:7233", "default")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (RPCStatusCode.UNAVAILABLE, "tcp connect error"),
        (RPCStatusCode.DEADLINE_EXCEEDED, "Timeout expired"),
        (RPCStatusCode.CANCELLED, "Timeout expired"),
        # As the SDK tells of a server that was killed within the call.
        (RPCStatusCode.UNKNOWN, "transport error"),
        (RPCStatusCode.UNKNOWN, "http2 error: connection error received"),
    ],
)
def test_a_server_that_is_away_is_not_reachable(status: RPCStatusCode, message: str):
    assert isinstance(explained(RPCError(message, status, b""), PLACE), NotReachable)


@pytest.mark.parametrize(
    ("status", "message"),
    [(RPCStatusCode.UNKNOWN, "an internal error"), (RPCStatusCode.INVALID_ARGUMENT, "transport error")],
)
def test_what_a_server_answers_is_told_as_it_says_it(status: RPCStatusCode, message: str):
    error = explained(RPCError(message, status, b""), PLACE)
    assert not isinstance(error, NotReachable)
    assert message in str(error)
