"""Finds each program of the stack: on PATH, in the cache, from its official release, or built from source."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast.local.programs import gobuild, release
from holdfast.local.programs.tools import TOOLS, Tool
from holdfast.local.system.lock import file_lock
from holdfast.local.system.paths import cache_dir

Progress = Callable[[str], None]
"""Receives one line of progress. Lines that begin with the same `[3/9]` belong to the same step."""


def resolve(names: Iterable[str], progress: Progress) -> dict[str, Path]:
    """Return the path of each program; download or build missing programs.

    Args:
        names: names in `tools.TOOLS`.
        progress: receives each step; programs that are already present have none.

    Raises:
        BinaryError: a program is not available; with a remedy.
    """
    wanted = [TOOLS[name] for name in TOOLS if name in set(names)]
    found: dict[str, Path] = {}
    missing: list[Tool] = []
    for tool in wanted:
        path = on_path(tool) or cached(tool)
        if path:
            found[tool.name] = path
        else:
            missing.append(tool)
    for number, tool in enumerate(missing, 1):
        found[tool.name] = obtain(tool, f"[{number}/{len(missing)}]", progress)
    return found


def cache_path(tool: Tool) -> Path:
    """Return the path of this version of the tool in the cache."""
    return cache_dir() / "bin" / tool.file_name


def cached(tool: Tool) -> Path | None:
    """Return the path of the tool in the cache, if it is there."""
    path = cache_path(tool)
    return path if path.exists() else None


def on_path(tool: Tool) -> Path | None:
    """Return the path of the tool on PATH, if its version fits the other tools."""
    found = shutil.which(tool.name)
    if not found:
        return None
    try:
        said = subprocess.run([found, *tool.version_args], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Path(found) if version_fits(tool, said.stdout + said.stderr) else None


def version_fits(tool: Tool, said: str) -> bool:
    """Whether the version in a program's output can replace the pinned one.

    It needs the same major version and must not be older. Kubernetes parts need the same minor version, to match.
    """
    match = re.search(r"(\d+)\.(\d+)\.(\d+)(-\w+)?", said)
    if not match:
        return False
    major, minor, patch = (int(group) for group in match.groups()[:3])
    want_major, want_minor, want_patch = (int(part) for part in tool.version.split("."))
    if tool.exact_minor:
        return (major, minor) == (want_major, want_minor)
    return major == want_major and (minor, patch) >= (want_minor, want_patch)


def obtain(tool: Tool, step: str, progress: Progress) -> Path:
    """Download or build one tool into the cache; if another process is doing that, wait for it.

    Raises:
        BinaryError: neither worked; with a remedy.
    """
    target = cache_path(tool)

    def waiting() -> None:
        progress(f"{step} {tool.name} v{tool.version}: another process is getting it, waiting")

    with file_lock(cache_dir() / "locks" / tool.file_name, waiting):
        if target.exists():
            return target
        progress(f"{step} {tool.name} v{tool.version}: looking for its official release")
        if release.download(tool, target):
            progress(f"{step} {tool.name} v{tool.version}: downloaded")
            return target
        line = f"{step} building {tool.name} v{tool.version} (about {_about(tool.seconds)}) ..."
        progress(line)
        log = cache_dir() / "logs" / f"{tool.file_name}.log"
        gobuild.build(tool, target, log, lambda seconds: progress(f"{line} {seconds:.0f} s"))
        progress(f"{step} {tool.name} v{tool.version}: built")
        return target


def _about(seconds: int) -> str:
    return f"{round(seconds / 60)} min" if seconds >= 60 else f"{seconds} s"
