"""`kubectl holdfast`: what is kubectl's of a command line, and what a cluster may say about Temporal (row F18)."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tomllib
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import holdfast.cli
from holdfast import names
from holdfast.cli.app import app
from holdfast.cli.cluster import checks
from holdfast.cli.common import kubectl
from holdfast.cli.common.options import HERE, Chosen, chosen
from holdfast.client import Holdfast
from holdfast.client.connection import Place
from holdfast.errors import HoldfastError
from holdfast.model.life.ledger import Account, together

pytestmark = pytest.mark.row("F18", level="pure")
ROOT = Path(__file__).parents[3]
NOWHERE = "127.0.0.1:1"
CONNECTION = {"HOLDFAST_CLUSTER": "prod", "TEMPORAL_ADDRESS": NOWHERE, "TEMPORAL_NAMESPACE": "lives"}
KUBECONFIG = {
    "current-context": "one",
    "contexts": [
        {"name": "one", "context": {"cluster": "c", "namespace": "team"}},
        {"name": "two", "context": {"cluster": "d"}},
    ],
}
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec: {template: {spec: {containers: [{name: m, image: i}]}}}
"""


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No environment, no Temporal profile and no kubeconfig of whoever runs this; what a test sets is undone."""
    before = dict(os.environ)
    for name in before:
        if name.startswith(("TEMPORAL_", "HOLDFAST_")) or name == "KUBECONFIG":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    yield
    kubectl._plugin.set(None)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A program on PATH that answers as kubectl does: with the files of its folder, or an error."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "kubectl"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/asked\n'
        f'case "$1" in config) cat {folder}/config ;; get) cat {folder}/map 2>/dev/null || '
        "{ echo 'Error from server (NotFound): configmaps \"holdfast-connection\" not found' >&2; exit 1; } ;; esac\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (folder / "config").write_text(json.dumps(KUBECONFIG))
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


def publish(cluster: Path, **data: str) -> None:
    (cluster / "map").write_text(json.dumps({"data": data}))


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, kubectl.use(arguments), input=stdin)


@pytest.mark.parametrize(
    ("given", "context", "left"),
    [
        (["list"], None, ["list"]),
        (["--context", "two", "list", "-n", "x"], "two", ["list", "-n", "x"]),
        (["list", "--context=two", "-o", "json"], "two", ["list", "-o", "json"]),
        (["explain", "train", "--context", "two"], "two", ["explain", "train"]),
        (["explain", "train", "--", "--context", "two"], None, ["explain", "train", "--", "--context", "two"]),
        (["explain", "train", "--context"], None, ["explain", "train", "--context"]),
    ],
)
def test_F18_the_context_may_stand_anywhere(given: list[str], context: str | None, left: list[str]) -> None:
    taken, rest = kubectl.taken(given)
    assert (taken.context, rest) == (context, left)


def test_F18_a_kubeconfig_that_is_given_is_that_of_every_client() -> None:
    assert kubectl.taken(["list", "--kubeconfig", "/x/y"])[1] == ["list"]
    assert os.environ["KUBECONFIG"] == "/x/y"


def test_F18_without_a_kubeconfig_it_is_the_one_that_kubectl_reads(tmp_path: Path) -> None:
    kubectl.taken(["list"])
    assert "KUBECONFIG" not in os.environ
    usual = tmp_path / ".kube" / "config"
    usual.parent.mkdir()
    usual.touch()
    kubectl.taken(["list"])
    assert os.environ["KUBECONFIG"] == str(usual)


@pytest.mark.parametrize(
    ("given", "namespace"),
    [
        ([], "team"),
        (["--context", "two"], "default"),
        (["-n", "mine", "--context", "two"], "mine"),
        (["--namespace=mine"], "mine"),
    ],
)
def test_F18_the_namespace_is_that_of_the_context(cluster: Path, given: list[str], namespace: str) -> None:
    kubectl.use([*given, "list"])
    assert kubectl.namespace() == namespace
    assert chosen("train", None) == Chosen(namespace, "train")
    assert chosen("train", "other") == Chosen("other", "train")
    assert chosen("other/train", None) == Chosen("other", "train")


@pytest.mark.parametrize(
    ("given", "namespace"), [([], "team"), (["-n", "mine"], "mine"), (["--context", "two"], "default")]
)
def test_F18_goodput_of_many_is_that_of_the_contexts_namespace(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], namespace: str
) -> None:
    publish(cluster, **CONNECTION)
    asked: list[str | None] = []

    async def account(self: Holdfast, *, namespace: str | None, **_: Any) -> Account:
        asked.append(namespace)
        return together([])

    @asynccontextmanager
    async def connect(*_: Any, **__: Any) -> AsyncGenerator[Holdfast]:
        nobody: Any = None
        yield Holdfast(nobody, Place(NOWHERE, "lives"), "prod")

    monkeypatch.setattr(Holdfast, "account", account)
    monkeypatch.setattr(Holdfast, "connect", connect)
    result = run(*given, "goodput", "--queue", "gpus", "-o", "json")
    assert result.exit_code == 0, result.output
    assert asked == [namespace]


async def test_F18_doctor_names_the_server_of_the_context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config"
    servers = [{"name": name, "cluster": {"server": f"https://{name}.example.com"}} for name in ("c", "d")]
    config.write_text(json.dumps({**KUBECONFIG, "clusters": servers}))

    class Server:
        async def get(self, *_: str) -> dict[str, Any]:
            return {"metadata": {"uid": "u-1"}}

    @asynccontextmanager
    async def reached(*_: Any) -> AsyncGenerator[Server]:
        yield Server()

    monkeypatch.setattr("holdfast.cli.common.kubernetes.reached", reached)
    kubectl.use(["--context", "two", "doctor"])
    first = await anext(checks.kubernetes(str(config), None))
    assert first.found == "https://d.example.com, cluster uid u-1"


def test_F18_a_context_that_is_not_there_is_refused(cluster: Path) -> None:
    kubectl.use(["--context", "three", "list"])
    with pytest.raises(HoldfastError, match=r"--context three: expected a context of the kubeconfig \(one, two\)"):
        kubectl.namespace()


def test_F18_without_kubectl_nothing_changes() -> None:
    assert (kubectl.namespace(), kubectl.context(), kubectl.cluster()) == (None, None, None)
    assert chosen("train", None) == Chosen("default", "train")
    kubectl.connect(None, None)
    assert "TEMPORAL_ADDRESS" not in os.environ


def test_F18_a_document_that_names_no_namespace_is_of_the_contexts(cluster: Path) -> None:
    publish(cluster, **CONNECTION)
    shown = run("submit", "-", "--dry-run", "-o", "json", stdin=JOB)
    assert shown.exit_code == 0, shown.output
    assert (json.loads(shown.stdout)["namespace"], json.loads(shown.stdout)["cluster"]) == ("team", "prod")
    other = run("submit", "-", "--dry-run", "-o", "json", stdin=JOB.replace("name: train", "name: train, namespace: b"))
    assert json.loads(other.stdout)["namespace"] == "b"


def test_F18_the_cluster_says_how_temporal_is_reached(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CLUSTER", "another")
    publish(cluster, **CONNECTION, TEMPORAL_TLS="true", TEMPORAL_API_KEY="none of its business", PATH="/evil")
    kubectl.use(["list"])
    assert HERE.required() == "prod", "the context decides which cluster is meant"
    assert {name: os.environ[name] for name in CONNECTION} == CONNECTION
    assert os.environ["TEMPORAL_TLS"] == "true"
    assert "TEMPORAL_API_KEY" not in os.environ
    assert os.environ["PATH"] != "/evil"
    HERE.required()
    assert (cluster / "asked").read_text().count("get configmap") == 1


@pytest.mark.parametrize("how", ["option", "environment", "profile"])
def test_F18_an_address_of_ones_own_keeps_its_own_tls(
    cluster: Path, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(cluster, **CONNECTION, TEMPORAL_TLS="true")
    kubectl.use(["list"])
    monkeypatch.setenv("TEMPORAL_API_KEY", "secret")
    if how == "environment":
        monkeypatch.setenv("TEMPORAL_ADDRESS", "own:7233")
    if how == "profile":
        file = tmp_path / "temporal.toml"
        file.write_text('[profile.default]\naddress = "own:7233"\n')
        monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))
    kubectl.connect(None, "own:7233" if how == "option" else None)
    assert os.environ["HOLDFAST_CLUSTER"] == "prod"
    assert "TEMPORAL_NAMESPACE" not in os.environ
    assert os.environ.get("TEMPORAL_ADDRESS") in {None, "own:7233"}
    assert "TEMPORAL_TLS" not in os.environ


@pytest.mark.parametrize("how", ["option", "environment"])
def test_F18_at_a_temporal_of_ones_own_the_context_names_no_other_cluster(
    cluster: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(cluster, **CONNECTION)
    monkeypatch.setenv("HOLDFAST_CLUSTER", "mine")
    if how == "environment":
        monkeypatch.setenv("TEMPORAL_ADDRESS", "own:7233")
    address = "own:7233" if how == "option" else None
    kubectl.use(["list"])
    with pytest.raises(HoldfastError, match=r"HOLDFAST_CLUSTER is mine, .* calls itself prod .* Give --cluster"):
        kubectl.connect(None, address)
    kubectl.use(["list"])
    kubectl.connect("prod", address)
    assert os.environ["HOLDFAST_CLUSTER"] == "mine"
    monkeypatch.setenv("HOLDFAST_CLUSTER", "prod")
    kubectl.use(["list"])
    kubectl.connect(None, address)
    assert "TEMPORAL_NAMESPACE" not in os.environ


def test_F18_tls_settings_of_ones_own_are_not_mixed_with_the_clusters(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(cluster, **CONNECTION, TEMPORAL_TLS="true", TEMPORAL_TLS_SERVER_CA_CERT_DATA="theirs")
    file = tmp_path / "temporal.toml"
    file.write_text('[profile.default.tls]\nserver_name = "mine"\n')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))
    kubectl.use(["list"])
    kubectl.connect(None, None)
    assert os.environ["TEMPORAL_ADDRESS"] == NOWHERE
    assert not [name for name in os.environ if name.startswith("TEMPORAL_TLS")]


@pytest.mark.parametrize("value", ["false", "0", "off", "True"])
def test_F18_a_cluster_may_not_switch_tls_off(cluster: Path, value: str) -> None:
    publish(cluster, **CONNECTION, TEMPORAL_TLS=value)
    kubectl.use(["list"])
    kubectl.connect(None, None)
    assert os.environ["TEMPORAL_ADDRESS"] == NOWHERE
    assert "TEMPORAL_TLS" not in os.environ


@pytest.mark.parametrize("how", ["key", "file", "profile", "header"])
def test_F18_a_key_is_not_sent_where_only_the_cluster_points(
    cluster: Path, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(cluster, **CONNECTION)
    file = tmp_path / "file"
    if how == "key":
        monkeypatch.setenv("TEMPORAL_API_KEY", "secret")
    elif how == "header":
        monkeypatch.setenv("TEMPORAL_GRPC_META_X_TOKEN", "secret")
    elif how == "file":
        file.write_text("secret")
        monkeypatch.setenv("HOLDFAST_TEMPORAL_API_KEY_FILE", str(file))
    else:
        file.write_text('[profile.default]\napi_key = "secret"\n')
        monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))
    done = run("list")
    assert done.exit_code == 2
    assert f"a key for Temporal is set, and no address: it is not sent to {NOWHERE}" in done.output
    assert "TEMPORAL_ADDRESS" not in os.environ


def test_F18_a_profile_that_cannot_be_read_is_named(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(cluster, **CONNECTION)
    file = tmp_path / "temporal.toml"
    file.write_text("[profile")
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))
    done = run("list")
    assert done.exit_code == 2
    assert "Temporal's client configuration cannot be read" in done.output


def test_F18_a_cluster_that_says_nothing_is_named(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("explain", "train")
    assert done.exit_code == 2
    assert f"ConfigMap {names.CONNECTION} of namespace holdfast-system" in done.output
    assert "NotFound" in done.output
    publish(cluster, TEMPORAL_ADDRESS=NOWHERE)
    assert "HOLDFAST_CLUSTER is missing" in run("explain", "train").output
    (cluster / "map").unlink()
    monkeypatch.setenv("HOLDFAST_CLUSTER", "known")
    monkeypatch.setenv("TEMPORAL_ADDRESS", NOWHERE)
    done = run("explain", "train")
    assert done.exit_code == 3
    assert "warning: cluster known, as HOLDFAST_CLUSTER says" in done.output


def test_F18_a_kubectl_that_is_away_or_cannot_connect_is_named(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cluster / "kubectl").write_text("#!/bin/sh\necho 'Unable to connect to the server: no route' >&2\nexit 1\n")
    done = run("list")
    assert done.exit_code == 3
    assert "cannot reach Kubernetes at the current context (Unable to connect to the server: no route)" in done.output
    monkeypatch.setenv("PATH", "/nowhere")
    assert "kubectl is not on PATH" in run("list").output


def test_F18_all_namespaces_and_one_are_not_both(cluster: Path) -> None:
    done = run("list", "-A", "-n", "team")
    assert done.exit_code == 2
    assert "expected no --namespace team with it" in done.output


def test_F18_both_programs_are_installed_under_kubectls_names() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name in ("kubectl-holdfast", "kubectl_complete-holdfast"):
        module, _, function = scripts[name].partition(":")
        assert module == "holdfast.cli"
        assert callable(getattr(holdfast.cli, function))


@pytest.mark.parametrize(
    ("words", "offered"),
    [(["his"], ["history"]), (["list", "--phase", "Ru"], ["Running"]), (["--context", "one", "his"], ["history"])],
)
def test_F18_a_shell_completes_it_as_kubectl_asks(cluster: Path, words: list[str], offered: list[str]) -> None:
    publish(cluster, **CONNECTION)
    program = [sys.executable, "-c", "from holdfast.cli import complete; complete()"]
    done = subprocess.run([*program, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [*offered, ":0"]
    assert done.stderr == ""
