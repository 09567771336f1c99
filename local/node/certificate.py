"""Certificates that sign themselves, made with openssl: the API server's for the kubelet, and the gang door's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from holdfast.local.system.errors import StackError


def self_signed(certificate: Path, key: Path, subject: str, *extensions: str) -> bool:
    """Write a certificate and its key; return False if openssl is missing or fails.

    Args:
        certificate: where to write it, PEM.
        key: where to write its key, PEM.
        subject: whose it is, as openssl writes it: `/CN=name`.
        extensions: what else it says, as openssl has it: `extendedKeyUsage=clientAuth`.
    """
    openssl = shutil.which("openssl")
    if not openssl:
        return False
    certificate.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    added = [word for extension in extensions for word in ("-addext", extension)]
    made = subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "3650", "-subj", subject, *added, "-keyout", str(key), "-out", str(certificate)),
        ],
        capture_output=True,
        check=False,
    )
    return made.returncode == 0


def gang_door(folder: Path, address: str, port: int) -> dict[str, str]:
    """Return the settings of a worker that serves gangs at an IP address, with a certificate made for it.

    Args:
        folder: where the certificate and its key are written.
        address: the IP address that it listens on, and that pods reach.
        port: the port.

    Raises:
        StackError: if openssl cannot make the certificate.
    """
    certificate, key = folder / "gang-door.crt", folder / "gang-door.key"
    if not self_signed(certificate, key, "/CN=holdfast-gang-door", f"subjectAltName=IP:{address}"):
        raise StackError("openssl could not make a certificate for the gang door", "install openssl")
    return {
        "HOLDFAST_RENDEZVOUS_ADDRESS": f"{address}:{port}",
        "HOLDFAST_RENDEZVOUS_TLS_CERT_FILE": str(certificate),
        "HOLDFAST_RENDEZVOUS_TLS_KEY_FILE": str(key),
        "HOLDFAST_RENDEZVOUS_TLS_CA_FILE": str(certificate),
    }
