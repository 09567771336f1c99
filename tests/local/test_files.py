"""What the stack writes and ships: keys, images, stages, command lines, and refusals of the real node."""

import io
import json
import os
import re
import shutil
import struct
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.deploy import FOLDER
from holdfast.local import StackError
from holdfast.local.node import real_node, requirements
from holdfast.local.node.real_node import RealNode
from holdfast.local.programs.images import BUSYBOX, PAUSE, PYTHON, is_static, write_archive
from holdfast.local.system import parts
from holdfast.local.system.cluster import fake_node
from holdfast.local.system.credentials import ensure_signing_key, ensure_tokens, write_private
from holdfast.local.system.parts import Layout
from holdfast.local.system.paths import PACKAGE

PORTS = {name: 20_000 + number for number, name in enumerate((*parts.CLUSTER_PORTS, *parts.TEMPORAL_PORTS))}


def test_secrets_are_readable_by_their_owner_only_and_stay_the_same(tmp_path: Path) -> None:
    tokens, key = tmp_path / "pki" / "tokens.csv", tmp_path / "pki" / "key.pem"
    first = ensure_tokens(tokens)
    ensure_signing_key(key)
    content = key.read_text()
    ensure_signing_key(key)
    assert ensure_tokens(tokens) == first
    assert key.read_text() == content
    assert [path.stat().st_mode & 0o777 for path in (tokens, key)] == [0o600, 0o600]
    assert len(set(first.values())) == len(first)


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl checks the key")
def test_the_signing_key_is_a_p256_key(tmp_path: Path) -> None:
    ensure_signing_key(tmp_path / "key.pem")
    argv = ["openssl", "ec", "-in", str(tmp_path / "key.pem"), "-noout", "-text"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert "prime256v1" in said


def test_a_rewritten_secret_replaces_the_old_one(tmp_path: Path) -> None:
    write_private(tmp_path / "file", "one")
    write_private(tmp_path / "file", "two")
    assert (tmp_path / "file").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_apiserver_listens_on_loopback_with_rbac_and_no_anonymous_user(tmp_path: Path) -> None:
    argv = parts.kube_apiserver(Layout(tmp_path), "kube-apiserver", PORTS).argv
    assert "--bind-address=127.0.0.1" in argv
    assert "--authorization-mode=Node,RBAC" in argv
    assert "--anonymous-auth=false" in argv
    assert not [word for word in argv if word.startswith("--kubelet-client")]


def test_every_part_listens_on_loopback_only(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    every = [
        parts.etcd(layout, "etcd", PORTS),
        parts.kube_apiserver(layout, "kube-apiserver", PORTS),
        parts.kube_controller_manager(layout, "kube-controller-manager", PORTS),
        parts.kube_scheduler(layout, "kube-scheduler", PORTS),
        parts.kwok(layout, "kwok", PORTS),
        parts.temporal(layout, "temporal", PORTS, {}),
    ]
    for part in every:
        assert "127.0.0.1" in part.address
        assert "0.0.0.0" not in " ".join(part.argv)


def test_dynamic_config_of_the_user_wins(tmp_path: Path) -> None:
    argv = parts.temporal(Layout(tmp_path), "temporal", PORTS, {"frontend.rps": "7", "own.key": "true"}).argv
    values = [word for word in argv if word.startswith("--dynamic-config-value=")]
    assert "--dynamic-config-value=frontend.rps=7" in values
    assert "--dynamic-config-value=own.key=true" in values
    assert len([value for value in values if "frontend.rps=" in value]) == 1


def test_a_changed_config_changes_the_command_line(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    one, same, other = (layout.write_config("a.yaml", text) for text in ("x: 1", "x: 1", "x: 2"))
    assert one == same
    assert one != other


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((PACKAGE / "stages" / name).read_text()))


@pytest.mark.parametrize("name", ["pods.yaml", "nodes.yaml"])
def test_stages_steer_only_by_what_their_first_comment_documents(name: str) -> None:
    text = (PACKAGE / "stages" / name).read_text()
    header = text.partition("apiVersion:")[0]
    for knob in sorted(set(re.findall(r"holdfast\.dev/[a-z-]+", text))):
        assert knob in header, f"{knob} is not documented"
    for document in documents(name):
        assert document["kind"] == "Stage"


def test_no_stage_deletes_a_stubborn_pod() -> None:
    deleting = [stage for stage in documents("pods.yaml") if stage["spec"]["next"].get("delete")]
    assert len(deleting) == 1
    keys = [expression["key"] for expression in deleting[0]["spec"]["selector"]["matchExpressions"]]
    assert '.metadata.labels["holdfast.dev/kwok-stubborn"]' in keys


def test_a_job_pod_does_not_complete_unless_annotated() -> None:
    stage = next(stage for stage in documents("pods.yaml") if stage["metadata"]["name"] == "pod-complete")
    assert "ownerReferences" not in json.dumps(stage)
    assert "holdfast.dev/kwok-complete" in json.dumps(stage)


def test_fake_nodes_are_managed_by_kwok_and_labelled() -> None:
    node: Any = fake_node(7)
    assert node["metadata"]["name"] == "fake-007"
    assert node["metadata"]["annotations"]["kwok.x-k8s.io/node"] == "fake"
    assert node["metadata"]["labels"]["holdfast.dev/node"] == "fake"
    assert node["status"]["allocatable"]["pods"] == "1000"


def test_the_manifests_for_the_cluster_are_found() -> None:
    assert (FOLDER / "crds").is_dir()


def elf(*segment_types: int) -> bytes:
    head = bytearray(64)
    head[:5] = b"\x7fELF\x02"
    struct.pack_into("<Q", head, 0x20, 64)
    struct.pack_into("<HH", head, 0x36, 56, len(segment_types))
    return bytes(head) + b"".join(struct.pack("<I", kind) + bytes(52) for kind in segment_types)


def test_only_a_static_program_goes_into_an_empty_image(tmp_path: Path) -> None:
    for name, content in (("static", elf(1, 2)), ("dynamic", elf(1, 3)), ("script", b"#!/bin/sh\n")):
        (tmp_path / name).write_bytes(content)
    assert [is_static(tmp_path / name) for name in ("static", "dynamic", "script")] == [True, False, False]


def test_the_image_archive_has_its_images(tmp_path: Path) -> None:
    busybox = tmp_path / "busybox"
    busybox.write_text("#!/bin/sh\necho busybox\necho sh\necho sleep\n")
    busybox.chmod(0o755)
    write_archive(tmp_path / "images.tar", busybox)
    with tarfile.open(tmp_path / "images.tar") as tar:

        def read(name: str) -> bytes:
            file = tar.extractfile(name)
            assert file is not None
            return file.read()

        manifest = json.loads(read("manifest.json"))
        assert [image["RepoTags"] for image in manifest] == [[BUSYBOX], [PAUSE], [PYTHON]]
        assert json.loads(read(manifest[1]["Config"]))["config"]["Cmd"][1] == "sleep"
        with tarfile.open(fileobj=io.BytesIO(read(manifest[0]["Layers"][0]))) as layer:
            assert layer.getmember("bin/sh").linkname == "busybox"
            assert layer.getmember("bin/busybox").mode == 0o755


def test_the_real_node_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(StackError, match="needs root"):
        requirements.require()


def test_the_real_node_says_which_packages_are_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(requirements, "find_cni", lambda: None)
    with pytest.raises(StackError) as caught:
        requirements.require()
    assert "runc" in caught.value.what
    assert "apt-get install -y --no-install-recommends runc containernetworking-plugins" in caught.value.remedy


def test_real_nodes_of_two_stacks_share_nothing(tmp_path: Path) -> None:
    one, two = RealNode(tmp_path / "one"), RealNode(tmp_path / "two")
    assert one.run != two.run
    assert one.bridge != two.bridge
    assert one.cgroup != two.cgroup
    assert len(one.bridge) <= 15
    assert len(str(one.socket) + ".ttrpc") < 100


def test_the_kubelet_asks_who_is_there(tmp_path: Path) -> None:
    config = yaml.safe_load(real_node.kubelet_config(RealNode(tmp_path), tmp_path / "ca", 1, 2))
    assert config["authentication"]["anonymous"] == {"enabled": False}
    assert config["authorization"] == {"mode": "Webhook"}
    assert config["readOnlyPort"] == 0
    assert config["address"].startswith("10.")
