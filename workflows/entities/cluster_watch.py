"""The workflow that keeps a cluster's watch alive: one endless activity per set of shards, retried at no cost."""

from __future__ import annotations

import asyncio
from typing import Final

from temporalio import workflow

from holdfast import names
from holdfast.model import Payload
from holdfast.model.calls.cluster import WatchInput
from holdfast.workflows.entity import Entity, serve

MEMO_CLUSTER_UID: Final = "holdfast.clusterUid"
MEMO_INSTALLATION: Final = "holdfast.installation"
MEMO_SHARD_SETS: Final = "holdfast.shardSets"
SIGNAL_STOP: Final = "stop"
SIGNAL_DIVIDE: Final = "divide"


class ClusterWatchInput(Payload):
    """The cluster to watch, by its name and its uid, and the shards of each part."""

    cluster: str
    cluster_uid: str
    shard_sets: tuple[tuple[int, int], ...] = ((0, names.SHARDS - 1),)


class ClusterWatchStatus(ClusterWatchInput):
    """Answer of the query `status`."""

    stopping: bool = False


@workflow.defn(name=names.CLUSTER_WATCH_WORKFLOW)
class ClusterWatch(Entity):
    """Runs a cluster's watch activities until it is told to stop."""

    @workflow.init
    def __init__(self, input: ClusterWatchInput) -> None:
        """Remember the cluster; there is no other state."""
        super().__init__()
        self._input = input
        self._next = input
        self._stopping = False

    @workflow.run
    async def run(self, input: ClusterWatchInput) -> None:
        """Keep every part watched; continue as new when the parts change or the history has grown.

        Raises:
            ActivityError: if a watch fails with an error that is not retried; other retries leave no history events.
        """
        watches = [asyncio.create_task(self._watch(shards)) for shards in input.shard_sets]
        # If this workflow itself is cancelled, its activities learn that from their next heartbeat.
        await workflow.wait_condition(lambda: self._over() or any(watch.done() for watch in watches))
        for watch in watches:
            watch.cancel()
        ended = await asyncio.gather(*watches, return_exceptions=True)
        if not self._over():
            for end in ended:
                if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError):
                    raise end
        await workflow.wait_condition(workflow.all_handlers_finished)
        if not self._stopping:
            memo = {**workflow.memo(), MEMO_SHARD_SETS: len(self._next.shard_sets)}
            workflow.continue_as_new(self._next, memo=memo)

    def current_details(self) -> str:
        """Return what Temporal's UI shows of it (`describing`)."""
        watched = self._input
        return (
            f"Watches **{watched.cluster}** (`{watched.cluster_uid}`) in {len(watched.shard_sets)} part(s). "
            f"Signal `{SIGNAL_STOP}` ends it, `{SIGNAL_DIVIDE}` changes the parts."
        )

    @workflow.signal(name=SIGNAL_STOP, description="End this cluster's watch; its workloads are then no longer seen.")
    def stop(self) -> None:
        """End the watch."""
        self._stopping = True

    @workflow.signal(name=SIGNAL_DIVIDE, description="Divide the cluster's 256 shards into other parts.")
    def divide(self, shard_sets: tuple[tuple[int, int], ...]) -> None:
        """Divide the shards into other parts from now on."""
        self._next = self._input.model_copy(update={"shard_sets": tuple((a, b) for a, b in shard_sets)})

    @workflow.query(name=names.QUERY_STATUS, description="Which cluster is watched, and in which parts.")
    def status(self) -> ClusterWatchStatus:
        """Return what is watched."""
        return ClusterWatchStatus(
            cluster=self._input.cluster,
            cluster_uid=self._input.cluster_uid,
            shard_sets=self._input.shard_sets,
            stopping=self._stopping,
        )

    def _over(self) -> bool:
        return self._stopping or self._next.shard_sets != self._input.shard_sets or self._length.is_enough

    async def _watch(self, shards: tuple[int, int]) -> None:
        cluster = self._input.cluster
        part = "" if shards == (0, names.SHARDS - 1) else f", shards {shards[0]} to {shards[1]}"
        await serve(
            names.ACTIVITY_WATCH,
            WatchInput(cluster=cluster, cluster_uid=self._input.cluster_uid, shards=shards),
            queue=names.queue_watch(cluster),
            summary=f"watching {cluster}{part}: wakes workloads when their pods or objects change",
        )
