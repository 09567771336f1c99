"""The command line: one file per group of commands. Commands import what they need when they run, so help is quick."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys


def main() -> None:
    """Run `holdfast`: entry point of the distribution."""
    if sys.argv[1:2] == ["agent"]:
        # It runs in users' images, where nothing of what the other commands need may be installed.
        from holdfast.agent.command import main as agent

        agent(sys.argv[2:])
    from holdfast.cli.app import app

    try:
        app(prog_name="holdfast")
    except SystemExit as end:
        if "temporalio.bridge" in sys.modules:
            _leave(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise


def _leave(code: int) -> None:
    """End the process without finalizing the interpreter.

    Threads of Temporal's client outlive its connection, and one that takes the interpreter's lock while it is being
    finalized crashes the process after its work is done (temporalio/sdk-python#300).
    """
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - there is no public way to run them
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
