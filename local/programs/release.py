"""Downloads official releases, if their host is reachable, and verifies them against the published SHA-256."""

import hashlib
import shutil
import tarfile
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.local.programs.tools import ARCH, OS, Tool
from holdfast.local.system.errors import BinaryError

PROBE_SECONDS = 3.0


@cache
def reachable(host: str) -> bool:
    """Whether the release host answers within a few seconds; checked once per host and process."""
    request = urllib.request.Request(f"https://{host}/", method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=PROBE_SECONDS):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False


class NotOfferedError(Exception):
    """A source has no such program; the message says why, in a few words."""


def download(tool: Tool, target: Path) -> None:
    """Download the official release of `tool` to `target`.

    Raises:
        NotOfferedError: the host is unreachable, or has no release for this platform.
        BinaryError: the downloaded file does not match the published checksum, or its archive lacks the program.
    """
    release = tool.release
    if not release.url:
        raise NotOfferedError("no release is published")
    host = urlsplit(release.url).hostname or ""
    if not reachable(host):
        raise NotOfferedError(f"{host} does not answer")
    target.parent.mkdir(parents=True, exist_ok=True)
    archive = target.with_name(f".{target.name}.download")
    try:
        try:
            with urllib.request.urlopen(release.url, timeout=60) as answer, archive.open("wb") as file:
                shutil.copyfileobj(answer, file)
            wanted = ""
            if release.checksums:
                with urllib.request.urlopen(release.checksums, timeout=30) as answer:
                    wanted = published_sum(answer.read().decode(), release.url.rpartition("/")[2])
        except OSError as error:  # including HTTP 404: no build for this platform
            raise NotOfferedError(f"{host} has none for {OS} on {ARCH}") from error
        found = sha256(archive)
        if release.checksums and found != wanted:
            raise BinaryError(
                f"{release.url} has SHA-256 {found}, but {release.checksums} says {wanted or 'nothing about it'}",
                "again later or through another network; nothing was installed",
            )
        fresh = target.with_name(f".{target.name}.new")
        if release.member:
            _extract(archive, release.member, fresh)
        else:
            shutil.copyfile(archive, fresh)
        fresh.chmod(0o755)
        fresh.replace(target)
    finally:
        archive.unlink(missing_ok=True)


def published_sum(text: str, file_name: str) -> str:
    """Return the SHA-256 of `file_name` from a checksum file: lines of `<sum>  <name>`, or a single sum alone."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 1 and len(words[0]) == 64:
            return words[0].lower()
        if len(words) >= 2 and words[-1].lstrip("*").removeprefix("./") == file_name:
            return words[0].lower()
    return ""


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _extract(archive: Path, member: str, target: Path) -> None:
    with tarfile.open(archive) as tar:
        names = {name.removeprefix("./"): name for name in tar.getnames()}
        found = tar.extractfile(names[member]) if member in names else None
        if found is None:
            raise BinaryError(f"the release archive has no file {member}", "a newer holdfast, or the tool on PATH")
        with target.open("wb") as file:
            shutil.copyfileobj(found, file)
