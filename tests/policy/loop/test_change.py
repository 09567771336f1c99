"""Changes to a workload that is under way: what may differ, and what is refused by name (rows U10, S8)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.model import (
    Action,
    ActionKind,
    Attempt,
    Budget,
    Component,
    Intent,
    Match,
    Phase,
    Policy,
    Rule,
    Stage,
    State,
    Timings,
    Workload,
)
from holdfast.policy.loop.change import (
    ComponentsChange,
    PolicyChange,
    changed,
    check_change,
    check_changeable,
    differing,
    reconfigured,
    resizes,
)
from tests.policy.lives.elements import config, element, streams

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = Policy(budgets=(Budget(name="restart", limit=3), Budget(name="spare", limit=None)))


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({}, {}),
        (
            {"timings": {"failureGracePeriod": "30s", "successTtl": "1h"}},
            {
                "timings": Timings(failure_grace_period=timedelta(seconds=30), success_ttl=timedelta(hours=1)),
                "own_failure_grace": True,
            },
        ),
        (
            {"budgets": {"spare": 5, "restart": 0}},
            {"budgets": (Budget(name="restart", limit=0), Budget(name="spare", limit=5))},
        ),
        (
            {"reset_after": {"spare": "24h"}},
            {"budgets": (POLICY.budgets[0], Budget(name="spare", limit=None, reset_after=timedelta(hours=24)))},
        ),
    ],
)
def test_what_is_named_differs_and_all_else_stays(change: dict[str, Any], differs: dict[str, Any]):
    assert changed(POLICY, PolicyChange(**change)) == POLICY.model_copy(update=differs)


def test_a_budget_that_was_renewed_by_health_can_be_made_to_count_for_ever():
    renewed = changed(POLICY, PolicyChange(reset_after={"restart": "1h"}))
    assert renewed.budget("restart").reset_after == timedelta(hours=1)
    assert changed(renewed, PolicyChange(reset_after={"restart": None})) == POLICY


RULED = Policy(
    rules=(
        Rule(name="oom", match=Match(exit_codes=(137,)), action=Action(limit=1)),
        Rule(name="bug", match=Match(exit_codes=(1,)), action=Action(kind=ActionKind.FAIL, charge=None)),
    )
)


@pytest.mark.row("J19", level="pure")
def test_J19_limits_and_pauses_of_rules_can_be_changed_and_taken_back():
    change = PolicyChange(rule_limits={"oom": 3, "default": 2}, rule_pauses={"oom": "10m"})
    policy = changed(RULED, change)
    assert policy.rules[0].action == Action(limit=3, pause=timedelta(minutes=10))
    assert (policy.default, policy.rules[1]) == (Action(limit=2), RULED.rules[1])
    back = PolicyChange(rule_limits={"oom": 1, "default": None}, rule_pauses={"oom": None})
    assert changed(policy, back) == RULED


KNOWN = "timings, budgets, resetAfter, ruleLimits, rulePauses, note"


@pytest.mark.parametrize("name", ["success", "rules", "default", "deletion", "interruptedCreate", "profile"])
def test_what_stays_as_it_is_for_good_is_refused_by_its_name(name: str):
    change = PolicyChange.model_validate({name: {"operator": "Any"}, "note": "please"})
    with pytest.raises(ValueError, match="cannot be changed") as caught:
        changed(POLICY, change)
    assert str(caught.value) == (
        f"{name}: cannot be changed under way: submit it anew instead, or change one of {KNOWN}"
    )


def test_a_field_that_no_change_has_is_refused_by_its_name():
    with pytest.raises(ValueError, match="budget: expected") as caught:
        changed(POLICY, PolicyChange.model_validate({"budget": {"restart": 1}}))
    assert str(caught.value) == f"budget: expected one of {KNOWN}"


def test_a_change_that_says_nothing_of_rules_is_written_as_before():
    assert PolicyChange().model_dump(mode="json").keys() == {"timings", "budgets", "resetAfter", "note"}


TIMINGS = (
    "admissionGracePeriod, deletionOnFailureGracePeriod, failureGracePeriod, forcefulDeletionGracePeriod, "
    "launchGracePeriod, retryPausePeriod, submissionTimeout, successTtl, warmupGracePeriod"
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"timings": {"failureGrace": "30s"}}, f"timings.failureGrace: expected one of {TIMINGS}"),
        ({"budgets": {"retry": 1}}, "budgets.retry: expected one of restart, spare"),
        ({"reset_after": {"retry": "1h"}}, "resetAfter.retry: expected one of restart, spare"),
        (
            {"rule_limits": {"oom": 1}},
            "ruleLimits.oom: expected a rule that restarts: one of default",
        ),
        (
            {"rule_pauses": {"oom": "1m"}},
            "rulePauses.oom: expected a rule that restarts: one of default",
        ),
    ],
)
def test_an_unknown_name_is_refused_with_those_that_are_known(change: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=r"expected .*one of") as caught:
        changed(POLICY, PolicyChange(**change))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "change",
    [{"timings": {"retryPausePeriod": "soon"}}, {"budgets": {"restart": -1}}, {"rule_limits": {"default": -1}}],
)
def test_a_value_that_is_out_of_range_is_refused(change: dict[str, Any]):
    with pytest.raises(ValueError, match=r"retry_?[pP]ause|budgets|limit"):
        changed(POLICY, PolicyChange(**change))


# --- what components are made of


def pod(name: str = "pe-1", **template: Any) -> Component:
    """Return the stream's second element with another image, and what else is given."""
    one = element(1, "pe:2")
    metadata = {**one.template["metadata"], **template.pop("metadata", {})}
    changed = {**one.template, "metadata": metadata, **template}
    return one.model_copy(update={"name": name, "template": changed})


