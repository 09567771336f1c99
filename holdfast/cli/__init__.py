"""The command line: one file per group of commands. Commands import what they need when they run, so help is quick."""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import sys


def main() -> None:
    """Run `holdfast`: entry point of the distribution."""
    if sys.argv[1:2] == ["agent"]:
        # It runs in users' images, where nothing of what the other commands need may be installed.
        from holdfast.agent.command import main as agent

        agent(sys.argv[2:])
    _run("holdfast", sys.argv[1:])


def plugin() -> None:
    """Run `kubectl holdfast`: entry point `kubectl-holdfast`, which kubectl finds on PATH (row F18)."""
    from holdfast.cli.common import kubectl

    _run("kubectl holdfast", kubectl.use(sys.argv[1:]))


def complete() -> None:
    """Complete the last argument of `kubectl holdfast`: entry point `kubectl_complete-holdfast` (row F18)."""
    from holdfast.cli.common import kubectl

    *words, last = sys.argv[1:] or [""]
    words = kubectl.use(words)
    # Asks as bash would, which is how Typer lets itself be asked.
    os.environ["_KUBECTL_HOLDFAST_COMPLETE"] = "complete_bash"
    os.environ["COMP_WORDS"] = shlex.join(["kubectl-holdfast", *words, last])
    os.environ["COMP_CWORD"] = str(len(words) + 1)
    atexit.register(print, ":0")  # kubectl reads a directive in the last line: the shell's own way.
    _run("kubectl-holdfast", [])


def _run(name: str, arguments: list[str]) -> None:
    from holdfast.cli.app import app

    try:
        app(arguments, prog_name=name)
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
