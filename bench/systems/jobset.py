"""The published JobSet controller, as `tests.e2e.peers.jobset_peer` runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from bench.ground import Ground
from tests.e2e.peers.jobset_peer import PROGRAM, Peer, open_peer


@asynccontextmanager
async def open_jobset(
    ground: Ground, folder: str, *, gates: Iterable[str] = (), places_pods: bool = False, **settings: Any
) -> AsyncIterator[Peer]:
    """Run the controller, with a namespace of its own for its work, which is gone afterwards.

    Args:
        ground: where.
        folder: of its log and configuration, in the ground's directory.
        gates: the feature gates to switch on, such as `InPlaceRestart`; the others keep their defaults.
        places_pods: whether its webhooks for pods are on, which place the pods of exclusive topologies.
        settings: of its configuration file, beside its defaults.
    """
    directory = ground.directory / folder
    directory.mkdir()
    async with (
        ground.floor.turns[PROGRAM],
        open_peer(ground.stack, directory, gates=gates, places_pods=places_pods, **settings) as peer,
    ):
        yield peer
    await ground.drop(peer.namespace)
