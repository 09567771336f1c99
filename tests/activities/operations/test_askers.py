"""How a pod is asked to save its state by HTTP, and what counts as an answer (row L32). The endpoints here are real."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from holdfast import names
from holdfast.activities.facts.pods import PodFacts, PodState
from holdfast.activities.operations import checkpoint, save_requests
from holdfast.activities.operations.checkpoint import summed
from holdfast.activities.operations.save_requests import Answer, Standing, address_of, asker_of, read_answer, read_body
from holdfast.activities.site.saves import by_place, told_of
from holdfast.activities.site.site import Pulse
from holdfast.model import Answers, Checkpoint, CheckpointProtocol, Phase, Reason, Report
from holdfast.model.calls.cluster import CheckpointInput, Progress, Target
from holdfast.policy.attempt.checkpoint import is_over, lost
from tests.activities.segments import segments_told

ROW = pytest.mark.row
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def own_address() -> str:
    """Return an address of this machine that is not its loopback's, without sending anything."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network but its loopback")
        return str(probe.getsockname()[0])


def pod(ip: str | None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "train-0", "uid": "u-0"}, "spec": spec, "status": {"podIP": ip} if ip else {}}


def given(port: int, path: str = "/checkpoint") -> CheckpointInput:
    target = Target(
        cluster="dev",
        cluster_uid="",
        namespace="default",
        name="train",
        workload_uid="uid",
        workflow_id="workload/dev/default/train",
        shard=1,
        run_as=names.RUN_AS_DEFAULT,
        source_kind="List",
    )
    return CheckpointInput(
        target=target,
        attempt=2,
        checkpoint=Checkpoint(protocol=CheckpointProtocol.HTTP, port=port, path=path),
        components=("train",),
        number=3,
        reason="Preempted",
        running=1,
        until=datetime(2026, 1, 1, 12, tzinfo=UTC),
        report=Report(sequence=1, phase=Phase.CHECKPOINTING, reason=Reason.PREEMPTED),
    )


@asynccontextmanager
async def endpoint(handler: Handler) -> AsyncIterator[int]:
    """Serve POST /checkpoint by a handler, and yield the port."""
    application = web.Application()
    application.router.add_post("/checkpoint", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "0.0.0.0", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def asked(handler: Handler, times: int = 1) -> list[Answer]:
    async with endpoint(handler) as port, asker_of(None, given(port)) as asker:  # type: ignore[arg-type]
        return [await asker.ask(pod(own_address())) for _ in range(times)]


@ROW("L32", level="pure")
async def test_L32_the_request_says_what_is_asked_why_and_until_when():
    seen: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(await request.json())
        return web.json_response({"state": "Complete", "uri": "s3://saved/7"})

    assert await asked(handler) == [Answer(Standing.DONE, "s3://saved/7")]
    assert seen == [{"request": 3, "attempt": 2, "reason": "Preempted", "deadline": "2026-01-01T12:00:00Z"}]


@ROW("L32", level="pure")
async def test_L32_the_same_request_is_sent_again_until_its_last_word():
    answers = [
        web.Response(status=202),
        web.json_response({"state": "InProgress", "message": "3 of 9 shards"}),
        web.json_response({"state": "Complete", "uri": "s3://saved/7"}),
    ]

    async def handler(_: web.Request) -> web.Response:
        return answers.pop(0)

    said = await asked(handler, times=4)
    assert [one.standing for one in said] == [Standing.WORKING, Standing.WORKING, Standing.DONE, Standing.DONE]
    assert (said[1].message, answers) == ("3 of 9 shards", [])


@ROW("L32", level="pure")
@pytest.mark.parametrize(
    ("status", "text", "standing"),
    [
        (404, "", Standing.SILENT),
        (500, "", Standing.SILENT),
        (302, "", Standing.SILENT),
        (200, "ok", Standing.SILENT),
        (200, '{"state": "Done"}', Standing.SILENT),
        (200, '["Complete"]', Standing.SILENT),
        (200, '{"state": "Failed", "message": "disk full"}', Standing.FAILED),
        (200, '{"state": "Complete"}', Standing.WORKING),
    ],
)
async def test_L32_only_an_answer_is_an_answer(status: int, text: str, standing: Standing):
    async def handler(_: web.Request) -> web.Response:
        return web.Response(
            status=status, text=text, headers={"Location": "http://192.0.2.1/"} if status == 302 else {}
        )

    (said,) = await asked(handler)
    assert said.standing is standing


async def said_by(*segments: bytes) -> Answer:
    async with segments_told(*segments) as port, asker_of(None, given(port)) as asker:  # type: ignore[arg-type]
        return await asker.ask(pod(own_address()))


BODY = b'{"state": "Complete", "uri": "s3://saved/7"}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@ROW("D44", level="pure")
@pytest.mark.parametrize(
    "segments",
    [
        (HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:9], BODY[9:]),
        (HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:9], BODY[9:20], BODY[20:]),
        (HEAD + b"Connection: close\r\n\r\n" + BODY[:9], BODY[9:]),
        (
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\n" + BODY[:9] + b"\r\n",
            b"23\r\n" + BODY[9:] + b"\r\n0\r\n\r\n",
        ),
    ],
    ids=["two", "three", "until it closes", "chunked"],
)
async def test_D44_an_answer_in_several_segments_is_read_to_its_end(segments: tuple[bytes, ...]):
    assert await said_by(*segments) == Answer(Standing.DONE, "s3://saved/7")


