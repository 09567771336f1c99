"""Builds what a worker's settings for evidence ask for: the store, and the removal of what is too old (row P3)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import structlog
from temporalio.converter import DataConverter

from holdfast.activities.data.storage import Away, BadData
from holdfast.activities.evidence.store import EvidenceStore
from holdfast.codec.codec import Codec
from holdfast.worker.runtime.settings import Settings, SettingsError

EVERY: Final = 3600.0
"""Seconds between two removals of what is too old."""
CLIENT_MISSING: Final = "evidence_store: the S3 client is not installed: pip install 'holdfast[s3]'"
Log: Any = structlog.stdlib.get_logger("holdfast.worker")


def evidence_store(given: Settings, converter: DataConverter) -> EvidenceStore | None:
    """Return where a worker keeps evidence, encrypted as its payloads are; None if the settings name no store.

    Raises:
        SettingsError: if the store's client is not installed.
    """
    if not given.evidence_store:
        return None
    try:
        from holdfast.activities.data.s3 import Address, S3Storage
    except ImportError:
        raise SettingsError(CLIENT_MISSING) from None
    address = Address(given.data_endpoint, given.data_region, given.data_allow_http, given.data_credentials_file)
    codec = converter.payload_codec or Codec(None)
    return EvidenceStore(S3Storage(address), given.evidence_store, codec, given.evidence_lifetime)


async def keep_expiring(store: EvidenceStore, cluster: str) -> None:
    """Remove what is too old of a cluster, once an hour; several workers may do so at the same time."""
    failed = False
    while True:
        try:
            removed = await store.expire(cluster)
            if removed:
                Log.info("evidence has expired", documents=removed)
            failed = False
        except (Away, BadData) as error:
            if not failed:
                Log.warning("old evidence was not removed: tried again", why=str(error))
            failed = True
        await asyncio.sleep(EVERY)
