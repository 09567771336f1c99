"""Before a submission each cluster and namespace is asked for once, however many workloads go to it (row D37)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast import names
from holdfast.cli.app import app
from holdfast.cli.common import kubernetes
from holdfast.cli.submission import namespace_check
from holdfast.errors import HoldfastError
from holdfast.workflows.entities.cluster_watch import MEMO_CLUSTER_UID
from tests.client.conftest import a_workload


class Temporal:
    """Temporal that knows the watches of clusters by their identity, and counts how often it is asked."""

    def __init__(self, **clusters: str) -> None:
        self.uids = {names.watch_workflow_id(name): uid for name, uid in clusters.items()}
        self.asked = Counter[str]()

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


@pytest.mark.parametrize("name", ["", "-", "a.b", "x' OR '1'='1", "A"])
def test_only_one_namespace_is_ever_disabled(name: str) -> None:
    done = CliRunner().invoke(app, ["namespace", "disable", "--workloads=remove", "--", name])
    assert done.exit_code == 2
    assert f"{name!r}: expected a DNS label" in done.output
