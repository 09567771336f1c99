"""Whether a workload is certainly over, with nothing of it left in the cluster: what it used may go then (row X10)."""

from __future__ import annotations

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from holdfast import names
from holdfast.activities.data.room import Use
from holdfast.activities.entities.executions import described, memo_of
from holdfast.activities.kube.client import KubeError
from holdfast.activities.site.site import Site


async def is_over(site: Site, client: Client, namespace: str, use: Use) -> bool:
    """Whether a workload has ended and has neither attempt nor pod; false if Temporal or the cluster does not say.

    Args:
        site: the cluster in which its pods would be.
        client: of the Temporal namespace in which its workflow would be.
        namespace: the namespace of the workload.
        use: the workload.
    """
    if use.cluster != site.cluster:
        return False
    try:
        if await _runs(client, use):
            return False
        labels = f"{names.LABEL_WORKLOAD_UID}={use.uid}"
        for api_version, kind in ((names.API_VERSION, names.ATTEMPT_KIND), ("v1", "Pod")):
            if (await site.kube.list(api_version, kind, namespace, labels=labels))["items"]:
                return False
    except (RPCError, KubeError):
        return False
    return True


async def _runs(client: Client, use: Use) -> bool:
    found = await described(client, use.workflow_id)
    if found is None or found.status is not WorkflowExecutionStatus.RUNNING:
        return False
    memo = await memo_of(found)
    if memo is None:
        return True
    # A later workload may have taken its name.
    return str(memo.get(names.MEMO_UID) or found.raw_info.first_run_id or use.uid) == use.uid
