"""Builds programs of the stack from Go modules with pinned checksums in build/."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from holdfast.local.programs.tools import SUITE_FILE, Tool
from holdfast.local.system.errors import BinaryError
from holdfast.local.system.paths import PACKAGE
from holdfast.local.system.process import tail

TICK_SECONDS = 5.0
_FLAGS: Final = ("-mod=readonly", "-trimpath", "-gcflags=all=-dwarf=false")
"""The linker leaves debug information out (`-s -w`); not to make any saves a seventh of the compilers' time."""
_SAME: Final = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
"""All builds use the same settings, so that they share packages in Go's build cache."""
_SPARING: Final = {"GOGC": "400", "GOMEMLIMIT": "2GiB"}
"""A compiler that collects garbage less often takes a tenth less time; the limit is for large packages."""


def build(targets: Mapping[Tool, Path], log: Path, tick: Callable[[float], None]) -> None:
    """Build the tools of one module by one command, so that each package they share is compiled once.

    Args:
        targets: the path of each program, replaced in one step after a successful build.
        log: the log file for the output of the compiler.
        tick: called every few seconds with the seconds since the start.

    Raises:
        BinaryError: Go is not installed, or the build failed.
    """
    tools = list(targets)
    names = " and ".join(f"{tool.name} {tool.version}" for tool in tools)
    go = find_go()
    if go is None:
        host = urlsplit(tools[0].release.url).hostname
        where = f"downloadable from {host}" if host else "published as a program"
        raise BinaryError(
            f"{tools[0].name} {tools[0].version} is neither on PATH nor {where}, and there is no Go to build it with",
            "install Go 1.26 or newer (https://go.dev/dl), or put the tool on PATH"
            + (", or allow HTTPS to that host" if host else ""),
        )
    first = targets[tools[0]]
    first.parent.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    stamps = " ".join(dict.fromkeys(f"-X {stamp}" for tool in tools for stamp in tool.stamp))
    verb = ["test", "-c"] if tools[0].is_suite else ["build"]
    with tempfile.TemporaryDirectory(dir=first.parent, prefix=".build-") as folder:
        output = f"{folder}/{tools[0].output if tools[0].is_suite else ''}"
        argv = [go, *verb, *_FLAGS, "-ldflags", f"-s -w {stamps}", "-o", output]
        if tools[0].specs_of:
            argv += ["-overlay", str(_overlay(tools[0], Path(folder))), "."]
        else:
            argv += [tool.package for tool in tools]
        code = _run(argv, PACKAGE / "build" / tools[0].module, log, tick)
        if code != 0:
            raise BinaryError(
                f"building {names} failed (go build, exit code {code})",
                f"read {log}; check that the Go module proxy is reachable (go env GOPROXY), that Go is 1.26 or newer "
                "(go version), and that the disk has 5 GB left",
                tail(log),
            )
        for tool, target in targets.items():
            Path(folder, tool.output).replace(target)


def specs_folder(tool: Tool) -> Path:
    """Return the folder with a suite's specs, in the source of their module.

    Raises:
        BinaryError: as `module_source` does.
    """
    return module_source(tool.specs_of, tool.module) / tool.package.removeprefix(f"{tool.specs_of}/")


def _overlay(tool: Tool, folder: Path) -> Path:
    """Write, for the compiler, that a suite's specs lie beside the suite file of our own, as they were published."""
    ours = PACKAGE / "build" / tool.module
    specs = [file for file in specs_folder(tool).glob("*_test.go") if file.name != SUITE_FILE]
    if tool.specs:
        specs = [file for file in specs if file.name in tool.specs]
    path = folder / "overlay.json"
    path.write_text(json.dumps({"Replace": {str(ours / file.name): str(file) for file in specs}}))
    return path


def _run(argv: list[str], folder: Path, log: Path, tick: Callable[[float], None]) -> int:
    """Run the compiler, and return its exit code."""
    started = time.monotonic()
    with log.open("wb") as out:
        run = subprocess.Popen(
            argv, cwd=folder, env=_SPARING | os.environ | _SAME, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
        try:
            while True:
                try:
                    return run.wait(TICK_SECONDS)
                except subprocess.TimeoutExpired:
                    tick(time.monotonic() - started)
        except BaseException:
            run.terminate()
            raise


def find_go() -> str | None:
    """Return the go command: on PATH, else at the path of its installer."""
    usual = Path("/usr/local/go/bin/go")
    return shutil.which("go") or (str(usual) if usual.exists() else None)


def source_of(tool: Tool) -> Path:
    """Return the folder of the Go module of `tool`; download it if needed, and verify it against its pin.

    Raises:
        BinaryError: as `module_source` does.
    """
    return module_source(tool.package.partition("/cmd")[0], tool.module)


def module_source(module: str, build: str) -> Path:
    """Return the folder of a Go module; download it if needed, and verify it against its pin.

    Args:
        module: path of the module.
        build: folder under `build/` whose go.mod and go.sum pin it.

    Raises:
        BinaryError: Go is not installed, or the module is not available.
    """
    go = find_go()
    if go is None:
        raise BinaryError(f"there is no Go to get the source of {module} with", "install Go 1.26 or newer")
    run = subprocess.run(
        [go, "mod", "download", "-json", module],
        cwd=PACKAGE / "build" / build,
        env=os.environ | {"GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        raise BinaryError(
            f"the source of {module} cannot be had (go mod download, exit code {run.returncode})",
            "check that the Go module proxy is reachable (go env GOPROXY)",
            run.stderr.strip()[-2000:],
        )
    return Path(json.loads(run.stdout)["Dir"])
