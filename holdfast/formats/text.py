"""Parsing text into documents: reads YAML and JSON as the API server does, and refuses what it would refuse.

Text stays text where YAML 1.1 would convert it to a date or a base-60 number. A duplicate key is refused with both line
numbers. A document whose aliases expand beyond the maximum size of a workload is refused before it is expanded.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import yaml

from holdfast import names
from holdfast.errors import InvalidWorkload, Problem, field_path

Json = dict[str, Any]

TEXT_BYTES_MAXIMUM = 8 * 1024 * 1024
NODES_MAXIMUM = 500_000

_INT = re.compile(r"^[-+]?(?:0|[1-9][0-9]*|0[0-7]+|0o[0-7]+|0x[0-9a-fA-F]+|0b[01]+)$")
_FLOAT = re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$")
_MERGE = "tag:yaml.org,2002:merge"
_DIGITS_MAXIMUM = 4000
"""Python writes no longer numbers, and the API server reads none beyond 64 bits."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a stream, and the line on which it begins (0 if unknown)."""

    content: Json
    line: int = 0

    def __str__(self) -> str:
        name = inside(self.content, "metadata", "name") or ""
        text = f"{self.content.get('kind') or 'document'} {name}".strip()
        return f"{text} (line {self.line})" if self.line else text


def inside(value: Any, *names: str) -> Any:
    """Return the value at a path of nested names in a document, None if any of them is missing."""
    for name in names:
        if not isinstance(value, dict):
            return None
        value = cast("Json", value).get(name)
    return value


def is_graph(content: Json) -> bool:
    """Whether a document is a graph of workloads, not a workload."""
    return content.get("kind") == names.GRAPH_KIND and str(content.get("apiVersion", "")).startswith(f"{names.GROUP}/")


def is_queue(content: Json) -> bool:
    """Whether a document is an admission queue, not a workload."""
    return content.get("kind") == names.QUEUE_KIND and str(content.get("apiVersion", "")).startswith(f"{names.GROUP}/")


