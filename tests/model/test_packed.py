"""Large memories are written compressed and read as they were; small ones stay as people can read them."""

from __future__ import annotations

import base64
import json
import zlib
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.model import NodeBook, NodeRecord
from holdfast.model.packed import PLAIN_MAXIMUM, packed, unpacked

NOW = datetime(2026, 11, 24, tzinfo=UTC)


def book(count: int) -> NodeBook:
    return NodeBook(nodes={f"n-{one}": NodeRecord(name=f"n-{one}", since=NOW, at=NOW) for one in range(count)})


def test_a_small_memory_is_written_as_it_is() -> None:
    wire = json.loads(book(3).model_dump_json())
    assert sorted(wire["nodes"]) == ["n-0", "n-1", "n-2"]


def test_a_large_memory_is_compressed_and_read_as_it_was() -> None:
    large = book(5_000)
    text = large.model_dump_json()
    assert list(json.loads(text)) == ["zlib"]
    assert len(text) < PLAIN_MAXIMUM
    assert NodeBook.model_validate_json(text) == large


def test_what_is_packed_is_not_packed_again() -> None:
    wire = packed([str(one) for one in range(200_000)])
    assert packed(wire) is wire
    assert unpacked(wire) == [str(one) for one in range(200_000)]


def test_what_is_damaged_is_refused() -> None:
    whole = zlib.compress(json.dumps({"nodes": {}}).encode())
    for bad in (whole[:-6], b"no zlib at all"):
        with pytest.raises(ValidationError, match="zlib: "):
            NodeBook.model_validate({"zlib": base64.b64encode(bad).decode()})


@pytest.mark.parametrize("damaged", ["x", "eJw=", 5, None])
def test_what_is_damaged_is_a_value_error(damaged: Any) -> None:
    with pytest.raises(ValueError, match=r"zlib|decod|base64|string|padding"):
        unpacked({"zlib": damaged})
