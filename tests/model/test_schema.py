"""The published schema: current, valid, and true of what the formats read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from holdfast.formats import read
from holdfast.model.life import history
from holdfast.model.schema import schema, text

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "docs/schema/workload.schema.json"


def objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from objects(each)


def test_the_committed_schema_is_current() -> None:
    python = "from holdfast.model.schema import text; print(text(), end='')"
    command = f'python -c "{python}" > docs/schema/workload.schema.json'
    assert COMMITTED.read_text(encoding="utf-8") == text(), f"renew it: {command}"


def test_the_committed_schema_of_the_history_is_current() -> None:
    committed = ROOT / "docs/schema/history.schema.json"
    command = f"python -c 'from holdfast.model.life.history import text; print(text(), end=\"\")' > {committed.name}"
    assert committed.read_text(encoding="utf-8") == history.text(), f"renew it in docs/schema: {command}"
    jsonschema.Draft202012Validator.check_schema(history.schema())


def test_the_schema_is_a_schema_that_says_what_it_is() -> None:
    body = schema()
    jsonschema.Draft202012Validator.check_schema(body)
    assert body["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert body["$id"] == "https://holdfast.dev/schema/v1/workload.schema.json"
    assert body["title"]
    assert body["required"] == ["name", "cluster", "components"]


def test_every_type_of_the_schema_is_described() -> None:
    body = schema()
    assert [name for name, part in body["$defs"].items() if not part.get("description")] == []
    assert body["description"]


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_what_is_read_keeps_to_the_schema(example: Path) -> None:
    (workload,) = read(example.read_text(), cluster="dev")
    jsonschema.validate(json.loads(workload.model_dump_json()), schema(), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    "change", [{"priority": 11}, {"kind": "Batch"}, {"extra": 1}, {"components": []}, {"schemaVersion": 2}]
)
def test_what_is_refused_breaks_the_schema(change: dict[str, Any]) -> None:
    (workload,) = read((ROOT / "examples/job.yaml").read_text(), cluster="dev")
    document = {**json.loads(workload.model_dump_json()), **change}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema(), cls=jsonschema.Draft202012Validator)
