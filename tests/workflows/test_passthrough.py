"""What the sandbox takes from the host is all of what workflows import, beside each other (row D31)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.plugin import PASSTHROUGH

WORKFLOWS = Path(__file__).parents[2] / "workflows"
ROOT = WORKFLOWS.parent
OWN = "holdfast.workflows"
"""Loaded into each sandbox anew: what a workflow keeps must be its own."""


def imported(file: Path) -> Iterator[str]:
    """Each module of ours that a file imports, by its full name."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for one in node.names:
                inner = f"{node.module}.{one.name}"
                path = ROOT.joinpath(*inner.split("."))
                is_module = path.is_dir() or path.with_suffix(".py").is_file()
                yield inner if is_module else node.module


@pytest.mark.row("D31", level="pure")
def test_D31_whatever_workflows_import_of_ours_is_passed_through():
    found = {(module, file.name) for file in WORKFLOWS.rglob("*.py") for module in imported(file)}
    ours = {(module, file) for module, file in found if module.startswith("holdfast.") and not module.startswith(OWN)}
    assert len(ours) > 50, "the imports were not found"
    lacking = {
        (module, file)
        for module, file in ours
        if not any(module == one or module.startswith(f"{one}.") for one in PASSTHROUGH)
    }
    assert not lacking


@pytest.mark.row("D31", level="pure")
@pytest.mark.parametrize("module", PASSTHROUGH)
def test_D31_nothing_is_passed_through_that_no_workflow_imports(module: str):
    names = {name for file in WORKFLOWS.rglob("*.py") for name in imported(file)}
    assert any(name == module or name.startswith(f"{module}.") for name in names)
