"""What the pages tell a reader to type is typed here: README.md, the tutorial, the how-tos, on a real Temporal."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
import yaml
from temporalio.client import Client

from holdfast.local.programs.resolve import resolve
from tests.fakes.several import Cluster, working

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
]
RUN = [page for page in PAGES if "<!-- run -->" in page.read_text(encoding="utf-8")]
BLOCK = re.compile(r"^(<!-- run -->\n)?```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, *, run: bool) -> list[tuple[str, str]]:
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(language, text) for marked, language, text in found if bool(marked) == run and language]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the examples, and the programs under the names the pages use."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "temporal").symlink_to(resolve(["temporal"], lambda line: None)["temporal"])
    (programs / "holdfast").write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
    (programs / "holdfast").chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
async def test_what_a_page_says_to_type_works(page: Path, folder: Path, address: str, client: Client) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TEMPORAL_", "HOLDFAST_"))}
    environment |= {
        "PATH": f"{folder / 'bin'}:{environment['PATH']}",
        "TEMPORAL_ADDRESS": address,
        "TEMPORAL_NAMESPACE": "default",
        "HOLDFAST_CLUSTER": "dev",
        "NO_COLOR": "1",
    }
    async with working(client, Cluster(endless=("sample-deployment", "sample-statefulset"))):
        for language, text in blocks(page, run=True):
            command = ["bash", "-euo", "pipefail", "-c", text] if language == "bash" else [sys.executable, "-c", text]
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=folder,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            output, _ = await asyncio.wait_for(process.communicate(), 60)
            assert process.returncode == 0, f"{text}\n{output.decode()}"


def leading_to(words: list[str]) -> list[str]:
    """Those of ``words`` that name a command, each below the one before it: the rest are arguments and options."""
    from typer.main import get_command

    from holdfast.cli.app import app

    path: list[str] = []
    commands = getattr(get_command(app), "commands", {})
    for word in words:
        if word not in commands:
            break
        path.append(word)
        commands = getattr(commands[word], "commands", {})
    return path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_that_are_not_run_still_name_commands_that_exist(page: Path) -> None:
    from typer.testing import CliRunner

    from holdfast.cli.app import app

    for language, text in blocks(page, run=False):
        if language in {"yaml", "json"}:
            assert all(yaml.safe_load_all(text)), text
            continue
        if language == "python":
            compile(text, str(page), "exec")
            continue
        if language == "diff":
            continue
        assert language == "bash", text
        for line in text.splitlines():
            words = line.split("#")[0].split()
            if words[:1] == ["holdfast"]:
                commands = leading_to(words[1:])
                assert commands, line
                result = CliRunner().invoke(app, [*commands, "--help"])
                assert result.exit_code == 0, line
                options = [word for word in words if word.startswith("--")]
                assert all(option in result.output for option in options), line
            elif words[:1] == ["make"]:
                assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
            elif words[:3] == ["kubectl", "apply", "-k"]:
                assert (ROOT / words[3] / "kustomization.yaml").is_file(), line
