"""A workflow that an operator creates for a cluster, queries, configures and ends: an admission queue, a broker."""

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
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.site.updates import update
from holdfast.client.connection import Place, explained, refusals
from holdfast.client.silence import Silence, answer_of, unanswered, unserved
from holdfast.errors import HoldfastError
from holdfast.model.entities.document import EntityDocument
from holdfast.workflows.start import keywords

Given = TypeVar("Given", bound=EntityDocument)
Told = TypeVar("Told", bound=BaseModel)


class NotThere(HoldfastError):
    """No workflow of this name exists."""


@dataclass(frozen=True)
class Configured(Generic[Given, Told]):
    """One workflow that an operator configures."""

    client: Client
    place: Place
    workflow_id: str

    type: ClassVar[str]
    """The workflow type."""
    remedy: ClassVar[str]
    """How to create one; part of the error if none exists."""
    role: ClassVar[str]
    """The role of the worker that answers for it."""
    told: ClassVar[type[BaseModel]]
    """The model of its status."""

    async def status(self) -> Told:
        """Return its status.

        Raises:
            HoldfastError: if none of this name exists, or no worker answers.
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

    async def silence(self) -> Silence | None:
        """Return why no worker runs it, and since when; None if one polls, or it has ended (row D36).

        Raises:
            HoldfastError: if none of this name exists.
            NotReachable: if Temporal does not answer.
        """
        try:
            return await unserved(self.client, self.workflow_id, self.role)
        except RPCError as error:
            raise self._explained(error) from error

    async def configure(self, given: Given) -> Told:
        """Change its configuration from now on.

        Raises:
            HoldfastError: if none of this name exists, it refuses the configuration, or no worker answers.
            NotReachable: if Temporal does not answer.
        """
        try:
            document = given.model_dump(mode="json")
            found = await answer_of(
                self.client,
                self.workflow_id,
                lambda: update(self._handle, names.UPDATE_CONFIGURE, document, returns=dict[str, Any]),
            )
        except TimeoutError as error:
            raise await self._silent() from error
        except WorkflowUpdateFailedError as error:
            raise HoldfastError(str(error.cause)) from error
        except RPCError as error:
            raise self._explained(error) from error
        return self._read(found)

    async def cancel(self, reason: str = "") -> None:
        """Ask it to end. It ends as soon as nobody needs it any more.

        Raises:
            HoldfastError: if none of this name exists.
            NotReachable: if Temporal does not answer.
        """
        try:
            await self._handle.signal(names.SIGNAL_CANCEL, reason)
        except RPCError as error:
            raise self._explained(error) from error

    async def apply(self, given: Given) -> None:
        """Create it, or configure the existing one.

        Args:
            given: its configuration.

        Raises:
            HoldfastError: if it exists, and no worker answers for it.
            NotReachable: if Temporal does not answer.
        """
        if not await self._begun(given):
            try:
                await self.configure(given)
            except NotThere:  # It ended meanwhile.
                if not await self._begun(given):
                    raise

    async def _begun(self, given: Given) -> bool:
        """Create it; return whether none existed."""
        try:
            with refusals(self.place):
                await self.client.start_workflow(
                    self.type,
                    given.model_dump(mode="json"),
                    id=self.workflow_id,
                    task_queue=given.task_queue,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                    id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                    search_attributes=keywords(given.columns),
                    static_summary=given.summary,
                )
        except WorkflowAlreadyStartedError:
            return False
        return True

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
