"""A workflow that says which copy of Holdfast's model it sees: the host's own, or one loaded into its sandbox."""

from __future__ import annotations

from temporalio import workflow

from holdfast import names
from holdfast.model import Workload
from holdfast.model.calls import cluster
from holdfast.policy.verdicts import decide


@workflow.defn
class Identities:
    @workflow.run
    async def run(self) -> list[int]:
        return [id(Workload), id(names), id(cluster), id(decide)]
