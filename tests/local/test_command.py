"""`holdfast dev` as a command: refusals, exit codes and what it prints."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from holdfast.cli.demo.dev import app
from holdfast.local.system import parts
from holdfast.local.system.state import StackState

RUN = CliRunner()


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def stopped(own_state: Path) -> Path:
    """A stack whose parts do not run."""
    folder = own_state / "holdfast" / "stacks" / "it's"
    folder.mkdir(parents=True)
    ports = {name: 20_000 + number for number, name in enumerate((*parts.CLUSTER_PORTS, *parts.TEMPORAL_PORTS))}
    StackState("it's", ports=ports).save(folder)
    return folder


@pytest.mark.parametrize("command", ["status", "env"])
def test_a_stack_that_is_not_there_exits_3_and_says_what_to_try(command: str) -> None:
    result = RUN.invoke(app, [command])
    assert result.exit_code == 3
    assert "there is no stack 'dev'" in result.stderr
    assert "Try: holdfast dev up" in result.stderr


def test_down_of_nothing_is_no_failure() -> None:
    result = RUN.invoke(app, ["down"])
    assert result.exit_code == 0
    assert "Nothing to stop" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["status", "--output", "xml"], "'xml' is none of table, json, yaml"),
        (["up", "--dynamic-config", "key"], "'key' is not KEY=JSON"),
        (["up", "--nodes", "-1"], "--nodes"),
    ],
)
def test_a_wrong_argument_exits_2_and_is_named(arguments: list[str], says: str) -> None:
    result = RUN.invoke(app, arguments)
    assert result.exit_code == 2
    assert says in result.stderr


def test_env_quotes_what_a_shell_would_read_otherwise(stopped: Path) -> None:
    result = RUN.invoke(app, ["env", "--name", "it's"])
    assert result.stdout.splitlines() == [
        f"export KUBECONFIG={shlex.quote(str(stopped / 'kubeconfig'))}",
        "export TEMPORAL_ADDRESS=127.0.0.1:20006",
        "export TEMPORAL_NAMESPACE=default",
        """export HOLDFAST_CLUSTER='it'"'"'s'""",
        "unset HOLDFAST_TEMPORAL_ADDRESS",
        f'export PATH={shlex.quote(str(stopped / "bin"))}:"$PATH"',
    ]


@pytest.mark.row("E11", level="pure")
def test_E11_a_shell_finds_the_programs_of_its_stack(stopped: Path, tmp_path: Path) -> None:
    state = StackState.load(stopped)
    assert state is not None
    for version in ("1", "2"):
        for name in ("kubectl", "temporal"):
            program = tmp_path / f"{name}-{version}"
            program.write_text(f"#!/bin/sh\necho {name} {version}\n")
            program.chmod(0o755)
            state.binaries[name] = str(program)
        state.save(stopped)
        exports = RUN.invoke(app, ["env", "--name", "it's"]).stdout
        done = subprocess.run(["/bin/sh", "-c", f"{exports}\nkubectl; temporal"], capture_output=True, text=True)
        assert done.stdout.split("\n")[:2] == [f"kubectl {version}", f"temporal {version}"], done.stderr


@pytest.mark.usefixtures("stopped")
def test_status_of_a_stopped_stack_exits_3_in_every_format() -> None:
    table, as_json, as_yaml = (
        RUN.invoke(app, ["status", "--name", "it's", "-o", kind]) for kind in ("table", "json", "yaml")
    )
    assert [result.exit_code for result in (table, as_json, as_yaml)] == [3, 3, 3]
    assert "not running" in table.stdout
    document = json.loads(as_json.stdout)
    assert document == yaml.safe_load(as_yaml.stdout)
    assert {part["name"] for part in document["parts"]} == {
        "temporal",
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kwok",
    }
    assert not any(part["healthy"] for part in document["parts"])
