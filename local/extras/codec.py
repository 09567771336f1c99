"""Encrypts what the stack's Temporal stores: a key file of its own, and the server that decrypts for Temporal's UI."""

import sys
from collections.abc import Mapping
from pathlib import Path

from holdfast import names
from holdfast.local.system.parts import Layout, Part
from holdfast.local.system.ports import LOOPBACK

NAME = "codec-server"
PORTS = (NAME,)


def key_file(layout: Layout) -> Path:
    """Return the path of the stack's key file."""
    return layout.pki / "codec-keys.json"


def ensure_keys(layout: Layout) -> None:
    """Make the key file, unless it is there.

    Raises:
        HoldfastError: if it cannot be written.
    """
    # Loading cryptography takes a while, and most commands need none.
    from holdfast.codec.keyfile import add

    if not key_file(layout).exists():
        add(key_file(layout), "local")


def environment(layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    """Return what workers, commands and the `temporal` command need. Clients without keys may send them something."""
    return {
        names.ENV_CODEC_KEYS: str(key_file(layout)),
        names.ENV_CODEC_ACCEPT_PLAINTEXT: "1",
        "TEMPORAL_CODEC_ENDPOINT": endpoint(ports),
    }


def endpoint(ports: Mapping[str, int]) -> str:
    """Return the URL at which the UI in a browser asks."""
    return f"http://{LOOPBACK}:{ports[NAME]}"


def part(layout: Layout, ports: Mapping[str, int], ui: str) -> Part:
    """Return the server, which answers pages of the UI on this machine alone.

    Args:
        layout: the stack's files.
        ports: its ports.
        ui: the UI's address.
    """
    argv = (
        *(sys.executable, "-m", "holdfast", "codec-server"),
        f"--keys={key_file(layout)}",
        f"--address={LOOPBACK}:{ports[NAME]}",
        f"--origin={ui}",
        "--anyone-may-decrypt",
        "--also-encrypt",
    )
    return Part(NAME, argv, endpoint(ports), f"tcp://{LOOPBACK}:{ports[NAME]}", PORTS)