def test_a_component_may_be_made_of_something_else_and_all_others_stay():
    spec = streams()
    after = reconfigured(spec, ComponentsChange(components=(pod(), config("v2"))))
    assert [one.name for one in after.components] == [one.name for one in spec.components]
    assert after.components[0] == config("v2")
    assert after.components[2] == pod()
    assert (after.components[1], after.components[3]) == (spec.components[1], spec.components[3])


@pytest.mark.parametrize(
    ("component", "message"),
    [
        (pod("pe-9"), "components.pe-9: expected one of adl, pe-0, pe-1, pe-2"),
        (pod(apiVersion="v2"), "components.pe-1.template.apiVersion: expected 'v1' as before"),
        (pod(kind="Job"), "components.pe-1.template.kind: expected 'Pod' as before"),
        (pod(metadata={"name": "pe-x"}), "components.pe-1.template.metadata.name: expected 'pe-1' as before"),
        (
            pod(metadata={"generateName": "pe-"}),
            "components.pe-1.template.metadata.generateName: expected None as before",
        ),
        (pod(metadata={"namespace": "other"}), "components.pe-1.template.metadata.namespace: expected None as before"),
        (
            pod().model_copy(update={"pod_sets": ()}),
            "components.pe-1.podSets: expected the same pods as before: submit it anew instead",
        ),
        (
            pod().model_copy(update={"pod_sets": (pod().pod_sets[0].model_copy(update={"replicas": 2}),)}),
            "components.pe-1.podSets: expected the same pods as before: submit it anew instead",
        ),
    ],
)
def test_what_would_become_another_object_or_bring_other_pods_is_refused(component: Component, message: str):
    change = ComponentsChange.model_construct(components=(component,), note="")
    with pytest.raises(ValueError, match="components") as caught:
        reconfigured(streams(), change)
    assert str(caught.value) == message


@pytest.mark.row("S8", level="pure")
@pytest.mark.row("T6", level="pure")
def test_S8_a_change_of_a_gang_that_was_scaled_keeps_its_size():
    def gang(image: str, pods: int) -> Workload:
        spec = {"completionMode": "Indexed", "template": {"spec": {"containers": [{"name": "c", "image": image}]}}}
        template = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "main"}, "spec": spec}
        pod_sets = ({"path": "template.spec.template", "replicas": pods},)
        members = Component(name="main", template=template, pod_sets=pod_sets)  # type: ignore[arg-type]
        return Workload(name="train", cluster="dev", components=(members,), gang={"min": pods, "max": 8})  # type: ignore[arg-type]

    before, wanted = gang("pe:1", 2), ComponentsChange(components=gang("pe:2", 2).components)
    scaled = before.resized(4, 8)
    check_change(scaled, State(since=NOW, policy=scaled.policy), wanted)
    assert reconfigured(scaled, wanted) == gang("pe:2", 4)
    assert (resizes(scaled, wanted), resizes(before, wanted), resizes(streams(), wanted)) == (True, False, False)
    elsewhere = wanted.components[0].model_copy(update={"pod_sets": (before.components[0].pod_sets[0],) * 2})
    with pytest.raises(ValueError, match="expected the same pods as before"):
        reconfigured(scaled, ComponentsChange.model_construct(components=(elsewhere,), note=""))


