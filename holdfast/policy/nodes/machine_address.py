"""The address of a node's machine: one that the operator has written, with the node's name put in (row X1). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from holdfast import names

PLACEHOLDER: Final = "{node}"
SETTING: Final = "provisioner_addresses_from_nodes"
"""The setting that lists the addresses that a node's annotation may name."""
EXPECTED: Final = f"expected a URL such as https://bmc.example.com/redfish/v1/Systems/{PLACEHOLDER}"
BELOW: Final = (
    f"expected a domain after {PLACEHOLDER}, such as https://{PLACEHOLDER}.bmc.example.com/redfish/v1/Systems/1: "
    "else whoever names a node names the host that the password is sent to"
)
_NODE: Final = "node-7"
_SAID_MAXIMUM: Final = 120
_PLAIN: Final = re.compile(r"[!-\[\]-~]+")
"""Printable ASCII without spaces and backslashes: parsers differ in what they make of anything else."""
_HOST: Final = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")


class Address(NamedTuple):
    """Where to reach a node's machine, or why not to."""

    url: str = ""
    refused: str = ""


def unusable(address: str, *, password: bool = False) -> str:
    """Return what is wrong with an address in the settings; empty if it can be used.

    Args:
        address: a ComputerSystem's URL, in which `{node}` may stand for a node's name.
        password: whether a password is sent there.
    """
    url = address.replace(PLACEHOLDER, _NODE)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        return f"{error}: {EXPECTED}"
    if "@" in parts.netloc:
        return "expected no name and no password in it: see provisioner_user and provisioner_password_file"
    plain = _PLAIN.fullmatch(url) and not set("{}?#") & set(url)
    if not plain or not url.startswith(("https://", "http://")) or not _HOST.fullmatch(host):
        return EXPECTED
    if not parts.path.strip("/"):
        return f"it has no path: {EXPECTED}"
    if PLACEHOLDER in _host_of(address).rpartition(".")[2]:
        return BELOW
    if password and not url.startswith("https://"):
        return "expected https://, since by http:// the password would be sent unencrypted"
    return ""


def _host_of(address: str) -> str:
    """Return the host of a usable address, `{node}` included."""
    return address.partition("://")[2].partition("/")[0].partition(":")[0]


def addresses(node: str, template: str, listed: Iterable[str]) -> tuple[str, ...]:
    """Return all addresses that a node's machine may have, the template's first; none for what is no node's name."""
    if len(node) > 253 or not names.DNS_SUBDOMAIN.match(node):
        return ()
    return tuple(one.replace(PLACEHOLDER, node) for one in (template, *listed))


def address(node: str, said: str, template: str, listed: tuple[str, ...] = ()) -> Address:
    """Return the address of a node's machine.

    Args:
        node: the node's name.
        said: what the node's annotation names; empty if it has none. Anyone who may change nodes can write it.
        template: the operator's template, which holds `{node}`.
        listed: what annotations may name besides. If it is empty, annotations are ignored.
    """
    allowed = addresses(node, template, listed)
    if not allowed:
        return Address(refused=f"{node[:_SAID_MAXIMUM]!r} is no node's name: expected a DNS subdomain")
    if not said or not listed:
        return Address(allowed[0])
    if said not in allowed:
        expected = f"expected an address that the setting {SETTING} lists"
        found = f"found {said[:_SAID_MAXIMUM]!r}"
        return Address(refused=f"the node's annotation {names.ANNOTATION_REDFISH}: {expected}, {found}")
    return Address(said)
