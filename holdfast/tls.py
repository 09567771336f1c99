"""Decides from the settings of a connection to Temporal whether it uses TLS. Pure values (row X7, record 0068)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from temporalio.service import TLSConfig


DENIED: Final = "the server denies access to this API key or certificate"
"""What `problem_of` returns if the server has answered, and denied access."""
_PROBLEMS: Final = {
    "CertificateRequired": "the server wants a client certificate",
    "alert: CertificateExpired": "the server says that the client certificate has expired",
    "alert: CertificateRevoked": "the server says that the client certificate is revoked",
    "alert: UnknownCA": "the server does not know who signed the client certificate",
    "alert: BadCertificate": "the server does not take the client certificate",
    "alert: CertificateUnknown": "the server does not take the client certificate",
    "InvalidCertificate(UnknownIssuer": "the server's certificate is not signed by an authority that is trusted here",
    "InvalidCertificate(Expired": "the server's certificate has expired",
    "InvalidCertificate(NotValidForName": "the server's certificate is for another name: see TEMPORAL_TLS_SERVER_NAME",
    "InvalidCertificate(": "the server's certificate is not valid",
    "InvalidContentType": "the server does not speak TLS",
    # With TLS 1.3 a server refuses a client's certificate after the handshake, and its reason may be lost.
    "call error after connection": "the server ended the connection: it may want another client certificate",
}
"""What the SDK's words for a failed connection mean, the surest first."""

CERTIFICATES: Final = (
    "temporal_tls_ca_file",
    "temporal_tls_cert_file",
    "rendezvous_tls_ca_file",
    "rendezvous_tls_cert_file",
    "provisioner_ca_file",
)
"""The worker's settings that name files of certificates."""


@dataclass(frozen=True)
class Credentials:
    """What a connection to Temporal trusts, and what it proves itself with; certificates and keys are PEM."""

    tls: bool | None = None
    """Whether TLS is asked for (`TEMPORAL_TLS`); None: nothing is said."""
    server_name: str = ""
    """The name on the server's certificate; empty: the host of the address."""
    ca: bytes | None = None
    """The authority that signed the server's certificate; None: the public ones."""
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)

    @property
    def named(self) -> str:
        """The first thing given that needs TLS, in words; empty if nothing does."""
        there = {
            "an API key": self.api_key,
            "a client certificate": self.certificate,
            "a client key": self.key,
            "a server CA": self.ca,
            "a server name": self.server_name or None,
        }
        return next((what for what, value in there.items() if value is not None), "")


def is_secured(given: Credentials) -> bool:
    """Decide whether a connection uses TLS: if it is asked for, or if anything is given that needs it.

    Raises:
        HoldfastError: if TLS is off and something needs it (an API key never travels in clear), if a certificate comes
            without its key, or if one of them is empty.
    """
    for what, value in (
        ("server CA", given.ca),
        ("client certificate", given.certificate),
        ("client key", given.key),
        ("API key", given.api_key),
    ):
        if value is not None and not value.strip():
            raise HoldfastError(f"Temporal's {what} is empty: expected its content, or no such setting")
    if (given.certificate is None) != (given.key is None):
        raise HoldfastError("Temporal's client certificate and client key: expected both, or neither")
    if given.tls is False and given.named:
        sent = ": it is never sent without TLS" if given.api_key is not None else ""
        raise HoldfastError(f"TEMPORAL_TLS is false, and there is {given.named}{sent}: leave one of them out")
    return bool(given.tls or given.named)


def tls_of(given: Credentials) -> TLSConfig | bool:
    """Return the SDK's TLS configuration; False without TLS.

    Raises:
        HoldfastError: as `is_secured`.
    """
    if not is_secured(given):
        return False
    from temporalio.service import TLSConfig

    return TLSConfig(
        server_root_ca_cert=given.ca,
        client_cert=given.certificate,
        client_private_key=given.key,
        domain=given.server_name or None,
    )


def problem_of(message: str) -> str:
    """Say what the SDK's message of a connection that failed means, if TLS or a key is the reason; else nothing."""
    if "Unauthenticated" in message or "PermissionDenied" in message:
        return DENIED
    return next((problem for word, problem in _PROBLEMS.items() if word in message), "")


def check_target(address: str) -> None:
    """Check that an address has no scheme: the SDK would let it decide about TLS.

    Raises:
        HoldfastError: if it has one.
    """
    if "://" in address:
        raise HoldfastError(f"Temporal's address {address!r}: expected host:port, without a scheme")


def expiry_of(setting: str, certificates: bytes) -> datetime:
    """Return when a setting's certificates end to be of use: the first of a chain, or the last of trusted authorities.

    Args:
        setting: one of `CERTIFICATES`.
        certificates: what its file has, PEM.

    Raises:
        ValueError: if there is no certificate that can be read.
    """
    from cryptography.x509 import load_pem_x509_certificates

    ends = [one.not_valid_after_utc for one in load_pem_x509_certificates(certificates)]
    return max(ends) if setting.endswith("_ca_file") else min(ends)


def key_of(file: Path) -> str:
    """Read an API key from a file.

    Raises:
        OSError: if it cannot be read.
        HoldfastError: if it is not one line of ASCII.
    """
    try:
        key = file.read_bytes().decode("ascii").strip()
    except UnicodeDecodeError:
        key = "\n"
    if any(not one.isprintable() for one in key):
        raise HoldfastError(f"{file}: expected one line with an API key")
    return key
