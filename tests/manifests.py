"""The manifests of `kind: Workload` that are made and not written: `python -m tests.manifests` (`make manifests`).

The definition comes from the model of a workload; the policies are those of AppWrappers, for another kind.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, cast

import yaml

from holdfast import names
from holdfast.formats.native import REQUESTED
from holdfast.model.schema import schema

DEPLOY: Final = Path(__file__).parents[1] / "deploy"
WRITTEN: Final = "# Written by `make manifests`.\n"
_ROWS: Final = re.compile(r"\s*\((?:rows? )?[A-Z]\d+(?:(?:, | to | and )[A-Z]\d+)*\)")
"""Ids of contract rows in descriptions: `kubectl explain` is read by people who do not have the contracts."""
_KEPT: Final = (
    "type",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "pattern",
    "format",
)
_ANYTHING: Final[dict[str, Any]] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_MUTABLE: Final = "suspend"
Schema = dict[str, Any]


def spec_schema() -> Schema:
    """Return the structural schema of `spec`: the fields of the model that a custom resource may set, without defaults.

    A field that is left out says something else than its default: the profile that the policy names fills it in.
    """
    whole = schema()
    properties = {name: whole["properties"][name] for name in REQUESTED}
    made = _structural({"type": "object", "properties": properties, "required": ["components"]}, whole["$defs"], ())
    made["description"] = "What is run, and what happens when it fails. Only suspend may change."
    made["properties"]["components"]["items"]["properties"]["template"] |= {
        # What admission reads of it must be there.
        "required": ["apiVersion", "kind"],
        "properties": {
            "apiVersion": {"type": "string", "description": "The object's API version.", "minLength": 1},
            "kind": {"type": "string", "description": "The object's kind.", "minLength": 1},
        },
    }
    made["properties"]["managedBy"] = {
        "type": "string",
        "description": "The controller that runs it: holdfast.dev/holdfast, or that of a second installation.",
        "default": names.MANAGED_BY,
        "pattern": f"^{re.escape(names.GROUP)}/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        "maxLength": 63,
    }
    made["x-kubernetes-validations"] = [
        {
            "rule": f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
            "message": "is immutable: delete the Workload, and apply it again",
            "fieldPath": f".{name}",
            "reason": "FieldValueInvalid",
        }
        for name in made["properties"]
        if name != _MUTABLE
    ]
    return made


def _structural(part: Schema, known: dict[str, Schema], above: tuple[str, ...]) -> Schema:
    """Return a JSON Schema as a structural one: nothing is referred to, and each field has one type."""
    description = part.get("description")
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        if name in above:
            return {**_ANYTHING, "description": _plain(known[name]["description"])}
        made = _structural(known[name], known, (*above, name))
    elif "anyOf" in part:
        options = [one for one in part["anyOf"] if one.get("type") != "null"]
        # A name of ours, or any other.
        made = _structural(options[-1], known, above)
        if len(options) < len(part["anyOf"]):
            made["nullable"] = True
            made.get("enum", []).extend([None] if "enum" in made else [])
    elif "oneOf" in part:
        made = _merged([_structural(one, known, above) for one in part["oneOf"]])
    else:
        made = {key: part[key] for key in _KEPT if key in part}
        if "const" in part:
            made |= {"type": "string", "enum": [part["const"]]}
        if part.get("additionalProperties") is True:
            made |= _ANYTHING
        elif isinstance(part.get("additionalProperties"), dict):
            made["additionalProperties"] = _structural(part["additionalProperties"], known, above)
        if "properties" in part:
            made["properties"] = {
                name: _structural(one, known, above) for name, one in cast("Schema", part["properties"]).items()
            }
            made |= {"required": part["required"]} if part.get("required") else {}
        if "items" in part:
            made["items"] = _structural(part["items"], known, above)
    if description:
        made["description"] = _plain(description)
    return made


def _merged(options: list[Schema]) -> Schema:
    """Return one object for several that `kind` tells apart; which fields go with which kind, Holdfast checks."""
    fields: Schema = {}
    for one in options:
        fields = {**one["properties"], **fields}
    kinds = [kind for one in options for kind in one["properties"]["kind"]["enum"]]
    told = "; ".join(f"{one['properties']['kind']['enum'][0]}: {one['description']}" for one in options)
    fields["kind"] = {"type": "string", "enum": kinds, "description": told}
    return {"type": "object", "properties": fields, "required": ["kind"]}


def _plain(text: str) -> str:
    return _ROWS.sub("", " ".join(text.split())).replace("`", "")


_CONDITIONS: Final[Schema] = {
    "type": "array",
    "description": "Ready, Reconciling and Stalled, as kstatus reads them; Holdfast's own; the report that is shown.",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            "type": {"type": "string", "maxLength": 316, "description": "What it is about."},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"], "description": "Whether it holds."},
            "reason": {"type": "string", "maxLength": 1024, "description": "Why, in one word."},
            "message": {"type": "string", "maxLength": 32768, "description": "Why, in words."},
            "lastTransitionTime": {"type": "string", "format": "date-time", "description": "Since when."},
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "description": "The generation of the resource that it was found for.",
            },
        },
    },
}
_STATUS: Final[Schema] = {
    "type": "object",
    "description": "How it is, as its workflow says.",
    "properties": {
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "The generation of the spec that is obeyed.",
        },
        "phase": {"type": "string", "description": "Its phase, such as Pending, Running, Resetting or Failed."},
        "reason": {"type": "string", "description": "Why it is in its phase, in one word."},
        "message": {"type": "string", "description": "Why it is in its phase, in words."},
        "attempt": {"type": "integer", "description": "The number of the latest attempt; 0 before the first."},
        "executions": {"type": "integer", "description": "How many attempts there were."},
        "restarts": {"type": "integer", "description": "How many restarts its budget was charged for."},
        "conditions": _CONDITIONS,
    },
}


def definition() -> Schema:
    """Return the CustomResourceDefinition of `kind: Workload`."""
    columns = [
        ("Phase", "string", ".status.phase", 0),
        ("Reason", "string", ".status.reason", 0),
        ("Attempt", "integer", ".status.attempt", 0),
        ("Restarts", "integer", ".status.restarts", 0),
        ("Age", "date", ".metadata.creationTimestamp", 0),
        ("Message", "string", ".status.message", 1),
        ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 1),
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"workloads.{names.GROUP}",
            "labels": {"app.kubernetes.io/part-of": "holdfast"},
            # All objects of the kind would go with it: `holdfast uninstall` takes it off.
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": "Workload",
                "listKind": "WorkloadList",
                "plural": "workloads",
                "singular": "workload",
                "shortNames": ["hfw"],
                "categories": ["holdfast"],
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path} | ({"priority": wide} if wide else {})
                        for name, kind, path, wide in columns
                    ],
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "description": "One unit of work whose life is one durable workflow: its objects are "
                            "created, watched, restarted by its policy, and removed until that is proven.",
                            "required": ["spec"],
                            "x-kubernetes-validations": [
                                {
                                    "rule": "size(self.metadata.name) <= 240",
                                    "message": "metadata.name: expected at most 240 characters",
                                }
                            ],
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "kind": {"type": "string"},
                                "metadata": {"type": "object"},
                                "spec": spec_schema(),
                                "status": _STATUS,
                            },
                        }
                    },
                }
            ],
        },
    }


def definition_text() -> str:
    """Return `deploy/workload/crd.yaml`."""
    about = "# A workload that is applied with kubectl: it is the request, and its status is what the workflow says.\n"
    return WRITTEN + about + yaml.safe_dump(definition(), sort_keys=False, width=120)


_SAID: Final = (
    ('object.metadata.?annotations[?"holdfast.dev/runAs"].orValue("")', 'object.spec.?runAs.orValue("")'),
    ("metadata.annotations[holdfast.dev/runAs]", "spec.runAs"),
    ("this AppWrapper", "this Workload"),
    ("appwrapper-", "workload-"),
)
"""What policies of AppWrappers say, and what those of Workloads say in its place."""
_CLAIMS: Final = '(object.spec.?volumeClaims.orValue([]).size() == 0 ? [] : ["/persistentvolumeclaims"])'
"""Holdfast creates its claims, too."""
_RULES: Final = {"apiGroups": [names.GROUP], "apiVersions": [names.VERSION], "resources": ["workloads"]}


def policies_text() -> str:
    """Return `deploy/workload/policies.yaml`: who may create a Workload, as for AppWrappers.

    What the definition says by itself is left out: which fields are immutable, and which shape they have.
    """
    made: list[Schema] = []
    for one in yaml.safe_load_all((DEPLOY / "appwrapper" / "policies.yaml").read_text()):
        if not one["metadata"]["name"].startswith("appwrapper-components"):
            continue
        text = yaml.safe_dump(one, sort_keys=False, width=10_000)
        for before, after in _SAID:
            text = text.replace(before, after)
        policy = yaml.safe_load(text)
        for rule in policy["spec"].get("matchConstraints", {}).get("resourceRules", ()):
            rule.update(_RULES)
        for variable in policy["spec"].get("variables", ()):
            if variable["name"] == "rest0":
                variable["expression"] = f"({variable['expression']}) + {_CLAIMS}"
        made.append(policy)
    about = (
        "# Whoever creates a Workload has Holdfast create its components: so they must have the right to create each\n"
        "# kind of them, or to use the account that it names: as for AppWrappers (`../appwrapper/policies.yaml`).\n"
    )
    return WRITTEN + about + yaml.safe_dump_all(made, sort_keys=False, width=120)


def written() -> dict[Path, str]:
    """Return all files that are made here, with their contents."""
    folder = DEPLOY / "workload"
    return {folder / "crd.yaml": definition_text(), folder / "policies.yaml": policies_text()}


if __name__ == "__main__":
    for path, content in written().items():
        path.write_text(content)
