"""Whose pods a node has, on a real cluster: labels that are copied into another namespace do not count (row X8)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import names
from holdfast.activities.nodes.marks import _has_ours, _workloads
from holdfast.activities.site.site import Site
from holdfast.model import Limits
from tests.activities.bench import INSTALLATION, Bench, job, pod_spec

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.mark.row("X8", level="e2e")
@pytest.mark.row("L15", level="e2e")
@pytest.mark.row("L36", level="e2e")
@pytest.mark.parametrize("kind", ["", "JobSet"], ids=["submitted", "applied JobSet"])
async def test_X8_only_pods_of_workloads_that_are_known_in_their_namespace_count_for_a_node(
    bench: Bench, kind: str
) -> None:
    """They count by their workflow's id, of which it is asked whether they are sensitive: that has a JobSet's kind."""
    bench.components = (job("work", 1),)
    bench.target = bench.target.model_copy(
        update={"workflow_id": names.workflow_id(bench.target.cluster, bench.namespace, bench.target.name, kind)}
    )
    await bench.launch()
    site = Site(bench.kube, bench.target.cluster, bench.target.cluster_uid, INSTALLATION, Limits())
    (real,) = await bench.pods()
    marks = {field: real["metadata"][field] for field in ("labels", "annotations")}

    async def put(namespace: str, node: str, **labels: str) -> dict[str, Any]:
        metadata = {**marks, "labels": marks["labels"] | labels, "name": node, "namespace": namespace}
        spec = {**pod_spec(), "nodeName": node}
        return await bench.admin.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    copied, mine, other = (f"{which}-{bench.namespace}" for which in ("copied", "mine", "other"))
    foreign = await put("default", copied)
    try:
        assert not await _has_ours(site, copied)
        assert await _workloads(site, copied) == set()
    finally:
        key = ("v1", "Pod", copied, "default")
        await bench.admin.delete(*key, uid=foreign["metadata"]["uid"], grace_period=0)
    await put(bench.namespace, mine)
    assert await _has_ours(site, mine)
    assert await _workloads(site, mine) == {bench.target.workflow_id}
    await put(bench.namespace, other, **{names.LABEL_WORKLOAD_UID: "nobody"})
    assert not await _has_ours(site, other), "no attempt is of that workload"
