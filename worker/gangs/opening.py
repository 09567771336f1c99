"""Opens the gang door of a worker: its certificate, its own client of the cluster, its listener."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Final

import structlog

from holdfast.worker.gangs.certificate import Certificate
from holdfast.worker.gangs.door import Door
from holdfast.worker.gangs.listener import Listener
from holdfast.worker.gangs.proof import Proofs
from holdfast.worker.gangs.sessions import Gangs
from holdfast.worker.runtime.health import Health
from holdfast.worker.runtime.kube import Connector
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.runtime.rendezvous_settings import CertificateError
from holdfast.worker.runtime.settings import Settings, SettingsError

REVIEWS_AT_ONCE: Final = 8
"""Requests for the door that run at once; further ones wait."""
REVIEW_DEADLINE: Final = 5.0
KEYS: Final = "token keys"
"""The check on the page of readiness. It never fails: without keys, tokens are reviewed."""

Log: Any = structlog.stdlib.get_logger("holdfast.gangs")


def renewed_certificate(stack: AsyncExitStack, settings: Settings) -> Certificate:
    """Return the certificate of the gang door, which is read again when its files change.

    Raises:
        SettingsError: if it cannot be used.
    """
    try:
        certificate = Certificate(settings.rendezvous_files)
    except CertificateError as error:
        raise SettingsError(str(error)) from None
    renewing = asyncio.create_task(certificate.keep_renewing())
    stack.callback(renewing.cancel)
    return certificate


async def open_door(
    stack: AsyncExitStack,
    settings: Settings,
    connector: Connector,
    gangs: Gangs,
    certificate: Certificate,
    metrics: Metrics,
    health: Health,
) -> str:
    """Serve the agents of gangs until the stack closes; return the address.

    The door has a client of its own, so that no other request of the worker waits for a review, and none that fails
    there counts as blindness of the rest.

    Raises:
        OSError: if the address cannot be bound.
        SettingsError: if the kubeconfig cannot be used.
    """
    if settings.rendezvous_insecure:
        Log.warning("the gang door serves plain HTTP: whoever reads the network can take a pod's token")
    reviews = await stack.enter_async_context(await connector(deadline=REVIEW_DEADLINE, pool_size=REVIEWS_AT_ONCE))
    proofs = Proofs(reviews, note=lambda problem: health.note(KEYS, True, problem or "read"))
    listener = Listener(Door(gangs, proofs, metrics).handle, certificate.context)
    stack.push_async_callback(listener.close)
    return await listener.start(settings.rendezvous_address)