@ROW("D44", level="pure")
async def test_D44_what_is_not_understood_is_said_otherwise_than_what_does_not_answer():
    length = HEAD + b"Content-Length: 2\r\n\r\n"
    told = {
        "text": await said_by(length + b"ok"),
        "list": await said_by(length + b"[]"),
        "deep": await said_by(HEAD + b"Content-Length: 9999\r\n\r\n" + b"[" * 9999),
        "long": await said_by(HEAD + b"Connection: close\r\n\r\n" + b" " * save_requests.ANSWER_BYTES, BODY),
        "status": await said_by(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        "other": await said_by(HEAD + b"Content-Length: 17\r\n\r\n" + b'{"state": "Done"}'),
        "nothing": await said_by(),
    }
    words = {name: summed([(facts("p"), said)]).left[0] for name, said in told.items()}
    assert all(said.standing is Standing.SILENT for said in told.values())
    assert words["nothing"].startswith("p has not answered (its endpoint does not answer"), words
    for name in words.keys() - {"nothing"}:
        assert words[name].startswith("p is not understood ("), words
        assert "does not answer" not in words[name]
    assert "longer than 16 KiB" in words["long"]
    assert "answers 404" in words["status"]


def annotated(number: int | None = None, state: str = "Complete", **more: str) -> dict[str, Any]:
    """Return a pod that was asked for checkpoint 3, and says that it has one; of which request it may say, too."""
    notes = {
        names.ANNOTATION_CHECKPOINT_REQUEST: "3",
        names.ANNOTATION_CHECKPOINT_REASON: "Preempted",
        names.ANNOTATION_CHECKPOINT_DEADLINE: "2026-01-01T12:00:00Z",
        names.ANNOTATION_CHECKPOINT_STATE: state,
        names.ANNOTATION_CHECKPOINT_URI: "s3://saved/7",
        **({} if number is None else {"holdfast.dev/checkpoint-answers": str(number)}),
        **more,
    }
    return {"metadata": {"name": "train-0", "namespace": "default", "uid": "u-0", "annotations": notes}}


async def noted(pod: dict[str, Any]) -> Answer:
    """Return what counts of its annotations; nothing is to be patched on it, so that there is no cluster."""
    wanted = given(1).model_copy(update={"checkpoint": Checkpoint(protocol=CheckpointProtocol.ANNOTATION)})
    async with asker_of(None, wanted) as asker:  # type: ignore[arg-type]
        return await asker.ask(pod)


@ROW("D45", level="pure")
@pytest.mark.parametrize("state", ["Complete", "Failed", "InProgress"])
@pytest.mark.parametrize("number", [2, 4])
async def test_D45_an_answer_to_another_request_is_none_to_this_one(state: str, number: int):
    said = await noted(annotated(number, state))
    assert said.standing is Standing.SILENT
    assert said.message == f"it answers request {number}: expected an answer to request 3"


@ROW("D45", level="pure")
@pytest.mark.parametrize("state", ["Complete", "Failed"])
async def test_D45_one_that_names_no_request_counts_only_after_InProgress(state: str):
    said = await noted(annotated(None, state))
    assert said.standing is Standing.SILENT
    assert said.message.startswith(f"it says {state}, and not of which request")


@ROW("D45", level="pure")
async def test_D45_one_that_names_this_request_or_was_seen_in_progress_since_counts():
    assert (await noted(annotated(3))) == Answer(Standing.DONE, "s3://saved/7")
    assert (await noted(annotated(3, "InProgress"))).standing is Standing.WORKING
    seen = {"holdfast.dev/checkpoint-begun": "3"}
    assert (await noted(annotated(None, **seen))) == Answer(Standing.DONE, "s3://saved/7")
    before = {"holdfast.dev/checkpoint-begun": "2"}
    assert (await noted(annotated(None, **before))).standing is Standing.SILENT


@ROW("D45", level="pure")
async def test_D45_a_response_that_names_another_request_is_no_answer():
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"state": "Complete", "uri": "s3://saved/7", "request": numbers.pop(0)})

    numbers: list[Any] = [2, 3]
    said = await asked(handler, times=2)
    assert [one.standing for one in said] == [Standing.SILENT, Standing.DONE]


