"""Whatever stands in a document, it is read or refused with its problems, and never breaks the reader."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import HoldfastError
from holdfast.formats import read
from holdfast.model import Workload
from tests.formats.documents import PODS, Json, appwrapper, copy, deployment, job, pod
from tests.formats.test_pods import RAY, job_set, pytorch, ray, replicated
from tests.formats.test_read import own

_INFO = {"labels": {"a": "b"}, "nodeSelector": {"p": "q"}, "tolerations": [{"key": "k", "operator": "Exists"}]}
DOCUMENTS = [
    appwrapper(
        {"template": job(parallelism=2), "podSets": [{"path": "template.spec.template", "replicas": 2}]},
        {"template": pod(labels={"x": "y"}), "podSetInfos": [_INFO]},
        annotations={"workload.codeflare.dev.appwrapper/retryLimit": "3"},
        suspend=False,
    ),
    appwrapper(job_set(replicated(replicas=2)), pytorch(Worker={"template": copy(PODS)}), ray("RayJob", copy(RAY))),
    {"apiVersion": "v1", "kind": "List", "items": [deployment(replicas=2), pod()]},
    own(policy={"rules": [{"name": "a", "match": {"classes": ["App"]}}], "timings": {"successTTL": "1h"}}),
]
_ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        3.5,
        "",
        "x",
        "template.spec",
        "1h",
        [],
        [None],
        ["x"],
        [{}],
        {},
        {"a": None},
        {"spec": {}},
        10**20,
    ]
)


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    found = [(*at, key) for key in keys]
    return [*found, *(deeper for path in found for deeper in paths(value[path[-1]], path))]


@st.composite
def spoiled(draw: st.DrawFn) -> Json:
    """Return a good document in which some values have been replaced or taken out."""
    document = copy(draw(st.sampled_from(DOCUMENTS)))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(paths(document) or [("kind",)]))
        inner = document
        for key in path[:-1]:
            inner = inner[key]
        if draw(st.booleans()):
            inner[path[-1]] = copy(draw(_ODD))
        else:
            del inner[path[-1]]
        if not document:
            break
    return document


@settings(max_examples=300, deadline=None)
@given(spoiled())
def test_a_spoiled_document_is_read_or_refused(document: Json) -> None:
    found: list[Workload] = []
    said = "read"
    try:
        found = read(document, cluster="dev")
    except HoldfastError as error:
        said = str(error)
    assert said
    assert all(Workload.model_validate_json(each.model_dump_json()) == each for each in found)
