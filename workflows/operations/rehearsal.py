"""Asks the API server about a change of components before it is accepted: the call, and what its result means."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from holdfast import names
    from holdfast.model import RefusedCreate, Stage, State, Workload
    from holdfast.model.calls.cluster import Rehearsed, RehearseInput, planned
    from holdfast.policy.failures.avoided_nodes import leaves_marked
    from holdfast.workflows.operations.dispatch import HEARTBEAT, RETRY, bounds_of, data_of, gang_of, target_of

PATIENCE = timedelta(minutes=1)
"""How long to wait for the API server's answer. A user waits for the result, and can ask again."""
_NAMED = 3


def refused(message: str) -> ApplicationError:
    """Return the error that ends an update with a message; any other error would be retried for ever."""
    return ApplicationError(message, type=names.ERROR_REFUSED, non_retryable=True)


def rehearsal_of(spec: Workload, state: State, uid: str, again: Sequence[str]) -> RehearseInput:
    """Return the input that asks whether these components could be made again as the workload has them."""
    attempt = state.attempt
    number = attempt.number if attempt is not None else 1
    avoided = attempt.avoided if attempt is not None else ()
    return RehearseInput(
        target=target_of(spec, state, uid),
        attempt=number,
        plan=tuple(planned(component, uid, number) for component in spec.components),
        components=tuple(one for one in spec.components if one.name in again),
        standing=attempt is not None and attempt.stage is Stage.SUBMITTED,
        config_hashes={name: spec.config_hashes[name] for name in again},
        labels=spec.labels,
        bounds=bounds_of(spec),
        gang=gang_of(spec, state),
        data=data_of(spec, state),
        nodes_excluded=tuple(sorted(node.name for node in avoided if node.required)),
        nodes_disliked=tuple(sorted(node.name for node in avoided if not node.required)),
        nodes_unmarked=leaves_marked(state.policy),
        waits=state.policy.refused_create is RefusedCreate.WAIT,
    )


async def rehearse(spec: Workload, state: State, uid: str, again: Sequence[str]) -> None:
    """Check that the API server would make these components as the workload has them.

    Raises:
        ApplicationError: if it would not, each problem with its field's path; or if that is unknown, since an unknown
            answer is not an acceptance.
    """
    more = f" and {len(again) - _NAMED} more" if len(again) > _NAMED else ""
    summary = f"asking whether {', '.join(again[:_NAMED])}{more} could be made as changed; nothing is done yet"
    try:
        done = await workflow.execute_activity(
            names.ACTIVITY_REHEARSE,
            rehearsal_of(spec, state, uid, again),
            task_queue=names.queue_cluster(spec.cluster),
            result_type=Rehearsed,
            schedule_to_close_timeout=PATIENCE,
            heartbeat_timeout=HEARTBEAT,
            retry_policy=RETRY,
            cancellation_type=ActivityCancellationType.TRY_CANCEL,
            summary=summary[:200],
        )
    except ActivityError as error:
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.type == names.ERROR_REFUSED:
            raise refused(cause.message) from None
        why = cause.message if isinstance(cause, ApplicationError) else "no worker of its cluster answered"
        raise refused(
            f"nothing was changed: it is not known whether the API server would take it, and was asked for "
            f"{PATIENCE.total_seconds():.0f} s ({why}): try again when it answers"
        ) from None
    if done.refusal:
        raise refused(done.refusal)
