"""A worker of every entity's workflow, run as a process, to be killed; it begins once a line is read."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack

from temporalio.client import Client
from temporalio.worker import Worker

from holdfast.plugin import HoldfastPlugin


async def main(address: str, namespace: str, *queues: str) -> None:
    """Work until killed."""
    client = await Client.connect(address, namespace=namespace, plugins=[HoldfastPlugin(roles=["workflows"])])
    print("loaded", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    async with AsyncExitStack() as open_:
        for queue in queues:
            await open_.enter_async_context(Worker(client, task_queue=queue))
        print("works", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
