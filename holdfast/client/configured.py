"""A workflow that an operator puts into a cluster, asks, configures and ends: an admission queue, a broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel
from temporalio.client import (
    Client,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
)
from temporalio.common import (
    QueryRejectCondition,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.site.updates import update
from holdfast.client.connection import Place, explained, refusals
from holdfast.client.silence import BUSY_TIMEOUT, answer_of, unanswered
from holdfast.errors import HoldfastError
from holdfast.model.entities.document import EntityDocument

Given = TypeVar("Given", bound=EntityDocument)
Told = TypeVar("Told", bound=BaseModel)


class NotThere(HoldfastError):
    """There is none of this name."""


@dataclass(frozen=True)
class Configured(Generic[Given, Told]):
    """One such workflow."""

    client: Client
    place: Place
    workflow_id: str

    type: ClassVar[str]
    """Of its workflow."""
    remedy: ClassVar[str]
    """What makes one, where there is none."""
    role: ClassVar[str]
    """Of the worker that answers for it."""
    told: ClassVar[type[BaseModel]]
    """What it says of itself."""

    async def status(self) -> Told:
        """Return how it stands.

        Raises:
            HoldfastError: if there is none of this name, or no worker answers.
            NotReachable: if Temporal does not answer.
        """
        try:
            found = await answer_of(
                self.client,
                self.workflow_id,
                lambda: self._handle.query(
                    names.QUERY_STATUS, result_type=dict, reject_condition=QueryRejectCondition.NOT_OPEN
                ),
            )
        except WorkflowQueryRejectedError as error:
            raise self._none() from error
        except (TimeoutError, WorkflowQueryFailedError) as error:
            raise await self._silent() from error
        except RPCError as error:
            raise self._explained(error) from error
        return self._read(found)

    async def configure(self, given: Given) -> Told:
        """Change what it goes by from now on.

        Raises:
            HoldfastError: if there is none of this name, it refuses, or no worker answers.
            NotReachable: if Temporal does not answer.
        """
        try:
            document = given.model_dump(mode="json")
            found = await update(
                self._handle,
                names.UPDATE_CONFIGURE,
                document,
                returns=dict[str, Any],
                seconds=BUSY_TIMEOUT.total_seconds(),
            )
        except TimeoutError as error:
            raise await self._silent() from error
        except WorkflowUpdateFailedError as error:
            raise HoldfastError(str(error.cause)) from error
        except RPCError as error:
            raise self._explained(error) from error
        return self._read(found)

    async def cancel(self, reason: str = "") -> None:
        """Have it end, as soon as nobody needs it any more.

        Raises:
            HoldfastError: if there is none of this name.
            NotReachable: if Temporal does not answer.
        """
        try:
            await self._handle.signal(names.SIGNAL_CANCEL, reason)
        except RPCError as error:
            raise self._explained(error) from error

    async def apply(self, given: Given) -> None:
        """Put it there, or configure the one that is there.

        Args:
            given: what it goes by.

        Raises:
            HoldfastError: if it is there, and no worker answers for it.
            NotReachable: if Temporal does not answer.
        """
        pairs: list[SearchAttributePair[Any]] = [
            SearchAttributePair(SearchAttributeKey.for_keyword(key), value) for key, value in given.columns.items()
        ]
        try:
            with refusals(self.place):
                await self.client.start_workflow(
                    self.type,
                    given.model_dump(mode="json"),
                    id=self.workflow_id,
                    task_queue=given.task_queue,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                    id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                    search_attributes=TypedSearchAttributes(pairs),
                    static_summary=given.summary,
                )
        except WorkflowAlreadyStartedError:
            await self.configure(given)

    def _read(self, found: Any) -> Told:
        return self.told.model_validate(found)  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    def _explained(self, error: RPCError) -> HoldfastError:
        return self._none() if error.status is RPCStatusCode.NOT_FOUND else explained(error, self.place)

    def _none(self) -> HoldfastError:
        return NotThere(f"there is no {self.workflow_id.replace('/', ' ', 1)}: {self.remedy}")

    async def _silent(self) -> HoldfastError:
        return await unanswered(self.client, self.workflow_id, self.role)

    @property
    def _handle(self) -> Any:
        return self.client.get_workflow_handle(self.workflow_id, result_type=dict)
