"""Builds what a worker's settings for data sets ask for: the store, its cache, and the check of the store (row L14)."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from holdfast.activities.data.cache import Cache
from holdfast.activities.data.record import Seal
from holdfast.activities.data.settings import Data
from holdfast.errors import HoldfastError
from holdfast.worker.runtime.data_settings import quota_of
from holdfast.worker.runtime.settings import Settings, SettingsError

if TYPE_CHECKING:
    from holdfast.worker.runtime.metrics import Metrics

KEY_BYTES: Final = 32
LOOK_SECONDS: Final = 15.0
"""Seconds between two checks of the store: the gauge is never older."""
CLIENT_MISSING: Final = "data_directory: the S3 client is not installed: pip install 'holdfast[s3]'"
Log: Any = structlog.stdlib.get_logger("holdfast.worker")


class NoClient(HoldfastError):
    """Data sets are configured, but the client of their store is not installed."""


def opened(given: Settings, metrics: Metrics | None = None) -> Data | None:
    """Return what a worker stages data sets with; None if the settings name no folder for them.

    Raises:
        NoClient: if the store's client is not installed.
        SettingsError: if the file that seals records is unusable.
    """
    if not given.data_directory:
        return None
    try:
        from holdfast.activities.data.s3 import Address, S3Storage
    except ImportError:
        raise NoClient(CLIENT_MISSING) from None
    address = Address(given.data_endpoint, given.data_region, given.data_allow_http, given.data_credentials_file)
    storage = S3Storage(address)
    grants = [tuple(one.split("=", 1)) for one in given.data_sources]

    def seen(available: bool) -> None:
        if metrics is not None:
            metrics.storage.labels(storage.name).set(available)

    def missed() -> None:
        if metrics is not None:
            metrics.storage_away.labels(storage.name).inc()

    return Data(
        storage,
        Cache(Path(given.data_directory), partial(quota_of, given.data_quotas), _seal(given.data_seal_file)),
        tuple((whose, source) for whose, source in grants),
        host_path="" if given.data_claim else given.data_host_path or given.data_directory,
        claim=given.data_claim,
        seen=seen,
        missed=missed,
    )


def _seal(file: Path | None) -> Seal:
    """Return what seals the records.

    Raises:
        SettingsError: if the file is too short, or cannot be read.
    """
    if file is None:
        return Seal()
    try:
        key = file.read_bytes()
    except OSError as error:
        raise SettingsError(f"data_seal_file: {file}: {error.strerror}") from None
    if len(key) < KEY_BYTES:
        raise SettingsError(f"data_seal_file: {file} has {len(key)} bytes: expected at least {KEY_BYTES} random ones")
    return Seal(key)


async def keep_looking(data: Data) -> None:
    """Check the store periodically, so that the gauge is current whether or not anything is staged."""
    before: str | None = None
    while True:
        why = await data.away()
        if why != before and (why or before is not None):
            Log.warning(f"the store of data sets is away: {why}") if why else Log.info("the store answers again")
        before = why
        await asyncio.sleep(LOOK_SECONDS)
