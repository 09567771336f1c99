"""Data sets given as a setting: by annotation of manifests, JobSets and AppWrappers, and by `--set` (row L14)."""

from __future__ import annotations

import pytest
import yaml

from holdfast.model.spec.mount import Mount
from tests.e2e.ground.site import appwrapper, job
from tests.e2e.peers.jobsets import jobset, replicated
from tests.formats.settings.test_checkpoint_settings import manifest, read, refused

ROW = pytest.mark.row
MOUNT = Mount(name="corpus", source="s3://datasets/corpus", path="/data/corpus")
FLOW = "[{name: corpus, source: s3://datasets/corpus/, path: /data/corpus}]"
BLOCK = "- name: corpus\n  source: s3://datasets/corpus\n  path: /data/corpus\n"


@ROW("L14", level="pure")
@pytest.mark.parametrize("text", [FLOW, BLOCK], ids=["flow", "block"])
def test_L14_manifests_name_their_data_sets_in_an_annotation_or_on_the_way(text: str) -> None:
    assert read(manifest(mounts=text)).mounts == (MOUNT,)
    assert read(manifest(), mounts=text).mounts == (MOUNT,)
    assert read(manifest()).mounts == ()


@ROW("L14", level="pure")
def test_L14_so_do_jobsets_and_appwrappers() -> None:
    document = jobset("train", replicated("driver"), replicated("workers"))
    document["metadata"].setdefault("annotations", {})["holdfast.dev/mounts"] = FLOW
    assert read(yaml.safe_dump(document)).mounts == (MOUNT,)
    wrapped = appwrapper("train", job())
    wrapped["metadata"]["annotations"]["holdfast.dev/mounts"] = FLOW
    assert read(yaml.safe_dump(wrapped)).mounts == (MOUNT,)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("corpus", "expected a list such as [{name: corpus"),
        ("[]", "expected a list such as"),
        ("[{", "expected a list such as"),
        ("[{name: corpus, source: s3://datasets/corpus}]", "metadata.annotations[holdfast.dev/mounts][0].path: is req"),
        ("[{name: corpus, source: http://x, path: /d}]", "[holdfast.dev/mounts][0].source: 'http://x': expected s3://"),
        ("[{name: c, source: s3://datasets, path: /d, components: [x]}]", "expected a component with pods"),
    ],
)
def test_what_is_wrong_is_named_where_it_was_written(text: str, why: str) -> None:
    assert why in refused(manifest(mounts=text))
