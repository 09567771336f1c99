"""Faults planted in the engine and in what carries it out: each is one wrong thing, and names the law it breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast.model import (
    Attempt,
    Component,
    ComponentView,
    Observation,
    OperationKind,
    Phase,
    Remnant,
    Replacement,
    Stage,
    State,
    Workload,
)
from holdfast.model.calls.cluster import Created
from holdfast.policy.attempt import health
from holdfast.policy.attempt import replace as replacing
from holdfast.policy.loop import advance, fold
from holdfast.policy.status import report
from holdfast.policy.values.decision import Restart
from holdfast.policy.values.edit import edit
from holdfast.policy.values.steps import Sleep, Step
from holdfast.policy.verdicts import decide, restart
from tests.fakes.ledger import Kind, Thing
from tests.policy.laws.laws import Law
from tests.policy.lives.carried import Activities
from tests.policy.lives.hands import Given, Steps

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong."""

    name: str
    law: Law
    patch: Patch = lambda _: None
    activities: type[Activities] = Activities
    streams: bool = False
    """Whether it is a fault of submissions that are whole or made anew, and of components made again alone."""
    ordered: bool = False
    """Whether it is a fault of components that start one after another."""


class InTheBackground(Activities):
    propagation_foreground = False


class ByName(Activities):
    uid_preconditions = False


class ByTheWordOfTheCollector(Activities):
    """Takes an owner that is gone for a proof that all it owned is."""

    def _remains(self, given: Given) -> Steps[list[Thing]]:
        left = yield from super()._remains(given)
        return left if any(one.kind is Kind.OWNER for one in left) else []


class StrippingUnasked(Activities):
    def may_strip(self, given: Given, thing: Thing) -> bool:
        return thing.kind in {Kind.POD, Kind.COMPONENT}


class StrippingTheOwner(Activities):
    def may_strip(self, given: Given, thing: Thing) -> bool:
        return given.strips


class FillingUp(Activities):
    def create(self, given: Given, tries: int) -> Steps[Created]:
        return super().create(replace(given, replaces_interrupted=False), 1)


def replacing_the_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A component that is complete is taken for one that has failed."""
    by_rule = replacing._by_rule  # pyright: ignore[reportPrivateUsage]

    def wrong(component: Component, rule: Replacement, view: ComponentView, attempt: Attempt) -> Any:
        return by_rule(component, rule, edit(view, failed=view.failed or view.complete), attempt)

    monkeypatch.setattr(replacing, "_by_rule", wrong)


def charging(times: int) -> Patch:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        restart = advance.restart

        def wrong(state: State, decision: Restart, now: datetime) -> State:
            used, charge = dict(state.used), decision.charge
            state = restart(state, decision, now)
            assert charge is not None
            return edit(state, used={**used, charge: used.get(charge, 0) + times})

        monkeypatch.setattr(advance, "restart", wrong)

    return patch


def charging_a_suspension(monkeypatch: pytest.MonkeyPatch) -> None:
    create = advance._create  # pyright: ignore[reportPrivateUsage]

    def wrong(spec: Workload, state: State, now: datetime) -> State:
        suspended = state.attempt is not None and not state.attempt.pause_after
        state = create(spec, state, now)
        return edit(state, used={"restart": state.used.get("restart", 0) + 1}) if suspended else state

    monkeypatch.setattr(advance, "_create", wrong)


def charging_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    ruled = decide._ruled  # pyright: ignore[reportPrivateUsage]

    def wrong(spec: Workload, state: State, *rest: Any) -> Any:
        budgets = tuple(edit(one, limit=1_000) for one in state.policy.budgets)
        return ruled(spec, edit(state, policy=edit(state.policy, budgets=budgets)), *rest)

    monkeypatch.setattr(decide, "_ruled", wrong)


def releasing_quota_early(monkeypatch: pytest.MonkeyPatch) -> None:
    held = report._HOLDS_QUOTA - {Phase.SUSPENDING}  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(report, "_HOLDS_QUOTA", held)


def counting_the_dark(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(start: datetime, grace: timedelta, blind: object) -> datetime:
        return start + grace

    for module in (health, restart):
        monkeypatch.setattr(module, "due", wrong)


def going_by_an_older_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = fold.observed

    def wrong(state: State, seen: Observation, looked_at: datetime | None, now: datetime) -> State:
        attempt = state.attempt
        if attempt is not None and attempt.stage is Stage.SUBMITTED and seen.attempt < attempt.number:
            seen = edit(seen, attempt=attempt.number, owner_uid=attempt.owner_uid, revision=2**31)
        return observed(state, seen, looked_at, now)

    monkeypatch.setattr(fold, "observed", wrong)


def dropping_what_comes_before_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot can come before the end of the creation that it speaks of."""
    observed = fold.observed

    def wrong(state: State, seen: Observation, looked_at: datetime | None, now: datetime) -> State:
        attempt = state.attempt
        if attempt is not None and attempt.stage is Stage.PREPARED:
            return edit(state, dropped=state.dropped + 1)
        return observed(state, seen, looked_at, now)

    monkeypatch.setattr(fold, "observed", wrong)


