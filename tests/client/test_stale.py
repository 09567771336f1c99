"""A query that a workflow answers with `names.STALE` is asked again; all others fail at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import OutboundInterceptor, QueryWorkflowInput, WorkflowQueryFailedError

from holdfast import names, stale
from holdfast.stale import AsksAgain

ASKED: Any = None
"""What is asked; the interceptor only passes it on."""


class Scripted(OutboundInterceptor):
    """Answers with each of these in turn, with the last again and again."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.count = 0

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:
        self.count += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stale, "PATIENCE", timedelta(seconds=0.05))
    monkeypatch.setattr(stale, "_PAUSE", 0.01)


def behind() -> WorkflowQueryFailedError:
    return WorkflowQueryFailedError(names.STALE)


async def test_what_is_behind_is_asked_again() -> None:
    workflow = Scripted(behind(), behind(), "answer")
    assert await AsksAgain().intercept_client(workflow).query_workflow(ASKED) == "answer"
    assert workflow.count == 3


async def test_what_stays_behind_fails_in_the_end() -> None:
    workflow = Scripted(behind())
    with pytest.raises(WorkflowQueryFailedError, match="ask again"):
        await AsksAgain().intercept_client(workflow).query_workflow(ASKED)
    assert workflow.count > 1


async def test_another_failure_is_not_asked_again() -> None:
    workflow = Scripted(WorkflowQueryFailedError("no such query"))
    with pytest.raises(WorkflowQueryFailedError, match="no such query"):
        await AsksAgain().intercept_client(workflow).query_workflow(ASKED)
    assert workflow.count == 1
