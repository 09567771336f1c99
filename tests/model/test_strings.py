"""No text field of the model takes a line end that nobody sees: names end where their last letter does (row D32)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from holdfast import names
from holdfast.model import Workload
from holdfast.model.gang.wire import Member
from holdfast.model.life.data import DataSet

ROW = pytest.mark.row
TEMPLATE = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "main"},
    "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}},
}
WHOLE: dict[str, Any] = {
    "name": "train",
    "namespace": "research",
    "cluster": "dev",
    "uid": "0b7cbb3c-4dbe-4cb5-8ef2-8ee2b01f8cbb",
    "queue": "gpus",
    "labels": {"example.com/team": "llm"},
    "run_as": "runner",
    "components": [
        {
            "name": "main",
            "template": TEMPLATE,
            "pod_sets": [
                {
                    "path": "template.spec.template",
                    "replicas": 2,
                    "labels": {"example.com/rank": "one"},
                    "node_selector": {"example.com/node": "big"},
                    "tolerations": [{"key": "example.com/spot", "value": "yes", "effect": "NoSchedule"}],
                    "scheduling_gates": [{"name": "example.com/quota"}],
                }
            ],
        },
        {"name": "side", "template": TEMPLATE | {"metadata": {"name": "side"}}, "pod_sets": []},
    ],
    "probe": {"kind": "HTTP", "port": 80, "path": "/healthz", "components": ["main"]},
    "progress": {"source": "http", "port": 82, "path": "/progress", "components": ["main"]},
    "checkpoint": {"protocol": "http", "port": 81, "path": "/checkpoint", "components": ["main"]},
    "volume_claims": [{"name": "data-train", "labels": {"example.com/team": "llm"}, "spec": {}}],
    "mounts": [
        {
            "name": "corpus",
            "source": "s3://datasets/corpus",
            "path": "/data/corpus",
            "components": ["main"],
            "version": "0123456789abcdef" * 4,
        }
    ],
    "policy": {
        "profile": "plain",
        "budgets": [{"name": "restart", "limit": 3}],
        "rules": [
            {
                "name": "mine",
                "match": {"components": ["main"], "reasons": ["Evicted"]},
                "action": {"kind": "Restart", "charge": "restart"},
            }
        ],
        "success": {"components": ["main"]},
    },
    "lifecycle": {"kind": "Unbounded"},
    "graph": {"graph": "nightly", "item": "train"},
    "source": {"api_version": "batch/v1", "kind": "Job", "labels": {"example.com/team": "llm"}},
}
FREE = {
    # What people write or Kubernetes says is matched as it is, and nothing is named by it.
    ("policy", "rules", 0, "match", "reasons", 0),
}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Each text in a document, by its path; what a component is made of is the API server's to check."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        for key, each in value.items():
            if key != "template":
                yield from leaves(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from leaves(each, (*path, index))


def changed(path: tuple[Any, ...], suffix: str) -> dict[str, Any]:
    document = copy.deepcopy(WHOLE)
    inner: Any = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] += suffix
    return document


PATHS = [path for path in leaves(WHOLE) if path not in FREE]


def test_the_document_is_a_workload():
    assert Workload.model_validate(WHOLE).name == "train"


@ROW("D32", level="pure")
@pytest.mark.parametrize("end", ["\n", "\r", "\x00"], ids=["newline", "return", "zero"])
@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_D32_no_text_of_a_workload_ends_in_what_nobody_sees(path: tuple[Any, ...], end: str):
    with pytest.raises(ValidationError):
        Workload.model_validate(changed(path, end))


def texts(
    model: type[BaseModel], path: tuple[str, ...] = (), within: tuple[type[BaseModel], ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Each field of a model, and of the models in it, that is a text; a model in itself is looked at once."""

    def inside(annotation: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if annotation is str:
            yield path
        elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
            if annotation not in within:
                yield from texts(annotation, path, (*within, annotation))
        else:
            for one in get_args(annotation):
                yield from inside(one, path)

    for name, field in model.model_fields.items():
        yield from inside(field.annotation, (*path, name))


WORDS = ("succeeded", "failed", "ready")
"""Of a component's status: each has fields to compare, which are paths and values of others."""


@ROW("D32", level="pure")
def test_D32_no_text_field_is_forgotten_here():
    """Whoever adds one says here what it may be: a name, or free."""
    tried = {tuple(step for step in path if isinstance(step, str) and "/" not in step) for path in leaves(WHOLE)}
    assert {*texts(Workload)} - tried == {
        # The API server reads these, or they are matched as they are.
        ("components", "template"),
        ("components", "config"),
        ("components", "status", "complete"),
        ("components", "status", "failed"),
        ("components", "status", "ready"),
        *(("components", "status", f"{word}_when", part) for word in WORDS for part in ("path", "equals")),
        ("components", "pod_sets", "annotations"),
        ("components", "copy_labels"),
        ("components", "copy_selectors"),
        ("policy", "rules", "match", "message_pattern"),
        # These name a budget or a component, and there must be one of that name.
        ("components", "replacement", "charge"),
        ("components", "after", "component"),
        ("policy", "default", "charge"),
        ("policy", "replacement", "charge"),
        # A claim's own fields, which the API server reads.
        ("volume_claims", "annotations"),
        ("volume_claims", "spec"),
        # What the API server calls a user, cut where it is too long.
    }


@ROW("D32", level="pure")
@given(st.text(max_size=70))
def test_D32_a_data_set_has_a_digest_and_nothing_else(text: str):
    good = len(text) == 64 and set(text) <= set("0123456789abcdef")
    try:
        DataSet(mount="corpus", digest=text, files=1, bytes=1)
    except ValidationError:
        assert not good
    else:
        assert good


@ROW("D32", level="pure")
@given(st.from_regex(names.DNS_SUBDOMAIN, fullmatch=True), st.sampled_from(["", "\n", " ", "/", ".", "\x00", "A"]))
def test_D32_a_name_is_one_or_is_refused_with_whatever_follows_it(name: str, end: str):
    found = names.DNS_SUBDOMAIN.match(name + end) is not None
    assert found is (end == "")
    adapter = TypeAdapter(Member)
    if end:
        with pytest.raises(ValidationError):
            adapter.validate_python(name + end)
