"""The local stack's paths on disk: caches, stack folders, and packaged data."""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
"""Folder of this package: build/, stages/ and the audit policy are next to the code."""


def cache_dir() -> Path:
    """Return the folder for downloaded and built programs, shared by all stacks of this user.

    `$HOLDFAST_CACHE`, else `$XDG_CACHE_HOME/holdfast`, else `~/.cache/holdfast`.
    """
    if given := os.environ.get("HOLDFAST_CACHE"):
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "holdfast"


def stacks_dir() -> Path:
    """Return the folder with one folder per named stack: `$XDG_STATE_HOME/holdfast/stacks` or its default."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "holdfast" / "stacks"