def dropping_a_newer_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory that was restored to an older time is told of attempts that it does not know."""
    observed = fold.observed

    def wrong(state: State, seen: Observation, looked_at: datetime | None, now: datetime) -> State:
        if seen.attempt > (state.attempt.number if state.attempt is not None else 0):
            return edit(state, dropped=state.dropped + 1)
        return observed(state, seen, looked_at, now)

    monkeypatch.setattr(fold, "observed", wrong)


def deciding_by_more_than_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    enter = advance.enter
    entered = iter(range(1_000_000))

    def wrong(state: State, phase: Phase, reason: Any, message: str, now: datetime) -> State:
        return enter(state, phase, reason, f"{message} ({next(entered)})", now)

    monkeypatch.setattr(advance, "enter", wrong)


def starting_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is still to be made is made as soon as anything is known of the rest."""

    def wrong(spec: Workload, state: State, seen: Observation | None, due: Any) -> tuple[str, ...]:
        attempt = state.attempt
        ready = attempt is not None and attempt.stage is Stage.SUBMITTED and seen is not None and not due
        return attempt.waiting if attempt is not None and ready else ()

    monkeypatch.setattr(decide, "turn", wrong)


def giving_up(monkeypatch: pytest.MonkeyPatch) -> None:
    removal = advance._removal  # pyright: ignore[reportPrivateUsage]

    def wrong(state: State, attempt: Any, now: datetime) -> Step:
        step = removal(state, attempt, now)
        forced = getattr(step, "kind", None) is OperationKind.FORCE_REMOVE and attempt.forced_rounds
        return Sleep(None, "it will not go") if forced else step

    monkeypatch.setattr(advance, "_removal", wrong)


def keeping_quiet_about_finalizers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Remnant, "sentence", lambda self: f"{self.kind} {self.name}")


RESTORED = Fault("dropping a newer attempt's snapshot", Law.SIGHT, dropping_a_newer_attempt)
"""Noticed only where a memory was restored to an older time."""

OWNERS = Fault("stripping the owner's finalizers", Law.ASKED, activities=StrippingTheOwner)
"""Noticed only where a forced removal lasts until somebody asks."""

FAULTS = (
    Fault("charging twice", Law.BUDGET, charging(2)),
    Fault("charging nobody", Law.BUDGET, charging(0)),
    Fault("charging beyond the limit", Law.BUDGET, charging_beyond_the_limit),
    Fault("deleting in the background", Law.EXCLUSIVE, activities=InTheBackground),
    Fault("releasing quota early", Law.RELEASE, releasing_quota_early),
    Fault("trusting the collector's word", Law.RELEASE, activities=ByTheWordOfTheCollector),
    Fault("letting clocks run in the dark", Law.BLIND, counting_the_dark),
    Fault("charging a suspension", Law.OWN_DELETION, charging_a_suspension),
    Fault("deciding by more than the history", Law.REPLAY, deciding_by_more_than_the_history),
    Fault("giving up on what will not go", Law.PROGRESS, giving_up),
    Fault("keeping quiet about finalizers", Law.PROGRESS, keeping_quiet_about_finalizers),
    Fault("stripping finalizers unasked", Law.ASKED, activities=StrippingUnasked),
    Fault("deleting by name", Law.IDENTITY, activities=ByName),
    Fault("filling up a submission", Law.WHOLE, activities=FillingUp, streams=True),
    Fault("making a healthy component again", Law.OWN_DELETION, replacing_the_healthy, streams=True),
    Fault("going by an older attempt's snapshot", Law.SIGHT, going_by_an_older_attempt),
    Fault("starting what waits at once", Law.ORDER, starting_at_once, ordered=True),
    Fault("dropping what comes before the result", Law.SIGHT, dropping_what_comes_before_the_result),
)
"""Each is found by random scripts alone."""
