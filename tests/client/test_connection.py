"""What an error of Temporal's is to whoever called: a server that is away is another thing than a refusal."""

from __future__ import annotations

import logging

import pytest
from temporalio.service import RPCError, RPCStatusCode

from holdfast import traces
from holdfast.client import connection
from holdfast.client.connection import Place, explained, reached
from holdfast.errors import NotReachable
from holdfast.stale import AsksAgain

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


def test_a_search_attribute_of_ones_own_that_is_misspelt_is_not_taken_for_one_that_is_missing():
    missing = "Namespace default has no mapping defined for search attribute HoldfastPhase"
    assert "`holdfast doctor --fix` adds them" in str(explained(invalid(missing), PLACE))
    misspelt = "invalid query: column name 'HoldfastPhaze' is not a valid search attribute"
    assert str(explained(invalid(misspelt), PLACE)) == f"Temporal at {PLACE}: {misspelt}"


def invalid(message: str) -> RPCError:
    return RPCError(message, RPCStatusCode.INVALID_ARGUMENT, b"")


@pytest.mark.parametrize(
    ("status", "message"),
    [(RPCStatusCode.UNKNOWN, "an internal error"), (RPCStatusCode.INVALID_ARGUMENT, "transport error")],
)
def test_what_a_server_answers_is_told_as_it_says_it(status: RPCStatusCode, message: str):
    error = explained(RPCError(message, status, b""), PLACE)
    assert not isinstance(error, NotReachable)
    assert message in str(error)


@pytest.mark.row("O7", level="pure")
@pytest.mark.parametrize("variables", [{"OTEL_TRACES_EXPORTER": "console"}, {traces.ENV_PROTOCOLS[1]: "grpc"}])
async def test_a_strangers_variables_for_traces_are_warned_of_once(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    for name, value in {"OTEL_TRACES_EXPORTER": "otlp", traces.ENV_DISABLED: "", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(connection.Client, "connect", _connect)
    connection._warn_of_no_traces.cache_clear()  # pyright: ignore[reportPrivateUsage]
    with caplog.at_level(logging.WARNING, "holdfast.client"):
        for _ in range(2):
            async with reached("127.0.0.1:7233", None) as (client, _place):
                assert client == [AsksAgain], "none of traces"
    (warning,) = caplog.messages
    assert warning.startswith("going on without traces: OTEL_")


async def _connect(*, interceptors: list[object], **_: object) -> object:
    return [type(one) for one in interceptors]
