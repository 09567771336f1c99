"""What a life adds to the metrics: failures by class and rule, how fast they were decided, removals, force."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import names
from holdfast.model import ActionKind, Match, Observation, Policy, Rule, State, Workload
from holdfast.model.spec.policy import DEFAULT_RULE, Action
from holdfast.policy.loop.advance import decisions
from holdfast.policy.loop.measures import OWN_RULE, RULES, Counted, Lasted, measures
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled
from holdfast.profiles import PROFILES, jobset
from holdfast.profiles.rules import COMMON, with_exit_codes
from tests.policy.lives import life as lives
from tests.policy.lives.advanced import advance
from tests.policy.lives.life import START, Life, workload

Found = list[Counted | Lasted]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Found:
    """What the turns of a life that follows have measured."""
    found, last = Found(), list[State]()

    def measured(spec: Workload, state: State, now: datetime) -> Any:
        found.extend(measures(spec, last[-1] if last else state, state, decisions(spec, state, now), now))
        state, step = advance(spec, state, now)
        last.append(state)
        return state, step

    monkeypatch.setattr(lives, "advance", measured)
    return found


def policy(**timings: Any) -> Policy:
    rules = (
        *COMMON,
        Rule(name="the-teams-own", match=Match(exit_codes=(7,)), action=Action(kind=ActionKind.FAIL, charge=None)),
    )
    return edit(workload(timings=timings).policy, rules=rules)


def counted(found: Found, name: str = names.METRIC_FAILURES) -> list[dict[str, str]]:
    return [dict(one.labels) for one in found if isinstance(one, Counted) and one.name == name]


def spans(found: Found, name: str) -> list[timedelta]:
    return [one.span for one in found if isinstance(one, Lasted) and one.name == name]


def test_the_rules_that_have_a_label_are_those_of_the_profiles():
    assert {
        DEFAULT_RULE,
        *(rule.name for rule in COMMON),
        *(rule.name for one in PROFILES.values() for rule in one.rules),
        *(rule.name for rule in (jobset.NO_POLICY, jobset.NO_RULE)),
        *(rule.name for rule in with_exit_codes(PROFILES["appwrapper"], (1,), (2,)).rules),
    } == RULES


def test_a_failure_counts_once_under_its_class_its_rule_and_what_was_decided(found: Found):
    Life(spec=workload(policy=policy())).runs().sees(running=1, failed=1).after(minutes=2)
    assert counted(found) == [{"cluster": "dev", "class": "App", "rule": "failed-pods", "decision": "restart"}]


def test_the_wait_that_a_rule_asks_for_is_no_delay_of_the_decision(found: Found):
    life = Life(spec=workload(policy=policy(failure_grace_period="60s"))).runs().sees(running=1, failed=1)
    life.after(seconds=59)
    assert spans(found, names.METRIC_REACTION) == []
    life.now += timedelta(seconds=4)  # The worker is two seconds late, or three.
    life.settle()
    assert spans(found, names.METRIC_REACTION) == [timedelta(seconds=3)]


def test_a_failure_that_is_seen_late_was_decided_late(found: Found):
    class Late(Life):
        def look(self, **given: Any) -> Observation:
            seen = super().look(**given)
            return edit(seen, failures=tuple(edit(one, time=START) for one in seen.failures))

    life = Late(spec=workload(policy=policy(failure_grace_period="0s"))).runs()
    life.now = START + timedelta(seconds=20)
    life.sees(running=1, failed=1)
    assert spans(found, names.METRIC_REACTION) == [timedelta(seconds=20)]


def test_a_rule_of_a_documents_own_has_no_label_of_its_own(found: Found):
    spec = workload(policy=edit(policy(), rules=policy().rules[::-1]))
    Life(spec=spec).runs().sees(running=1, failed=1, exit_code=7).after(minutes=10)
    assert counted(found) == [{"cluster": "dev", "class": "App", "rule": OWN_RULE, "decision": "fail"}]


def test_a_sensitive_workload_is_held_once(found: Found):
    Life(spec=workload(policy=policy(), sensitive=True)).runs().sees(running=1, failed=1).after(minutes=30)
    assert [one["decision"] for one in counted(found)] == ["hold"]


@pytest.mark.parametrize(("stubborn", "forced"), [(False, 0), (True, 1)])
def test_a_removal_lasts_until_its_proof_and_force_counts_once(found: Found, stubborn: bool, forced: int):
    life = Life(spec=workload(policy=policy()), stubborn=stubborn).runs()
    life.tell(Cancelled("enough"))
    assert len(counted(found, names.METRIC_FORCED)) == forced
    (span,) = spans(found, names.METRIC_REMOVAL)
    assert (span > timedelta(0)) is stubborn


def test_a_life_without_a_failure_measures_nothing_but_its_removal(found: Found):
    Life(spec=workload(policy=policy())).runs().sees(succeeded=2, complete=True).after(days=30)
    assert {one.name for one in found} <= {names.METRIC_REMOVAL}
    assert len(found) == 1
