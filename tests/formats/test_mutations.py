"""A thousand spoiled AppWrappers: each is read, or refused with a field's path; each place that refuses is reached."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from holdfast import errors, formats
from holdfast.errors import HoldfastError, InvalidWorkload, ManagedElsewhere
from holdfast.model import workload
from tests.formats.corpus import corpus
from tests.formats.mutations import DIRECTED, Mutant, mutants

COUNT = 1000
REFUSING = {"Problem", "PathProblem", "ConstructorError", "ManagedElsewhere", "ValueError"}
"""What is called where something is refused."""
FOLDER = Path(formats.__file__).resolve().parent
FILES = [
    *(
        FOLDER / f"{name}.py"
        for name in ("__init__", "appwrapper", "appwrapper_components", "pods", "text", "settings")
    ),
    Path(workload.__file__).resolve(),
    Path(errors.__file__).resolve(),
]
ELSEWHERE = {
    "problems": "settings of --set and of plain manifests (tests/formats/test_read.py, test_manifests.py)",
    "read_settings": "settings of --set and of plain manifests (tests/formats/test_read.py, test_manifests.py)",
    "_set": "settings of --set and of plain manifests (tests/formats/test_read.py, test_manifests.py)",
    "overridden": "settings of --set (tests/formats/test_read.py)",
    "read_reset": "settings of --set and of plain manifests (tests/formats/test_manifests.py)",
    "relocated": "moves what others have refused",
    "check_label": "labels of a workload, which an AppWrapper does not give (tests/model/test_workload.py)",
    "_check_dependencies": "fields of Holdfast's own document (tests/model/test_workload.py)",
    "_check_units": "rules of Holdfast's own document (tests/policy/test_restart.py)",
    "_uid_is_label_safe": "given by the client (tests/model/test_workload.py)",
    "_name_is_label_safe": "a component's name, which is made from its place and kind (tests/model/test_workload.py)",
}
"""Functions whose refusals no AppWrapper can meet, and where they are met."""


TOO_DEEP = "too deep"
SHADOWED = (
    "podSets: path",
    "is used twice",
    "is another namespace",
    "names no component",
    "is nested too deeply",  # An overflowing stack ends all tracing: it is looked at by itself.
)
"""What the model refuses, and an AppWrapper's reader before it, or what no AppWrapper can say."""


def sites() -> dict[tuple[str, int, int], str]:
    """Return each place that refuses, by file and lines, with the function it is in."""
    found: dict[tuple[str, int, int], str] = {}
    for file in FILES:
        source = file.read_text(encoding="utf-8")
        for function in ast.walk(ast.parse(source)):
            if not isinstance(function, ast.FunctionDef) or function.name in ELSEWHERE:
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and _called(node.func) in REFUSING:
                    if any(words in (ast.get_source_segment(source, node) or "") for words in SHADOWED):
                        continue
                    found[str(file), node.lineno, node.end_lineno or node.lineno] = function.name
    return found


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


@contextmanager
def lines_run() -> Iterator[set[tuple[str, int]]]:
    """Note each line of those files that is run."""
    wanted, run = {str(file) for file in FILES}, set[tuple[str, int]]()
    real: dict[str, str] = {}

    def each(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            run.add((real[frame.f_code.co_filename], frame.f_lineno))
        return each

    def entered(frame: FrameType, _: str, __: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in real:
            real[name] = str(Path(name).resolve())
        return each if real[name] in wanted else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        yield run
    finally:
        sys.settrace(before)


def verdict(mutant: Mutant) -> HoldfastError | None:
    try:
        formats.read(mutant.text, cluster="dev", namespace="team", name=mutant.asked.get("name"))
    except HoldfastError as error:
        return error
    return None


@pytest.mark.parametrize("name", corpus())
def test_the_corpus_itself_is_accepted(name: str) -> None:
    (found,) = formats.read([corpus()[name]], cluster="dev")
    assert found.name == name
    assert found.expected_pods


@pytest.mark.row("U14", level="pure")
@pytest.mark.timeout(300)
def test_each_mutant_is_read_or_refused_with_a_path_and_each_refusal_is_reached() -> None:
    given = mutants(COUNT)
    traced = [mutant for mutant in given[: len(DIRECTED)] if mutant.name != TOO_DEEP]
    with lines_run() as run:
        found = {mutant.name: verdict(mutant) for mutant in traced}
    found |= {mutant.name: verdict(mutant) for mutant in given if mutant.name not in found}
    assert "is nested too deeply" in str(found[TOO_DEEP])
    refused = {name: error for name, error in found.items() if error is not None}
    assert len(refused) > COUNT / 4
    assert len(found) - len(refused) > COUNT / 4
    pathless: list[str] = []
    for name, error in refused.items():
        if isinstance(error, ManagedElsewhere):
            continue
        assert isinstance(error, InvalidWorkload), name
        for problem in error.problems:
            if not problem.path and error.source not in WHOLE:
                pathless.append(f"{name}: {error}")
    assert not pathless
    reached = {file: {line for other, line in run if other == file} for file in {file for file, _ in run}}
    missed = [
        f"{Path(file).name}:{first} in {function}"
        for (file, first, last), function in sites().items()
        if not reached.get(file, set()).intersection(range(first, last + 1))
    ]
    assert not missed, f"no mutant is refused at {missed}: add one to DIRECTED"


WHOLE = {"the text", "the document"}
"""What a refusal may speak of as a whole, without a field: text that is none, or that is too long."""


def test_the_same_seed_gives_the_same_mutants() -> None:
    assert mutants(300) == mutants(300)
    assert mutants(300, seed=6) != mutants(300)
    names = [mutant.name for mutant in mutants(COUNT)]
    assert len(set(names)) > COUNT * 0.9
