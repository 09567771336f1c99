"""Builds a program of the stack from Go modules with pinned checksums in build/."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.local.programs.tools import Tool
from holdfast.local.system.errors import BinaryError
from holdfast.local.system.paths import PACKAGE
from holdfast.local.system.process import tail

TICK_SECONDS = 5.0


def build(tool: Tool, target: Path, log: Path, tick: Callable[[float], None]) -> None:
    """Build `tool` to `target`.

    Args:
        tool: the tool to build.
        target: the path of the program, replaced in one step after a successful build.
        log: the log file for the output of the compiler.
        tick: called every few seconds with the seconds since the start.

    Raises:
        BinaryError: Go is not installed, or the build failed.
    """
    go = find_go()
    if go is None:
        host = urlsplit(tool.release.url).hostname
        where = f"downloadable from {host}" if host else "published as a program"
        raise BinaryError(
            f"{tool.name} {tool.version} is neither on PATH nor {where}, and there is no Go to build it with",
            "install Go 1.26 or newer (https://go.dev/dl), or put the tool on PATH"
            + (", or allow HTTPS to that host" if host else ""),
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.new")
    stamps = " ".join(f"-X {stamp}" for stamp in tool.stamp)
    verb = ["test", "-c"] if tool.is_suite else ["build"]
    argv = [go, *verb, "-mod=readonly", "-trimpath", "-ldflags", f"-s -w {stamps}", "-o", str(fresh), tool.package]
    # All builds use the same flags, so that they share packages in Go's build cache.
    env = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
    started = time.monotonic()
    with log.open("wb") as out:
        run = subprocess.Popen(
            argv, cwd=PACKAGE / "build" / tool.module, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
        try:
            while True:
                try:
                    code = run.wait(TICK_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    tick(time.monotonic() - started)
        except BaseException:
            run.terminate()
            raise
    if code != 0:
        raise BinaryError(
            f"building {tool.name} {tool.version} failed (go build, exit code {code})",
            f"read {log}; check that the Go module proxy is reachable (go env GOPROXY), that Go is 1.26 or newer "
            "(go version), and that the disk has 5 GB left",
            tail(log),
        )
    fresh.replace(target)


def find_go() -> str | None:
    """Return the go command: on PATH, else at the path of its installer."""
    usual = Path("/usr/local/go/bin/go")
    return shutil.which("go") or (str(usual) if usual.exists() else None)


def source_of(tool: Tool) -> Path:
    """Return the folder of the Go module of `tool`; download it if needed, and verify it against its pin.

    Raises:
        BinaryError: Go is not installed, or the module is not available.
    """
    go = find_go()
    if go is None:
        raise BinaryError(f"there is no Go to get the source of {tool.name} with", "install Go 1.26 or newer")
    module = tool.package.partition("/cmd")[0]
    run = subprocess.run(
        [go, "mod", "download", "-json", module],
        cwd=PACKAGE / "build" / tool.module,
        env=os.environ | {"GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        raise BinaryError(
            f"the source of {tool.name} {tool.version} cannot be had (go mod download, exit code {run.returncode})",
            "check that the Go module proxy is reachable (go env GOPROXY)",
            run.stderr.strip()[-2000:],
        )
    return Path(json.loads(run.stdout)["Dir"])
