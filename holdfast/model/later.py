"""The earliest time at which each workload is due: 100,000 workloads in less than 1 MiB (D7).

The key of a workload is 40 bits of its id's digest. It collides with another workload's key with odds of one in ten
million; the workload is then checked when the other one is due.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, cast

from pydantic import BeforeValidator, PlainSerializer

from holdfast.model.base import Time

LATER_MAXIMUM: Final = 100_000
"""Maximum number of workloads kept: those due last. The others are checked in each cycle, at one query each."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BYTES: Final = 5


def key_of(workload: str) -> str:
    """Return the key of a workload, given its workflow's id."""
    return hashlib.blake2b(workload.encode(), digest_size=_BYTES).hexdigest()


def _pack(later: Mapping[str, datetime]) -> dict[str, Any]:
    """Encode the entries in time order, in whole seconds: for each, its key and the time since the previous one."""
    due = sorted((math.ceil((at - _EPOCH).total_seconds()), key) for key, at in later.items())[-LATER_MAXIMUM:]
    rows, last = bytearray(), due[0][0] if due else 0
    since = last
    for at, key in due:
        rows += bytes.fromhex(key)
        span, last = at - last, at
        while span >= 0x80:
            rows.append(span & 0x7F | 0x80)
            span >>= 7
        rows.append(span)
    return {"since": since, "due": base64.b64encode(rows).decode()}


def _unpack(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    wire = cast("Mapping[str, Any]", value)
    if set(wire) != {"since", "due"}:
        # The earlier form, by id; or the form in memory.
        return {key_of(key) if "/" in key else key: at for key, at in wire.items()}
    rows, found, at, place = base64.b64decode(wire["due"]), dict[str, datetime](), int(wire["since"]), 0
    while place < len(rows):
        key, place = rows[place : place + _BYTES].hex(), place + _BYTES
        span = shift = 0
        while True:
            span |= (rows[place] & 0x7F) << shift
            shift, place = shift + 7, place + 1
            if rows[place - 1] < 0x80:
                break
        at += span
        found[key] = _EPOCH + timedelta(seconds=at)
    return found


Later = Annotated[dict[str, Time], BeforeValidator(_unpack), PlainSerializer(_pack, when_used="json")]
"""When each workload is due, by `key_of`; input by id is converted to that key."""
