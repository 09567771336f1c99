"""What a line of the log holds: whose it is, and what went wrong, but no document and no credential."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Literal

import pytest
import structlog

from holdfast.worker.runtime import logs

SECRET = "a-token-that-nobody-may-read"


@pytest.fixture
def restored() -> Iterator[None]:
    """Have the logging of this process be afterwards as it was before."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def fails() -> None:
    token = "-".join(("a-token", "that-nobody-may-read"))
    raise ValueError(f"{len(token)} letters")


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.usefixtures("restored")
def test_a_traceback_in_the_log_shows_no_variables(form: Literal["json", "console"]):
    stream = io.StringIO()
    logs.configure(form, stream=stream)
    try:
        fails()
    except ValueError:
        logging.getLogger("temporalio.activity").warning("Completing activity as failed", exc_info=True)
    text = stream.getvalue()
    assert "28 letters" in text
    assert "in fails" in text or '"name": "fails"' in text
    assert SECRET not in text
    if form == "json":
        (frame, *_) = json.loads(text)["exception"][0]["frames"]
        assert "locals" not in frame
