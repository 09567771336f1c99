"""Text is read as the API server would read it, and refused where it would be, with the line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidWorkload
from holdfast.formats.text import as_json, documents, dump


def test_documents_come_in_order_with_the_line_each_begins_on() -> None:
    found = documents("a: 1\n---\n---\n# nothing\n---\nb: 2\n")
    assert [(each.content, each.line) for each in found] == [({"a": 1}, 1), ({"b": 2}, 6)]


def test_no_text_holds_no_document() -> None:
    assert documents("") == documents("---\n# only a comment\n") == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("09", "09"),
        ("0644", 0o644),
        ("0o644", 0o644),
        ("0x1F", 31),
        ("-7", -7),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("12e", "12e"),
        (".inf", ".inf"),
        ("yes", True),
        ("off", False),
        ("~", None),
        ("null", None),
        ("''", ""),
        ("'5'", "5"),
        ("v1", "v1"),
    ],
)
def test_scalars(text: str, value: object) -> None:
    (document,) = documents(f"x: {text}")
    assert document.content == {"x": value}
    assert type(document.content["x"]) is type(value)


def test_keys_are_texts_and_merges_may_be_overridden() -> None:
    (document,) = documents("base: &b {k: 1, l: 2}\nd: {<<: *b, k: 3}\n8080: port\n")
    assert document.content == {"base": {"k": 1, "l": 2}, "d": {"k": 3, "l": 2}, "8080": "port"}


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("a: 1\nb: 2\na: 3", "line 3, column 1", "key 'a' is given twice, first on line 1"),
        ("x:\n  a: 1\n  a: 1", "line 3, column 3", "key 'a' is given twice, first on line 2"),
        ('{"a": 1, "a": 2}', "line 1, column 10", "key 'a' is given twice, first on line 1"),
        ("8080: a\n'8080': b", "line 2, column 1", "key '8080' is given twice, first on line 1"),
        ("- 1", "line 1", "expected an object, found a list"),
        ("a: 1\n---\nhello", "line 3", "expected an object, found 'hello'"),
        ("a: [1", "line 1, column 6", "expected ',' or ']'"),
        ("a:\n\tb: 1", "line 2, column 1", "'\\t' that cannot start any token"),
        ("? [1]\n: 2", "line 1, column 3", "expected a text as key"),
        ("a: &a [*a]", "line 1, column 4", "an alias contains itself"),
        ("a: !!python/name:os.system ''", "line 1, column 4", "could not determine a constructor"),
        ("a: !!int abc", "", "invalid literal for int()"),
        ("a: " + "[" * 4000 + "]" * 4000, "", "is nested too deeply"),
    ],
)
def test_refused_with_the_line(text: str, where: str, what: str) -> None:
    with pytest.raises(InvalidWorkload) as caught:
        documents(text)
    (problem,) = caught.value.problems
    assert problem.path == where
    assert what in problem.message


def test_aliases_that_unfold_without_measure_are_refused_before_they_do() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(InvalidWorkload, match="unfolds to more than 500,000 values"):
        documents("\n".join(lines))


def test_a_text_beyond_all_measure_is_refused_unread() -> None:
    with pytest.raises(InvalidWorkload, match="expected at most 8,388,608 characters"):
        documents("a" * (8 * 1024 * 1024 + 1))


@pytest.mark.parametrize("value", [{"a": object()}, {"a": {1, 2}}, {"a": b"x"}, {"a": float("nan")}])
def test_what_json_cannot_carry_is_refused(value: Any) -> None:
    with pytest.raises(InvalidWorkload, match="is not JSON"):
        as_json(value)


def test_a_number_without_end_is_named_with_its_place() -> None:
    (document,) = documents("metadata:\n  labels: {rev: 51e845, other: [1.5]}")
    with pytest.raises(InvalidWorkload, match=r"metadata\.labels\.rev.*is not JSON.*put a text in quotes"):
        as_json(document.content)
    with pytest.raises(InvalidWorkload, match=r"a\[1\]"):
        as_json({"a": [1, float("nan")]})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="ascii")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="ascii")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from("abcdef"), _JSON, min_size=1))
def test_json_is_read_as_json(value: dict[str, Any]) -> None:
    (document,) = documents(json.dumps(value))
    assert document.content == value


@pytest.mark.row("U14", level="pure")
@pytest.mark.parametrize(
    "value",
    [
        "!!bool x",
        "!!timestamp soon",
        "!!map [a]",
        "!!set [a]",
        "!!omap [a]",
        "!!pairs [a]",
        "!!python/name:os.system x",
        "!!int x",
        "!!float x",
        "!!null [x]",
        "!!str [x]",
        "!!seq {a: 1}",
        "!mine x",
        "0x" + "f" * 5000,
        "9" * 5000,
    ],
)
def test_no_tag_and_no_number_raises_anything_but_a_refusal(value: str) -> None:
    with pytest.raises(InvalidWorkload):
        documents(f"kind: Job\nx: {value}\n")


ODD = (
    "51e845",
    "0o17",
    "12e03",
    "1e3",
    "017",
    "0x1f",
    "0b11",
    "1_000",
    "1:30",
    "yes",
    "off",
    "Null",
    "~",
    "",
    ".5",
    "5.",
    "2026-01-31",
    "<<",
    "=",
    "true",
    ".inf",
    "-.INF",
    ".nan",
    "+1",
    "a: b",
    "- a",
    "é\n",
    "1.5e+3",
    "0o8",
    "08",
)


@pytest.mark.parametrize("text", ODD)
def test_what_is_written_as_yaml_reads_back_as_the_same(text: str) -> None:
    value = {"kind": "Job", "labels": {"x": text, text or "k": [text]}}
    (found,) = documents(dump(value))
    assert found.content == value


def test_values_that_are_no_text_are_written_plainly() -> None:
    assert dump({"a": 1, "b": True, "c": None, "d": ["x", 1.5]}) == "a: 1\nb: true\nc: null\nd:\n- x\n- 1.5\n"
