"""Data sets that a workload reads: what may be submitted, and what is refused by its field's path (row L14)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.model import Component, Workload
from holdfast.model.spec.mount import Mount, bucket_of, is_under

CORPUS: dict[str, Any] = {"name": "corpus", "source": "s3://datasets/corpus/v3", "path": "/data/corpus"}


def component(name: str = "train", **spec: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "main"}], **spec}
    template = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": pod}},
    }
    return {"name": name, "template": template, "podSets": [{"path": "template.spec.template", "replicas": 1}]}


def podless(name: str = "config") -> dict[str, Any]:
    return {"name": name, "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}}


def submit(*mounts: dict[str, Any], components: tuple[dict[str, Any], ...] = (component(),)) -> Workload:
    document = {"name": "train", "cluster": "dev", "components": list(components), "mounts": list(mounts)}
    return Workload.model_validate(document)


def refusal(*mounts: dict[str, Any], components: tuple[dict[str, Any], ...] = (component(),)) -> str:
    with pytest.raises(ValidationError) as error:
        submit(*mounts, components=components)
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.value.errors())


def test_a_workload_without_data_sets_is_written_and_hashed_as_before() -> None:
    bare = Workload(name="train", cluster="dev", components=(Component.model_validate(component()),))
    assert "mounts" not in bare.model_dump(mode="json", by_alias=True)
    assert submit().spec_hash() == bare.spec_hash() != submit(CORPUS).spec_hash()
    assert submit(CORPUS).model_dump(mode="json", by_alias=True)["mounts"] == [CORPUS]


@pytest.mark.parametrize(
    "source",
    ["", "corpus", "http://datasets/corpus", "s3://", "s3://UPPER/x", "s3://datasets/a/../b", "s3://datasets//a"],
)
def test_what_is_no_source_is_refused(source: str) -> None:
    assert "mounts.0.source" in refusal({**CORPUS, "source": source})


@pytest.mark.parametrize("path", ["", "data", "/", "//data", "/data/", "/data/../etc", "/a:b", "./x"])
def test_what_is_no_absolute_path_is_refused(path: str) -> None:
    assert "mounts.0.path" in refusal({**CORPUS, "path": path})


@pytest.mark.parametrize(
    ("mounts", "components", "why"),
    [
        ([CORPUS, {**CORPUS, "path": "/b"}], [component()], "mounts[1].name: 'corpus' is used twice"),
        ([CORPUS, {**CORPUS, "name": "b"}], [component()], "mounts[1].path: '/data/corpus' is that of mount corpus"),
        ([{**CORPUS, "components": ["x"]}], [component()], "mounts[0].components[0]: 'x': expected a component with"),
        ([{**CORPUS, "components": ["config"]}], [component(), podless()], "mounts[0].components[0]: 'config'"),
        ([{**CORPUS, "components": ["train", "train"]}], [component()], "mounts[0].components[1]: 'train' is given"),
        ([CORPUS], [podless()], "mounts[0]: no component brings pods that could read it"),
        (
            [CORPUS],
            [component(volumes=[{"name": "holdfast-data-corpus"}])],
            "components[0].template.spec.template.spec.volumes[0].name: 'holdfast-data-corpus' is the volume of mount",
        ),
        (
            [CORPUS],
            [component(containers=[{"name": "main", "volumeMounts": [{"name": "x", "mountPath": "/data/corpus/"}]}])],
            "spec.containers[0].volumeMounts[0].mountPath: '/data/corpus' is the place of mount corpus",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(mounts: list[Any], components: list[Any], why: str) -> None:
    assert why in refusal(*mounts, components=tuple(components))


@pytest.mark.parametrize("field", [{"version": "abc"}, {"name": "Corpus"}, {"name": "x" * 41}, {"mode": "rw"}])
def test_other_fields_are_checked_too(field: dict[str, str]) -> None:
    assert f"mounts.0.{next(iter(field))}" in refusal({**CORPUS, **field})


def test_two_components_may_read_different_data_sets_at_the_same_place() -> None:
    both = (component("train"), component("eval"))
    one, other = {**CORPUS, "components": ["train"]}, {**CORPUS, "name": "b", "components": ["eval"]}
    assert len(submit(one, other, components=both).mounts) == 2


def test_a_grant_is_by_whole_parts_of_a_path() -> None:
    mount = Mount(name="corpus", source="s3://datasets/corpus/v3/", path="/data")
    assert mount.source == "s3://datasets/corpus/v3"
    assert bucket_of(mount.source) == ("datasets", "corpus/v3")
    assert bucket_of("s3://datasets") == ("datasets", "")
    assert is_under(mount.source, "s3://datasets")
    assert is_under(mount.source, "s3://datasets/corpus")
    assert is_under(mount.source, mount.source)
    assert not is_under("s3://datasets/corpus2", "s3://datasets/corpus")
    assert not is_under("s3://datasets2/corpus", "s3://datasets")
