"""Before a submission each cluster and namespace is asked for once, however many workloads go to it (row D37)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse
from typer.testing import CliRunner

from holdfast import names
from holdfast.activities.kube.errors import Forbidden
from holdfast.cli.app import app
from holdfast.cli.common import kubernetes
from holdfast.cli.submission import namespace_check
from holdfast.client.silence import ANSWER_TIMEOUT
from holdfast.errors import HoldfastError
from holdfast.workflows.entities.cluster_watch import MEMO_CLUSTER_UID
from tests.client.conftest import a_workload


def poller() -> PollerInfo:
    """Return a worker that polls now."""
    found = PollerInfo(identity="4711@node")
    found.last_access_time.FromDatetime(datetime.now(UTC).replace(tzinfo=None))
    return found


class Temporal:
    """Temporal that knows the watches of clusters by their identity, and counts how often it is asked."""

    def __init__(self, **clusters: str) -> None:
        self.uids = {names.watch_workflow_id(name): uid for name, uid in clusters.items()}
        self.asked = Counter[str]()
        self.namespace = "default"
        self.pollers = [poller()]

    @property
    def workflow_service(self) -> Any:
        async def describe_task_queue(_request: Any) -> DescribeTaskQueueResponse:
            return DescribeTaskQueueResponse(pollers=self.pollers)

        return SimpleNamespace(describe_task_queue=describe_task_queue)

    def get_workflow_handle(self, workflow_id: str) -> Any:
        async def memo() -> dict[str, str]:
            return {MEMO_CLUSTER_UID: self.uids[workflow_id]}

        async def describe() -> Any:
            self.asked[workflow_id] += 1
            return SimpleNamespace(memo=memo)

        return SimpleNamespace(describe=describe)


class Kube:
    """A cluster whose own identity is `here`."""

    async def get(self, _version: str, _kind: str, name: str, **_: Any) -> Any:
        assert name == "kube-system"
        return {"metadata": {"uid": "here"}}


class Submitters(Kube):
    """The same, as somebody sees it who may not read its identity, and may read what it publishes."""

    def __init__(self, cluster: str | None, *, opened: bool = True) -> None:
        self.cluster, self.opened = cluster, opened

    async def get(self, _version: str, _kind: str, name: str, *_: Any, **__: Any) -> Any:
        if name == "kube-system" or not self.opened:
            raise Forbidden(403, "Forbidden", f'namespaces "{name}" is forbidden: User "ann" cannot get it')
        if name == "research":
            return {"metadata": {"name": name}}
        raise AssertionError(name)

    async def find(self, _version: str, _kind: str, name: str, namespace: str) -> Any:
        assert (name, namespace) == ("holdfast-connection", "holdfast-system")
        return {"data": {"HOLDFAST_CLUSTER": self.cluster}} if self.cluster is not None else None


@asynccontextmanager
async def reached(*_: Any) -> AsyncGenerator[Kube]:
    yield Kube()


@pytest.mark.row("D37", level="pure")
async def test_D37_each_cluster_and_each_namespace_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = list[tuple[str, str]]()

    async def closed_to(_kube: Any, namespace: str, run_as: str) -> Any:
        looked_at.append((namespace, run_as))
        if namespace == "open":
            return None
        return SimpleNamespace(opens=False, why=f"{namespace} is closed")

    monkeypatch.setattr(kubernetes, "reached", reached)
    monkeypatch.setattr("holdfast.activities.site.closed.closed_to", closed_to)
    temporal = Temporal(here="here", there="there")
    workload = a_workload(cluster="here")
    elsewhere = a_workload(cluster="there", namespace="other")
    workloads = [a_workload(cluster="here", namespace="open")] * 1000 + [workload] * 1000 + [elsewhere] * 1000
    with pytest.raises(HoldfastError, match=r"^research is closed$"):
        await namespace_check.refuse_closed(SimpleNamespace(client=temporal), workloads, "config", None)  # pyright: ignore[reportArgumentType]
    assert dict(temporal.asked) == {names.watch_workflow_id("here"): 1, names.watch_workflow_id("there"): 1}
    assert looked_at == [("open", workload.run_as), ("research", workload.run_as)]


async def checked(monkeypatch: pytest.MonkeyPatch, kube: Any, temporal: Temporal) -> None:
    @asynccontextmanager
    async def reached(*_: Any) -> AsyncGenerator[Any]:
        yield kube

    monkeypatch.setattr(kubernetes, "reached", reached)
    await namespace_check.refuse_closed(
        SimpleNamespace(client=temporal),  # pyright: ignore[reportArgumentType]
        [a_workload(cluster="here")],
        "config",
        None,
    )


@pytest.mark.row("D37", level="pure")
async def test_D37_who_may_not_read_the_clusters_identity_goes_by_the_name_that_it_publishes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    temporal = Temporal(here="here")
    with pytest.raises(HoldfastError, match=r"namespace research is not enabled for Holdfast: run `holdfast names"):
        await checked(monkeypatch, Submitters("here"), temporal)
    await checked(monkeypatch, Submitters("there"), temporal)
    assert capsys.readouterr().err == "", "another cluster has nothing to say of it"


@pytest.mark.row("D37", level="pure")
@pytest.mark.parametrize(
    ("kube", "name"), [(Submitters(None), "kube-system"), (Submitters("here", opened=False), "research")]
)
async def test_D37_what_may_not_be_asked_is_said(
    kube: Kube, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await checked(monkeypatch, kube, Temporal(here="here"))
    assert capsys.readouterr().err == (
        "warning: whether its namespace is enabled was not checked: "
        f'namespaces "{name}" is forbidden: User "ann" cannot get it\n'
    )


class Silent(Kube):
    """A cluster that answers nothing."""

    async def get(self, *_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()


@pytest.mark.row("D36", level="pure")
@pytest.mark.parametrize("served", [True, False])
async def test_D36_a_silent_cluster_is_waited_for_only_while_a_worker_polls(
    served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    within = namespace_check._PATIENCE_UNSERVED + ANSWER_TIMEOUT.total_seconds()
    assert within < 5, "then it is said that none answers"
    temporal = Temporal(here="here")
    temporal.pollers = [poller()] if served else []
    monkeypatch.setattr(namespace_check, "_PATIENCE", 0.01 if served else 3600)
    monkeypatch.setattr(namespace_check, "_PATIENCE_UNSERVED", 3600 if served else 0.01)
    async with asyncio.timeout(30):
        await checked(monkeypatch, Silent(), temporal)


@pytest.mark.parametrize("name", ["", "-", "a.b", "x' OR '1'='1", "A"])
def test_only_one_namespace_is_ever_disabled(name: str) -> None:
    done = CliRunner().invoke(app, ["namespace", "disable", "--workloads=remove", "--", name])
    assert done.exit_code == 2
    assert f"{name!r}: expected a DNS label" in done.output
