"""Finds the pod's death behind a component's failure: a failed Job says that it gave up, not why (row D35)."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model import Death, Failure, FailureClass, Observation, Scope, Workload
from holdfast.policy.failures.avoided_nodes import is_loss
from holdfast.policy.values.edit import edit


def died(failures: Iterable[Failure], component: str = "", *, of_nodes: bool = True) -> Failure | None:
    """Return the first of these failures that is a pod's own death, of one component or of any.

    A mark on its node, or the loss of its node, is none: the pod may still run. Only where `of_nodes` holds is it one
    if its node evicted, ended or could not start it: runs of earlier releases go on as they began.
    """
    found = [
        one
        for one in failures
        if one.scope is Scope.MEMBER
        and not one.stuck
        and (one.cls is FailureClass.APP or (of_nodes and one.cls is not FailureClass.HARDWARE and not is_loss(one)))
        and (not component or one.component == component)
    ]
    return min(found, key=Failure.order, default=None)


def with_death(
    spec: Workload,
    failure: Failure,
    seen: Observation | None,
    before: Failure | None,
    *,
    of_nodes: bool = True,
) -> Failure:
    """Return a component's failure with the first death of its pods added; return other failures unchanged.

    Its own exit code, node and reason stay as they were reported, so that rules judge it by them.

    Args:
        spec: the workload.
        failure: the failure.
        seen: the snapshot that has the failure.
        before: the death that made the workload unhealthy, if its pod no longer exists.
        of_nodes: as in `died`.
    """
    if failure.scope is not Scope.COMPONENT or failure.cls is not FailureClass.APP or failure.death is not None:
        return failure
    first = died(seen.failures if seen is not None else (), failure.component, of_nodes=of_nodes)
    if first is None and before is not None and before.component == failure.component:
        first = before
    if first is None:
        return failure
    kind = next((str(one.template["kind"]) for one in spec.components if one.name == failure.component), "")
    death = Death(
        kind=kind,
        pod=first.subject,
        reason=first.reason,
        exit_code=first.exit_code,
        node=first.node,
        message=first.message,
        time=first.time,
    )
    return edit(failure, death=death)


def as_recorded(failure: Failure) -> Failure:
    """Return a failure as it is recorded: with the exit code and the node of the death behind it."""
    if failure.death is None:
        return failure
    return edit(failure, exit_code=failure.death.exit_code, node=failure.death.node)
