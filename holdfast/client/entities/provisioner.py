"""The machines of a cluster's nodes: boot, wipe, power off and release them, if permitted (row L15)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError, WorkflowUpdateFailedError
from temporalio.common import QueryRejectCondition
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.site.updates import update
from holdfast.client.connection import Place, explained
from holdfast.client.patience import Patience
from holdfast.client.silence import BUSY_TIMEOUT, answer_of, unanswered
from holdfast.errors import HoldfastError
from holdfast.model import NodeBook
from holdfast.model.entities.provisioner import Checked, NodeAsk, NodeOutcome, NodeRequest, ProvisionerStatus

_CHECK: Final = 60.0
_LOOK_SECONDS: Final = 1.0
_REMEDY: Final = "a worker with the setting provisioner_url starts it"


async def node_book(client: Client, place: Place, cluster: str) -> NodeBook | None:
    """Return what the node monitor knows about unhealthy nodes (see `Holdfast.node_book`)."""
    workflow_id = names.node_monitor_id(cluster)
    handle: Any = client.get_workflow_handle(workflow_id, result_type=dict)

    async def ask() -> Any:
        return await handle.query(names.QUERY_STATUS, result_type=dict, reject_condition=QueryRejectCondition.NOT_OPEN)

    try:
        found = await answer_of(client, workflow_id, ask)
    except WorkflowQueryRejectedError:
        return None
    except TimeoutError as error:
        raise await unanswered(client, workflow_id, "workflows") from error
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise explained(error, place) from error
    except WorkflowQueryFailedError as error:
        raise HoldfastError(f"the monitor of nodes of {cluster} does not answer: {error}") from error
    return NodeBook.model_validate(found["book"])


class NoProvisioner(HoldfastError):
    """A cluster has no provisioner: none of its workers is configured with the provisioning service's address."""


@dataclass(frozen=True)
class ProvisionerRun:
    """The provisioner of one cluster."""

    client: Client
    place: Place
    cluster: str

    @property
    def workflow_id(self) -> str:
        """The id of its workflow."""
        return names.provisioner_id(self.cluster)

    async def status(self) -> ProvisionerStatus:
        """Return the pending requests with their reasons, the services that are away, and the last requests' outcomes.

        Raises:
            NoProvisioner: if the cluster has none.
            NotAnswering: if no worker answers.
            NotReachable: if Temporal does not answer.
        """
        return await self._status(QueryRejectCondition.NOT_OPEN)

    async def _status(self, but: QueryRejectCondition) -> ProvisionerStatus:
        def ask() -> Awaitable[ProvisionerStatus]:
            return self._handle.query(names.QUERY_STATUS, result_type=ProvisionerStatus, reject_condition=but)

        try:
            return await answer_of(self.client, self.workflow_id, ask)
        except WorkflowQueryRejectedError as error:
            raise self._none() from error
        except (TimeoutError, WorkflowQueryFailedError) as error:
            raise await self._silent() from error
        except RPCError as error:
            raise self._explained(error) from error

    async def request(self, ask: NodeAsk) -> NodeRequest:
        """Make a request, and return it; a request that is already pending is returned as it is.

        Raises:
            HoldfastError: if the request is refused, the cluster has no provisioner, or no worker answers.
            NotReachable: if Temporal does not answer.
        """
        return NodeRequest.model_validate(
            await self._update(names.UPDATE_REQUEST, ask.model_dump(mode="json"), seconds=BUSY_TIMEOUT.total_seconds())
        )

    async def check(self, node: str = "") -> Checked:
        """Have a worker ask the service whether it accepts requests; if a node is named, the service of that node.

        Raises:
            HoldfastError: if the cluster has no provisioner, or no worker answers.
            NotReachable: if Temporal does not answer.
        """
        return Checked.model_validate(await self._update(names.UPDATE_CHECK, node, seconds=_CHECK))

    async def ended(self, number: int, at: datetime | None = None) -> NodeOutcome:
        """Wait until a request has ended, however long that takes, and even if Temporal or the workers are away.

        Args:
            number: the request's number.
            at: when it was made. A provisioner that is begun anew counts from 1 again, so that another's request may
                have the number by then, but not also this time; None if that does not matter.

        Raises:
            HoldfastError: if the provisioner no longer knows the request.
        """
        patience = Patience()
        while True:
            # A provisioner that was told to stop ends with its last request. A closed one still reports that outcome.
            told = await patience.ask(lambda: self._status(QueryRejectCondition.NONE))
            for outcome in told.outcomes:
                if outcome.number == number and at in {None, outcome.asked_at}:
                    return outcome
            if not any(one.number == number and at in {None, one.at} for one in told.pending):
                raise HoldfastError(f"request {number}: nothing is known of it any more: see its workflow's history")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _update(self, name: str, argument: Any, *, seconds: float) -> Any:
        try:
            return await update(self._handle, name, argument, returns=dict[str, Any], seconds=seconds)
        except TimeoutError as error:
            raise await self._silent() from error
        except WorkflowUpdateFailedError as error:
            raise HoldfastError(str(error.cause)) from error
        except RPCError as error:
            raise self._explained(error) from error

    def _explained(self, error: RPCError) -> HoldfastError:
        return self._none() if error.status is RPCStatusCode.NOT_FOUND else explained(error, self.place)

    def _none(self) -> HoldfastError:
        return NoProvisioner(f"cluster {self.cluster} has no provisioner: {_REMEDY}")

    async def _silent(self) -> HoldfastError:
        return await unanswered(self.client, self.workflow_id, "workflows")

    @property
    def _handle(self) -> Any:
        return self.client.get_workflow_handle(self.workflow_id, result_type=dict)
