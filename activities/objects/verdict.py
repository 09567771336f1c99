"""Explains the API server's refusal of a component in its author's terms: field, value, allowed values. Pure.

A validation error names its fields. A decoding error names a Go struct's field without list indices, or only the text
that it could not read. Then the template is searched for the place that is meant.

Nothing that a Secret holds is quoted: a refusal is shown to more people than the Secret is (row X6).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from holdfast.activities.kube.client import KubeError
from holdfast.errors import NOT_GIVEN, Problem, field_path
from holdfast.policy.loop.difference import HIDDEN

_UNKNOWN = re.compile(r'(unknown|duplicate) field "([^"]+)"')
_GO_FIELD = re.compile(r"cannot unmarshal (\w+)[^\n]*? into Go struct field (?:\w+\.)?(\S+) of type (\S+)")
_TIME = re.compile(r'parsing time "([^"]*)"')
_UNNAMED_METADATA = re.compile(r"(^|\.)template\.(labels|annotations)(?=$|[.\[])")
"""The API server leaves `metadata` out of the path when it refuses a pod template's label."""
_UNSUPPORTED = re.compile(r"^Unsupported value: (.*?): supported values: (.*)$", re.DOTALL)
_VALUE = re.compile(r"^(?:Invalid value|Duplicate value): (.*)$", re.DOTALL)
_QUANTITY = re.compile(r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")
_QUANTITY_FIELDS = frozenset({"requests", "limits", "capacity", "hard", "sizeLimit", "divisor"})
_OPEN = re.compile(r"^template\.(?:apiVersion|kind|metadata|type)(?:[.\[]|$)")
"""The fields of a Secret whose values may be quoted."""
_HELD_MINIMUM = 4
"""A text in a message that is shorter than this is taken for a word of it, and for no value of a Secret."""
_MESSAGE_MAXIMUM = 240
_ROOT = "template"

_FOUND: Mapping[str, tuple[type, ...]] = {
    "array": (list,),
    "bool": (bool,),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}
_WANTED: tuple[tuple[str, str], ...] = (
    ("[]", "a list"),
    ("map[", "an object"),
    ("int", "a whole number"),
    ("uint", "a whole number"),
    ("float", "a number"),
    ("bool", "true or false"),
    ("string", "text: write it in quotes"),
)

Place = tuple[str | int, ...]


def problems_with(error: KubeError, template: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Return the API server's refusal of a component as problems, at least one; paths begin with `template`.

    Args:
        error: The refusal.
        template: What the component's author wrote.
    """
    if error.causes:
        found = [_of_cause(one.field, without_content(one.message, template)) for one in error.causes]
    else:
        whole = Problem(_ROOT, _short(without_content(error.message, template)))
        found = list(_of_decoding(error.message, template)) or [whole]
    if _is_secret(template):
        found = [one if _OPEN.match(one.path) else replace(one, value=NOT_GIVEN) for one in found]
    return tuple({str(one): one for one in found}.values())


def without_content(message: str, template: Mapping[str, Any]) -> str:
    """Return a refusal's message without what the template holds, if it is a Secret: admission may quote it."""
    if not _is_secret(template):
        return message
    found = [value for place, value in _leaves(template) if not _OPEN.match(field_path(place, _ROOT))]
    values = {str(value) for value in found if isinstance(value, str | float) or type(value) is int}
    quoted = values | {json.dumps(value)[1:-1] for value in values}
    for value in sorted(quoted, key=len, reverse=True):
        if len(value) >= _HELD_MINIMUM:
            message = message.replace(value, HIDDEN)
    return message


def _is_secret(template: Mapping[str, Any]) -> bool:
    return template.get("kind") == "Secret"


def _of_cause(field: str, message: str) -> Problem:
    # A refusal of the whole object has no field, or `<nil>`.
    field = _UNNAMED_METADATA.sub(r"\1template.metadata.\2", field)
    path = f"{_ROOT}.{field}" if field and field[0] != "<" else _ROOT
    unsupported = _UNSUPPORTED.match(message)
    if unsupported:
        allowed = tuple(part.strip().strip('"') for part in unsupported[2].split(", "))
        return Problem(path, "is not one of the allowed values", _literal(unsupported[1]), allowed)
    given = _VALUE.match(message)
    if given:
        value, rest = _split(given[1])
        what = "is given twice" if message.startswith("Duplicate") else "is not valid"
        return Problem(path, _short(rest) or what, value)
    if message.startswith("Required value"):
        rest = message.removeprefix("Required value").lstrip(": ")
        return Problem(path, f"is required: {_short(rest)}" if rest else "is required")
    return Problem(path, _short(message))


def _of_decoding(message: str, template: Mapping[str, Any]) -> Iterator[Problem]:
    for kind, field in _UNKNOWN.findall(message):
        what = "is no field that the API server knows" if kind == "unknown" else "is given twice"
        yield Problem(f"{_ROOT}.{field}", what)
    go = _GO_FIELD.search(message)
    if go:
        found, dotted, wanted = go.groups()
        expected = next((text for start, text in _WANTED if wanted.startswith(start)), "an object")
        if wanted.split(".")[-1][:1].isupper() and found != "object" and "." in wanted:
            expected = "another type" if found in {"array", "string"} else "text or an object"
        kinds = _FOUND.get(found, ())
        place = _fitting(template, dotted.split("."), lambda value: _is(value, kinds))
        path = field_path(place, _ROOT) if place else f"{_ROOT}.{dotted}"
        yield Problem(path, f"expected {expected}", _at(template, place) if place else NOT_GIVEN)
    elif "quantities must match" in message:
        place = next((at for at, value in _leaves(template) if _is_bad_quantity(at, value)), ())
        yield Problem(
            field_path(place, _ROOT),
            "expected a quantity, such as 500m, 2 or 1Gi",
            _at(template, place) if place else NOT_GIVEN,
        )
    elif (time := _TIME.search(message)) is not None:
        place = next((at for at, value in _leaves(template) if value == time[1]), ())
        yield Problem(field_path(place, _ROOT), "expected a time, such as 2026-01-31T12:00:00Z", time[1])


def _is(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def _fitting(template: Any, names: list[str], fits: Callable[[Any], bool]) -> Place:
    """Return the first place under these names whose value fits, with any lists in between; empty if there is none."""

    def search(value: Any, left: list[str], place: Place) -> Place:
        if isinstance(value, list):
            items = cast("list[Any]", value)
            inside = (search(item, left, (*place, index)) for index, item in enumerate(items))
            found = next((one for one in inside if one), ())
            if found:
                return found
        if not left:
            if isinstance(value, dict) and not fits(value):
                # For an entry of a map, the error names the map.
                entries = cast("dict[str, Any]", value).items()
                return next(((*place, key) for key, entry in entries if fits(entry)), ())
            return place if place and fits(value) else ()
        if isinstance(value, dict):
            inner = cast("dict[str, Any]", value)
            if left[0] in inner:
                found = search(inner[left[0]], left[1:], (*place, left[0]))
                if found:
                    return found
        # An embedded struct has a name in Go, and none in the document.
        return search(value, left[1:], place) if len(left) > 1 and left[0][:1].isupper() else ()

    return search(template, names, ())


def _leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    if isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            yield from _leaves(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[Any]", value)):
            yield from _leaves(inner, (*place, index))
    else:
        yield place, value


def _is_bad_quantity(place: Place, value: Any) -> bool:
    return bool(_QUANTITY_FIELDS.intersection(place[-2:])) and not _QUANTITY.match(str(value))


def _at(template: Any, place: Place) -> Any:
    for step in place:
        template = template[step]
    return template


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _split(text: str) -> tuple[Any, str]:
    """Return the value that a message begins with, and the rest of the message."""
    try:
        value, end = json.JSONDecoder().raw_decode(text)
        return value, text[end:].lstrip(": ")
    except ValueError:
        value, _, rest = text.partition(": ")
        return value, rest


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MESSAGE_MAXIMUM else text[: _MESSAGE_MAXIMUM - 1] + "…"