@ROW("D44", level="pure")
@ROW("D45", level="pure")
@pytest.mark.parametrize("field", ["state", "uri", "message", "request"])
@pytest.mark.parametrize("state", ["InProgress", "Complete", "Failed"])
def test_D44_an_answer_with_half_a_character_can_be_recorded(field: str, state: str):
    answer = {"state": state, "uri": "s3://x", "message": "m", "request": "3"}
    said = read_body(json.dumps({**answer, field: "\ud800"}).encode(), 3)
    f"{said.uri}{said.message}".encode()


async def test_an_endless_answer_is_read_no_further_than_it_may_be_long():
    async def handler(_: web.Request) -> web.Response:
        return web.Response(text='{"state": "Complete", "uri": "' + "x" * 100_000 + '"}')

    (said,) = await asked(handler)
    assert said.standing is not Standing.DONE


async def test_an_endpoint_that_does_not_answer_is_silent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(save_requests, "ANSWER_SECONDS", 0.2)
    forever = asyncio.Event()

    async def handler(_: web.Request) -> web.Response:
        await forever.wait()
        return web.Response()

    (said,) = await asked(handler)
    assert (said.standing, said.message) == (Standing.SILENT, "its endpoint does not answer: TimeoutError")
    forever.set()


async def test_nothing_is_asked_where_nobody_listens():
    async def handler(_: web.Request) -> web.Response:
        return web.Response()

    async with endpoint(handler) as port:
        pass
    async with asker_of(None, given(port)) as asker:  # type: ignore[arg-type]
        assert (await asker.ask(pod(own_address()))).standing is Standing.SILENT


@pytest.mark.parametrize(
    ("ip", "spec", "where"),
    [
        ("10.1.2.3", {}, "10.1.2.3"),
        ("fd00::7", {}, "[fd00::7]"),
        ("10.1.2.3", {"hostNetwork": True}, ""),
        ("127.0.0.1", {}, ""),
        ("169.254.169.254", {}, ""),
        ("0.0.0.0", {}, ""),
        ("evil.example.com", {}, ""),
        ("", {}, ""),
        ("::ffff:10.1.2.3", {}, "10.1.2.3"),
        ("::ffff:127.0.0.1", {}, ""),
        ("::ffff:169.254.169.254", {}, ""),
        ("::ffff:0.0.0.0", {}, ""),
    ],
)
def test_only_a_pods_own_address_is_asked(ip: str, spec: dict[str, Any], where: str):
    assert address_of(pod(ip, **spec)) == where


