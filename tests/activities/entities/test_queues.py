"""A queue's look at its cluster: who still holds something (rows L9, D13)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from holdfast import names
from holdfast.activities.entities.queues import look_queue
from holdfast.activities.kube.client import NotFound
from holdfast.activities.kube.errors import Forbidden
from holdfast.model.calls.queue import LookQueueInput, QueueHolder, SeenQueue

ROW = pytest.mark.row


class Temporal:
    """Temporal without any workflow."""

    async def list_workflows(self, _: str) -> AsyncIterator[Any]:
        for nothing in ():
            yield nothing

    def get_workflow_handle(self, _: str) -> Any:
        async def describe(**_: Any) -> Any:
            raise RPCError("there is none", RPCStatusCode.NOT_FOUND, b"")

        return SimpleNamespace(describe=describe)


class Cluster:
    """A cluster without pods, of which some namespaces may not be read, and some exist."""

    def __init__(self, *, unreadable: set[str], there: set[str], says: bool = True) -> None:
        self.unreadable, self.there, self.says = unreadable, there, says

    async def list(self, _: str, kind: str, namespace: str = "", **__: Any) -> Any:
        if namespace in self.unreadable:
            raise Forbidden(403, "Forbidden", f"{kind} in {namespace} is forbidden")
        if not namespace:
            raise NotFound(404, "NotFound", f"{kind} is not served")
        return {"items": []}

    async def find(self, _: str, kind: str, name: str) -> Any:
        assert kind == "Namespace"
        if not self.says:
            raise Forbidden(403, "Forbidden", f"namespace {name} is forbidden")
        return {"metadata": {"name": name}} if name in self.there else None


async def looked(cluster: Cluster, *namespaces: str) -> set[str]:
    """Return which holders, one in each namespace, are gone."""
    holders = tuple(QueueHolder(workload=names.workflow_id("dev", one, "train"), uid=one) for one in namespaces)
    given = LookQueueInput(cluster="dev", queue="team", holders=holders)
    site = SimpleNamespace(kube=cluster)
    seen: SeenQueue = await ActivityEnvironment().run(look_queue, cast(Any, site), cast(Any, Temporal()), given)
    return set(seen.gone)


@ROW("L9", level="pure")
async def test_L9_a_holder_whose_namespace_may_not_be_read_holds_and_stops_no_look() -> None:
    cluster = Cluster(unreadable={"closed", "deleted"}, there={"open", "closed"})
    assert await looked(cluster, "closed", "deleted", "open") == {"deleted", "open"}


@ROW("L9", level="pure")
async def test_L9_where_not_even_the_namespace_may_be_read_a_holder_holds() -> None:
    cluster = Cluster(unreadable={"closed"}, there=set(), says=False)
    assert await looked(cluster, "closed", "open") == {"open"}
