"""Is a machine that of its node? Redfish's UUID against the node's own `systemUUID`, before power or erasure (D9)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import Any, Final
from uuid import UUID

from holdfast.activities.kube.client import Kube
from holdfast.activities.kube.raw import mapping

ALLOW: Final = "provisioner_allow_unverified_machine"
"""The setting by which a machine that cannot be compared is acted on all the same, by its URL alone."""
READ_AGAIN_SECONDS: Final = 60.0
"""A machine's UUID does not change: which nodes have which is read so often for all, not for each request."""
_LOOK: Final = "look at the URL and the cabling"
_ABSENT: Final = frozenset({0, 2**128 - 1})

Owners = Mapping[str, Collection[str]]
"""The nodes of a cluster by their UUID, as `key_of` says it."""


def key_of(text: object) -> str:
    """Return a UUID in the form in which it is compared; empty where it is absent.

    SMBIOS stores its first three fields with the lowest byte first, and vendors differ in whether they say it in that
    order: both orders have the same key. All zero and all F stand for a machine that has none.
    """
    try:
        found = UUID(str(text).strip())
    except ValueError:
        return ""
    return "" if found.int in _ABSENT else min(found.hex, UUID(bytes=found.bytes_le).hex)


def uuid_of(node: Mapping[str, Any] | None) -> str:
    """Return what a raw node's kubelet says of its machine, in its own words."""
    return str(mapping(mapping(mapping(node).get("status")).get("nodeInfo")).get("systemUUID") or "")


def problem(name: str, node: Mapping[str, Any] | None, machine: str, owners: Owners, *, allow_absent: bool) -> str:
    """Return why a machine is not acted on for a node; empty where it is the node's.

    Args:
        name: of the node.
        node: its object; None where there is none, as before a machine has joined.
        machine: the UUID that Redfish says, in its own words.
        owners: which nodes have which UUID.
        allow_absent: whether a machine that cannot be compared is taken by its URL alone.
    """
    said = uuid_of(node)
    ours, theirs = key_of(said), key_of(machine)
    sharing = set(owners.get(ours, ())) - {name} if ours else set[str]()
    others = set(owners.get(theirs, ())) - {name} if theirs else set[str]()
    if theirs != ours and len(others) == 1:
        return f"its URL leads to the machine of node {min(others)} (UUID {machine}): {_LOOK}"
    if ours and theirs and ours != theirs and not sharing:
        return f"its URL leads to another machine: UUID {machine}, where the node's systemUUID is {said}: {_LOOK}"
    absent = "" if allow_absent else _absent(said, machine, node is not None, sharing | others)
    return f"{absent}, so that it cannot be told from another machine: see the setting {ALLOW}" if absent else ""


def _absent(said: str, machine: str, is_there: bool, sharing: Collection[str]) -> str:
    if not key_of(machine):
        return f"its machine says no UUID ({machine or 'none'})"
    if is_there and not key_of(said):
        return f"the node says no systemUUID ({said or 'none'})"
    if sharing:
        return f"{len(sharing)} other nodes have its UUID too ({', '.join(sorted(sharing)[:3])})"
    return ""


class Identities:
    """Which nodes of a cluster have which UUID."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._lock = asyncio.Lock()
        self._owners: dict[str, list[str]] = {}
        self._until = 0.0

    async def owners(self, kube: Kube) -> Owners:
        """Return the nodes by their UUID, as of at most `READ_AGAIN_SECONDS` ago.

        Raises:
            KubeError: if they cannot be listed.
        """
        async with self._lock:
            if time.monotonic() >= self._until:
                found: dict[str, list[str]] = {}
                for key, name in (await kube.list("v1", "Node", keep=_identity))["items"]:
                    found.setdefault(key, []).append(name)
                self._owners, self._until = found, time.monotonic() + READ_AGAIN_SECONDS
            return self._owners


def _identity(node: Mapping[str, Any]) -> tuple[str, str] | None:
    key = key_of(uuid_of(node))
    return (key, str(mapping(node.get("metadata")).get("name"))) if key else None
