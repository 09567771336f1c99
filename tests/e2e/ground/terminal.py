"""The `holdfast` command as a user of a site runs it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.ground.hatchery import Forked
from tests.e2e.ground.site import Site, executable

_SECONDS = 120.0
"""No command that is waited for takes longer."""


@dataclass(frozen=True)
class Ended:
    """What a command came to."""

    code: int
    out: str
    errors: str
    seconds: float


def shell(site: Site) -> dict[str, str]:
    """Return the environment that `holdfast dev env` would give, for this site."""
    return site.command()[1]


async def run(site: Site, *argv: str) -> Ended:
    """Run a command to its end."""
    begun = time.monotonic()
    code, out, errors = await asyncio.to_thread(_forked if site.forks else _executed, argv, shell(site))
    return Ended(code, out, errors, time.monotonic() - begun)


async def command(site: Site, *argv: str, expect: int = 0) -> str:
    """Run it, and return what it printed; any exit code but the expected one fails the test."""
    done = await run(site, *argv)
    assert done.code == expect, f"{argv}: {done.code}\n{done.out}\n{done.errors}"
    return done.out


async def examined(site: Site, *argv: str) -> list[dict[str, Any]]:
    """Return what the doctor says of everything but the namespaces of other tests: they are half made now and then."""
    done = await run(site, "doctor", "-o", "json", *argv)
    told: list[dict[str, Any]] = json.loads(done.out)
    assert done.code == (0 if all(check["good"] for check in told) else 2), f"{done.out}\n{done.errors}"
    own = {f"namespace {name}" for name in site.namespaces}
    return [check for check in told if not check["name"].startswith("namespace ") or check["name"] in own]


async def at_terminal(site: Site, *argv: str, answer: str = "") -> Ended:
    """Run a command whose standard input and standard error are a terminal; `errors` is what that showed.

    Args:
        site: The site.
        argv: The command.
        answer: What is typed once it has asked a question.
    """
    begun = time.monotonic()
    code, out, errors = await asyncio.to_thread(_on_terminal, argv, shell(site), answer)
    return Ended(code, out, errors, time.monotonic() - begun)


def _on_terminal(argv: tuple[str, ...], environment: dict[str, str], answer: str) -> tuple[int, str, str]:
    master, slave = pty.openpty()
    shown = bytearray()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([*executable(), *argv], env=environment, stdin=slave, stdout=out, stderr=slave)
        os.close(slave)
        late = threading.Timer(_SECONDS, process.kill)
        late.start()
        try:
            asked = False
            # The last of those that have it open closes it as the command ends.
            with contextlib.suppress(OSError):
                while piece := os.read(master, 65536):
                    shown += piece
                    if answer and not asked and b"[y/N]" in shown:
                        asked = True
                        os.write(master, f"{answer}\n".encode())
            code = process.wait()
        finally:
            late.cancel()
            process.kill()
            process.wait()
            os.close(master)
        out.seek(0)
        return code, out.read().decode(), shown.decode()


def _executed(argv: tuple[str, ...], environment: dict[str, str]) -> tuple[int, str, str]:
    done = subprocess.run(
        [*executable(), *argv], env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    return done.returncode, done.stdout, done.stderr


def _forked(argv: tuple[str, ...], environment: dict[str, str]) -> tuple[int, str, str]:
    with tempfile.TemporaryDirectory() as folder:
        out, errors = Path(folder) / "out", Path(folder) / "errors"
        process = Forked(argv, environment, out, errors)
        try:
            code = process.wait(_SECONDS)
        finally:
            process.kill()
        return code, out.read_text(), errors.read_text()
