"""The client on a real API server: errors by what they mean, deadlines, discovery, watches, and the record of sight."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client.configuration import Configuration

from holdfast import names
from holdfast.activities.kube import http
from holdfast.activities.kube.blindness import Sight
from holdfast.activities.kube.client import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    Kube,
    KubeError,
    NotFound,
    Object,
    QuotaExceeded,
    Unauthorized,
    UnknownKind,
    Unreachable,
    WebhookFailed,
    service_account_user,
)
from holdfast.activities.kube.deep import DEEPEST, TOO_DEEP
from holdfast.activities.kube.errors import error_of
from holdfast.activities.kube.logs import log_lines
from tests.activities.bench import eventually
from tests.activities.line import Line

e2e = [pytest.mark.e2e, pytest.mark.timeout(60)]
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("code", "status", "method", "kind"),
    [
        (400, {}, "POST", Invalid),
        (401, {}, "GET", Unauthorized),
        (403, {"message": "jobs is forbidden"}, "POST", Forbidden),
        (403, {"message": "jobs is forbidden: exceeded quota: tight"}, "POST", QuotaExceeded),
        (404, {}, "GET", NotFound),
        (409, {"reason": "AlreadyExists"}, "POST", AlreadyExists),
        (409, {"reason": "Conflict"}, "PATCH", Conflict),
        (410, {}, "GET", Gone),
        (422, {}, "POST", Invalid),
        (429, {}, "GET", Unreachable),
        (500, {"message": 'Internal error occurred: failed calling webhook "x"'}, "POST", WebhookFailed),
        (500, {}, "POST", Unreachable),
        (503, {}, "GET", Unreachable),
        (504, {}, "POST", Unreachable),
    ],
)
def test_what_an_answer_means(code: int, status: Object, method: str, kind: type[KubeError]):
    assert type(error_of(code, status, method, "/x")) is kind


def test_only_what_hides_the_cluster_is_blindness():
    def blinding(code: int, method: str) -> bool:
        error = error_of(code, {}, method, "/x")
        assert isinstance(error, Unreachable)
        return error.blinding(method)

    assert blinding(500, "GET")
    assert not blinding(500, "POST")
    assert blinding(503, "POST")
    assert blinding(429, "POST")


@pytest.mark.parametrize(
    ("code", "path", "partial"),
    [
        (500, "/apis/example.com/v1/namespaces/ns/widgets/a", True),
        (503, "/apis/jobset.x-k8s.io/v1alpha2", True),
        (500, "/api/v1/namespaces/ns/pods", False),
        (500, "/api/v1/namespaces/ns/pods/train-0/log", True),
        (429, "/api/v1/namespaces/ns/pods/train-0/log", False),
        (503, "/apis/batch/v1/namespaces/ns/jobs", False),
        (500, "/apis/holdfast.dev/v1/namespaces/ns/attempts/a", False),
        (429, "/apis/example.com/v1/widgets", False),
        (401, "/apis/example.com/v1/widgets", False),
    ],
)
def test_what_may_be_the_trouble_of_one_kind_alone(code: int, path: str, partial: bool):
    error = error_of(code, {}, "GET", path)
    assert isinstance(error, Unreachable)
    assert error.partial(path) is partial


@pytest.mark.parametrize(("given", "dark"), [(None, False), (Sight(), True)])
async def test_a_kind_that_cannot_be_read_does_not_darken_the_whole_server(given: Sight | None, dark: bool):
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"message": "conversion webhook failed"}, status=500)

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with TestServer(application) as server:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{server.port}"
        async with Kube(configuration, sight=given) as kube:
            with pytest.raises(Unreachable):
                await kube.find("example.com/v1", "Widget", "a", "ns")
            assert kube.sight.blind is dark
            with pytest.raises(Unreachable):
                await kube.find("v1", "Pod", "a", "ns")
            assert kube.sight.blind


@pytest.mark.row("U1", level="pure")
@pytest.mark.parametrize("content", [b"ok", b"<html>", b"\xff"])
async def test_U1_an_answer_without_json_on_one_kind_does_not_darken_the_whole_server(content: bytes):
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=content)

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with TestServer(application) as server:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{server.port}"
        async with Kube(configuration) as kube:
            with pytest.raises(Unreachable, match="/v1: the answer is no JSON"):
                await kube.find("example.com/v1", "Widget", "a", "ns")
            assert not kube.sight.blind
            with pytest.raises(Unreachable):
                await kube.find("v1", "Pod", "a", "ns")
            assert kube.sight.blind, "what answers is no API server"


@pytest.mark.row("D11", level="pure")
@pytest.mark.parametrize("levels", [DEEPEST, 10_000])
async def test_D11_an_object_that_is_nested_deeper_than_any_reader_ends_no_list_and_no_watch(levels: int):
    """A custom resource keeps whatever it is given, and the API server reads 10,000 levels."""
    deep = '{"]\\"": [' * (levels // 2) + '"["' + "]}" * (levels // 2)
    item = f'{{"metadata": {{"name": "a"}}, "spec": {{"at": {deep}, "after": 1}}}}'
    kind = {"name": "widgets", "kind": "Widget", "namespaced": True, "verbs": ["get", "list", "watch"]}

    async def kinds(_: web.Request) -> web.Response:
        return web.json_response({"kind": "APIResourceList", "groupVersion": "example.com/v1", "resources": [kind]})

    async def told(request: web.Request) -> web.Response:
        if "watch" in request.query:
            return web.Response(text=f'{{"type": "ADDED", "object": {item}}}\n')
        return web.Response(text=f'{{"metadata": {{"resourceVersion": "1"}}, "items": [{item}]}}')

    app = web.Application()
    app.router.add_get("/apis/example.com/v1", kinds)
    app.router.add_get("/apis/example.com/v1/namespaces/ns/widgets", told)
    async with TestServer(app) as server:
        configuration = Configuration(host=str(server.make_url("")).rstrip("/"))
        async with Kube(configuration) as kube:
            (listed,) = (await kube.list("example.com/v1", "Widget", "ns"))["items"]
            watched = [
                one["object"] async for one in kube.watch("example.com/v1", "Widget", "ns", resource_version="1")
            ]
            assert not kube.sight.blind
    for seen in (listed, *watched):
        assert (seen["metadata"]["name"], seen["spec"]["after"]) == ("a", 1)
        assert (TOO_DEEP in json.dumps(seen)) is (levels > DEEPEST)
    assert len(watched) == 1


@pytest.mark.row("U1", level="pure")
async def test_U1_no_words_of_a_workload_or_a_pod_lead_a_request_elsewhere():
    asked = list[str]()

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        kind = {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ["get"]}
        return web.json_response({"kind": "APIResourceList", "groupVersion": "v1", "resources": [kind]})

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with TestServer(application) as server:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{server.port}"
        async with Kube(configuration) as kube:
            for version in (
                "../healthz",
                "../api/v1/pods?x=/y",
                "..",
                "a/../b",
                "v1/",
                "/v1",
                "v1?a=b",
                "v1#a",
                "a b",
                "",
            ):
                with pytest.raises(UnknownKind):
                    await kube.get(version, "Pod", "a", "ns")
            assert asked == []
            for name, namespace in (("..", "ns"), (".", "ns"), ("a", "..")):
                with pytest.raises(NotFound):
                    await kube.get("v1", "Pod", name, namespace)
            assert asked == ["/api/v1"]
            assert not kube.sight.blind


@pytest.mark.row("P3", level="pure")
async def test_P3_a_kubelet_that_breaks_off_a_log_does_not_darken_the_server():
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.query.get("container") == "gone":
            return web.json_response({"message": "dial tcp: connection refused"}, status=500)
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"2026-11-27T10:00:00.000000000Z first\n")
        assert request.transport is not None
        request.transport.abort()
        return response

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with TestServer(application) as server:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{server.port}"
        async with Kube(configuration) as kube:
            for container in ("gone", "cut"):
                with pytest.raises(Unreachable):
                    assert [one.text async for one in log_lines(kube, "ns", "train-0", container)] == []
                assert not kube.sight.blind


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        ({}, {"Retry-After": "3"}, 3.0),
        ({"details": {"retryAfterSeconds": 2}}, None, 2.0),
        ({}, {"Retry-After": "Wed, 21 Oct"}, None),
        ({}, {"Retry-After": "86400"}, 30.0),
        ({"details": {"retryAfterSeconds": 10**400}}, None, None),
        ({"details": {"retryAfterSeconds": [1]}}, None, None),
        ({}, {"Retry-After": "inf"}, None),
        ({}, {"Retry-After": "nan"}, None),
        ({}, {"Retry-After": "-1"}, None),
        ({"details": {"retryAfterSeconds": 2}}, {"Retry-After": "inf"}, 2.0),
        ({}, {}, None),
    ],
)
def test_how_long_the_server_wants_to_be_left_alone(status: Object, headers: Any, seconds: float | None):
    assert error_of(429, status, "GET", "/x", headers).retry_after == seconds


async def test_a_watch_from_too_long_ago_is_gone():
    """How long a server remembers is its own affair, so the answer is given here as a server gives it."""
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}

    async def kinds(_: web.Request) -> web.Response:
        kind = {"name": "configmaps", "kind": "ConfigMap", "namespaced": True, "verbs": ["get", "list", "watch"]}
        return web.json_response({"kind": "APIResourceList", "groupVersion": "v1", "resources": [kind]})

    async def watched(_: web.Request) -> web.Response:
        return web.Response(text=json.dumps({"type": "ERROR", "object": expired}) + "\n")

    app = web.Application()
    app.router.add_get("/api/v1", kinds)
    app.router.add_get("/api/v1/namespaces/default/configmaps", watched)
    async with TestServer(app, host="127.0.0.1") as server:
        configuration = Configuration(host=str(server.make_url("")).rstrip("/"))
        async with Kube(configuration) as kube:
            with pytest.raises(Gone):
                async for _ in kube.watch("v1", "ConfigMap", "default", resource_version="1"):
                    pass


class TestOnACluster:
    pytestmark = e2e

    def config(self, namespace: str, name: str = "x", **metadata: Any) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace, **metadata},
            "data": {"a": "1"},
        }

    async def test_errors(self, admin: Kube, bare_namespace: str):
        made = await admin.create(self.config(bare_namespace))
        uid = made["metadata"]["uid"]
        key = ("v1", "ConfigMap", "x", bare_namespace)
        with pytest.raises(AlreadyExists):
            await admin.create(self.config(bare_namespace))
        with pytest.raises(NotFound):
            await admin.get("v1", "ConfigMap", "y", bare_namespace)
        with pytest.raises(UnknownKind):
            await admin.get("v1", "Nothing", "y", bare_namespace)
        with pytest.raises(Invalid):
            await admin.create(self.config(bare_namespace, name="Not Valid"))
        with pytest.raises(Conflict):
            await admin.delete(*key, uid="other")
        with pytest.raises(Conflict):
            await admin.patch(*key, uid="other", patch={"data": {"b": "2"}})
        with pytest.raises(Conflict):
            await admin.patch(*key, uid=uid, patch={"data": {"b": "2"}}, resource_version="1")
        user = service_account_user(bare_namespace, "default")
        with pytest.raises(Forbidden):
            await admin.get(*key, impersonate=user)
        assert await admin.find("v1", "ConfigMap", "y", bare_namespace) is None

    async def test_a_status_is_patched_by_version_alone(self, admin: Kube, bare_namespace: str):
        key = (names.API_VERSION, names.ANCHOR_KIND, "x", bare_namespace)
        with pytest.raises(ValueError, match="without identity"):
            await admin.patch(*key, uid="u", patch={}, subresource="status")

    async def test_grace_zero_is_sent(self, admin: Kube, bare_namespace: str):
        spec = {"nodeName": "nowhere", "containers": [{"name": "c", "image": "i"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": bare_namespace}, "spec": spec}
        made = await admin.create(pod)
        await admin.delete("v1", "Pod", "p", bare_namespace, uid=made["metadata"]["uid"], grace_period=0)
        assert await admin.find("v1", "Pod", "p", bare_namespace) is None

    async def test_lists_are_whole_whatever_the_page(self, admin: Kube, bare_namespace: str):
        await asyncio.gather(*(admin.create(self.config(bare_namespace, f"c{n}", labels={"n": "1"})) for n in range(7)))
        whole = await admin.list("v1", "ConfigMap", bare_namespace, labels="n=1")
        paged = await admin.list("v1", "ConfigMap", bare_namespace, labels="n=1", limit=3)
        assert len(whole["items"]) == len(paged["items"]) == 7
        assert int(paged["metadata"]["resourceVersion"]) > 0
        one = await admin.list("v1", "ConfigMap", bare_namespace, fields="metadata.name=c3")
        assert [item["metadata"]["name"] for item in one["items"]] == ["c3"]

    async def test_a_watch_tells_what_happens_and_ends_when_told(self, admin: Kube, bare_namespace: str):
        begun = await admin.list("v1", "ConfigMap", bare_namespace)
        version = begun["metadata"]["resourceVersion"]
        made = await admin.create(self.config(bare_namespace))
        await admin.delete("v1", "ConfigMap", "x", bare_namespace, uid=made["metadata"]["uid"])
        events = [
            event
            async for event in admin.watch(
                "v1", "ConfigMap", bare_namespace, resource_version=version, fields="metadata.name=x", timeout_seconds=1
            )
        ]
        assert [event["type"] for event in events if event["type"] != "BOOKMARK"] == ["ADDED", "DELETED"]

    async def test_a_silent_watch_is_given_up_and_counts_as_blindness(self, far_kube: Kube, line: Line, namespace: str):
        begun = await far_kube.list("v1", "Pod", namespace)
        version = begun["metadata"]["resourceVersion"]
        line.hold()
        with pytest.raises(Unreachable):
            async for _ in far_kube.watch("v1", "Pod", namespace, resource_version=version, quiet_seconds=0.5):
                pass
        assert far_kube.sight.blind

    async def test_a_watch_that_is_not_opened_is_given_up_like_any_request(
        self, far_kube: Kube, line: Line, namespace: str
    ):
        version = (await far_kube.list("v1", "Pod", namespace))["metadata"]["resourceVersion"]
        line.hold()
        far_kube.timeout = 0.5
        with pytest.raises(Unreachable):
            async for _ in far_kube.watch("v1", "Pod", namespace, resource_version=version, quiet_seconds=75.0):
                pass
        assert far_kube.sight.blind

    async def test_answered_writes_show_that_the_store_answers(self, kube: Kube, admin: Kube, bare_namespace: str):
        await admin.get("v1", "Namespace", "kube-system")
        await admin.allowed("get", await admin.resource("v1", "Pod"), bare_namespace)
        made = await admin.create(self.config(bare_namespace))
        key = ("v1", "ConfigMap", "x", bare_namespace)
        with pytest.raises(Conflict):
            await admin.patch(*key, uid="another", patch={"data": {"a": "b"}})
        assert admin.answers.at is None, "reviews are answered without the store, and refusals may be"
        before = datetime.now(UTC)
        await admin.patch(*key, uid=made["metadata"]["uid"], patch={"data": {"a": "b"}})
        assert admin.answers.at is not None
        assert before <= admin.answers.at <= datetime.now(UTC)
        assert kube.answers.at is None

    async def test_the_kernel_asks_a_silent_other_end(self, kube: Kube, monkeypatch: pytest.MonkeyPatch):
        make, made = http._socket, list[socket.socket]()

        def kept(address: Any) -> socket.socket:
            made.append(make(address))
            return made[-1]

        monkeypatch.setattr(http, "_socket", kept)
        await kube.get("v1", "Namespace", "kube-system")
        (one,) = made
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        asked = [one.getsockopt(socket.IPPROTO_TCP, option) for option in options]
        assert (one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), asked) == (1, [10, 5, 2])

    async def test_a_new_kind_is_found_after_a_miss(self, admin: Kube, bare_namespace: str):
        group = f"{bare_namespace}.example.com"
        with pytest.raises(UnknownKind):
            await admin.resource(f"{group}/v1", "Widget")
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        made = await admin.create(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"widgets.{group}"},
                "spec": {
                    "group": group,
                    "scope": "Namespaced",
                    "names": {"kind": "Widget", "plural": "widgets"},
                    "versions": [
                        {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
                    ],
                },
            }
        )
        try:

            async def served() -> bool:
                try:
                    return (await admin.resource(f"{group}/v1", "Widget")).plural == "widgets"
                except UnknownKind:
                    return False

            await eventually(served)
        finally:
            key = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"widgets.{group}")
            await admin.delete(*key, uid=made["metadata"]["uid"])

    async def test_no_answer_is_unreachable_within_its_deadline(self, far_kube: Kube, line: Line):
        async def answers() -> bool:
            try:
                return bool(await far_kube.get("v1", "Namespace", "kube-system"))
            except Unreachable:  # It is soon out of patience.
                return False

        await eventually(answers)
        assert not far_kube.sight.blind
        for break_it in (line.hold, line.cut):
            break_it()
            begun = asyncio.get_running_loop().time()
            with pytest.raises(Unreachable):
                await far_kube.get("v1", "Namespace", "kube-system")
            assert asyncio.get_running_loop().time() - begun < 8.0, "not the deadline of 10 s that clients have"
            assert far_kube.sight.blind
        line.mend()
        await eventually(answers)
        assert not far_kube.sight.blind
        assert far_kube.sight.intervals(EPOCH)

    async def test_waiting_for_a_slot_is_not_waiting_for_the_server(self, stack: Any):
        async with await Kube.connect(str(stack.kubeconfig), pool_size=1, timeout=10.0) as kube:
            await asyncio.gather(*(kube.get("v1", "Namespace", "kube-system") for _ in range(500)))
            assert not kube.sight.intervals(EPOCH)

    async def test_renewed_credentials_are_read_again(self, worker_kubeconfig: Path, tmp_path: Path):
        good = worker_kubeconfig.read_text()  # noqa: ASYNC240
        path = tmp_path / "kubeconfig"
        path.write_text(good.replace("token: ", "token: stale"))
        async with await Kube.connect(str(path)) as kube:
            path.write_text(good)
            assert (await kube.get("v1", "Namespace", "kube-system"))["metadata"]["name"] == "kube-system"

    async def test_wrong_credentials_are_blindness_and_no_refusal(self, worker_kubeconfig: Path, tmp_path: Path):
        path = tmp_path / "kubeconfig"
        path.write_text(worker_kubeconfig.read_text().replace("token: ", "token: stale"))  # noqa: ASYNC240
        async with await Kube.connect(str(path)) as kube:
            with pytest.raises(Unauthorized):
                await kube.get("v1", "Namespace", "kube-system")
            assert kube.sight.blind


class TestRights:
    """What the worker may do by itself is what deploy/rbac.yaml says and no more."""

    pytestmark = e2e

    @pytest.mark.parametrize(
        ("verb", "api_version", "kind", "allowed"),
        [
            ("list", "v1", "Pod", True),
            ("delete", "v1", "Pod", False),
            ("patch", "v1", "Pod", False),
            ("create", "v1", "Pod", False),
            ("list", "batch/v1", "Job", True),
            ("create", "batch/v1", "Job", False),
            ("delete", "batch/v1", "Job", False),
            ("get", "v1", "Secret", False),
            ("list", "v1", "ConfigMap", False),
            ("create", "v1", "Event", True),
            ("create", names.API_VERSION, names.ANCHOR_KIND, True),
            ("delete", names.API_VERSION, names.ATTEMPT_KIND, True),
            ("create", "rbac.authorization.k8s.io/v1", "RoleBinding", False),
            ("impersonate", "v1", "ServiceAccount", False),
        ],
    )
    async def test_by_itself(
        self, kube: Kube, bare_namespace: str, verb: str, api_version: str, kind: str, allowed: bool
    ):
        assert (await kube.allowed(verb, await kube.resource(api_version, kind), bare_namespace))[0] is allowed

    async def test_in_an_enabled_namespace_it_may_act_as_the_runner_and_no_other(self, kube: Kube, namespace: str):
        core = await kube.resource("v1", "ServiceAccount")
        # Where the cluster can bound it (from 1.36 on), what may be done as the account is a right of its own.
        account = dataclasses.replace(core, group="authentication.k8s.io")
        assert (await kube.allowed("impersonate:serviceaccount", account, namespace, name=names.RUN_AS_DEFAULT))[0]
        assert not (await kube.allowed("impersonate:serviceaccount", account, namespace, name="default"))[0]
        assert not (await kube.allowed("impersonate", core, namespace, name=names.RUN_AS_DEFAULT))[0]
        user = service_account_user(namespace, names.RUN_AS_DEFAULT)
        job, secret = await kube.resource("batch/v1", "Job"), await kube.resource("v1", "Secret")
        assert (await kube.allowed("create", job, namespace, impersonate=user))[0]
        assert not (await kube.allowed("create", job, "default", impersonate=user))[0]
        assert not (await kube.allowed("get", secret, namespace, impersonate=user))[0]
