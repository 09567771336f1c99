"""A workflow that has failed an activation does nothing more until it is dropped. Pure."""

from __future__ import annotations

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion

from holdfast.runner import failing_once


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
