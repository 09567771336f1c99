"""Runs the agent by `python -m holdfast.agent`, if the `holdfast` program is not on the PATH."""

import sys

from holdfast.agent.command import main

if __name__ == "__main__":
    main(sys.argv[1:])