def test_a_change_that_makes_the_whole_invalid_is_refused_in_the_models_words():
    reader = pod().model_copy(update={"config": ("nothing",)})
    with pytest.raises(ValueError, match="nothing") as caught:
        reconfigured(streams(), ComponentsChange.model_construct(components=(reader,), note=""))
    assert not hasattr(caught.value, "errors"), "a sentence, not a list of pydantic's"


@pytest.mark.row("D5", level="pure")
@pytest.mark.parametrize("field", ["restartPolicy", "restartPolicyRules"])
def test_D5_a_change_may_not_make_a_kubelet_run_sensitive_work_again(field: str):
    value = {"restartPolicy": "OnFailure", "restartPolicyRules": [{"action": "Restart"}]}[field]
    once, again = ({"name": "fetch", "image": "pe:1", **more} for more in ({}, {field: value}))

    def fetching(first: Any, image: str) -> Component:
        return pod(spec={"initContainers": [first], "containers": [{"name": "main", "image": image}]})

    before = fetching(once, "pe:1")
    spec = Workload(name="train", cluster="dev", components=(before,), sensitive=True)
    change = ComponentsChange(components=(fetching(again, "pe:2"),))
    with pytest.raises(ValueError, match=r"components\.pe-1\.template\.spec\.initContainers\[0\]\.") as caught:
        check_change(spec, State(since=NOW, policy=spec.policy), change)
    assert "sensitive work is not run again without a person's word" in str(caught.value)
    assert reconfigured(spec, change).sensitive, "what an earlier release has accepted stays readable"
    check_change(spec, State(since=NOW, policy=spec.policy), ComponentsChange(components=(fetching(once, "pe:2"),)))
    check_change(spec.model_copy(update={"sensitive": False}), State(since=NOW, policy=spec.policy), change)


def test_the_workload_that_comes_of_it_is_checked_whole():
    assert isinstance(reconfigured(streams(), ComponentsChange(components=(pod(),))), Workload)


def test_what_reads_a_changed_component_is_made_again_with_it_and_nothing_else():
    spec = streams()
    assert differing(spec, reconfigured(spec, ComponentsChange(components=(pod(),)))) == ("pe-1",)
    assert differing(spec, reconfigured(spec, ComponentsChange(components=(config("v2"),)))) == ("adl", "pe-0")
    assert differing(spec, spec) == ()


def state(stage: Stage | None, outcome: Phase | None = None, *, cancel: bool = False) -> State:
    attempt = None if stage is None else Attempt(number=1, stage=stage, begun_at=NOW)
    return State(since=NOW, policy=POLICY, attempt=attempt, outcome=outcome, intent=Intent(cancel=cancel))


@pytest.mark.parametrize(
    "now",
    [state(None), *(state(stage) for stage in Stage), state(Stage.SUBMITTED, Phase.FAILED)],
)
def test_a_change_is_taken_as_long_as_something_may_be_made_of_it(now: State):
    check_changeable(now)


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (state(Stage.SUBMITTED, cancel=True), "it is being deleted"),
        (state(None, cancel=True), "it is being deleted"),
        (state(Stage.SUBMITTED, Phase.SUCCEEDED), "it is Succeeded"),
        (state(Stage.GONE, Phase.CANCELLED, cancel=True), "it is Cancelled"),
        (state(Stage.REMOVING, Phase.FAILED), "it is Failed"),
        (state(Stage.SUBMITTED, Phase.FAILED, cancel=True), "it is Failed"),
    ],
)
def test_a_change_of_which_nothing_would_be_made_is_refused(now: State, message: str):
    with pytest.raises(ValueError, match="submit it anew instead") as caught:
        check_changeable(now)
    assert str(caught.value) == f"{message}, and nothing more is made of it: submit it anew instead"
