"""Who is asked whether it serves, what counts as an answer, and how silence is counted (row L28)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from bench import bill
from holdfast import names
from holdfast.activities.facts.pods import pod_facts
from holdfast.activities.operations import probe as probes
from holdfast.activities.operations.probe import Asked, answers_of, probe_target, worst
from holdfast.activities.site.site import Site
from holdfast.client.views import ActivityView
from holdfast.model import Limits, Probe, ProbeKind
from holdfast.model.calls.cluster import Probed, ProbeInput, Target
from holdfast.policy.sides.probe import Answer, counted
from holdfast.workflows.operations.dispatch import probe_heartbeat
from tests.activities.shapes import pod, stamp, time
from tests.agent.virtual import in_virtual_time

ROW = pytest.mark.row
HERE = "127.0.0.1"


def one(name: str = "p", address: str = HERE) -> Asked:
    return Asked(pod_facts(pod(name)), address, time(3))


def running(ip: str = "10.1.2.3", phase: str = "Running", **spec: Any) -> dict[str, Any]:
    state = {"name": "main", "state": {"running": {"startedAt": stamp(7)}}}
    raw = pod("p", phase, podIP=ip, hostIP="192.0.2.1", startTime=stamp(3), containerStatuses=[state])
    raw["spec"] |= spec
    return raw


@ROW("L28", level="pure")
def test_L28_a_running_pod_is_asked_at_its_own_address_from_when_its_containers_run():
    found = probe_target(running())
    assert found is not None
    assert (found.address, found.since, found.facts.name) == ("10.1.2.3", time(7), "p")
    assert probe_target(running("fd00::17")) is not None


@ROW("L28", level="pure")
@pytest.mark.parametrize(
    "raw",
    [
        running(hostNetwork=True),
        running("192.0.2.1"),
        running("127.0.0.1"),
        running("::1"),
        running("169.254.169.254"),
        running("fe80::1"),
        running("224.0.0.1"),
        running("0.0.0.0"),
        running(""),
        running("metadata.google.internal"),
        running(phase="Pending"),
        running(phase="Unknown"),
        running(phase="Failed"),
        {**running(), "metadata": {**running()["metadata"], "deletionTimestamp": stamp(9)}},
    ],
)
def test_L28_what_has_no_address_of_its_own_or_does_not_run_is_not_asked(raw: dict[str, Any]):
    assert probe_target(raw) is None


@ROW("L28", level="pure")
def test_L28_fail_fail_ok_fail_fail_survives_and_the_third_in_a_row_does_not():
    failing: dict[str, int] = {}
    pods, uid = [one()], "p-uid"
    for answer in ("no", "no", "", "no", "no"):
        failing = counted(failing, {uid: answer})
        assert worst(pods, {uid: answer}, failing, 3) is None
    failing = counted(failing, {uid: "no"})
    assert worst(pods, {uid: "no"}, failing, 3) == pods[0]


@ROW("L28", level="pure")
def test_L28_each_pod_has_its_own_count_and_what_is_not_known_counts_for_nothing():
    pods = [one("a"), one("b"), one("c")]
    answers: dict[str, Answer] = {"a-uid": "no", "b-uid": "", "c-uid": None}
    failing = counted({"a-uid": 1, "b-uid": 2, "c-uid": 2, "gone": 2}, answers)
    assert failing == {"a-uid": 2, "c-uid": 2}
    assert worst(pods, answers, {"c-uid": 3}, 3) is None, "unknown is not failure"
    assert worst(pods, answers | {"c-uid": "no"}, {"a-uid": 5, "c-uid": 3}, 3) == pods[0], "the first by name"


class Listing:
    """A cluster with one pod of each workload."""

    async def list(self, *_: Any, labels: str, keep: Any, **__: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"items": [keep(running())]}


def asking(uid: str, period: str = "30s") -> ProbeInput:
    target = Target(
        cluster="dev",
        cluster_uid="",
        namespace="default",
        name=uid,
        workload_uid=uid,
        workflow_id=f"workload/dev/default/{uid}",
        shard=1,
        run_as=names.RUN_AS_DEFAULT,
        source_kind="List",
    )
    return ProbeInput(target=target, attempt=1, probe=Probe.model_validate({"port": 80, "period": period}))


async def rounds(monkeypatch: pytest.MonkeyPatch, reaches: bool, *workloads: str) -> list[Any]:
    """Return what one worker's probes of these workloads come to, whose rounds begin at once; none answers."""

    async def answers(rules: Probe, pods: list[Asked], reached: Any = None) -> dict[str, Answer]:
        await asyncio.sleep(0)
        if reaches and reached is not None:
            reached.update(one.facts.uid for one in pods)
        return {one.facts.uid: "no answer within 5 s" for one in pods}

    async def now(*_: Any) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(probes, "answers_of", answers)
    monkeypatch.setattr(probes, "_until", now)
    site = Site(Listing(), "dev", "", "installation", Limits())  # type: ignore[arg-type]
    told.clear()
    return await asyncio.gather(*(probing(site, uid) for uid in workloads), return_exceptions=True)


