"""The archive: histories of workloads' ended runs in an S3 store, and lives that are read back from there (row O6).

A history is kept as Temporal's own JSON, at `<prefix>/<workflow id>/<run id>.json`. Payloads stay encrypted. A run that
has ended never changes, so an object is written once.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from temporalio.client import Client, WorkflowExecution
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.data.storage import OBJECTS_MAXIMUM, Away, BadData
from holdfast.errors import HoldfastError, NotReachable, WorkloadNotFound
from holdfast.past.read import run_in, standing, told
from holdfast.past.story import Story
from holdfast.past.tasks import Run

if TYPE_CHECKING:
    from holdfast.activities.data.s3 import S3Storage

HISTORY_MAXIMUM: Final = 256 * 1024 * 1024
"""Bytes of one object: Temporal ends a run at 50 MiB of history, and JSON is longer."""
_SOURCE: Final = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[!-~]*[^/]")
_KEY: Final = re.compile(r"[^/]+\.json")
"""A run's key below its workflow id: what lies deeper is another workload's."""
_ID_MAXIMUM: Final = 1000
"""Temporal's own limit of a workflow id."""
_NOT_ONE_RUNS: Final = frozenset(
    {RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNAUTHENTICATED, RPCStatusCode.PERMISSION_DENIED}
)
"""What Temporal says of all runs, not of one."""
_PREFIX: Final = "HOLDFAST_DATA_"
_TRUE: Final = frozenset({"1", "true", "yes", "on"})


class Kept(NamedTuple):
    """One run, and whether its history was written now."""

    workflow_id: str
    run_id: str
    written: bool
    problem: str = ""
    """Why the archive does not have it; empty if it has."""


@dataclass(frozen=True)
class Archive:
    """An archive in a store."""

    storage: S3Storage
    source: str
    """`s3://bucket/prefix`."""

    async def keep(self, client: Client, cluster: str) -> AsyncGenerator[Kept]:
        """Write the history of each ended run of a cluster's workloads that the archive does not have yet.

        A run that cannot be kept is told of, and does not keep the others out.

        Raises:
            RPCError: if Temporal does not answer, or refuses all.
            NotReachable: if the store does not answer.
        """
        known: dict[str, set[str]] = {}
        async for run in _ended(client, cluster):
            try:
                written = await self._keep(client, run, known)
            except NotReachable:
                raise
            except RPCError as error:
                if error.status in _NOT_ONE_RUNS:
                    raise
                yield Kept(run.id, run.run_id, False, error.message)
            except HoldfastError as error:
                yield Kept(run.id, run.run_id, False, str(error))
            else:
                if written is not None:
                    yield Kept(run.id, run.run_id, written)

    async def _keep(self, client: Client, run: WorkflowExecution, known: dict[str, set[str]]) -> bool | None:
        """Return whether the history of a run was written now; None if its retention ended a moment ago."""
        _check_id(run.id)
        if run.id not in known:
            async with _explained(self.source):
                known[run.id] = {one.key for one in await self.storage.list(f"{self.source}/{run.id}")}
        key = f"{run.run_id}.json"
        if key in known[run.id]:
            return False
        text = await _history(client, run)
        if text is None:
            return None
        async with _explained(self.source):
            return await self.storage.put_new(f"{self.source}/{run.id}", key, text.encode())

    async def story(self, workflow_id: str, converter: DataConverter) -> Story:
        """Return the story of the latest life of a workload that the archive has.

        Raises:
            WorkloadNotFound: if it has none.
            NotReachable: if the store does not answer.
            HoldfastError: if this release cannot read it.
        """
        place = f"{self.source}/{workflow_id}"
        lives: dict[str, list[Run]] = defaultdict(list)
        async with _explained(self.source):
            entries = await self.storage.list(place)
            if len(entries) > OBJECTS_MAXIMUM:
                raise HoldfastError(f"{place}: more than {OBJECTS_MAXIMUM:,} objects: the list of them is not whole")
            for entry in entries:
                if not _KEY.fullmatch(entry.key):
                    continue
                found = await self.storage.find(place, entry.key, HISTORY_MAXIMUM)
                if found is not None:
                    run = await run_in(found.decode(), converter, f"{place}/{entry.key}")
                    lives[run.first_run_id].append(run)
        if not lives:
            raise WorkloadNotFound(workflow_id)
        latest = max(lives.values(), key=lambda runs: max(run.began_at for run in runs))
        return told(_last_stretch(standing(latest)), place)


def _last_stretch(runs: list[Run]) -> list[Run]:
    """Return the runs of a life that follow each other up to the last: one before a gap says nothing of what came."""
    by_id = {run.run_id: run for run in runs}
    last = max(runs, key=lambda run: run.began_at)
    stretch = [by_id.pop(last.run_id)]
    # Each run counts once: objects that name each other have no first one.
    while (before := by_id.pop(stretch[0].previous_run_id, None)) is not None:
        stretch.insert(0, before)
    return stretch


def _check_id(workflow_id: str) -> None:
    """Refuse an id that is no workload's: it becomes a part of a key.

    Raises:
        HoldfastError: if it is of another form, or a part of it is no DNS name.
    """
    try:
        parts = names.parse_workflow_id(workflow_id)
    except ValueError as error:
        raise HoldfastError(str(error)) from None
    for part in parts:
        if len(workflow_id) > _ID_MAXIMUM or not names.DNS_SUBDOMAIN.match(part):
            raise HoldfastError(
                f"{workflow_id[:_ID_MAXIMUM]!r} is not a workload's id: expected parts that are DNS names"
            )


async def _ended(client: Client, cluster: str) -> AsyncIterator[WorkflowExecution]:
    query = f"WorkflowType = '{names.WORKLOAD_WORKFLOW}' AND {names.SA_CLUSTER} = '{cluster}'"
    query += " AND ExecutionStatus != 'Running'"
    async for run in client.list_workflows(query):
        yield run


async def _history(client: Client, run: WorkflowExecution) -> str | None:
    try:
        return (await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()).to_json()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


def opened(source: str, environment: Mapping[str, str] | None = None) -> Archive:
    """Return the archive at `s3://bucket/prefix`, in the store that the variables of data sets name.

    Raises:
        HoldfastError: if the source is none, or the S3 client is not installed.
    """
    if not _SOURCE.fullmatch(source):
        raise HoldfastError(f"archive {source!r}: expected s3://bucket/prefix")
    try:
        from holdfast.activities.data.s3 import Address, S3Storage
    except ImportError:
        raise HoldfastError("the S3 client is not installed: pip install 'holdfast[s3]'") from None
    given = os.environ if environment is None else environment
    credentials = given.get(f"{_PREFIX}CREDENTIALS_FILE")
    address = Address(
        given.get(f"{_PREFIX}ENDPOINT", ""),
        given.get(f"{_PREFIX}REGION", ""),
        given.get(f"{_PREFIX}ALLOW_HTTP", "").strip().lower() in _TRUE,
        Path(credentials) if credentials else None,
    )
    return Archive(S3Storage(address), source)


@asynccontextmanager
async def _explained(source: str) -> AsyncGenerator[None]:
    try:
        yield
    except Away as error:
        remedy = f"{_PREFIX}ENDPOINT and {_PREFIX}CREDENTIALS_FILE name the store and your credentials for it"
        raise NotReachable("the archive", source, remedy, str(error)) from None
    except BadData as error:
        raise HoldfastError(f"archive {source}: {error}") from None
