"""Completion as a shell asks for it, without a server: what is offered, and that nothing is said in its place."""

from __future__ import annotations

import socket
import time

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.formats import NAMES
from holdfast.model import Phase


def offered(*words: str, address: str = "127.0.0.1:1") -> tuple[list[str], str]:
    """What completes the last word, and what came on standard error."""
    environment = {
        "_HOLDFAST_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["holdfast", *words]),
        "COMP_CWORD": str(len(words)),
        "TEMPORAL_ADDRESS": address,
        "HOLDFAST_CLUSTER": "dev",
    }
    result = CliRunner().invoke(app, [], prog_name="holdfast", env=environment)
    assert result.exit_code == 0
    return result.stdout.split(), result.stderr


@pytest.mark.row("E6", level="pure")
def test_E6_phases_complete() -> None:
    assert offered("list", "--phase", "S")[0] == ["Suspending", "Suspended", "Succeeded", "Starting"]
    assert offered("list", "--phase", "Ru")[0] == ["Running"]
    assert offered("list", "--phase", "")[0] == [*(phase.value for phase in Phase), "Starting"], (
        "as a first start is shown"
    )


@pytest.mark.row("E6", level="pure")
def test_E6_keys_of_set_complete_up_to_the_value() -> None:
    assert offered("submit", "x.yaml", "--set", "retr")[0] == ["retryPausePeriod=", "retryLimit="]
    assert len(offered("submit", "x.yaml", "--set", "")[0]) == len(NAMES)


@pytest.mark.row("E6", level="pure")
@pytest.mark.parametrize(
    "words",
    [("status", ""), ("list", "-n", ""), ("list", "--queue", ""), ("queue", "show", "")],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_E6_nothing_is_said_where_temporal_is_away(words: tuple[str, ...]) -> None:
    assert offered(*words) == ([], "")


@pytest.mark.row("E6", level="pure")
def test_E6_a_server_that_says_nothing_is_not_waited_for() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        offered("status", "")  # Loads what it needs: a shell's process does so each time.
        begun = time.monotonic()
        assert offered("status", "", address=f"127.0.0.1:{silent.getsockname()[1]}") == ([], "")
        assert time.monotonic() - begun < 4, "a connection of another command is given 5 s"
