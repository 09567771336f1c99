"""What is refused of a JobSet: the published admission's rules and ours, each with the field's path (rows J6, J16)."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from holdfast import formats
from holdfast.errors import InvalidWorkload, ManagedElsewhere
from holdfast.formats.jobset.document import DISABLE_IN_PLACE
from holdfast.formats.text import documents
from holdfast.model import RestartMode
from tests.formats.documents import Json, copy
from tests.formats.jobset.jobsets import jobset_of, one, read, refusal, replicated
from tests.formats.jobset.jobsets_refused import CASES, WORKER, J, R, Refused, agent_and_program, failing, in_place
from tests.formats.mutations import blind
from tests.refusing import lines_run, missed, places

FILES = sorted((Path(formats.__file__).resolve().parent / "jobset").glob("*.py"))


@pytest.mark.row("J6", level="pure")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.path}: {case.says}")
def test_J6_what_is_wrong_is_told_with_its_path(case: Refused) -> None:
    if case.says is None:
        assert one(case.document).name == "train"
        return
    found = refusal(case.document)
    assert any(each.path == case.path and case.says in str(each) for each in found), found


@pytest.mark.row("J16", level="pure")
@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "a**", r"\C", "[z-a]"])
def test_J16_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    (found,) = refusal(failing(onJobFailureMessagePatterns=["ok", pattern]))
    assert found.path == f"{R}.onJobFailureMessagePatterns[1]"


def test_all_problems_are_told_at_once() -> None:
    document = jobset_of(replicated("A"), replicated("b", replicas=-1), network={"subdomain": "1"})
    assert {each.path for each in refusal(document)} == {
        f"{J}.name",
        "spec.replicatedJobs[1].replicas",
        "spec.network.subdomain",
    }


@pytest.mark.row("J8", level="pure")
def test_J8_a_key_given_twice_is_refused_with_both_its_lines() -> None:
    text = "spec:\n  containers:\n  - image: bash:latest\n    image: bash:5\n"
    with pytest.raises(InvalidWorkload, match=r"key 'image' is given twice, first on line 3"):
        documents(text)


def test_each_place_that_refuses_is_reached() -> None:
    extra = [
        *(failing(onJobFailureMessagePatterns=[each]) for each in ("(", r"\C")),
        {**jobset_of(), "metadata": {"name": "train", "namespace": "other"}},
        {**jobset_of(), "apiVersion": "jobset.x-k8s.io/v1alpha1"},
        jobset_of(replicated(job={"template": {"metadata": [], "spec": {"containers": [{"name": "main"}]}}})),
        jobset_of(
            replicated(job={"template": {"metadata": {"labels": 1}, "spec": {"containers": [{"name": "main"}]}}})
        ),
    ]
    with lines_run(FILES) as run:
        for document in [*(case.document for case in CASES), *extra]:
            with contextlib.suppress(InvalidWorkload):
                read(document, namespace="default")
        with contextlib.suppress(InvalidWorkload):
            read(jobset_of(), name="other")
        with contextlib.suppress(ManagedElsewhere):
            read(jobset_of(managedBy="example.com/other"))
    left = missed(places(FILES, {"Problem", "ManagedElsewhere"}), run)
    assert not left, f"no JobSet is refused at {left}: add one"


@pytest.mark.parametrize("seed", range(4))
def test_a_spoiled_jobset_is_read_or_refused_with_a_path(seed: int) -> None:
    source = random.Random(seed)
    good = [case.document for case in CASES if case.says is None] + [_full()] * 3
    accepted, pathless = 0, list[str]()
    for index in range(200):
        what, spoiled = blind(source, copy(good[index % len(good)]))
        try:
            read(spoiled, namespace="default")
        except InvalidWorkload as error:
            whole = error.source.startswith("the ")
            pathless += [f"{what}: {problem}" for problem in error.problems if not problem.path and not whole]
        except ManagedElsewhere:
            continue
        else:
            accepted += 1
    assert not pathless
    assert 20 < accepted < 180


def _full() -> Json:
    """Return a JobSet with every field there is."""
    return jobset_of(
        replicated("a", replicas=2, groupName="front", job={"completions": 2, "parallelism": 2}),
        replicated("b", dependsOn=[{"name": "a", "status": "Ready"}]),
        network={"enableDNSHostnames": True, "subdomain": "net", "publishNotReadyAddresses": False},
        successPolicy={"operator": "Any", "targetReplicatedJobs": ["a"]},
        failurePolicy={
            "maxRestarts": 3,
            "restartStrategy": "BlockingRecreate",
            "rules": [
                {
                    "name": "host",
                    "action": "FailJobSet",
                    "onJobFailureReasons": ["PodFailurePolicy"],
                    "onJobFailureMessagePatterns": ["a.b"],
                    "targetReplicatedJobs": ["b"],
                }
            ],
        },
        coordinator={"replicatedJob": "a", "jobIndex": 1, "podIndex": 1},
        suspend=False,
        ttlSecondsAfterFinished=60,
        annotations={"holdfast.dev/restartBudgetResetAfter": "1h"},
    )


@pytest.mark.row("J25", level="pure")
def test_J25_beside_a_sidecar_a_program_may_have_any_variable():
    assert one(in_place(**agent_and_program(program_env=WORKER))).policy.restart_mode is RestartMode.IN_PLACE


@pytest.mark.row("J25", level="pure")
def test_J25_jobsets_agent_as_main_container_is_accepted_where_nothing_restarts_in_place():
    document = in_place(**agent_and_program(program_env=WORKER, beside=False))
    document["metadata"]["annotations"] = {DISABLE_IN_PLACE: ""}
    assert one(document).policy.restart_mode is RestartMode.RECREATE
    document["spec"]["failurePolicy"]["restartStrategy"] = "Recreate"
    del document["metadata"]["annotations"]
    assert one(document).policy.restart_mode is RestartMode.RECREATE
