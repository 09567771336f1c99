"""A watch whose rights change: what it may still read counts, and what it may not read is as it was. Virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from holdfast.activities.facts.nodes import Marks
from holdfast.activities.kube.client import Object
from holdfast.model import NodeTimings
from holdfast.worker.nodes.ledger import NodeLedger
from holdfast.worker.nodes.watch import (
    _Leases,  # pyright: ignore[reportPrivateUsage]
    _Nodes,  # pyright: ignore[reportPrivateUsage]
    lease_seen,
    node_facts,
)
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.watch.feeds import Feed
from holdfast.worker.watch.informer import BACKOFF_UNWATCHABLE, Informer, Sink
from holdfast.worker.watch.pulse import Pulse
from tests.agent.virtual import in_virtual_time
from tests.fakes.listed import ListedKube, Rights

ROW = pytest.mark.row
SOON = 2 * BACKOFF_UNWATCHABLE
"""Seconds in which a change of rights is noticed."""


class Names:
    """A sink that keeps names."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def put(self, item: str) -> None:
        self.names.add(item)

    def drop(self, item: str, revision: int) -> None:
        self.names.discard(item)


def thing(name: str, namespace: str, **more: Any) -> Object:
    return {"metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "5"}, **more}


@asynccontextmanager
async def feeding(
    rights: Rights,
    objects: list[Object],
    sink: Sink[Any],
    decode: Callable[[Mapping[str, Any]], Any],
    *parts: str,
    keeps: bool = False,
) -> AsyncIterator[Feed]:
    """Follow a kind over all namespaces, or in these."""
    await asyncio.sleep(1)  # An informer takes the time 0 for never.
    tasks: list[asyncio.Task[None]] = []
    pulse = Pulse(ListedKube(rights, []))

    def start(namespace: str) -> Informer[Any]:
        kube = ListedKube(rights, objects)
        metrics = Metrics()
        informer = Informer(
            kube,
            "v1",
            "Thing",
            sink=sink,
            decode=decode,
            pulse=pulse,
            metrics=metrics,
            namespace=namespace,
            keeps=keeps,
        )
        informer.on_standing(lambda: feed.standing_changed())
        tasks.append(asyncio.create_task(informer.run()))
        return informer

    feed = Feed(("v1", "Thing"), start, parts)
    try:
        yield feed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await pulse.kube.close()


def test_what_a_right_that_was_revoked_no_longer_shows_and_another_does_is_still_seen() -> None:
    async def main() -> None:
        rights, seen = Rights("one", "two"), Names()
        objects = [thing("a", "one"), thing("b", "two"), thing("c", "three")]
        async with feeding(rights, objects, seen, lambda raw: raw["metadata"]["name"], "one", "two"):
            await asyncio.sleep(SOON)
            assert seen.names == {"a", "b"}
            rights.grant()
            await asyncio.sleep(SOON)
            assert seen.names == {"a", "b", "c"}
            rights.revoke()
            await asyncio.sleep(SOON)
            assert seen.names == {"a", "b"}

    in_virtual_time(main())


@ROW("L12", level="pure")
def test_L12_a_node_is_no_less_silent_for_leases_that_could_not_be_read_for_a_while() -> None:
    async def main() -> None:
        timings, rights = NodeTimings(), Rights("")
        ledger = NodeLedger(timings)
        ledger.node("n1", "u1", "", "")
        lease = thing("n1", "kube-node-lease", spec={"renewTime": "2026-01-01T00:00:00.000000Z"})
        sink = _Leases(ledger, Mock())
        async with feeding(rights, [lease], sink, lease_seen, keeps=True) as feed:
            await asyncio.sleep(SOON)
            late = datetime.now(UTC) + timings.degraded + timedelta(minutes=1)
            ledger.news(late, ())
            told = ledger.news(late + timedelta(minutes=1), ())
            assert told is not None
            assert told.silent == 1
            rights.revoke()
            await asyncio.sleep(SOON)
            assert feed.unseen
            assert ledger.leases == 1
            rights.grant()
            await asyncio.sleep(SOON)
            assert not feed.unseen
            again = ledger.news(late + timedelta(minutes=2), ())
            assert again is not None
            assert again.silent == 1

    in_virtual_time(main())


@ROW("L12", level="pure")
def test_L12_a_node_that_went_while_nodes_could_not_be_read_is_gone_once_they_can() -> None:
    async def main() -> None:
        timings, rights = NodeTimings(), Rights("")
        ledger = NodeLedger(timings)
        leases = [
            thing(name, "kube-node-lease", spec={"renewTime": "2026-01-01T00:00:00.000000Z"}) for name in ("n1", "n2")
        ]
        nodes = [thing("n1", ""), thing("n2", "")]
        sink = _Nodes(ledger, lambda: None)
        facts = node_facts(Marks())
        async with (
            feeding(rights, leases, _Leases(ledger, Mock()), lease_seen, keeps=True),
            feeding(rights, nodes, sink, facts, keeps=True),
        ):
            await asyncio.sleep(SOON)
            late = datetime.now(UTC) + timings.degraded + timedelta(minutes=1)
            ledger.news(late, ())
            rights.revoke()
            await asyncio.sleep(SOON)
            assert ledger.leases == 2, "what cannot be read has not changed for that"
            del leases[0], nodes[0]
            rights.grant()
            await asyncio.sleep(SOON)
            assert ledger.leases == 1
            late += timedelta(minutes=1)
            told = ledger.news(late, ())
            assert told is not None
            assert (told.total, told.silent) == (1, 1)

    in_virtual_time(main())
