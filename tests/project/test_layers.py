"""The layers hold: the contracts of pyproject.toml see every package, and each of them can break."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"

# A project in the shape of ours, small enough to read: what each module imports.
ALLOWED = {
    "names": "",
    "errors": "import holdfast.names",
    "codec": "import holdfast.errors\nimport temporalio.converter\nimport cryptography",
    "model": "import holdfast.names\nimport pydantic",
    "policy": "import holdfast.model",
    "profiles": "import holdfast.model",
    "formats": "import holdfast.profiles",
    "activities": "",
    "activities.facts": "import holdfast.model",
    "activities.facts.snapshot": "import holdfast.model",
    "activities.operations": "",
    "activities.operations.create": "import kubernetes.aio\nimport holdfast.formats",
    "activities.nodes": "",
    "activities.nodes.redfish": "import sushy",
    "activities.data": "",
    "activities.data.s3": "import obstore",
    "workflows": "import temporalio.workflow\nimport holdfast.policy\nimport holdfast.model",
    "worker": "import holdfast.workflows\nimport holdfast.activities.operations.create\nimport kubernetes.aio",
    "simulation": "import holdfast.policy\nimport holdfast.activities.facts.snapshot",
    "past": "import holdfast.workflows",
    "client": "import temporalio.client\nimport holdfast.model",
    "plugin": "import holdfast.worker",
    "agent": "import asyncio\nimport holdfast.names",
    "torchrun": "import threading\nimport holdfast.agent",
    "local": "import subprocess",
    "deploy": "",
    "cli": "import holdfast.client\nimport holdfast.local\nimport holdfast.agent",
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT_IMPORTS, "--no-logo", "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def write_project(folder: Path, imports: dict[str, str]) -> None:
    # The rooms inside packages are others here.
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contracts = re.sub(r'\[\[tool\.importlinter\.contracts\]\]\nid = "rooms-of-.*?\n\n', "", settings, flags=re.DOTALL)
    (folder / "pyproject.toml").write_text(contracts, encoding="utf-8")
    (folder / "holdfast").mkdir()
    (folder / "holdfast/__init__.py").touch()
    for module, text in imports.items():
        path = folder / "holdfast" / Path(*module.split("."))
        if module.count(".") == 2:
            path.with_suffix(".py").write_text(text + "\n")
        else:
            path.mkdir()
            (path / "__init__.py").write_text(text + "\n")


def test_the_contracts_hold() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_contracts_see_the_linked_folders() -> None:
    graph = grimp.build_graph("holdfast", include_external_packages=True, cache_dir=None)
    for folder in ("workflows", "activities", "worker", "local"):
        files = [path.relative_to(ROOT) for path in (ROOT / folder).glob("**/*.py") if path.name != "__init__.py"]
        for path in files:
            assert "holdfast." + ".".join(path.with_suffix("").parts) in graph.modules


def test_a_project_that_keeps_the_layers_passes(tmp_path: Path) -> None:
    write_project(tmp_path, ALLOWED)
    done = lint(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("model", "import holdfast.policy", "Layers"),
        ("policy", "import holdfast.workflows", "Layers"),
        ("activities", "import holdfast.workflows", "Layers"),
        ("workflows", "import holdfast.worker", "Layers"),
        ("worker", "import holdfast.cli", "Layers"),
        ("policy", "import temporalio.common", "The pure packages"),
        ("formats", "import kubernetes", "The pure packages"),
        ("simulation", "import temporalio.common", "The pure packages"),
        ("simulation", "import holdfast.workflows", "Layers"),
        ("simulation", "import holdfast.activities.operations.create", "The pure packages"),
        ("errors", "import holdfast.names\nimport kubernetes", "Only the activities and the worker"),
        ("cli", "import kubernetes.aio", "Only the activities and the worker"),
        ("codec", "import holdfast.model", "The codec knows no room"),
        ("worker", "import sushy", "The client of Redfish is its adapter's alone"),
        ("workflows", "import kubernetes", "Only the activities and the worker"),
        ("policy", "import holdfast.profiles", "The engine knows no profile"),
        ("workflows", "import holdfast.formats", "The engine knows no profile"),
        ("workflows", "import holdfast.activities.operations.create", "Workflows import no activity"),
        ("policy", "import kubernetes", "Workflow code reaches Kubernetes by no path"),
        ("worker", "import obstore", "One adapter alone imports the S3 client"),
        ("agent", "import holdfast.model", "The agent, and torchrun's backend, need the standard library"),
        ("agent", "import aiohttp", "The agent, and torchrun's backend, need the standard library"),
        ("torchrun", "import torch", "The agent, and torchrun's backend, need the standard library"),
        ("cli", "import holdfast.torchrun", "torchrun's backend is imported by torchrun alone"),
        ("worker", "import holdfast.agent", "Nothing but the command line and torchrun's backend imports the agent"),
        ("local", "import holdfast.policy", "The local stack does not know the engine"),
        ("worker", "import holdfast.local", "The engine does not know the local stack"),
    ],
)
def test_a_broken_layer_is_found(tmp_path: Path, module: str, line: str, broken: str) -> None:
    write_project(tmp_path, {**ALLOWED, module: f"{ALLOWED[module]}\n{line}"})
    done = lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert [text for text in done.stdout.splitlines() if text.startswith(broken) and " BROKEN" in text]


@pytest.mark.row("D1", level="pure")
def test_workflows_ask_their_clock_for_the_time_and_nothing_else():
    """`workflow.now()` may show what a query shows: decided by it, a history cannot be replayed (record 0022)."""
    found: list[str] = []
    for path in sorted((ROOT / "workflows").rglob("*.py")):
        found += [
            f"{path.name}:{node.lineno}"
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute) and node.attr in {"now", "time", "time_ns"}
            if isinstance(node.value, ast.Name) and node.value.id == "workflow" and path.name != "clock.py"
        ]
    assert found == []
