"""How the steps of pods are read, and when the worker tells the workflow of them (rows P1, P2)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from bench import bill
from holdfast import names, progress
from holdfast.activities.facts.pods import pod_facts
from holdfast.activities.kube.client import Unreachable
from holdfast.activities.progress import follow as following
from holdfast.activities.progress.read import RunningPod, asked, pod_steps, running_pod, step_of
from holdfast.activities.site.site import Site
from holdfast.model import Limits, Progress, ProgressSource
from holdfast.model.calls.cluster import Target
from holdfast.model.calls.progress import Followed, FollowInput
from holdfast.model.life.progress import PodStep, Step
from holdfast.workflows.operations.dispatch import probe_heartbeat
from tests.activities.segments import segments_told
from tests.activities.shapes import pod
from tests.agent.virtual import in_virtual_time

ROW = pytest.mark.row
RULES = Progress(bound=timedelta(minutes=2), first_step=timedelta(minutes=10))
Pods = list[PodStep]


BEGUN = datetime(2026, 6, 1, tzinfo=UTC)


class LoopTime(datetime):
    """A clock that goes with the loop's."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return BEGUN.replace(tzinfo=tz) + timedelta(seconds=asyncio.get_running_loop().time())


def given(rules: Progress = RULES, **fields: Any) -> FollowInput:
    target = Target(
        cluster="dev",
        cluster_uid="",
        namespace="default",
        name="train",
        workload_uid="uid",
        workflow_id="w",
        shard=0,
        run_as="default",
    )
    return FollowInput(target=target, attempt=1, progress=rules, **fields)


def site(kube: Any = None) -> Site:
    return Site(kube, "dev", "", "installation", Limits())


def annotated(name: str, text: str | None, phase: str = "Running", **labels: str) -> dict[str, Any]:
    raw = pod(name, phase)
    raw["metadata"]["labels"] = {**raw["metadata"].get("labels", {}), names.LABEL_COMPONENT: "main", **labels}
    if text is not None:
        raw["metadata"]["annotations"] = {names.ANNOTATION_STEP: text}
    return raw


