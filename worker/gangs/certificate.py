"""The certificate of the gang door and the authority that pods are given, read again when their files change (X9)."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

import structlog

from holdfast.worker.runtime.rendezvous_settings import CertificateError, RendezvousFiles, server_context

CHECK_PERIOD: Final = 5.0
"""Seconds between two looks at the files."""

Log: Any = structlog.stdlib.get_logger("holdfast.gangs")


class Certificate:
    """The TLS context of the door, whose certificate may change while it listens."""

    def __init__(self, files: RendezvousFiles) -> None:
        """Read the files.

        Raises:
            CertificateError: if they cannot be used.
        """
        self._files = files
        self._contents = files.read()
        self._current = server_context(files) if files.certificate else None
        self.context = self._current
        """For the listener; None without a certificate. It stays the same, and each handshake takes the newest."""
        if self.context is not None:
            self.context.sni_callback = self._newest

    def ca(self) -> str:
        """Return the authority that pods verify the door by, PEM; empty: the public ones."""
        return self._contents.ca

    def renew(self) -> bool:
        """Use the files' contents if they have changed; return whether they had.

        Raises:
            CertificateError: if they cannot be used; the old ones stay in use.
        """
        contents = self._files.read()
        if contents == self._contents:
            return False
        if self._current is not None:
            self._current = server_context(self._files)
        self._contents = contents
        return True

    async def keep_renewing(self, period: float = CHECK_PERIOD) -> None:
        """Look at the files again and again; what does not work is logged once, and tried again."""
        logged = ""
        while True:
            await asyncio.sleep(period)
            try:
                renewed, problem = self.renew(), ""
            except CertificateError as error:
                renewed, problem = False, str(error)
            if problem and problem != logged:
                Log.warning("the gang door's new certificate does not work yet", why=problem)
            logged = problem
            if renewed:
                Log.info("the gang door's new certificate is in use")

    def _newest(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        if self._current is not None:
            connection.context = self._current
