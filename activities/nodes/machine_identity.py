"""Checks that a machine is its node's, before power or erasure: Redfish's UUID against `systemUUID` (D9)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import Any, Final
from uuid import UUID

from holdfast.activities.kube.client import Kube
from holdfast.activities.kube.raw import mapping

ALLOW: Final = "provisioner_allow_unverified_machine"
"""The setting that allows acting on a machine that cannot be compared, by its URL alone."""
READ_AGAIN_SECONDS: Final = 60.0
"""How often the nodes' UUIDs are read, for all requests together: a machine's UUID does not change."""
_LOOK: Final = "look at the URL and the cabling"
_ABSENT: Final = frozenset({0, 2**128 - 1})

Owners = Mapping[str, Collection[str]]
"""The names of a cluster's nodes, by the `key_of` their UUID."""


def key_of(text: object) -> str:
    """Return a UUID in the form used for comparison; empty where it is absent.

    SMBIOS stores the first three fields with the lowest byte first, and vendors differ in whether they report it in
    that order: both orders have the same key. All zero or all F means that a machine has no UUID.
    """
    try:
        found = UUID(str(text).strip())
    except ValueError:
        return ""
    return "" if found.int in _ABSENT else min(found.hex, UUID(bytes=found.bytes_le).hex)


def uuid_of(node: Mapping[str, Any] | None) -> str:
    """Return the `systemUUID` that the kubelet of a raw node reports, unchanged."""
    return str(mapping(mapping(mapping(node).get("status")).get("nodeInfo")).get("systemUUID") or "")


def problem(name: str, node: Mapping[str, Any] | None, machine: str, owners: Owners, *, allow_absent: bool) -> str:
    """Return why not to act on a machine for a node; empty if the machine is the node's.

    Args:
        name: of the node.
        node: its object; None if there is none, for example before a machine has joined.
        machine: the UUID that Redfish reports, unchanged.
        owners: which nodes have which UUID.
        allow_absent: whether to accept a machine that cannot be compared, by its URL alone.
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
        return f"its machine reports no UUID ({machine or 'none'})"
    if is_there and not key_of(said):
        return f"the node says no systemUUID ({said or 'none'})"
    if sharing:
        return f"{len(sharing)} other nodes have its UUID too ({', '.join(sorted(sharing)[:3])})"
    return ""


class Identities:
    """Caches which nodes of a cluster have which UUID."""

    def __init__(self) -> None:
        """Start empty."""
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
