"""A pod's own address: the one rule for all requests to pods over the network (rows L28, L32, D32). Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from holdfast.activities.kube.raw import mapping, mappings


def own_address(pod: Mapping[str, Any]) -> str:
    """Return the address that belongs to this pod alone; empty if it has none.

    An address of its node, of this worker's machine or of a cloud's services is rejected: anything may listen there.
    """
    spec, status = mapping(pod.get("spec")), mapping(pod.get("status"))
    if spec.get("hostNetwork"):
        return ""
    text = str(status.get("podIP") or next(_addresses(status.get("podIPs")), "") or "")
    try:
        found = _address(text)
        nodes = {_address(one) for one in (status.get("hostIP"), *_addresses(status.get("hostIPs"))) if one}
    except ValueError:
        return ""
    if found in nodes or found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified:
        return ""
    return str(found)


def _address(text: str) -> IPv4Address | IPv6Address:
    """Return an address; an IPv4 address that is written as an IPv6 one leads to the same place, so it is that one."""
    found = ipaddress.ip_address(text)
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def pod_url(address: str, port: int, path: str) -> str:
    """Return the URL of a path at a pod's own address."""
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}{path}"


def _addresses(entries: Any) -> Iterator[str]:
    return (str(one.get("ip") or "") for one in mappings(entries))
