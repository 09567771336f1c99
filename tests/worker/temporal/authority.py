"""A certificate authority made on the spot, with openssl: what it signs is valid from and until any second."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

_SETTINGS = """\
[req]
distinguished_name = subject
[subject]
[root]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = CA:false
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = IP:{address}, DNS:{server_name}
[ca]
default_ca = here
[here]
database = {folder}/index.txt
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
unique_subject = no
policy = any
[any]
commonName = supplied
organizationalUnitName = optional
"""
SERVER_NAME = "temporal.example.com"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path

    def replace(self, other: Pair) -> None:
        """Take the contents of another pair, one file after the other, as most tools write them."""
        self.certificate.write_bytes(other.certificate.read_bytes())
        self.key.write_bytes(other.key.read_bytes())


class Authority:
    """A certificate authority in a folder of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        """Make its own certificate."""
        folder.mkdir()
        self._folder = folder
        self._settings = folder / "openssl.cnf"
        self._write_settings("127.0.0.1")
        (folder / "index.txt").touch()
        self.certificate, self._key = folder / "ca.crt", folder / "ca.key"
        self._openssl(
            *("req", "-x509", *_KEY, "-extensions", "root", "-subj", f"/CN={name}", "-days", "2"),
            *("-keyout", str(self._key), "-out", str(self.certificate)),
        )

    def sign(
        self,
        name: str,
        begins: timedelta = timedelta(hours=-1),
        ends: timedelta = timedelta(hours=1),
        unit: str = "",
        address: str = "127.0.0.1",
    ) -> Pair:
        """Make a key, and a certificate for it that is valid between two times, counted from now.

        Args:
            name: its common name; also of its files.
            begins: from when on.
            ends: until when.
            unit: its organizational unit; none if empty.
            address: the IP address that it is for, beside `SERVER_NAME`.
        """
        self._write_settings(address)
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        request, now = self._folder / f"{name}.csr", datetime.now(UTC)
        subject = f"/OU={unit}/CN={name}" if unit else f"/CN={name}"
        self._openssl("req", "-new", *_KEY, "-subj", subject, "-keyout", str(pair.key), "-out", str(request))
        times = ("-startdate", f"{now + begins:%Y%m%d%H%M%SZ}", "-enddate", f"{now + ends:%Y%m%d%H%M%SZ}")
        own = ("-cert", str(self.certificate), "-keyfile", str(self._key), "-extensions", "leaf")
        self._openssl("ca", "-batch", "-notext", *own, *times, "-in", str(request), "-out", str(pair.certificate))
        return pair

    def _write_settings(self, address: str) -> None:
        text = _SETTINGS.format(folder=self._folder, server_name=SERVER_NAME, address=address)
        self._settings.write_text(text)

    def _openssl(self, command: str, *argv: str) -> None:
        done = subprocess.run(
            ["openssl", command, "-config", str(self._settings), *argv], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
