"""The published JSON Schema of a workload: the input with which a client in any language may start its workflow."""

from __future__ import annotations

import json
from typing import Any, Final, cast

from pydantic.json_schema import GenerateJsonSchema

from holdfast import names
from holdfast.model.spec.workload import Workload

ID: Final = f"https://{names.GROUP}/schema/{names.VERSION}/workload.schema.json"


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a workload as it is on the wire."""
    body = untitled(Workload.model_json_schema(by_alias=True, mode="validation"))
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "$id": ID,
        **body,
        "title": "Holdfast workload",
        "description": (
            "One unit of work on one Kubernetes cluster, whose life is one durable Temporal workflow: its components, "
            "and the policy by which its failures are ruled. The schema says what can be said field by field; names "
            "that must agree with each other are checked when it is submitted."
        ),
    }


def untitled(body: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without the titles that pydantic derives from field names, which add nothing to the names."""
    for part in (body, *body.get("$defs", {}).values()):
        for field in cast("dict[str, dict[str, Any]]", part.get("properties", {})).values():
            field.pop("title", None)
    return body


def text() -> str:
    """Return the schema as `docs/schema/workload.schema.json` holds it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
