"""Where puppets meet their test: a process that lives is a connection, and one that closes is one that has ended."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

PUPPET = Path(__file__).with_name("puppet.py")
LIMIT = 60.0
"""Seconds after which a test that waits for an event has failed: never how long anything should take."""


class Puppet:
    """One process, as its test holds it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: dict[str, Any]) -> None:
        self._reader = reader
        self._writer = writer
        self.name: str = hello["name"]
        self.pid: int = hello["pid"]
        self.session: int = hello["session"]
        self.environment: dict[str, str] = hello["environment"]
        self.argv: list[str] = hello["argv"]

    async def says(self) -> Any:
        """Return the next word, or None once the process has ended."""
        try:
            line = await asyncio.wait_for(self._reader.readline(), LIMIT)
        except ConnectionResetError:
            return None
        return json.loads(line) if line else None

    def do(self, what: str, **how: Any) -> None:
        """Give an order whose answer is not waited for."""
        self._writer.write(json.dumps({"do": what, **how}).encode() + b"\n")

    async def done(self, what: str, **how: Any) -> None:
        """Give an order, and wait until it is carried out."""
        self.do(what, **how)
        assert await self.says() == "done"

    async def ends(self) -> None:
        """Wait until the process has ended."""
        while await self.says() is not None:
            pass


class Stage:
    """All puppets of a test, by name, as they appear."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._puppets: dict[str, asyncio.Queue[Puppet]] = {}

    def command(self, name: str) -> list[str]:
        """Return the command of a puppet."""
        return [sys.executable, "-I", "-S", str(PUPPET), str(self._path), name]

    async def enters(self, name: str, limit: float = LIMIT) -> Puppet:
        """Wait for the next puppet of that name."""
        return await asyncio.wait_for(self._puppets.setdefault(name, asyncio.Queue()).get(), limit)

    def on_stage(self) -> set[str]:
        """Return the names of puppets that have appeared, and that no test has taken notice of."""
        return {name for name, waiting in self._puppets.items() if not waiting.empty()}

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        puppet = Puppet(reader, writer, json.loads(await reader.readline()))
        self._puppets.setdefault(puppet.name, asyncio.Queue()).put_nowait(puppet)


@asynccontextmanager
async def open_stage(folder: Path) -> AsyncIterator[Stage]:
    """Open a stage whose socket is in the folder."""
    stage = Stage(folder / "s")
    server = await asyncio.start_unix_server(stage._welcome, stage._path, limit=1 << 20)  # pyright: ignore[reportPrivateUsage]
    try:
        yield stage
    finally:
        server.close()
