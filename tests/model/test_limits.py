"""The operator's limits hold whatever is submitted (row A14)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import Limits, Timings

_SPANS = st.timedeltas(timedelta(0), timedelta(days=400))
_TIMINGS = st.builds(Timings, **dict.fromkeys(Timings.model_fields, _SPANS))
_LIMITS = st.builds(Limits, grace_period_maximum=_SPANS, success_ttl_maximum=st.none() | _SPANS)


@pytest.mark.row("A14", level="pure")
@given(_TIMINGS, _LIMITS)
def test_every_wait_is_held_by_its_own_limit_and_never_lengthened(timings: Timings, limits: Limits) -> None:
    held = limits.clamp(timings)
    for name in Timings.model_fields:
        asked, got = getattr(timings, name), getattr(held, name)
        if name == "submission_timeout":
            assert got == asked, "it is no grace: the operator has no limit for it"
            continue
        top = limits.success_ttl_maximum if name == "success_ttl" else limits.grace_period_maximum
        assert got == (asked if top is None else min(asked, top))


@pytest.mark.row("J15", level="pure")
@given(_TIMINGS, _LIMITS)
def test_J15_a_ttl_that_counts_from_any_end_is_held_by_the_limit_of_ttls_alone(
    timings: Timings, limits: Limits
) -> None:
    asked = timings.model_copy(update={"deletion_on_failure_grace_period": timings.success_ttl})
    held = limits.clamp(asked, one_ttl=True)
    assert held.deletion_on_failure_grace_period == held.success_ttl
    rest = limits.clamp(asked).model_dump(exclude={"deletion_on_failure_grace_period"})
    assert held.model_dump(exclude={"deletion_on_failure_grace_period"}) == rest


@given(_TIMINGS, _LIMITS)
def test_holding_twice_is_holding_once(timings: Timings, limits: Limits) -> None:
    assert limits.clamp(limits.clamp(timings)) == limits.clamp(timings)
