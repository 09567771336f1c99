"""A kind that the cluster lacks: what its preparation is asked for, for how long, and whether it may be broken off."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import names
from holdfast.model import OperationKind, Phase, Reason
from holdfast.model.calls.cluster import PrepareInput
from holdfast.policy.loop.breakable import is_breakable
from holdfast.policy.values.events import Cancelled, OperationRefused, Suspended
from holdfast.workflows.operations.dispatch import ENDLESS, call_of
from tests.policy.lives.life import Life, workload


def preparing(*, allowed: bool, timeout: str | None = None) -> Life:
    timings = {"submissionTimeout": timeout} if timeout else None
    spec = workload(allow_missing_kinds=allowed, timings=timings)
    return Life(spec=spec, hold={OperationKind.PREPARE}).settle()


@pytest.mark.parametrize(("timeout", "patience"), [(None, None), ("10m", 600.0)])
def test_it_is_waited_for_up_to_the_submission_timeout_where_that_is_asked_for(
    timeout: str | None, patience: float | None
):
    life = preparing(allowed=True, timeout=timeout)
    call = call_of(life.spec, life.state, "uid", life.now)
    assert isinstance(call.argument, PrepareInput)
    assert (call.argument.waits_for_kinds, call.argument.waits) == (True, False), "rights are refused all the same"
    assert call.argument.patience == patience
    assert call.start_to_close == ENDLESS
    assert is_breakable(life.spec, life.state, OperationKind.PREPARE), "a history that is full must be able to end"
    assert not is_breakable(life.spec, life.state, OperationKind.CREATE)


def test_by_default_it_is_refused():
    life = preparing(allowed=False)
    call = call_of(life.spec, life.state, "uid", life.now)
    assert isinstance(call.argument, PrepareInput)
    assert not call.argument.waits_for_kinds
    assert call.argument.create is not None, "nothing is waited for, so that it may go on at once"
    assert call.start_to_close == timedelta(hours=1)
    assert not is_breakable(life.spec, life.state, OperationKind.PREPARE)


def test_a_wait_that_took_too_long_ends_the_workload_in_words():
    life = preparing(allowed=True, timeout="10m")
    life.tell(OperationRefused(names.ERROR_SUBMISSION_TIMEOUT, "not submitted in time: no Gizmo is served"))
    assert (life.state.phase, life.state.reason) == (Phase.FAILED, Reason.SUBMISSION_TIMEOUT)
    assert "no Gizmo is served" in life.state.message


@pytest.mark.parametrize("wish", [Suspended(), Cancelled()])
def test_a_wish_does_not_wait_for_the_kind(wish: Suspended | Cancelled):
    life = preparing(allowed=True).tell(wish)
    operation = life.state.operation
    assert operation is None or operation.kind is not OperationKind.PREPARE or operation.interrupted