@ROW("D32", level="pure")
@pytest.mark.parametrize(
    "node",
    [{"hostIP": "10.1.2.3"}, {"hostIP": "::ffff:10.1.2.3"}, {"hostIPs": [{"ip": "fd00::1"}, {"ip": "10.1.2.3"}]}],
)
def test_D32_the_address_of_a_pods_node_is_not_the_pods(node: dict[str, Any]):
    for written in ("10.1.2.3", "::ffff:10.1.2.3"):
        found = pod(written)
        assert address_of(found) == "10.1.2.3"
        found["status"] |= node
        assert address_of(found) == ""


@ROW("L32", level="pure")
def test_L32_a_place_that_is_no_plain_text_is_refused():
    assert read_answer("Complete", "s3://a\nb", "").standing is Standing.FAILED
    assert read_answer("Complete", "x" * 1025, "").standing is Standing.FAILED
    assert read_answer("Complete", "x" * 1024, "").standing is Standing.DONE


@ROW("L32", level="pure")
def test_L32_complete_without_a_place_is_not_complete_yet():
    assert read_answer("Complete", "", "") == Answer(Standing.WORKING, message="it says Complete, and names no URI")


@ROW("L32", level="pure")
def test_L32_a_word_that_is_none_is_told_with_those_that_are():
    said = read_answer("Finished", "s3://a", "")
    assert said.message == "it says 'Finished': expected one of InProgress, Complete, Failed"


def facts(name: str, state: PodState = PodState.RUNNING) -> PodFacts:
    return PodFacts(
        uid=name,
        name=name,
        namespace="default",
        workload_uid="uid",
        attempt=1,
        component="train",
        node="",
        state=state,
        created=None,
        revision=1,
    )


@ROW("L32", level="pure")
def test_L32_those_that_name_different_places_disagree():
    told = summed([(facts("a"), Answer(Standing.DONE, "s3://1")), (facts("b"), Answer(Standing.DONE, "s3://2"))])
    assert (told.done, told.disagree, told.uri) == (2, True, "")


@ROW("L19", level="pure")
def test_L19_those_that_an_earlier_worker_saw_save_count_as_those_seen_now():
    now = [(facts("a"), Answer(Standing.DONE, "s3://1")), (facts("b"), Answer())]
    told = summed(now, ("s3://1",))
    assert (told.running, told.done, told.silent, told.uri, told.disagree) == (3, 2, 1, "s3://1", False)
    assert summed(now, ("s3://2",)).disagree


@ROW("L32", level="pure")
def test_L32_those_that_cannot_are_named_first_and_at_most_four():
    said = [(facts(f"p-{index}"), Answer()) for index in range(5)]
    told = summed([*said, (facts("z"), Answer(Standing.FAILED, message="disk full"))])
    assert told.left[0] == "z cannot save (disk full)"
    assert len(told.left) == 4


@ROW("L19", level="pure")
@pytest.mark.parametrize("places", [1, 2, 700])
def test_L19_what_a_removal_tells_the_next_try_of_saves_fits_into_a_heartbeat(places: int) -> None:
    uris = [f"s3://{number:04}/{'x' * 1014}" for number in range(places)]
    saved = told_of(Progress(saved={f"uid-{number}": uris[number % places] for number in range(20_000)}))
    assert len(saved) == 20_000
    told = Progress(doing="removing", places=by_place(saved))
    assert len(json.dumps(told.model_dump(mode="json", by_alias=True))) < 400_000
    again = told_of(told)
    assert again.keys() == saved.keys(), "none is forgotten"
    assert len({*again.values()}) == min(2, places), "one place stays one, and more than one disagree"
    assert by_place(again) == told.places
    most = Progress(places=by_place({f"{number:012}": "s3://a" for number in range(100_000)}))
    assert len(json.dumps(most.model_dump(mode="json", by_alias=True))) < 1_100_000


