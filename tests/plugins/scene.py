"""What on-call would look at first, gathered as a test fails: explain, history, audit lines, the worker's log.

Everything is read from outside the test's event loop, by the commands and files that on-call has.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

WORKLOADS = 3
LINES = 25
SECONDS = 20


class Worker(Protocol):
    """A worker of a site, as far as its log goes."""

    log: Path


class Site(Protocol):
    """What is read of a site."""

    @property
    def workers(self) -> Iterable[Worker]: ...
    @property
    def namespaces(self) -> Iterable[str]: ...
    @property
    def audit_log(self) -> Path: ...
    def command(self) -> tuple[list[str], dict[str, str]]:
        """Return the `holdfast` command and the environment that reach this site."""
        ...


OPEN: list[Site] = []
"""The sites of this process that are open, the latest last."""
GATHERED: list[str] = []
"""The evidence of sites that were closed by the failure itself, before anybody could look at them."""


def gather(site: Site) -> str:
    """Return the evidence of one site, as text."""
    blocks = [*_said(site), ("audit log, last lines", "\n".join(audit_lines(site.audit_log, set(site.namespaces))))]
    blocks += [(f"log of worker {worker.log.name}, last lines", tail(worker.log)) for worker in site.workers]
    return "\n".join(f"--- {title}\n{text or 'nothing'}" for title, text in blocks)


def tail(path: Path, lines: int = LINES) -> str:
    """Return the last lines of a file, each cut to a readable length."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 200_000))
        text = file.read().decode(errors="replace")
    return "\n".join(line[:400] for line in text.splitlines()[-lines:])


def audit_lines(log: Path, namespaces: set[str], lines: int = LINES) -> list[str]:
    """Return the last changes in some namespaces: time, user, verb, object, answer."""
    if not log.exists():
        return []
    found: list[str] = []
    with log.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if not any(f'"namespace":"{namespace}"' in line for namespace in namespaces) or not line.endswith("\n"):
                continue
            event: dict[str, Any] = json.loads(line)
            what = event.get("objectRef", {})
            parts = [what.get("resource"), what.get("subresource"), what.get("name")]
            user = event["user"].get("username", "").rpartition(":")[2]
            code = event.get("responseStatus", {}).get("code", "")
            name = "/".join(part for part in parts if part)
            found.append(f"{event['requestReceivedTimestamp'][11:23]} {user} {event['verb']} {name} {code}")
    return found[-lines:]


def _said(site: Site) -> Iterable[tuple[str, str]]:
    command, environment = site.command()
    listed = _run([*command, "list", "--output", "json"], environment)
    try:
        workloads = json.loads(listed)
    except ValueError:
        return [("holdfast list", listed)]
    names = [f"{each['namespace']}/{each['name']}" for each in workloads][:WORKLOADS]
    return [
        (f"holdfast {verb} {name}", _run([*command, verb, name], environment))
        for name in names
        for verb in ("explain", "history")
    ]


def _run(argv: list[str], environment: dict[str, str]) -> str:
    try:
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {SECONDS} s"
    return (done.stdout + done.stderr).rstrip()
