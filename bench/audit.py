"""The API server's audit log, read from where a measurement began: who asked for what, and when each thing was done."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

Entry = dict[str, Any]
LONGEST_LINE = 8 << 20
"""In bytes: an entry holds a request's and an answer's body, of at most 3 MiB each."""


@dataclass(frozen=True)
class Mark:
    """A place in the log; by default where all of it begins."""

    inode: int = 0
    offset: int = 0


def mark(log: Path) -> Mark:
    """Return the place after a log's last whole line: the API server may be writing one meanwhile."""
    if not log.exists():
        return Mark()
    with log.open("rb") as lines:
        stat = os.fstat(lines.fileno())
        before = max(0, stat.st_size - LONGEST_LINE)
        lines.seek(before)
        return Mark(stat.st_ino, before + lines.read(stat.st_size - before).rfind(b"\n") + 1)


def whole(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a log's lines up to one that is still being written: its rest must not be taken for a line."""
    return takewhile(lambda line: line.endswith(b"\n"), lines)


class AuditLog:
    """The log and the files it was rotated into."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> Mark:
        """Return the place that the log has come to."""
        return mark(self.path)

    def since(self, mark: Mark, *needles: str) -> Iterator[Entry]:
        """Yield each request that has ended since, once: watches when they began, all others when they were answered.

        Args:
            mark: where to begin.
            needles: only lines with one of these texts are looked at, for speed.
        """
        wanted = [needle.encode() for needle in needles]
        for path, offset in self._files(mark):
            with path.open("rb") as lines:
                lines.seek(offset)
                for line in whole(lines):
                    if wanted and not any(needle in line for needle in wanted):
                        continue
                    entry = cast("Entry", json.loads(line))
                    stage = "ResponseStarted" if entry["verb"] == "watch" else "ResponseComplete"
                    if entry["stage"] == stage:
                        yield entry

    def _files(self, mark: Mark) -> list[tuple[Path, int]]:
        found = sorted(
            self.path.parent.glob(f"{self.path.stem}*{self.path.suffix}"), key=lambda each: each.stat().st_mtime
        )
        inodes = [path.stat().st_ino for path in found]
        if mark.inode not in inodes:
            if mark.inode:
                raise RuntimeError("the audit log has lost what was written since: more than its backups hold")
            return [(path, 0) for path in found]
        first = inodes.index(mark.inode)
        return [(path, mark.offset if index == 0 else 0) for index, path in enumerate(found[first:])]


def when(entry: Entry) -> datetime:
    """Return when a request was answered."""
    return datetime.fromisoformat(entry["stageTimestamp"])


def received(entry: Entry) -> datetime:
    """Return when a request came in."""
    return datetime.fromisoformat(entry["requestReceivedTimestamp"])


def user(entry: Entry) -> str:
    """Return who sent a request, whoever it was sent as."""
    return str(entry["user"]["username"])


def agent(entry: Entry) -> str:
    """Return the program that sent a request, as it calls itself."""
    return str(entry.get("userAgent", "")).partition("/")[0]


def tally(entries: Iterable[Entry], mine: Callable[[Entry], bool]) -> Counter[str]:
    """Count requests by verb and resource: `create pods`, `patch jobs/status`."""
    counts = Counter[str]()
    for entry in entries:
        if mine(entry):
            ref = entry.get("objectRef") or {}
            what = "/".join(part for part in (ref.get("resource", "-"), ref.get("subresource", "")) if part)
            counts[f"{entry['verb']} {what}"] += 1
    return counts


def sorts(counts: Mapping[str, int]) -> Counter[str]:
    """Return how many requests of a tally are of which sort: writes, reads of one object, lists, reviews, watches."""
    found = Counter[str]()
    for what, count in counts.items():
        verb, _, resource = what.partition(" ")
        sort = {"get": "gets", "list": "lists", "watch": "watches"}.get(verb, "writes")
        found["reviews" if resource.endswith("reviews") else sort] += count
    return found


def failed_pods(entries: Iterable[Entry], namespace: str) -> dict[str, datetime]:
    """Return when each pod was first written as Failed, by the pod's name."""
    found: dict[str, datetime] = {}
    for entry in entries:
        ref = entry.get("objectRef") or {}
        if ref.get("namespace") != namespace or ref.get("resource") != "pods" or ref.get("subresource") != "status":
            continue
        status = (entry.get("requestObject") or {}).get("status") or {}
        if status.get("phase") == "Failed":
            found.setdefault(ref["name"], when(entry))
    return found
