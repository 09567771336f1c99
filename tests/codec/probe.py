"""A workflow and an activity that put a word of their own into every place that Temporal stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, Interceptor, OutboundInterceptor, StartWorkflowInput, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

PLACES = (
    "input",
    "memo",
    "header",
    "summary",
    "details",
    "timer",
    "upserted",
    "activity-input",
    "activity-result",
    "heartbeat",
    "failure",
    "failure-details",
    "failure-cause",
    "signal",
    "update",
    "update-result",
    "update-failure",
    "result",
)
"""Where a word is put that Temporal stores."""


def word(place: str) -> str:
    return f"planted-{place}-word"


@workflow.defn(name="Probe")
class Probe:
    def __init__(self) -> None:
        self._signals: list[str] = []

    @workflow.run
    async def run(self, given: str, expected: int = 1) -> dict[str, Any]:
        workflow.upsert_memo({"upserted": word("upserted")})
        await workflow.sleep(timedelta(milliseconds=1), summary=word("timer"))
        back = await workflow.execute_activity(
            "work",
            word("activity-input"),
            start_to_close_timeout=timedelta(minutes=5),
            heartbeat_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200), backoff_coefficient=1.0),
            task_queue=f"{workflow.info().task_queue}-work",
        )
        await workflow.wait_condition(lambda: len(self._signals) >= expected)
        return {"given": given, "back": back, "signals": self._signals, "word": word("result")}

    @workflow.signal
    def note(self, text: str) -> None:
        self._signals.append(text)

    @workflow.update
    def change(self, text: str) -> str:
        if text == word("update-failure"):
            raise ApplicationError(text)
        return word("update-result")

    @workflow.query
    def ask(self) -> str:
        return "answer"

    @workflow.query
    def refuse(self) -> str:
        raise ValueError("planted-query-word")


@dataclass
class Works:
    """The activity: it heartbeats and fails once, then ends as soon as it may."""

    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    failed: asyncio.Event = field(default_factory=asyncio.Event)

    @activity.defn(name="work")
    async def work(self, given: str) -> str:
        if activity.info().attempt == 1:
            activity.heartbeat(word("heartbeat"))
            self.failed.set()
            raise ApplicationError(word("failure"), word("failure-details")) from ValueError(word("failure-cause"))
        await self.may_end.wait()
        return word("activity-result")


class Headers(Interceptor):
    """Gives each started workflow a header."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        class Outbound(OutboundInterceptor):
            async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
                payload: Payload = PayloadConverter.default.to_payload(word("header"))
                headers: Mapping[str, Payload] = {"planted": payload}
                input.headers = headers
                return await super().start_workflow(input)

        return Outbound(next)


async def start(client: Client, queue: str, expected: int = 1) -> WorkflowHandle[Any, Any]:
    return await client.start_workflow(
        "Probe",
        args=[word("input"), expected],
        id=queue,
        task_queue=queue,
        memo={"given": word("memo")},
        static_summary=word("summary"),
        static_details=word("details"),
    )


def decides(client: Client, queue: str) -> Worker:
    from temporalio.worker import UnsandboxedWorkflowRunner

    return Worker(client, task_queue=queue, workflows=[Probe], workflow_runner=UnsandboxedWorkflowRunner())


def works(client: Client, queue: str, work: Callable[..., Any]) -> Worker:
    return Worker(client, task_queue=f"{queue}-work", activities=[work])
