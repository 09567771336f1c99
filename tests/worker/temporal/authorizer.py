"""Builds the example of an authorizer: a Temporal server of its own (docs/how-to/temporal-authorizer.md)."""

from __future__ import annotations

import hashlib
from pathlib import Path

from holdfast.local.programs import gobuild
from holdfast.local.programs.resolve import Progress
from holdfast.local.programs.tools import TEMPORAL_SERVER, Release, Tool
from holdfast.local.system.lock import file_lock
from holdfast.local.system.paths import PACKAGE, cache_dir

SOURCE = PACKAGE / "build" / "temporal-server" / "authorizer" / "main.go"


def authorizer(progress: Progress = lambda _: None) -> Path:
    """Return the path of the program; it is built once for each version of its source."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    tool = Tool(
        name="temporal-authorizer",
        version=f"{TEMPORAL_SERVER}-{digest}",
        module="temporal-server",
        package="./authorizer",
        seconds=180,
        release=Release(""),
    )
    target = cache_dir() / "bin" / tool.file_name
    with file_lock(cache_dir() / "locks" / tool.file_name):
        if not target.exists():
            line = f"building {tool.name} v{tool.version} ..."
            log = cache_dir() / "logs" / f"{tool.file_name}.log"
            gobuild.build({tool: target}, log, lambda seconds: progress(f"{line} {seconds:.0f} s"))
    return target
