"""Compression of large workflow memory and answers, so that Temporal accepts them (D7).

Temporal refuses a payload above 2 MiB, and a workflow that must write such a payload is stuck for ever. An entity's
memory of thousands of nodes, workloads or members is repetitive: names of one pattern, times of one minute, the same
reason. Compressed, it takes a fifth to a tenth. A small value is written as it is, so that people can read it in the
Temporal UI.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from holdfast.model.observation import Payload

PLAIN_MAXIMUM: Final = 256 * 1024
"""Maximum size, in bytes, of JSON that is written uncompressed."""
BYTES_MAXIMUM: Final = 1024 * 1024
"""Maximum size, in bytes, of an entity's carried-over memory, and of each of its answers, at its documented maximum."""
_UNPACKED_MAXIMUM: Final = 256 * 1024 * 1024
"""Maximum size, in bytes, of unpacked JSON: anything longer is a mistake, or an attack."""
_KEY: Final = "zlib"


def packed(wire: Any) -> Any:
    """Return JSON in its written form: itself, or compressed if it is large and not yet compressed."""
    if _is_packed(wire):
        return wire
    text = json.dumps(wire, separators=(",", ":")).encode()
    if len(text) <= PLAIN_MAXIMUM:
        return wire
    return {_KEY: base64.b64encode(zlib.compress(text)).decode()}


def _is_packed(value: Any) -> bool:
    return isinstance(value, Mapping) and set(cast("Mapping[str, Any]", value)) == {_KEY}


def unpacked(value: Any) -> Any:
    """Return packed JSON unpacked; anything else as it is.

    Raises:
        ValueError: if it unpacks to more than 256 MiB, or is damaged.
    """
    if not _is_packed(value):
        return value
    reader = zlib.decompressobj()
    try:
        text = reader.decompress(base64.b64decode(value[_KEY], validate=True), _UNPACKED_MAXIMUM)
    except (zlib.error, TypeError) as error:
        raise ValueError(f"{_KEY}: damaged: {error}") from None
    if not reader.eof:
        raise ValueError(f"{_KEY}: expected all of it, in at most {_UNPACKED_MAXIMUM} bytes")
    return json.loads(text)


class PackedPayload(Payload):
    """A payload that is compressed if it is large."""

    @model_validator(mode="before")
    @classmethod
    def _unpack(cls, value: Any) -> Any:
        return unpacked(value)

    @model_serializer(mode="wrap", when_used="json")
    def _pack(self, write: SerializerFunctionWrapHandler) -> Any:
        return packed(write(self))
