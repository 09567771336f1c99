"""Each operation's input names the workload that it touches, so that another workflow's request is refused (row X2)."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from temporalio import activity

from holdfast.activities.cluster import ClusterActivities
from holdfast.model import OperationKind
from holdfast.model.calls.cluster import ResetInput, Target


def inputs() -> dict[str, Any]:
    """Return the type of the input of each activity of a cluster, by name."""
    found: dict[str, Any] = {}
    for method in vars(ClusterActivities).values():
        definition = activity._Definition.from_callable(method)  # pyright: ignore[reportPrivateUsage]
        if definition is not None and definition.name:
            found[definition.name] = get_type_hints(method)["given"]
    return found


@pytest.mark.row("X2", level="pure")
@pytest.mark.parametrize("kind", OperationKind)
def test_X2_an_operation_names_its_workload_where_the_worker_looks_for_it(kind: OperationKind):
    given = inputs().get(kind)
    if given is None:
        assert kind is OperationKind.STAGE, "data sets are staged by the worker of the store"
        return
    assert given is ResetInput or given.model_fields["target"].annotation is Target


def test_X2_a_reset_is_of_the_workload_that_it_removes():
    hints = get_type_hints(ResetInput.target.fget)
    assert hints["return"] is Target
