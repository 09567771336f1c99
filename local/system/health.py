"""Checks whether a part is healthy, and waits for it with a deadline."""

import http.client
import socket
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path

from holdfast.local.system.errors import PartError
from holdfast.local.system.parts import Part
from holdfast.local.system.process import Process, tail


def healthy(part: Part, token: str, authority: Path, timeout: float = 3.0) -> bool:
    """Check once whether a part is healthy.

    Args:
        part: the part to check.
        token: bearer token for the API server.
        authority: certificate to verify the API server's own. The other parts create theirs in memory and do not
            publish them, so this check does not verify them, and sends them no token.
        timeout: timeout in seconds.
    """
    scheme, _, where = part.health.partition("://")
    if scheme == "unix":
        return _listens(socket.AF_UNIX, where, timeout)
    if scheme == "tcp":
        host, _, port = where.rpartition(":")
        return _listens(socket.AF_INET, (host, int(port)), timeout)
    request = urllib.request.Request(part.health)
    context = None
    if part.health.startswith("https:"):
        if part.name == "kube-apiserver":
            try:
                context = ssl.create_default_context(cafile=str(authority))
            except (FileNotFoundError, ssl.SSLError):
                return False  # The API server writes it as it starts: it does not exist yet, or is incomplete.
            request.add_header("Authorization", f"Bearer {token}")
        else:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
    # No proxy: every health check is on the loopback interface.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(request, timeout=timeout) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError, http.client.HTTPException):
        return False


def _listens(family: int, address: str | tuple[str, int], timeout: float) -> bool:
    with socket.socket(family) as probe:
        probe.settimeout(timeout)
        try:
            probe.connect(address)
        except OSError:
            return False
        return True


def wait_healthy(part: Part, process: Process, log: Path, token: str, authority: Path) -> None:
    """Wait until a part is healthy.

    Raises:
        PartError: it ended, or it was not healthy in time; with the end of its log.
    """
    deadline = time.monotonic() + part.seconds
    while not healthy(part, token, authority):
        if not process.alive():
            raise PartError(f"{part.name} ended while it was starting", f"read {log}", tail(log))
        if time.monotonic() > deadline:
            raise PartError(
                f"{part.name} did not answer on {part.health} within {part.seconds:.0f} s",
                f"read {log}; if the machine is busy, run `holdfast dev up` again, which continues from here",
                tail(log),
            )
        time.sleep(0.1)
