"""A worker whose one workflow writes down by which time it took in each signal; run as a process, to be killed."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from holdfast.workflows.clock import Clock


@workflow.defn
class Clocked:
    """Takes in signals until it is terminated."""

    def __init__(self) -> None:
        self._clock = Clock()
        self._inbox: list[str] = []
        self._taken: list[datetime] = []

    @workflow.run
    async def run(self) -> None:
        """Take in what comes."""
        while True:
            now = self._clock.now()
            self._taken += [now] * len(self._inbox)
            self._inbox.clear()
            await workflow.wait_condition(lambda: bool(self._inbox))

    @workflow.signal
    def poke(self, word: str) -> None:
        """Have something come."""
        self._inbox.append(word)

    @workflow.query
    def taken(self) -> list[str]:
        """Say by which time each signal was taken in."""
        return [each.isoformat() for each in self._taken]


async def main(address: str, queue: str) -> None:
    """Work until killed."""
    client = await Client.connect(address)
    async with Worker(client, task_queue=queue, workflows=[Clocked]):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
