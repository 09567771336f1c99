"""Packs archives so that the same files give the same bytes: `helm package` and sdists write down when they ran."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path


def repack(archive: Path, epoch: int) -> None:
    """Write a `.tar.gz` or `.tgz` again: its members by name, all of one time, and nobody's.

    Args:
        archive: the file.
        epoch: the time, in seconds since 1970.
    """
    out = io.BytesIO()
    with tarfile.open(archive, "r:gz") as old, tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with archive.open("wb") as file, gzip.GzipFile("", "wb", mtime=epoch, fileobj=file) as packed:
        packed.write(out.getvalue())


def checksums(folder: Path) -> str:
    """Return a line for each file of a folder, as `sha256sum --check` reads them."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