told: list[Any] = []
"""What probes have said in heartbeats."""


async def probing(site: Site, uid: str) -> Any:
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: told.append(details[0])
    return await environment.run(probes.probe, site, asking(uid))


class LoopTime(datetime):
    """A clock that goes with the loop's."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime(2026, 6, 1, tzinfo=tz) + timedelta(seconds=asyncio.get_running_loop().time())


@pytest.mark.parametrize(
    ("period", "timeout", "in_an_hour"),
    [("30s", 60, bill.PROBE.actions), ("5m", 60, 120), ("10s", 20, 360), ("5s", 10, 720)],
    ids=["the default", "seldom", "often", "more often"],
)
def test_L28_a_probe_whose_counts_stay_sends_one_heartbeat_a_round_or_fewer(
    monkeypatch: pytest.MonkeyPatch, period: str, timeout: int, in_an_hour: int
):
    beats: list[float] = []

    async def answers(rules: Probe, pods: list[Asked], reached: Any = None) -> dict[str, Answer]:
        return {one.facts.uid: "" for one in pods}

    async def main() -> None:
        loop, environment = asyncio.get_running_loop(), ActivityEnvironment()
        given = asking("a", period)
        environment.info = dataclasses.replace(environment.info, heartbeat_timeout=probe_heartbeat(given.probe))
        assert environment.info.heartbeat_timeout == timedelta(seconds=timeout)
        environment.on_heartbeat = lambda *_: beats.append(loop.time())
        site = Site(Listing(), "dev", "", "installation", Limits())  # type: ignore[arg-type]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await environment.run(probes.probe, site, given)

    monkeypatch.setattr(probes, "answers_of", answers)
    monkeypatch.setattr(probes, "datetime", LoopTime)
    in_virtual_time(main())
    assert len(beats) <= in_an_hour + 1
    gaps = [later - earlier for earlier, later in pairwise([0.0, *beats])]
    assert max(gaps) <= timeout / 2 + 0.1, "another could be lost, and the server would still wait"


@ROW("D47", level="pure")
async def test_D47_a_worker_that_reaches_no_pod_of_several_workloads_fails_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
):
    came = await rounds(monkeypatch, False, "a", "b", "c")
    assert not [one for one in came if isinstance(one, Probed) and one.failure is not None]
    for one in came:
        assert isinstance(one, ApplicationError)
        assert (one.type, one.non_retryable) == ("NoPodReached", False), "another worker asks"
        assert one.next_retry_delay is not None
        assert "reaches no pod of any workload" in str(one)
    assert max(sum(one["failing"].values()) for one in told) <= 1, "what was not known when it began, is not counted on"
    shown = ActivityView(type="probe", state="Started", attempt=1, heartbeat=(told[-1],)).sentence(time(0))
    assert shown.startswith("this worker reaches no pod of any workload"), "explain says so"


@ROW("D47", level="pure")
async def test_D47_pods_that_are_reached_and_do_not_answer_have_failed_and_so_has_the_only_workload(
    monkeypatch: pytest.MonkeyPatch,
):
    for came in (await rounds(monkeypatch, True, "a", "b"), await rounds(monkeypatch, False, "a")):
        assert all(isinstance(one, Probed) and one.failure is not None for one in came)


@ROW("D47", level="pure")
async def test_D47_whoever_takes_or_refuses_a_connection_is_reached():
    rules = Probe.model_validate({"kind": "HTTP", "port": 1, "timeout": "1s"})
    async with server(b"") as port:
        for kind in ("HTTP", "TCP"):
            reached = set[str]()
            await answers_of(rules.model_copy(update={"port": port, "kind": ProbeKind(kind)}), [one()], reached)
            assert reached == {"p-uid"}, "though it may say nothing"
    reached = set[str]()
    await answers_of(rules.model_copy(update={"port": port}), [one()], reached)
    assert reached == {"p-uid"}, "it refuses"


@asynccontextmanager
async def server(said: bytes, seen: Callable[[bytes], None] = lambda _: None) -> AsyncIterator[int]:
    """Serve these bytes to whoever asks; nothing at all where there are none."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen(await reader.read(4096))
        if said:
            writer.write(said)
            await writer.drain()
            writer.close()
        else:
            await asyncio.sleep(30)

    listening = await asyncio.start_server(serve, HERE, 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


def http(status: str, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", "Content-Length: 0", *headers, "", ""]).encode()


async def get(port: int, **more: Any) -> Answer:
    rules = Probe.model_validate({"kind": "HTTP", "port": port, "timeout": "1s", **more})
    return (await answers_of(rules, [one()]))["p-uid"]


@ROW("L28", level="pure")
@pytest.mark.parametrize(
    ("status", "answer"),
    [
        ("200 OK", ""),
        ("204 No Content", ""),
        ("399 Odd", ""),
        ("404 Not Found", "HTTP 404"),
        ("503 Busy", "HTTP 503"),
    ],
)
async def test_L28_a_get_succeeds_from_200_to_399(status: str, answer: str):
    async with server(http(status)) as port:
        assert await get(port) == answer


@ROW("L28", level="pure")
async def test_L28_a_redirection_is_an_answer_and_is_not_followed():
    requests: list[bytes] = []
    async with server(http("200 OK"), requests.append) as elsewhere:
        location = f"Location: http://{HERE}:{elsewhere}/secret"
        async with server(http("302 Found", location)) as port:
            assert await get(port) == ""
    assert requests == []


@ROW("L28", level="pure")
async def test_L28_the_request_is_the_path_that_was_given_and_names_who_asks():
    requests: list[bytes] = []
    async with server(http("200 OK"), requests.append) as port:
        await get(port, path="/healthz?full=%20yes")
    assert requests[0].startswith(b"GET /healthz?full=%20yes HTTP/1.1\r\n")
    assert b"User-Agent: holdfast-probe" in requests[0]


@ROW("L28", level="pure")
@pytest.mark.parametrize("said", [b"", b"SSH-2.0-OpenSSH_9\r\n\r\n"])
async def test_L28_silence_and_nonsense_are_no_answers(said: bytes):
    async with server(said) as port:
        answer = await get(port)
        assert answer
        assert ("no answer within 1 s" in answer) is (not said)


@ROW("L28", level="pure")
async def test_L28_a_connection_that_is_accepted_is_enough_for_tcp_and_a_closed_port_is_not():
    rules = {"kind": "TCP", "timeout": timedelta(seconds=1)}
    async with server(b"") as port:
        assert (await answers_of(Probe(port=port, **rules), [one()])) == {"p-uid": ""}  # pyright: ignore[reportArgumentType]
    answers = await answers_of(Probe(port=port, **rules), [one()])  # pyright: ignore[reportArgumentType]
    assert answers["p-uid"]


@ROW("L28", level="pure")
async def test_L28_a_worker_without_sockets_left_blames_no_pod(monkeypatch: pytest.MonkeyPatch):
    async def none_left(*_: Any, **__: Any) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncio, "open_connection", none_left)
    assert await answers_of(Probe(port=80), [one()]) == {"p-uid": None}