@ROW("L32", level="pure")
async def test_L32_a_pod_that_is_gone_unsaved_is_lost_also_if_another_runs_in_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = list[PodFacts]()

    async def pods(*_: Any) -> list[tuple[dict[str, Any], PodFacts]]:
        return [({"uid": one.uid}, one) for one in there]

    class Saves:
        async def ask_all(self, asked: Any, _: Any = None) -> list[Answer]:
            return [Answer(Standing.DONE, "s3://a") if one["uid"] != "c" else Answer() for one in asked]

    monkeypatch.setattr(checkpoint, "_pods", pods)
    seen = dict[str, Standing]()

    async def look(members: int = 0) -> Answers:
        given: Any = SimpleNamespace(members=members)
        return await checkpoint._round(cast("Any", None), given, cast("Any", Saves()), Pulse(), seen)

    there[:] = [facts("b"), facts("c")]
    answers = await look()
    assert (answers.done, answers.gone, is_over(answers, 2, 0)) == (1, 0, False)
    there[:] = [facts("b"), facts("a2"), facts("c", PodState.TERMINATING)]
    answers = await look()
    assert (answers.running, answers.done, answers.gone) == (2, 2, 1)
    assert is_over(answers, 2, 0)
    assert lost(answers, 2, 0) == 1
    assert (await look(members=2)).gone == 0, "a member that leaves a gang has no part in its round"
    there[-1] = facts("c", PodState.SUCCEEDED)
    assert (await look()).gone == 0, "it has nothing to save any more"


@ROW("L32", level="pure")
@pytest.mark.parametrize(("pods", "seconds"), [(1, 5.0), (128, 5.0), (512, 5.0), (1024, 2.5), (100_000, 0.5)])
async def test_L32_of_many_endpoints_each_has_less_time_so_that_a_round_ends(
    monkeypatch: pytest.MonkeyPatch, pods: int, seconds: float
) -> None:
    given = CheckpointInput.model_construct(checkpoint=Checkpoint(protocol=CheckpointProtocol.HTTP, port=1))
    asker = asker_of(cast("Any", None), given)
    told = list[float]()

    async def post(_: Any) -> Answer:
        told.append(asker._seconds)  # type: ignore[attr-defined]
        return Answer()

    monkeypatch.setattr(asker, "_post", post)
    await asker.ask_all([{"metadata": {"uid": str(number)}} for number in range(pods)])
    assert set(told) == {seconds}
    assert len(told) == pods


@ROW("D45", level="pure")
async def test_D45_a_pod_is_given_the_number_that_does_not_go_back_and_an_answer_to_the_counted_one_is_none():
    patched: list[dict[str, Any]] = []

    async def patch(*_: Any, patch: dict[str, Any], **__: Any) -> None:
        patched.append(patch["metadata"]["annotations"])

    site: Any = SimpleNamespace(kube=SimpleNamespace(patch=patch))
    by_notes = Checkpoint(protocol=CheckpointProtocol.ANNOTATION)
    wanted = given(1).model_copy(update={"checkpoint": by_notes, "sent": 1796126413})
    there = annotated(3)
    there["metadata"]["resourceVersion"] = "7"
    async with asker_of(site, wanted) as asker:
        assert (await asker.ask(there)).standing is Standing.SILENT
    (notes,) = patched
    assert notes[names.ANNOTATION_CHECKPOINT_REQUEST] == "1796126413"
    assert notes[names.ANNOTATION_CHECKPOINT_STATE] is None

    seen: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((await request.json())["request"])
        return web.json_response(
            {"state": "Complete", "uri": "s3://saved/7", "request": [3, 1796126413][len(seen) - 1]}
        )

    async with (
        endpoint(handler) as port,
        asker_of(site, given(port).model_copy(update={"sent": 1796126413})) as asker,
    ):
        said = [(await asker.ask(pod(own_address()))).standing for _ in range(2)]
    assert (seen, said) == ([1796126413, 1796126413], [Standing.SILENT, Standing.DONE])
