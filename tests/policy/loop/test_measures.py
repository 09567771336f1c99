"""What a life adds to the metrics: failures by class and rule, how fast they were decided, removals, force."""

from __future__ import annotations

import ast
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import names
from holdfast.formats.settings import Settings
from holdfast.model import (
    ActionKind,
    Match,
    Observation,
    OperationKind,
    Policy,
    Progress,
    RestartMode,
    Rule,
    State,
    Workload,
)
from holdfast.model.life.progress import StepRecord
from holdfast.model.spec.policy import DEFAULT_RULE, Action
from holdfast.policy.failures.rules import NO_PROGRESS_RULE
from holdfast.policy.loop.advance import decisions
from holdfast.policy.loop.measures import OWN_RULE, RULES, Counted, Lasted, measures
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, StepsRead
from holdfast.policy.verdicts.progress import stall
from holdfast.profiles import PROFILES
from holdfast.profiles.rules import COMMON
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


def test_each_rule_that_a_profile_a_setting_or_the_engine_may_add_has_a_label_and_no_other():
    trees = [ast.parse(file.read_text()) for file in Path(holdfast.__file__).parent.rglob("*.py")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    rules = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Rule"]
    given = [word.value for rule in rules for word in rule.keywords if word.arg == "name"]
    added = {name.value for name in given if isinstance(name, ast.Constant)}
    assert {rule.name for one in PROFILES.values() for rule in one.rules} <= added
    assert {*added, DEFAULT_RULE, NO_PROGRESS_RULE} == RULES


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_what_restart_in_place_adds_to_a_profile_has_a_label(profile: str):
    added = Settings(restart_mode=RestartMode.IN_PLACE).policy(PROFILES[profile]).rules
    assert {rule.name for rule in added} <= RULES


@pytest.mark.row("P2", level="pure")
def test_P2_a_stall_counts_under_its_own_rule_which_has_no_grace(found: Found):
    life = Life(spec=workload(policy=policy(failure_grace_period="60s"), progress=Progress())).runs()
    life.hold.add(OperationKind.OBSERVE)
    record = StepRecord(attempt=1, at=life.now, pods="x", step=7, quiet=300.0)
    life.tell(StepsRead(1, record, stall(1, life.now)))
    life.hold.clear()
    life.now += timedelta(seconds=20)  # The live look took so long.
    life.finish()
    life.settle()
    assert counted(found) == [{"cluster": "dev", "class": "NoProgress", "rule": "no-progress", "decision": "restart"}]
    assert spans(found, names.METRIC_REACTION) == [timedelta(seconds=20)]


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
