"""Labels as the API server accepts them."""

from __future__ import annotations

import re
from typing import Final

from holdfast import names

KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""The label that names the queue whose quota Kueue counts."""
LABEL_NAME = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")


def check_label(key: str, value: str) -> None:
    """Refuse a label that the API server would refuse.

    Raises:
        ValueError: naming the key or value and what is expected.
    """
    prefix, _, name = key.rpartition("/")
    if (prefix and not (names.DNS_SUBDOMAIN.match(prefix) and len(prefix) <= 253)) or not LABEL_NAME.match(name):
        raise ValueError(f"label key {key!r}: expected [prefix/]name with at most 63 characters of [-A-Za-z0-9_.]")
    if value and not LABEL_NAME.match(value):
        raise ValueError(f"label {key}: value {value!r}: expected at most 63 characters of [-A-Za-z0-9_.]")
