"""Checks the settings by which gangs are served: over TLS, or in clear if the operator says so (row X9)."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

CA_MAXIMUM: Final = 64 * 1024
"""Largest authority in bytes: it is an annotation of each pod, which may have 256 KiB of them."""


class CertificateError(ValueError):
    """A certificate, key or authority cannot be used; the message names the setting."""


@dataclass(frozen=True)
class Contents:
    """What the files say."""

    certificate: bytes
    key: bytes
    ca: str


@dataclass(frozen=True)
class RendezvousFiles:
    """Where the certificate and key of the gang door are, and the authority that pods are given."""

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None

    def read(self) -> Contents:
        """Read them.

        Raises:
            CertificateError: if one cannot be read, or the authority cannot be used.
        """
        certificate, key, ca = (
            _read(name, file) for name, file in (("cert", self.certificate), ("key", self.key), ("ca", self.ca))
        )
        if self.ca is not None:
            _check_ca(self.ca, ca)
        return Contents(certificate, key, ca.decode("ascii"))


def server_context(files: RendezvousFiles) -> ssl.SSLContext:
    """Return a TLS context with the door's certificate and key.

    Raises:
        CertificateError: if they cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # Without a password: OpenSSL would ask for it at the terminal.
        context.load_cert_chain(str(files.certificate), str(files.key), password="")
    except (OSError, ValueError) as error:
        raise CertificateError(
            f"rendezvous_tls_cert_file: {files.certificate} and {files.key}: {_why(error)}: "
            "expected a PEM certificate and its key, without a password"
        ) from None
    return context


def problem_with(given: Mapping[str, Any]) -> str:
    """Return what is wrong with the settings of a rendezvous; empty if nothing is.

    Args:
        given: all settings.
    """
    address, url, insecure = (given[f"rendezvous_{name}"] for name in ("address", "url", "insecure"))
    certificate, key, ca = (given[f"rendezvous_tls_{name}_file"] for name in ("cert", "key", "ca"))
    if bool(certificate) != bool(key):
        return "rendezvous_tls_cert_file: expected together with rendezvous_tls_key_file, or neither"
    if certificate and not address:
        return "rendezvous_tls_cert_file: expected with rendezvous_address"
    if certificate and insecure:
        return "rendezvous_insecure: expected without rendezvous_tls_cert_file: with it the door serves TLS"
    if address and not certificate and not insecure:
        return (
            "rendezvous_address: pods send their tokens there: expected rendezvous_tls_cert_file and "
            "rendezvous_tls_key_file (rendezvous_insecure serves plain HTTP)"
        )
    if url.startswith("http:") and not insecure:
        return f"rendezvous_url: {url!r}: pods send their tokens there: expected https (or rendezvous_insecure)"
    if ca and not (certificate or url.startswith("https:")):
        return "rendezvous_tls_ca_file: expected with a certificate, or with a rendezvous_url of https"
    files = RendezvousFiles(certificate, key, ca)
    try:
        files.read()
        if certificate:
            server_context(files)
    except CertificateError as error:
        return str(error)
    return ""


def _read(name: str, file: Path | None) -> bytes:
    try:
        return file.read_bytes() if file is not None else b""
    except OSError as error:
        raise CertificateError(f"rendezvous_tls_{name}_file: {file}: {_why(error)}") from None


def _check_ca(file: Path, ca: bytes) -> None:
    where = f"rendezvous_tls_ca_file: {file}"
    if len(ca) > CA_MAXIMUM:
        raise CertificateError(f"{where}: {len(ca)} bytes: expected at most {CA_MAXIMUM}")
    if b"PRIVATE KEY" in ca:
        raise CertificateError(f"{where}: it has a private key, and every pod would get it: expected certificates only")
    try:
        ssl.create_default_context(cadata=ca.decode("ascii"))
    except (OSError, ValueError) as error:
        raise CertificateError(f"{where}: {_why(error)}: expected certificates, PEM") from None


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
