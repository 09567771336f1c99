"""The stories of the documentation, typed as they stand, on a real cluster; what they print is on their pages.

`HOLDFAST_RECORD=1 pytest ...` writes anew what the pages show. A line `...` on a page stands for lines left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
from collections.abc import AsyncIterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from holdfast.local import Stack
from tests.e2e.ground.held import open_real
from tests.e2e.ground.site import Site, appwrapper, executable, job, open_site, until
from tests.e2e.ground.space import FOREIGN_FINALIZER, Space
from tests.e2e.ground.terminal import command, run, shell

pytestmark = [pytest.mark.e2e, pytest.mark.real_node, pytest.mark.asyncio(loop_scope="session")]
ROOT = Path(__file__).parents[3]
STORIES = ROOT / "docs" / "stories"
BLOCK = re.compile(
    r"^(?P<mark><!-- run(?: once (?P<name>\S+) is (?P<phase>\w+))?(?: exits (?P<code>\d+))? -->)\n"
    r"```bash\n(?P<typed>.*?)^```\n"
    r"(?:```\n(?P<shown>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
"""What a page says to type, and what it prints.

It is typed once a workload is in a phase (whoever types it by hand is slower). It ends with this exit code, or 0.
"""
READS = re.compile(r"(holdfast (status|explain|history|list) [^|;&]*\n)+")
"""A block of commands that change nothing."""
BUSY_SECONDS = 60
"""How long a read is typed again that no worker answers in time: a busy one may need longer than it waits."""
RECORD = bool(os.environ.get("HOLDFAST_RECORD"))
NAMESPACE, CLUSTER = "research", "dev"
"""The names that the pages use for the namespace and the cluster of whoever reads them."""
_CHANGES = (
    # Whichever is seen first of a Job that fails and of its pod decides.
    (re.compile(r"\S+: BackoffLimitExceeded: .*; pod (\S+) exited (\d+) on"), r"\1 exited \2 on"),
    (re.compile(r"rule failed-(pods|component)"), "rule"),
    (re.compile(r"\bfake-\d+\b"), "NODE"),
    (re.compile(r"\b\d+ objects? left: .*"), "what is left"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\d"), "DATE"),
    (re.compile(r"\d\d:\d\d:\d\d(\.\d+)?"), "TIME"),
    (re.compile(r"\b(\d+d)?(\d+h)?(\d+m)?\d+(\.\d+)?s\b|\b(\d+d)?\d+h(\d+m)?\b|\b\d+[dhm]\b"), "AGE"),
    (re.compile(r"\d+(\.\d+)? ?%"), "SHARE"),
    (re.compile(r"(?<=[a-z0-9]-)[a-z0-9]{5}\b(?=[\s:,./]|$)"), "POD"),
    (re.compile(r"[─━]+"), "─"),
    (re.compile(r"\s+"), " "),
)


def lasting(text: str) -> list[str]:
    """Return the lines of an output without what differs each time."""
    lines = list[str]()
    for line in re.sub(r"\n {9,}", " ", text).splitlines():  # A long line goes on below its own words.
        for pattern, word in _CHANGES:
            line = pattern.sub(word, line)
        if line.strip():
            lines.append(line.strip())
    return lines


def assert_shows(page: str, printed: str) -> None:
    """Check that all lines of a page were printed, in their order; only `...` stands for others between them."""
    rest, skips = lasting(printed), False
    for line in lasting(page):
        if line == "...":
            skips = True
            continue
        assert line in rest, f"not printed: {line!r}\nprinted:\n{printed}"
        at = rest.index(line)
        assert at == 0 or skips, f"printed before {line!r}, and not on the page: {rest[:at]}"
        rest, skips = rest[at + 1 :], False
    assert skips or not rest, f"printed, and not on the page: {rest}"


def apart(typed: str) -> str:
    """Return commands, one a line, so that an empty line parts what one prints from what the next one does."""
    return "\necho\n".join(typed.strip().splitlines())


def renamed(text: str, own: str) -> str:
    """Return what was printed, for a namespace of another name: its tables have columns as wide as that name needs."""
    lines = re.sub(r"\n{3,}", "\n\n", text.strip("\n")).splitlines()
    for at, line in enumerate(lines):
        head = re.match(r"(NAMESPACE|WORKLOAD) {2,}", line)
        if head is None:
            continue
        wide = head.end()
        row = re.compile(rf"{re.escape(own)}.{{{wide - 2 - len(own)}}}  ")
        rows = list(takewhile(row.match, lines[at + 1 :]))
        cells = [head[1], *(each[:wide].rstrip().replace(own, NAMESPACE) for each in rows)]
        needed = max(map(len, cells)) + 2
        rest = [each[wide:] for each in (line, *rows)]
        lines[at : at + len(cells)] = [cell.ljust(needed) + more for cell, more in zip(cells, rest, strict=True)]
    return "\n".join(lines).replace(own, NAMESPACE) + "\n"


class Reader:
    """Whoever types what a page says, in a namespace that the page calls `research`."""

    def __init__(self, space: Space, folder: Path) -> None:
        self.space = space
        programs = folder / "bin"
        programs.mkdir()
        (programs / "holdfast").write_text(f'#!/bin/sh\nexec {shlex.join(executable())} "$@"\n')
        (programs / "holdfast").chmod(0o755)
        (folder / "examples").symlink_to(ROOT / "examples")
        self.folder = folder
        path = f"{programs}:{os.environ['PATH']}"
        self.environment = shell(space.site) | {"PATH": path, "COLUMNS": "120", "NO_COLOR": "1"}

    async def type(self, typed: str, code: int = 0) -> str:
        """Run a block up to a command that fails, and return what it printed, in the names of the page.

        Raises:
            AssertionError: if it did not end with this exit code.
        """
        script = re.sub(rf"\b{NAMESPACE}\b", self.space.namespace, apart(typed))
        process = await asyncio.create_subprocess_exec(
            *("bash", "-euo", "pipefail", "-c", script),
            cwd=self.folder,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await asyncio.wait_for(process.communicate(), 180)
        text, own = out.decode(), self.space.namespace
        assert process.returncode == code, f"exit code {process.returncode}, expected {code}: {typed}{text}"
        assert "Traceback" not in text, text
        return renamed(text, own).replace(self.space.site.cluster, CLUSTER)

    async def play(self, page: Path) -> None:
        """Type all that a page says, and compare or record what is printed."""
        text = await asyncio.to_thread(page.read_text, encoding="utf-8")
        recorded = list[str]()
        end = 0
        for block in BLOCK.finditer(text):
            if block["phase"]:
                await self.until(block["name"], block["phase"])
            printed = await self._printed(block["typed"], int(block["code"] or 0))
            if RECORD:
                shown = f"```\n{printed.rstrip()}\n```\n" if block["shown"] is not None else ""
                recorded += [text[end : block.start()], f"{block['mark']}\n```bash\n{block['typed']}```\n{shown}"]
            elif block["shown"] is not None:
                assert_shows(block["shown"], printed)
            end = block.end()
        assert end, "a story has something to type"
        if RECORD:
            await asyncio.to_thread(page.write_text, "".join(recorded) + text[end:], encoding="utf-8")

    async def _printed(self, typed: str, code: int) -> str:
        """Type a block, and again while it only reads and no worker answers in time."""
        end = asyncio.get_running_loop().time() + BUSY_SECONDS
        while True:
            printed = await self.type(typed, code)
            answered = not READS.fullmatch(typed) or not re.search(r"^stale\b", printed, re.MULTILINE)
            if answered or asyncio.get_running_loop().time() > end:
                return printed

    async def submit(self, document: dict[str, Any]) -> None:
        """Submit a document by the command line."""
        path = self.folder / f"{document['metadata']['name']}.yaml"
        await asyncio.to_thread(path.write_text, yaml.safe_dump(document), encoding="utf-8")
        await command(self.space.site, "submit", str(path), "-n", self.space.namespace)

    async def shows(self, name: str, words: str, by: str = "status") -> None:
        """Wait until the status of a workload, or what another command prints of it, has these words."""

        async def there() -> bool:
            return words in (await run(self.space.site, by, f"{self.space.namespace}/{name}")).out

        await until(there, 60, f"{name}: {words}")

    async def until(self, name: str, phase: str, attempt: int = 1) -> None:
        """Wait until a workload is in a phase of an attempt."""

        async def there() -> bool:
            told = json.loads(
                (await run(self.space.site, "status", f"{self.space.namespace}/{name}", "-o", "json")).out
            )
            return bool(told["status"]["phase"] == phase and told["status"]["attempt"] >= attempt)

        await until(there, 60, f"{name} is {phase}")


@pytest_asyncio.fixture(loop_scope="session")
async def reader(shared_site: Site, tmp_path: Path) -> AsyncIterator[Reader]:
    """Somebody with a namespace whose pods the kubelet can run."""
    async with open_real(shared_site) as space:
        yield Reader(space, tmp_path)


@pytest.mark.row("E4", level="e2e")
async def test_a_newcomers_first_ten_minutes(reader: Reader) -> None:
    await reader.play(STORIES / "first-ten-minutes.md")


@pytest.mark.row("E2", level="e2e")
async def test_a_training_that_failed_at_night(reader: Reader) -> None:
    await reader.play(STORIES / "failed-at-night.md")


@pytest.mark.row("E3", level="e2e")
async def test_a_platform_teams_monday(stack: Stack, tmp_path: Path) -> None:
    # Its own site: where a queue exists, whoever submits must name one.
    async with open_site(stack, tmp_path) as site:
        await site.start_worker()
        async with open_real(site) as space:
            reader = Reader(space, tmp_path)
            await _before_monday(reader)
            await reader.play(STORIES / "monday.md")


@pytest.mark.row("E3", level="e2e")
async def test_five_everyday_tasks(reader: Reader) -> None:
    await reader.type("holdfast submit examples/stories/training.yaml -n research")
    for name in ("train-a", "train-b"):
        document = appwrapper(name, job(name))
        document["metadata"]["labels"] = {"team": "llm"}
        if name == "train-b":
            pods = document["spec"]["components"][0]["template"]["spec"]["template"]["spec"]
            pods["nodeSelector"] = {"example.com/no-such": "node"}
        await reader.submit(document)
    await reader.until("train-llm", "Failed", attempt=3)
    await reader.until("train-a", "Running")
    await reader.shows("train-b", "unschedulable")
    await reader.play(STORIES / "everyday.md")


async def _before_monday(reader: Reader) -> None:
    """Make what the team finds: a full queue, a workload that was restarted, one that does not go, one that waits."""
    space = reader.space
    queue = reader.folder / "queue.yaml"
    queue.write_text("apiVersion: holdfast.dev/v1\nkind: Queue\nmetadata: {name: gpus}\nspec: {quota: {pods: 4}}\n")
    await command(space.site, "queue", "apply", str(queue))
    for name in ("train-a", "train-b"):
        await reader.submit(queued(name))
        await reader.until(name, "Running")
    await reader.submit(queued("train-c"))
    await space.fail_pod("train-a", 137)
    await reader.until("train-a", "Running", attempt=2)
    (held, *_) = await space.pods("train-b")
    await space.finalize("v1", "Pod", held["metadata"]["name"], FOREIGN_FINALIZER)
    await command(space.site, "cancel", f"{space.namespace}/train-b", "--reason", "no longer wanted")
    await reader.until("train-b", "Terminating")
    await reader.shows("train-b", "forcing out", by="explain")


def queued(name: str) -> dict[str, Any]:
    """A training of two pods that the queue admits; its restart begins at once."""
    document = appwrapper(name, job(name), failureGracePeriodDuration="0s", retryPausePeriodDuration="0s")
    document["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    return document
