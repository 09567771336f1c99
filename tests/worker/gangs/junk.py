"""Sends junk to a gang door, over TLS connections that are kept: `python -m tests.worker.gangs.junk ORDER`."""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp

from tests.worker.gangs.tokens import Signer

CONNECTIONS = 16
HUGE = b"x" * (1 << 20)


async def send(order: dict[str, Any]) -> dict[str, int]:
    """Send at least `requests` of them, and go on until the file `enough` is there; count the answers by status.

    The order names the door (`url`, `ca`), a pod of its gang (`pod`, `uid`, `namespace`), and `tokens` that the cluster
    itself has signed and that prove nothing.
    """
    foreign, enough = Signer(order["kid"]), Path(order["enough"])
    tls = ssl.create_default_context(cafile=order["ca"])
    answers: Counter[str] = Counter()

    def token(index: int) -> str:
        kinds = len(order["tokens"]) + 3
        which = index % kinds
        if which < len(order["tokens"]):
            return order["tokens"][which]
        if which == len(order["tokens"]):
            return secrets.token_urlsafe(40)
        return foreign.token(order["pod"], order["uid"], order["namespace"], jti=secrets.token_hex(8))

    async def one(first: int, session: aiohttp.ClientSession) -> None:
        index = first
        while index < order["requests"] or not enough.exists():  # noqa: ASYNC240
            body = HUGE if index % 100 == 0 else b"{}"
            headers = {"Authorization": f"Bearer {token(index)}"}
            try:
                async with session.post(order["url"], data=body, headers=headers) as answer:
                    await answer.read()
                    answers[str(answer.status)] += 1
            except aiohttp.ClientError:
                answers["closed"] += 1
            index += CONNECTIONS

    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=tls)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        for first in range(CONNECTIONS):
            group.create_task(one(first, session))
    return dict(answers)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(send(json.loads(Path(sys.argv[1]).read_text())))))
