"""What a new user meets first: help, the version, documents to begin with, kubectl's words, errors, quick starts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import yaml
from typer.testing import CliRunner, Result

import holdfast
from holdfast.cli.app import app
from holdfast.cli.common.init import Kind
from holdfast.formats import NAMES, read
from tests.cli.test_commands import JOB

NOWHERE = "127.0.0.1:1"


def run(*arguments: str, stdin: str | None = None) -> Result:
    environment = {"HOLDFAST_CLUSTER": "dev", "COLUMNS": "100", "TEMPORAL_ADDRESS": NOWHERE}
    return CliRunner().invoke(app, list(arguments), input=stdin, env=environment)


@pytest.mark.row("E6", level="pure")
@pytest.mark.parametrize("kind", Kind)
def test_E6_init_prints_a_commented_document_that_validate_accepts(kind: Kind) -> None:
    printed = run("init", kind.value)
    assert printed.exit_code == 0, printed.output
    assert printed.stdout.count("#") > 5
    checked = run("validate", "-", stdin=printed.stdout)
    assert checked.exit_code == 0, checked.output
    assert "warning" not in checked.output
    (workload,) = read(printed.stdout, cluster="dev")
    assert workload.name == "train"


@pytest.mark.row("E6", level="pure")
def test_E6_the_policy_to_begin_with_shows_what_a_policy_may_set() -> None:
    (workload,) = read(run("init", "policy").stdout, cluster="dev")
    assert [rule.name for rule in workload.policy.rules] == ["broken-config", "out-of-memory", "bad-node"]
    assert workload.policy.budget("restart").reset_after is not None
    (gang,) = read(run("init", "gang").stdout, cluster="dev")
    assert gang.gang is not None
    assert (gang.gang.min, gang.gang.max) == (2, 4)


@pytest.mark.row("E6", level="pure")
@pytest.mark.parametrize("command", ["submit", "configure", "validate", "simulate"])
def test_E6_help_lists_the_keys_of_set(command: str) -> None:
    words = set(run(command, "--help").stdout.replace(",", " ").replace(".", " ").split())
    assert set(NAMES) <= words


@pytest.mark.row("E6", level="pure")
def test_E6_the_help_of_list_says_that_it_is_of_all_clusters() -> None:
    explain, listed = (
        " ".join(run(command, "--help").stdout.replace("│", " ").split()) for command in ("explain", "list")
    )
    assert "The cluster. Default: $HOLDFAST_CLUSTER." in explain
    assert "Only of this cluster. Default: of all" in listed
    assert "HOLDFAST_CLUSTER" not in listed


@pytest.mark.row("E6", level="pure")
def test_E6_the_version_is_one_line() -> None:
    assert run("--version").stdout == f"holdfast {holdfast.__version__}\n"


@pytest.mark.row("E6", level="pure")
@pytest.mark.parametrize(
    ("alias", "command"),
    [(("get",), ("list",)), (("get", "x"), ("status", "x")), (("describe", "x"), ("explain", "x"))],
)
def test_E6_kubectl_words_do_what_ours_do(alias: tuple[str, ...], command: tuple[str, ...]) -> None:
    by_alias, ours = run(*alias), run(*command)
    assert by_alias.exit_code == ours.exit_code == 3
    assert by_alias.output == ours.output


@pytest.mark.row("E6", level="pure")
def test_E6_aliases_take_one_line_of_help() -> None:
    text = run("--help").stdout
    assert "get is list or status, describe is explain, delete is cancel" in text
    assert "│ delete " not in text
    assert run("delete", "x", "--reason", "over").exit_code == 3


@pytest.mark.row("E7", level="pure")
def test_E7_an_error_says_its_cause_in_words_and_verbose_what_is_behind_it() -> None:
    short = run("list")
    assert "cannot reach Temporal at 127.0.0.1:1 (Connection refused): is it running there?" in short.output
    assert "tonic" not in short.output
    for arguments in (("--verbose", "list"), ("list", "--verbose")):
        long = run(*arguments)
        assert long.output.startswith(short.output)
        assert "caused by RuntimeError: " in long.output
        assert "tonic::transport" in long.output


def loaded(*arguments: str) -> set[str]:
    """The modules that a command has loaded when it ends, by a process of its own."""
    return loaded_by(f"sys.argv = ['holdfast', *{list(arguments)!r}]\nfrom holdfast.cli import main\nmain()")


def loaded_by(program: str) -> set[str]:
    """The modules that a program has loaded when it ends, by a process of its own."""
    code = f"import atexit, sys\natexit.register(lambda: print('\\n'.join(sys.modules), file=sys.stderr))\n{program}"
    environment = {**os.environ, "TEMPORAL_ADDRESS": NOWHERE, "HOLDFAST_CLUSTER": "dev"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    return set(result.stderr.split())


@pytest.mark.row("E13", level="pure")
def test_E13_help_loads_neither_servers_nor_models() -> None:
    modules = loaded("--help")
    assert "holdfast.cli.workloads.submit" in modules
    heavy = {"temporalio", "kubernetes", "aiohttp", "pydantic", "holdfast.model", "holdfast.local", "yaml"}
    assert not modules & heavy


@pytest.mark.row("E13", level="pure")
@pytest.mark.parametrize("command", [("status", "x"), ("explain", "x")])
def test_E13_a_read_loads_no_decisions_no_formats_and_no_past(command: tuple[str, ...]) -> None:
    modules = loaded(*command)
    assert "temporalio.client" in modules
    heavy = {"kubernetes", "aiohttp", "holdfast.past", "holdfast.policy.loop.advance", "holdfast.formats.appwrapper"}
    assert not modules & heavy


@pytest.mark.row("E13", level="pure")
def test_E13_a_list_loads_no_memory_no_specification_and_no_entities() -> None:
    modules = loaded("list")
    assert "holdfast.client.summary" in modules
    heavy = {
        "holdfast.model.life.state",
        "holdfast.model.spec",
        "holdfast.model.entities",
        "holdfast.client.submission",
    }
    assert not modules & heavy


@pytest.mark.row("E13", level="pure")
def test_E13_the_answer_to_a_read_is_shown_without_the_memory_the_specification_and_the_entities() -> None:
    modules = loaded_by("import holdfast.client.run, holdfast.cli.common.render")
    assert "holdfast.model.life.status" in modules
    heavy = {
        "holdfast.model.life.state",
        "holdfast.model.spec.component",
        "holdfast.model.spec.policy",
        "holdfast.model.entities",
        "holdfast.model.calls",
        "holdfast.model.gang.state",
        "holdfast.policy.attempt",
        "holdfast.policy.sides",
    }
    assert not modules & heavy


@pytest.mark.row("E13", level="pure")
def test_E13_the_help_of_the_worker_has_its_settings_although_listing_it_loads_none() -> None:
    assert "pydantic_settings" not in loaded("--help")
    assert "--watch-shard-sets" in run("worker", "--help").stdout
    assert yaml.safe_load(run("submit", str(JOB), "--dry-run", "-o", "yaml").stdout)["name"] == "sample-job"
