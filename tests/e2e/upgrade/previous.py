"""The release before this one: its sources in a worktree, with an environment of its own from its own lock."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
UNTAGGED: Final = {"0.1.0": "d76d414b"}
"""Releases without a tag, by the commit that dated them in CHANGELOG.md."""
PREVIOUS: Final = os.environ.get("HOLDFAST_PREVIOUS", "0.1.0")
"""The version that an upgrade begins with."""


@dataclass(frozen=True)
class Release:
    """An installed release."""

    version: str
    tree: Path

    @property
    def program(self) -> Path:
        """Its `holdfast` command."""
        return self.tree / ".venv" / "bin" / "holdfast"

    async def run(self, *argv: str, env: Mapping[str, str]) -> str:
        """Run one of its commands, and return what it prints.

        Raises:
            AssertionError: if it fails, with what it says.
        """
        done = await asyncio.to_thread(
            subprocess.run, [str(self.program), *argv], capture_output=True, text=True, env=dict(env), check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def install(version: str = PREVIOUS) -> Release:
    """Check a release out below `reports/` and install it, unless that was done before.

    Raises:
        subprocess.CalledProcessError: if its sources are not in this clone, or its dependencies cannot be had.
    """
    tree = ROOT / "reports" / "releases" / version
    release = Release(version, tree)
    if not tree.exists():
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
        commit = UNTAGGED.get(version, f"v{version}")
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), commit], cwd=ROOT, check=True)
    subprocess.run(["make", "--no-print-directory", "setup"], cwd=tree, check=True)
    return release


if __name__ == "__main__":
    print(install().program)
