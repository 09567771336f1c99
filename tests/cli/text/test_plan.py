"""What a submission says before it makes anything (row E4)."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.cli.common import ask
from holdfast.cli.submission import plan
from holdfast.errors import HoldfastError
from holdfast.model import Component, PodSet, Workload
from holdfast.model.gang.state import Gang
from holdfast.workflows.start import details, summary
from tests.client.conftest import a_workload
from tests.policy.loop.test_difference import BEFORE

pytestmark = pytest.mark.row("E4", level="pure")


def with_pods(count: int, name: str = "train") -> Workload:
    template = BEFORE.components[0].template
    sets = (PodSet(path="template.spec.template", replicas=count),)
    return a_workload(name=name, components=(Component(name="main", template=template, pod_sets=sets),), queue="gpus")


def test_E4_the_plan_says_kinds_pods_namespace_account_and_queue() -> None:
    assert plan.text([with_pods(1), with_pods(15000, "large")]).splitlines() == [
        "submitting: 2 workloads, 15,001 pods on cluster dev",
        "NAMESPACE  NAME   PODS    ACCOUNT          QUEUE  MADE OF",
        "research   large  15,000  holdfast-runner  gpus   1 Job",
        "research   train  1       holdfast-runner  gpus   1 Job",
    ]
    assert plan.text([with_pods(1, f"w{number}") for number in range(25)]).splitlines()[-1] == "... and 5 more"


def test_E4_a_gang_counts_as_many_pods_as_it_makes(capsys: pytest.CaptureFixture[str]) -> None:
    workload = a_workload(name="train", gang=Gang(min=2, max=400, spares=8))
    assert summary(workload).startswith("AppWrapper train: 1 Job, 408 pods, ")
    assert "| main | Job | 408 |" in details(workload)
    plan.agree([workload], plan=False, yes=True)
    assert capsys.readouterr().err.startswith("submitting: 1 workload, 408 pods")


def test_E4_few_pods_are_no_reason_to_speak(capsys: pytest.CaptureFixture[str]) -> None:
    plan.agree([with_pods(100)], plan=False, yes=False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("pods", "asked"), [(101, False), (1, True)])
def test_E4_a_script_is_told_on_standard_error_and_not_asked(
    pods: int, asked: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    plan.agree([with_pods(pods)], plan=asked, yes=False)
    out, errors = capsys.readouterr()
    assert out == ""
    assert errors.startswith(f"submitting: 1 workload, {pods} pod")


@pytest.mark.parametrize("answer", [True, False])
def test_E4_at_a_terminal_the_answer_counts(answer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def confirmed(question: str) -> bool:
        asked.append(question)
        return answer

    monkeypatch.setattr(plan, "interactive", lambda: True)
    monkeypatch.setattr(plan, "confirmed", confirmed)
    if answer:
        plan.agree([with_pods(101)], plan=False, yes=False)
    else:
        with pytest.raises(HoldfastError, match="nothing was submitted"):
            plan.agree([with_pods(101)], plan=False, yes=False)
    assert asked == ["Submit?"]
    plan.agree([with_pods(101)], plan=False, yes=True)
    assert asked == ["Submit?"], "--yes does not ask"


def test_E4_standard_input_that_is_a_document_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CLUSTER", "dev")
    document = with_pods(101).model_dump_json()
    result = CliRunner().invoke(app, ["submit", "-", "--plan", "--address", "127.0.0.1:1"], input=document)
    assert result.exit_code == 3, "it went on to Temporal"
    assert result.stderr.startswith("submitting: 1 workload, 101 pods on cluster dev")
    assert not ask.interactive()
