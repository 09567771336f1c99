"""`holdfast agent`: reads the settings, runs the agent, and ends the process with the agent's exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from holdfast.agent import EXIT_REFUSED

IN_PLACE: Final = "in-place"
"""The first argument that selects the in-place restart agent."""


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the agent with the arguments after its name; does not return."""
    if arguments[:1] == [IN_PLACE]:
        from holdfast.agent.in_place import main as run_in_place

        run_in_place(arguments[1:])
    import logging

    from holdfast.agent.settings import SettingsError, read

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s holdfast agent: %(message)s")
    try:
        settings = read(arguments)
    except SettingsError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(EXIT_REFUSED)
    from holdfast.agent.process import run
    from holdfast.progress import serve_beside

    try:
        serve_beside()
    except (OSError, ValueError) as error:
        print(f"Error: the workers' steps cannot be served: {error}", file=sys.stderr)
        sys.exit(EXIT_REFUSED)
    code = run(settings)
    sys.stdout.flush()
    sys.stderr.flush()
    # A pending name lookup has its own thread: exit without waiting for it.
    os._exit(code)
