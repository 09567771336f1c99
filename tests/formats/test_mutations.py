"""A thousand spoiled AppWrappers: each is read, or refused with a field's path; each place that refuses is reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import errors, formats
from holdfast.errors import HoldfastError, InvalidWorkload, ManagedElsewhere
from holdfast.model.spec import workload
from tests.formats.corpus import corpus
from tests.formats.mutations import DIRECTED, Mutant, mutants
from tests.refusing import lines_run, missed, places

COUNT = 1000
REFUSING = {"Problem", "PathProblem", "ConstructorError", "ManagedElsewhere", "ValueError"}
"""What is called where something is refused."""
FOLDER = Path(formats.__file__).resolve().parent
FILES = [
    *(
        FOLDER / f"{name}.py"
        for name in ("__init__", "appwrapper/reader", "appwrapper/components", "pods", "text", "settings")
    ),
    Path(workload.__file__).resolve(),
    Path(errors.__file__).resolve(),
]
ELSEWHERE = {
    "placed": "an AppWrapper that was accepted (tests/formats/appwrapper/test_resource.py)",
    "problems": "settings of --set and of plain manifests (tests/formats/test_read.py, test_manifests.py)",
    "read_settings": "settings of --set and of plain manifests (tests/formats/test_read.py, test_manifests.py)",
    "_set": "settings of --set and of plain manifests (tests/formats/test_read.py, test_manifests.py)",
    "overridden": "settings of --set (tests/formats/test_read.py)",
    "read_reset": "settings of --set and of plain manifests (tests/formats/test_manifests.py)",
    "read_rules": "settings of --set, manifests and JobSets (tests/formats/settings/test_rule_settings.py)",
    "rule_problems": "settings of --set, manifests and JobSets (tests/formats/settings/test_rule_settings.py)",
    "truths": "numbers of Holdfast's own documents (tests/formats/test_read.py)",
    "one_document": "scripts and other policies of a simulation (tests/past/test_policies.py)",
    "relocated": "moves what others have refused",
    "check_label": "labels of a workload, which an AppWrapper does not give (tests/model/test_refusals.py)",
    "_check_dependencies": "fields of Holdfast's own document (tests/model/test_refusals.py)",
    "_check_checkpoint": "fields of Holdfast's own document (tests/model/test_refusals.py)",
    "_read_group": "settings of --set, manifests and JobSets (tests/formats/settings/test_checkpoint_settings.py)",
    "_bounded": "settings of --set, manifests and JobSets (tests/formats/settings/test_lattice_settings.py)",
    "_check_order": "fields of Holdfast's own document (tests/model/test_refusals.py)",
    "_check_success": "fields of Holdfast's own document (tests/model/test_refusals.py)",
    "_check_lifecycle": "fields of Holdfast's own document (tests/model/test_refusals.py)",
    "_check_autoscalers": "fields of Holdfast's own document (tests/model/test_refusals.py)",
    "_check_probe": "fields of Holdfast's own document (tests/model/test_refusals.py)",
    "_check_progress": "fields of Holdfast's own document (tests/model/test_refusals.py)",
    "_check_units": "rules of Holdfast's own document (tests/model/test_refusals.py)",
    "_uid_is_label_safe": "given by the client (tests/model/test_refusals.py)",
    "_name_is_label_safe": "a component's name, which is made from its place and kind (tests/model/test_refusals.py)",
}
"""Functions whose refusals no mutant need meet, and where they are met."""


TOO_DEEP = "too deep"
SHADOWED = (
    "podSets: path",
    "is used twice",
    "is another namespace",
    "names no component",
    "is nested too deeply",  # An overflowing stack ends all tracing: it is looked at by itself.
)
"""What the model refuses, and an AppWrapper's reader before it, or what no AppWrapper can say."""


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
    with lines_run(FILES) as run:
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
    left = missed(places(FILES, REFUSING, without=ELSEWHERE, saying=SHADOWED), run)
    assert not left, f"no mutant is refused at {left}: add one to DIRECTED"


WHOLE = {"the text", "the document"}
"""What a refusal may speak of as a whole, without a field: text that is none, or that is too long."""


def test_the_same_seed_gives_the_same_mutants() -> None:
    assert mutants(300) == mutants(300)
    assert mutants(300, seed=6) != mutants(300)
    names = [mutant.name for mutant in mutants(COUNT)]
    assert len(set(names)) > COUNT * 0.9