def documents(text: str) -> list[Document]:
    """Read all documents of a text, each a mapping; empty ones are skipped.

    Raises:
        InvalidWorkload: if the text is not YAML or JSON, or a document is not a mapping; the problem names the line.
    """
    if len(text) > TEXT_BYTES_MAXIMUM:
        raise InvalidWorkload(
            [Problem("", f"expected at most {TEXT_BYTES_MAXIMUM:,} characters", len(text))], "the text"
        )
    try:
        return _documents(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = " ".join(part for part in (error.context, error.problem) if part)
        raise InvalidWorkload([Problem(where, what)], "the text") from None
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidWorkload([Problem("", str(error).replace("\n", " "))], "the text") from None
    except RecursionError:
        raise InvalidWorkload([Problem("", "is nested too deeply")], "the text") from None


def one_document(text: str, source: str) -> Json | None:
    """Return the one document of a text as JSON; None if it has none.

    Args:
        text: YAML or JSON.
        source: The name of the text, for errors.

    Raises:
        InvalidWorkload: if it is not YAML or JSON, or has several documents.
    """
    try:
        found = documents(text)
        content: Json | None = as_json(found[0].content) if found else None
    except InvalidWorkload as error:
        raise InvalidWorkload(error.problems, source) from None
    if len(found) > 1:
        raise InvalidWorkload([Problem("", f"expected one document, found {len(found)}")], source)
    if broken := half_letter(content):
        raise InvalidWorkload([Problem(broken, "holds half of a letter: expected whole Unicode text")], source)
    return content


def _documents(text: str) -> list[Document]:
    # pyyaml's stubs leave its methods half untyped.
    loader: Any = _Loader(text)
    found: list[Document] = []
    while loader.check_node():
        node: yaml.Node | None = loader.get_node()
        if node is None or _is_null(node):
            continue
        line = node.start_mark.line + 1
        if not isinstance(node, yaml.MappingNode):
            raise InvalidWorkload([Problem(f"line {line}", f"expected an object, found {_word(node)}")], "the text")
        loader.measure(node)
        found.append(Document(cast("Json", loader.construct_document(node)), line))
    return found


def _is_null(node: yaml.Node) -> bool:
    return node.tag == "tag:yaml.org,2002:null"


def _word(node: yaml.Node) -> str:
    return "a list" if isinstance(node, yaml.SequenceNode) else f"{node.value!r}"


class _Loader(yaml.SafeLoader):
    """A SafeLoader with the API server's scalars that refuses duplicate keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def measure(self, root: yaml.Node) -> None:
        """Refuse a document whose aliases expand beyond the maximum size of a workload, or without end."""
        sizes: dict[int, int] = {}
        above: set[int] = set()

        def size(node: yaml.Node) -> int:
            if id(node) in above:
                raise yaml.constructor.ConstructorError(None, None, "an alias contains itself", node.start_mark)
            if id(node) not in sizes:
                above.add(id(node))
                total = 1
                if isinstance(node, yaml.MappingNode):
                    total += sum(size(key) + size(value) for key, value in node.value)
                elif isinstance(node, yaml.SequenceNode):
                    total += sum(size(each) for each in node.value)
                above.discard(id(node))
                sizes[id(node)] = total
            return sizes[id(node)]

        if size(root) > NODES_MAXIMUM:
            raise yaml.constructor.ConstructorError(
                None, None, f"unfolds to more than {NODES_MAXIMUM:,} values", root.start_mark
            )

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Any, Any]:
        """Read a mapping whose keys are strings, each given once."""
        if not isinstance(node, yaml.MappingNode):  # A tag may claim it.
            raise yaml.constructor.ConstructorError(None, None, "expected a mapping", node.start_mark)
        self._check_keys(node)
        self.flatten_mapping(node)
        # Keys are taken as written: `8080: x` has the key "8080", as the API server reads it.
        construct = cast("Any", self.construct_object)
        return {key.value: construct(value, deep=deep) for key, value in node.value}

    def _check_keys(self, node: yaml.MappingNode) -> None:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or _is_null(key):
                raise yaml.constructor.ConstructorError(None, None, "expected a text as key", key.start_mark)
            if key.tag == _MERGE:
                continue
            name = str(key.value)
            if name in lines:
                message = f"key {name!r} is given twice, first on line {lines[name]}"
                raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
            lines[name] = line

    def construct_plain_int(self, node: yaml.ScalarNode) -> int:
        """Read an integer; a leading 0 means octal, as in YAML 1.1."""
        text = str(node.value)
        if len(text) > _DIGITS_MAXIMUM:
            raise yaml.constructor.ConstructorError(None, None, "is too long for a number", node.start_mark)
        sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
        if re.fullmatch(r"0[0-7]+", digits):
            return sign * int(digits, 8)
        return sign * int(digits, 0)

    def construct_plain_float(self, node: yaml.ScalarNode) -> float:
        """Read a number with a fraction or an exponent."""
        return float(str(node.value))

    def construct_plain_bool(self, node: yaml.ScalarNode) -> bool:
        """Read a word for yes or no; a tag may claim any text to be one."""
        if not _YES_NO.fullmatch(str(node.value)):
            raise yaml.constructor.ConstructorError(None, None, "expected true or false", node.start_mark)
        return bool(self.bool_values[str(node.value).lower()])


_YES_NO = re.compile(r"^(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$")
_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
_resolvers: Any = _Loader
_resolvers.add_implicit_resolver("tag:yaml.org,2002:bool", _YES_NO, list("yYnNtTfFoO"))
_resolvers.add_implicit_resolver("tag:yaml.org,2002:null", _NULL, ["~", "n", "N", ""])
_resolvers.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_resolvers.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
_resolvers.add_implicit_resolver(_MERGE, re.compile(r"^<<$"), ["<"])
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_plain_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_plain_float)
_Loader.add_constructor("tag:yaml.org,2002:bool", _Loader.construct_plain_bool)
# Without those of other tags, which raise all sorts of errors: dates, sets, ordered maps.
_TAGS = {f"tag:yaml.org,2002:{one}" for one in ("null", "bool", "int", "float", "binary", "str", "seq", "map")}
_Loader.yaml_constructors = {
    tag: each for tag, each in _Loader.yaml_constructors.items() if tag is None or tag in _TAGS
}


class _Dumper(yaml.SafeDumper):
    """A SafeDumper that quotes each text that a reader of YAML 1.1 or 1.2 would take for something else."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Write a text."""
        plain = not any(one.fullmatch(text) for one in (_INT, _FLOAT, _YES_NO, _NULL))
        return cast("Any", self).represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else "'")


_Dumper.add_representer(str, _Dumper.represent_text)


def dump(value: Any) -> str:
    """Return a value of JSON as YAML that reads back as the same, here and by the API server."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def half_letter(value: Any) -> str:
    """Return the path of a string with an unpaired surrogate, which UTF-8 cannot encode; empty if there is none."""
    return _first(value, lambda one: isinstance(one, str) and any("\ud800" <= letter <= "\udfff" for letter in one))


def endless(value: Any) -> str:
    """Return the path of a number that JSON cannot represent (infinity or NaN), empty if there is none."""
    return _first(value, lambda one: isinstance(one, float) and not math.isfinite(one))


def _first(value: Any, wrong: Callable[[Any], bool], path: str = "") -> str:
    """Return the path of the first wrong key or value in a document, empty if there is none."""
    if isinstance(value, dict):
        for key, inner in cast("Json", value).items():
            here = field_path((key,), path)
            if found := _first(key, wrong, path or "the document") or _first(inner, wrong, here):
                return found
        return ""
    if isinstance(value, list | tuple):
        for index, inner in enumerate(cast("list[Any]", value)):
            if found := _first(inner, wrong, f"{path}[{index}]"):
                return found
        return ""
    return (path or "the document") if wrong(value) else ""


def as_json(value: Any) -> Any:
    """Return a value after a JSON round trip, so that documents from Python and from text are equal.

    Raises:
        InvalidWorkload: if JSON cannot represent it.
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        if where := endless(value):
            why = "is not JSON: a number without end; YAML reads 51e845 as one: put a text in quotes"
            raise InvalidWorkload([Problem(where, why)], "the document") from None
        raise InvalidWorkload([Problem("", f"is not JSON: {error}")], "the document") from None
