"""A workflow that has failed an activation does nothing more until it is dropped. Pure."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from holdfast.plugin import with_passthrough
from holdfast.runner import FailingOnce, failing_once
from holdfast.worker import roles
from holdfast.worker.runtime.settings import Role, Settings


def activation(what: str) -> WorkflowActivation:
    given = WorkflowActivation(run_id="r")
    getattr(given.jobs.add(), what).SetInParent()
    return given


def completion(*, failed: str = "") -> WorkflowActivationCompletion:
    done = WorkflowActivationCompletion(run_id="r")
    if failed:
        done.failed.failure.message = failed
    else:
        done.successful.SetInParent()
    return done


@pytest.mark.row("D1", level="pure")
def test_what_has_failed_answers_a_query_with_that_failure_and_is_dropped_as_it_was() -> None:
    answers = [completion(), completion(failed="ask again"), completion()]
    given = list[str]()

    def activate(one: WorkflowActivation) -> WorkflowActivationCompletion:
        given.append(one.jobs[0].WhichOneof("variant") or "")
        return answers.pop(0)

    activated = failing_once(activate)
    assert activated(activation("initialize_workflow")).HasField("successful")
    first = activated(activation("resolve_activity"))
    first.failed.failure.message = "as it is encoded on its way"
    for _ in range(2):
        assert activated(activation("query_workflow")).failed.failure.message == "ask again"
    assert activated(activation("remove_from_cache")).HasField("successful")
    assert given == ["initialize_workflow", "resolve_activity", "remove_from_cache"]


@dataclasses.dataclass(frozen=True)
class Sandbox(SandboxedWorkflowRunner):
    """A user's own."""

    note: str = ""


@pytest.mark.row("D1", level="pure")
def test_every_runner_gets_the_rule_and_stays_what_it_is() -> None:
    assert isinstance(with_passthrough(None), FailingOnce)
    assert isinstance(with_passthrough(SandboxedWorkflowRunner()), FailingOnce)
    theirs = SandboxRestrictions.default.with_passthrough_modules("theirs")
    own = with_passthrough(Sandbox(restrictions=theirs, note="kept"))
    assert isinstance(own, FailingOnce)
    assert isinstance(own, Sandbox)
    assert own.note == "kept"
    assert {"theirs", "holdfast.policy"} <= set(own.restrictions.passthrough_modules)
    assert type(with_passthrough(own)) is type(own)
    assert isinstance(dataclasses.replace(own, note="another's plugin"), FailingOnce)
    bare = with_passthrough(UnsandboxedWorkflowRunner())
    assert isinstance(bare, FailingOnce)
    assert isinstance(bare, UnsandboxedWorkflowRunner)


@pytest.mark.row("D1", level="pure")
def test_the_workers_own_runner_has_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """`holdfast worker` runs workflows without a sandbox."""
    given = list[WorkflowRunner]()

    def worker(_client: object, _settings: Settings, runner: WorkflowRunner) -> None:
        given.append(runner)

    monkeypatch.setattr(roles, "_workflows", worker)
    client: Any = None
    roles.workers(client, Settings(roles=(Role.WORKFLOWS,)), None, UnsandboxedWorkflowRunner())
    assert [isinstance(one, FailingOnce) for one in given] == [True]
