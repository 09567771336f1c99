"""Where the local stack keeps things on disk: caches, stack folders, packaged data and the manifests in deploy/."""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
"""Folder of this package: build/, stages/ and the audit policy lie next to the code."""


def cache_dir() -> Path:
    """Folder for downloaded and built programs, shared by all stacks of this user.

    `$HOLDFAST_CACHE`, else `$XDG_CACHE_HOME/holdfast`, else `~/.cache/holdfast`.
    """
    if given := os.environ.get("HOLDFAST_CACHE"):
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "holdfast"


def stacks_dir() -> Path:
    """Folder that holds one folder per named stack: `$XDG_STATE_HOME/holdfast/stacks` or its default."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "holdfast" / "stacks"


def deploy_dir() -> Path | None:
    """The manifests (CRDs and RBAC) that a cluster needs: packaged with a wheel, else `deploy/` of the checkout."""
    for folder in (PACKAGE.parent / "deploy", PACKAGE / "deploy", PACKAGE.parent / "holdfast" / "deploy"):
        if any(folder.glob("**/*.yaml")):
            return folder
    return None
