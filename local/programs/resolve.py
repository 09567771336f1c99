"""Finds each program of the stack: on PATH, in the cache, from its release, or built."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from holdfast.local.programs import gobuild, release
from holdfast.local.programs.release import NotOfferedError
from holdfast.local.programs.tools import TOOLS, Tool
from holdfast.local.system.lock import file_lock
from holdfast.local.system.paths import cache_dir

Progress = Callable[[str], None]
"""Receives one line of progress. Lines that begin with the same `[3/9]` belong to the same step."""


def resolve(names: Iterable[str], progress: Progress) -> dict[str, Path]:
    """Return the path of each program; download or build missing programs.

    Args:
        names: names in `tools.TOOLS`.
        progress: receives each step, and why a program is built; if no program is missing, nothing.

    Raises:
        BinaryError: a program is not available; with a remedy.
    """
    wanted = set(names)
    found: dict[str, Path] = {}
    missing: list[Tool] = []
    for tool in (tool for name, tool in TOOLS.items() if name in wanted):
        path = on_path(tool) or cached(tool)
        if path:
            found[tool.name] = path
        else:
            missing.append(tool)
    if missing:
        found |= _obtain(missing, progress)
    return found


def _obtain(missing: list[Tool], progress: Progress) -> dict[str, Path]:
    """Download programs into the cache, and build those that cannot be downloaded."""
    started, total = time.monotonic(), len(missing)
    longest = _about(sum(tool.seconds for tool in missing))
    progress(f"programs to get, once: {total}; {longest} on two cores if nothing can be downloaded")
    reasons: dict[Tool, str] = {}
    for tool in missing:
        done = missing.index(tool) - len(reasons)
        reason = _download(tool, f"[{done + 1}/{total}]", progress)
        if reason:
            reasons[tool] = reason
    done = total - len(reasons)
    for batch in batches(reasons):
        done += len(batch)
        why = "; ".join(dict.fromkeys(reasons[tool] for tool in batch))
        _build(batch, f"[{done}/{total}]", why, progress)
    took = _time(time.monotonic() - started)
    progress(f"downloaded {total - len(reasons)} and built {len(reasons)} in {took}, into {cache_dir() / 'bin'}")
    return {tool.name: cache_path(tool) for tool in missing}


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


def _download(tool: Tool, step: str, progress: Progress) -> str:
    """Download a tool into the cache unless it is there; return why it cannot be downloaded, or an empty text."""
    target = cache_path(tool)
    with _alone([tool], step, progress):
        if target.exists():
            return ""
        progress(f"{step} {tool.name} v{tool.version}: looking for its official release")
        try:
            release.download(tool, target)
        except NotOfferedError as error:
            return str(error)
        progress(f"{step} {tool.name} v{tool.version}: downloaded its official release")
        return ""


def batches(tools: Iterable[Tool]) -> list[list[Tool]]:
    """Group tools that one `go build` can build: of one module, with file names of their own."""
    found: list[list[Tool]] = []
    for tool in tools:
        for batch in found:
            first = batch[0]
            same = first.module == tool.module and not (first.is_suite or tool.is_suite)
            if same and all(other.output != tool.output for other in batch):
                batch.append(tool)
                break
        else:
            found.append([tool])
    return found


def _build(batch: list[Tool], step: str, why: str, progress: Progress) -> None:
    """Build tools of one module into the cache, except those that another process has built meanwhile."""
    with _alone(batch, step, progress):
        targets = {tool: cache_path(tool) for tool in batch if not cache_path(tool).exists()}
        if not targets:
            return
        names = ", ".join(f"{tool.name} v{tool.version}" for tool in targets)
        progress(f"{step} to build, since {why}: {names}")
        line = f"{step} building {len(targets)} ({_about(sum(tool.seconds for tool in targets))} on two cores) ..."
        progress(line)
        log = cache_dir() / "logs" / f"{batch[0].file_name}.log"
        gobuild.build(targets, log, lambda seconds: progress(f"{line} {_time(seconds)}"))
        progress(f"{step} built {names}")


@contextmanager
def _alone(tools: Iterable[Tool], step: str, progress: Progress) -> Generator[None]:
    """Hold the locks of tools, in the order of `TOOLS`; if another process has one, say so and wait."""

    def waiting(tool: Tool) -> None:
        progress(f"{step} {tool.name} v{tool.version}: another process is getting it, waiting")

    with ExitStack() as stack:
        for tool in tools:
            stack.enter_context(file_lock(cache_dir() / "locks" / tool.file_name, partial(waiting, tool)))
        yield


def _about(seconds: float) -> str:
    return f"about {_time(60 * round(seconds / 60) if seconds >= 60 else seconds)}"


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes and rest else f"{minutes} min" if minutes else f"{rest} s"