class Listing:
    """An API server's list of pods."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = pods
        self.versions: list[str | None] = []

    async def list(self, *_: Any, keep: Callable[[Any], Any], resource_version: str | None = None, **__: Any) -> Any:
        self.versions.append(resource_version)
        return {"items": [keep(one) for one in self.pods]}


def followed(
    monkeypatch: pytest.MonkeyPatch, at: Callable[[float], Pods], start: FollowInput, beats: list[Any] | None = None
) -> tuple[Followed, float]:
    """Follow pods that tell this at each time; return the answer, and after how many seconds it came."""
    came: list[Any] = []

    async def read(_: Site, __: FollowInput) -> Pods:
        return at(asyncio.get_running_loop().time())

    async def main() -> None:
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(environment.info, heartbeat_timeout=probe_heartbeat(RULES))
        environment.on_heartbeat = (beats if beats is not None else []).append
        came.append(await environment.run(following.follow, site(), start))
        came.append(asyncio.get_running_loop().time())

    monkeypatch.setattr(following, "pod_steps", read)
    monkeypatch.setattr(following, "datetime", LoopTime)
    in_virtual_time(main())
    return came[0], came[1]


def at_step(step: int | None, **word: Any) -> Pods:
    return [PodStep(uid="a", name="train-0", node="node-7", told=Step(step=step, **word))]


@ROW("P1", level="pure")
def test_P1_the_annotation_of_each_running_pod_is_read_consistently():
    text = json.dumps({"step": 7, "total": 9, "loss": 0.25})
    listing = Listing(annotated("a", text), annotated("b", None), annotated("c", text, "Pending"))

    found = asyncio.run(pod_steps(site(listing), given()))
    assert [(one.name, one.told) for one in found] == [("a", Step(step=7, total=9)), ("b", None)]
    assert listing.versions == [None], "a cache that lags would look like a stall"


@ROW("P1", level="pure")
def test_P1_only_declared_components_are_read():
    listing = Listing(annotated("a", "{}"), annotated("b", "{}", **{names.LABEL_COMPONENT: "side"}))
    found = asyncio.run(pod_steps(site(listing), given(Progress(components=("side",)))))
    assert [one.name for one in found] == ["b"]


@ROW("P1", level="pure")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "[]",
        "{",
        '{"step": -1}',
        '{"step": "x"}',
        '{"step": 1e30}',
        '{"bound": 0}',
        '{"phase": "a b"}',
        "x" * 5000,
    ],
)
def test_P1_what_a_pod_tells_that_cannot_be_read_counts_as_nothing_told(text: str):
    assert step_of(text) is None


@ROW("P1", level="pure")
def test_P1_a_pod_that_does_not_run_tells_nothing():
    assert running_pod(annotated("a", "{}", "Succeeded")) is None
    assert running_pod(annotated("a", '{"step": 1}')) is not None


@ROW("P1", level="pure")
async def test_P1_a_file_is_read_over_http_and_a_pod_that_nobody_reaches_is_unknown(tmp_path: Path):
    file = tmp_path / "step.json"
    serving = progress.server(file, 0, "127.0.0.1")
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    rules = Progress(source=ProgressSource.HTTP, port=serving.server_address[1])
    here = RunningPod(pod_facts(annotated("a", None)), "127.0.0.1", "")
    try:
        assert [one.told for one in await asked(rules, [here])] == [Step()], "no file yet"
        progress.write(file, {"step": 12, "loss": 0.5})
        assert [one.told for one in await asked(rules, [here])] == [Step(step=12)]
        file.write_text("{" + " " * 5000)
        assert [one.told for one in await asked(rules, [here])] == [None]
    finally:
        serving.shutdown()
        serving.server_close()
    refused = await asked(rules, [here])
    assert [one.told for one in refused] == [None], "it refuses: it is there, and tells nothing"
    assert await asked(rules, [RunningPod(here.facts, "", "")]) == [], "without an address of its own it is not asked"


@ROW("P2", level="pure")
async def test_P2_of_pods_over_http_the_one_that_cannot_be_connected_to_is_hidden():
    """A connection to 255.255.255.255 fails at once, and not because it is refused."""
    refuses = RunningPod(pod_facts(annotated("a", None)), "127.0.0.1", "")
    away = RunningPod(pod_facts(annotated("b", None)), "255.255.255.255", "")
    found = await asked(Progress(source=ProgressSource.HTTP, port=9), [refuses, away])
    assert [(one.name, one.told, one.hidden) for one in found] == [("a", None, False), ("b", None, True)]


@ROW("P1", level="pure")
@ROW("D44", level="pure")
async def test_D44_a_step_in_several_segments_is_read_to_its_end():
    told = b'{"step": 12, "loss": 0.5}'
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(told)
    async with segments_told(head, told[:9], told[9:]) as port:
        rules = Progress(source=ProgressSource.HTTP, port=port)
        (found,) = await asked(rules, [RunningPod(pod_facts(annotated("a", None)), "127.0.0.1", "")])
    assert found.told == Step(step=12)


@ROW("P2", level="pure")
def test_P2_a_stall_is_told_once_its_bound_is_over(monkeypatch: pytest.MonkeyPatch):
    first, _ = followed(monkeypatch, lambda now: at_step(int(now)), given())
    assert (first.failure, first.record.step if first.record else None) == (None, 0), "the first step is told at once"
    assert first.record is not None
    known = first.record.model_copy(update={"fresh": False})
    came, seconds = followed(monkeypatch, lambda _: at_step(0), given(known=known))
    assert (came.failure, seconds) == (None, 75), "half of the bound is over"
    assert came.record is not None
    late = came.record.model_copy(update={"at": known.at})
    came, seconds = followed(monkeypatch, lambda _: at_step(0), given(known=late))
    assert came.failure is not None
    assert came.failure.message.startswith("step 0, no new step for 2m")
    assert seconds == 60


@ROW("P2", level="pure")
@pytest.mark.parametrize(
    ("word", "step"), [({}, 1), ({"phase": "saving"}, 0)], ids=["a new step", "a phase that may be long"]
)
def test_P2_a_stall_that_was_told_is_news_again_only_once_it_is_over(
    monkeypatch: pytest.MonkeyPatch, word: dict[str, Any], step: int
):
    first, _ = followed(monkeypatch, lambda _: at_step(0), given())
    assert first.record is not None
    known = first.record.model_copy(update={"fresh": False, "quiet": 3600.0})
    later = lambda now: at_step(step, **word) if now >= 7200 else at_step(0)  # noqa: E731
    came, seconds = followed(monkeypatch, later, given(known=known, stalled=True))
    assert (came.failure, seconds) == (None, 7200)
    assert came.record is not None
    assert came.record.quiet == 0


@ROW("P1", level="pure")
def test_P1_stalls_that_come_and_go_are_told_with_their_ends_at_most_once_a_minute(monkeypatch: pytest.MonkeyPatch):
    """Each step takes a little longer than the bound."""
    rules = Progress(bound=timedelta(seconds=20), period=timedelta(seconds=5))
    first, _ = followed(monkeypatch, lambda _: at_step(0), given(rules))
    assert first.record is not None
    known, begun, news, ends = first.record.model_copy(update={"fresh": False}), 0.0, list[float](), list[float]()
    is_known = False
    while begun < 3600:
        start, came_at = given(rules, known=known, stalled=is_known), begun
        came, seconds = followed(monkeypatch, lambda now, at=came_at: at_step(int((at + now) // 30)), start)
        assert came.record is not None
        begun += max(seconds, 0.001)
        if came.failure is None and is_known:
            ends.append(begun - news[-1])
        news.append(begun)
        is_known = came.failure is not None
        shift = timedelta(seconds=seconds)
        told = came.record.stall_told
        known = came.record.model_copy(
            update={"at": came.record.at - shift, "stall_told": told - shift if told is not None else None}
        )
    assert news[0] == 25, "the first is told at once"
    assert len(ends) > 20
    assert max(ends) <= 10, "so is the end of each, or the workload would be restarted"
    assert len(news) <= 61


@ROW("P1", level="pure")
def test_P1_a_workload_that_steps_well_is_told_of_every_five_minutes(monkeypatch: pytest.MonkeyPatch):
    start, _ = followed(monkeypatch, lambda _: at_step(1), given())
    came, seconds = followed(monkeypatch, lambda now: at_step(2 + int(now * 1000)), given(known=start.record))
    assert came.failure is None
    assert 300 <= seconds <= 315


@ROW("P1", level="pure")
def test_P1_an_hour_of_steps_costs_no_more_actions_than_the_bill_says(monkeypatch: pytest.MonkeyPatch):
    rules, beats, known, begun, news = Progress(), list[Any](), None, 0.0, 0
    while begun < 3600:
        came, seconds = followed(
            monkeypatch, lambda now, begun=begun: at_step(int(begun + now)), given(rules, known=known), beats=beats
        )
        known, begun, news = came.record, begun + max(seconds, 0.001), news + 1
        assert known is not None
        known = known.model_copy(update={"at": BEGUN})
    assert 0 < len(beats) + news - 1 <= bill.STEPS.actions, "the first news tells of the first step"


@ROW("P2", level="pure")
def test_P2_an_api_server_that_is_away_is_no_stall(monkeypatch: pytest.MonkeyPatch):
    start, _ = followed(monkeypatch, lambda _: at_step(1), given())

    def away(now: float) -> Pods:
        if 60 < now < 7200:
            raise Unreachable(0, "Unreachable", "the API server does not answer")
        return at_step(5 if now < 7200 else 6)

    came, seconds = followed(monkeypatch, away, given(known=start.record))
    assert came.failure is None
    assert came.record is not None
    assert (came.record.step, seconds >= 7200) == (6, True)


@ROW("P2", level="pure")
def test_P2_the_restarts_of_all_containers_are_read_with_a_pod():
    raw = annotated("a", None)
    raw["status"]["containerStatuses"] = [{"name": "main", "restartCount": 2}, {"name": "side", "restartCount": 1}, {}]
    (found,) = asyncio.run(pod_steps(site(Listing(raw)), given()))
    assert (found.restarts, found.program) == (3, "a-uid/3")
    (found,) = asyncio.run(pod_steps(site(Listing(annotated("a", None))), given()))
    assert found.program == "a-uid"


@ROW("P1", level="pure")
async def test_P1_a_round_over_many_pods_that_hang_ends_before_the_next_and_hears_the_others(tmp_path: Path):
    hanging: set[asyncio.StreamWriter] = set()

    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hanging.add(writer)
        await asyncio.sleep(60)

    silent = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    file = tmp_path / "step.json"
    progress.write(file, {"step": 12})
    serving = progress.server(file, port, "127.0.0.2")
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    rules = Progress(source=ProgressSource.HTTP, port=port, period=timedelta(seconds=2))
    pods = [RunningPod(pod_facts(annotated(f"p{number:03}", None)), "127.0.0.1", "") for number in range(100)]
    pods.append(RunningPod(pod_facts(annotated("z", None)), "127.0.0.2", ""))
    try:
        begun = asyncio.get_running_loop().time()
        found = await asked(rules, pods)
        assert asyncio.get_running_loop().time() - begun < 2
        assert [one.told for one in found] == [None] * 100 + [Step(step=12)]
    finally:
        serving.shutdown()
        serving.server_close()
        for writer in hanging:
            writer.close()
        silent.close()


@ROW("P1", level="pure")
def test_P1_a_round_that_lasts_sends_heartbeats(monkeypatch: pytest.MonkeyPatch):
    beats: list[float] = []

    async def slow(_: Site, __: FollowInput) -> Pods:
        await asyncio.sleep(100)
        return at_step(1)

    async def main() -> None:
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(environment.info, heartbeat_timeout=probe_heartbeat(RULES))
        environment.on_heartbeat = lambda *_: beats.append(asyncio.get_running_loop().time())
        await environment.run(following.follow, site(), given())

    monkeypatch.setattr(following, "pod_steps", slow)
    monkeypatch.setattr(following, "datetime", LoopTime)
    in_virtual_time(main())
    longest = probe_heartbeat(RULES).total_seconds()
    assert all(later - sooner < longest for sooner, later in pairwise([0.0, *beats, 100.0]))
