"""Reading a whole text: which form each document has, what overrides what, what is refused for the whole."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.errors import InvalidWorkload
from holdfast.formats import NAMES, read
from holdfast.model import RestartMode, Workload
from holdfast.profiles import PROFILES
from holdfast.profiles.rules import POD_RESTARTED
from tests.formats.documents import Json, appwrapper, config_map, copy, job, one, pod, refusal

EXAMPLES = Path(__file__).parents[2] / "examples"


def text(*documents: Json) -> str:
    return "---\n".join(yaml.safe_dump(each) for each in documents)


def test_a_stream_may_hold_several_workloads() -> None:
    second = appwrapper(pod())
    second["metadata"]["name"] = "other"
    found = read(text(appwrapper(), config_map(), second, job()), cluster="dev")
    assert [(each.name, each.source.kind) for each in found] == [
        ("train-llm", "AppWrapper"),
        ("other", "AppWrapper"),
        ("train", "List"),
    ]


def test_text_and_values_json_and_yaml_are_read_alike() -> None:
    document = appwrapper()
    forms: list[Any] = [document, [document], (document,), iter([document]), text(document), json.dumps(document)]
    assert len({one(form).spec_hash() for form in forms}) == 1


def test_a_list_is_read_as_what_is_in_it() -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [config_map(), job()]}
    assert one(listed) == one([config_map(), job()])
    assert "expected objects" in str(refusal({**listed, "items": ["x"]})[0])


def test_one_name_is_not_for_two() -> None:
    assert "names one workload, but 2 were read" in str(refusal([appwrapper(), job()], name="train-llm")[0])
    assert "is given to two workloads" in str(refusal([appwrapper(), appwrapper()])[0])


def test_two_objects_of_one_kind_and_name_are_refused_where_the_second_is() -> None:
    problem = refusal([job(), config_map(), job()])[0]
    assert str(problem).startswith("Job train: metadata.name: is the name of another Job here, that of object 1 (found")
    assert one([job("a"), {**pod(), "metadata": {"name": "a"}}, job("b")]).components, "another kind may have the name"

    elsewhere = [{**config_map(), "metadata": {"name": "c", "namespace": space}} for space in ("x", "y")]
    assert "is another namespace" in str(refusal([job(), *elsewhere])[0])

    components = [{"name": name, "template": job()} for name in ("one", "two")]
    assert one(own(components=[components[0], {**components[1], "copies": 3}])).components, (
        "copies are train-0 to train-2"
    )
    problem = refusal(own(components=components))[0]
    assert problem.path == "spec.components[1].template.metadata.name"
    assert "that of spec.components[0] (found 'train')" in str(problem)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("", "expected at least one document, found none"),
        ([], "expected at least one document, found none"),
        ({}, "expected a Kubernetes object with apiVersion and kind, or a workload with schemaVersion"),
        ({"kind": "Pod"}, "expected a Kubernetes object with apiVersion and kind"),
        ("a: !!binary aGk=", "is not JSON"),
    ],
)
def test_what_is_no_workload_at_all(document: Any, says: str) -> None:
    assert says in str(refusal(document)[0])


def test_an_error_names_the_document_and_its_line() -> None:
    broken = appwrapper(job(parallelism="x"))
    broken["metadata"]["name"] = "broken"
    with pytest.raises(InvalidWorkload) as caught:
        read(text(appwrapper(), broken), cluster="dev")
    first, second = str(caught.value).splitlines()
    assert first.startswith("AppWrapper broken (line ")
    assert first.endswith(") cannot be accepted: 1 problem")
    assert second.startswith("  spec.components[0].template.spec.parallelism: expected a whole number")


@pytest.mark.parametrize("document", [appwrapper(), job()])
def test_overrides_win_over_all_else(document: Json) -> None:
    document = copy(document)
    document["metadata"]["annotations"] = {
        "workload.codeflare.dev.appwrapper/failureGracePeriodDuration": "9s",
        "holdfast.dev/failureGracePeriod": "9s",
    }
    assert one(document).policy.timings.failure_grace_period == timedelta(seconds=9)
    settings = {"failureGracePeriod": "30s", "retryLimit": "0", "queue": "gpu", "runAs": "me", "suspend": "true"}
    workload = one(document, overrides=settings | {"allowMissingKinds": "true", "restartMode": "InPlace"})
    assert workload.policy.restart_mode is RestartMode.IN_PLACE
    assert workload.policy.timings.failure_grace_period == timedelta(seconds=30)
    assert workload.policy.budget("restart").limit == 0
    assert (workload.queue, workload.run_as, workload.suspend) == ("gpu", "me", True)
    assert (workload.allow_missing_kinds, one(document).allow_missing_kinds) == (True, False)
    assert workload.policy.rules == (POD_RESTARTED, *PROFILES[workload.policy.profile].rules)


@pytest.mark.row("U14", level="pure")
@pytest.mark.parametrize(
    ("overrides", "path", "says"),
    [
        ({"failureGrace": "1s"}, "overrides.failureGrace", "did you mean failureGracePeriod?"),
        ({"failureGracePeriod": "x"}, "overrides.failureGracePeriod", "'x' is not a duration: expected for example"),
        ({"retryLimit": "x"}, "overrides.retryLimit", "expected a whole number from 0 to 1000000 (found 'x')"),
        ({"queue": "A"}, "overrides.queue", "expected a DNS label"),
        ({"restartMode": "Restart"}, "overrides.restartMode", "allowed: Recreate, InPlace (found 'Restart')"),
        ({"allowMissingKinds": "yes"}, "overrides.allowMissingKinds", "allowed: true, false (found 'yes')"),
        ({"nonsense": "1"}, "overrides.nonsense", f"is no setting; allowed: {', '.join(NAMES)}"),
    ],
)
def test_a_malformed_override_is_refused(overrides: dict[str, str], path: str, says: str) -> None:
    (problem,) = refusal(job(), overrides=overrides)
    assert problem.path == path
    assert says in str(problem)


def test_a_secret_is_accepted_only_where_payloads_are_encrypted() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "hunter2"}}
    (problem,) = refusal(appwrapper(secret, job()))
    assert problem.path == "spec.components[0].template"
    assert "create it beforehand and refer to it by name" in problem.message
    assert "hunter2" not in str(problem)
    assert one(appwrapper(secret, job()), payloads_encrypted=True).components[0].template == secret


def test_a_workload_too_large_is_refused_as_a_whole() -> None:
    large = config_map()
    large["data"] = {"a": "x" * (512 * 1024)}
    (problem,) = refusal(appwrapper(large, job()))
    assert "expected at most 524,288" in problem.message


# --- Holdfast's own document


NO_NUMBER = "expected a whole number (found "


def own(**fields: Any) -> Json:
    spec = {"components": [{"name": "train", "template": job(parallelism=2)}], **fields}
    metadata = {"name": "own", "namespace": "team", "labels": {"a": "b"}}
    return {"apiVersion": "holdfast.dev/v1", "kind": "Workload", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("priority", [1, 1.0])
def test_a_number_of_our_document_may_be_written_with_a_point(priority: float) -> None:
    (found,) = read([own(priority=priority)], cluster="dev")
    assert found.priority == 1
    assert Workload.model_validate({**found.model_dump(mode="json"), "priority": True}) == found, "what began goes on"


def test_holdfasts_own_document() -> None:
    workload = one(own(priority=3))
    assert (workload.workflow_id, workload.labels, workload.priority) == ("workload/dev/team/own", {"a": "b"}, 3)
    assert workload.source.kind == "Workload"
    assert workload.policy == PROFILES["manifests"]


def test_in_holdfasts_own_document_what_a_known_kind_tells_is_filled_in() -> None:
    (component,) = one(own()).components
    assert component.expected_pods == 2
    assert component.status.complete == ("Complete",)


def test_in_holdfasts_own_document_a_policy_may_be_given_in_part() -> None:
    workload = one(own(policy={"profile": "appwrapper", "timings": {"failureGracePeriod": "2s"}}))
    expected = PROFILES["appwrapper"]
    timings = expected.timings.model_copy(update={"failure_grace_period": timedelta(seconds=2)})
    assert workload.policy == expected.model_copy(update={"timings": timings, "own_failure_grace": True})
    assert one(own(policy={"rules": []})).policy.rules == ()


@pytest.mark.parametrize("document", [appwrapper(job(), pod()), job(), own(suspend=True)])
def test_the_models_own_json_is_read_back_as_it_was(document: Json) -> None:
    workload = one(document)
    assert one(workload.model_dump_json()) == workload
    assert one(workload.model_dump(mode="json")) == workload


@pytest.mark.row("U14", level="pure")
@pytest.mark.parametrize(
    ("document", "path", "says"),
    [
        (own(priorty=3), "spec.priorty", "is not a field here; did you mean priority?; allowed: schemaVersion, name"),
        (own(priority=11), "spec.priority", "expected less than or equal to 10 (found 11)"),
        (own(kind="Batch"), "spec.kind", "allowed: batch, interactive, service (found 'Batch')"),
        (own(policy={"timings": {"failureGrace": "1s"}}), "spec.policy.timings.failureGrace", "failureGracePeriod"),
        (
            own(policy={"timings": {"failureGracePeriod": "x"}}),
            "spec.policy.timings.failureGracePeriod",
            "'x' is not a",
        ),
        (
            own(policy={"rules": [{"name": "a", "action": {"kind": "Explode"}}]}),
            "spec.policy.rules[0].action.kind",
            "allowed: Restart, Fail, Ignore (found 'Explode')",
        ),
        (
            own(policy={"rules": [{"name": "a", "match": {"classes": ["Gremlin"]}}]}),
            "spec.policy.rules[0].match.classes[0]",
            "allowed: App, NodeLost, Hardware, Launch, Missing, Timeout, Deadline, Probe, "
            "NoProgress, Checkpoint, Unknown",
        ),
        (
            own(policy={"rules": [{"name": "a", "match": {"messagePattern": "("}}]}),
            "spec.policy.rules[0].match.messagePattern",
            "'(' is no regular expression of RE2",
        ),
        (
            own(policy={"rules": [{"name": "a", "match": {"reasons": [5]}}]}),
            "spec.policy.rules[0].match.reasons[0]",
            "(found 5)",
        ),
        (
            own(policy={"rules": [{"name": "a", "match": {"exitCodes": [256]}}]}),
            "spec.policy.rules[0].match.exitCodes[0]",
            "expected less than or equal to 255 (found 256)",
        ),
        (own(policy={"rules": [{"name": "1 a"}]}), "spec.policy.rules[0]", "rule name '1 a': expected"),
        (
            own(policy={"rules": [{"name": "a", "action": {"charge": "luck"}}]}),
            "spec.policy",
            "charge 'luck' names no budget: expected one of ['restart']",
        ),
        (
            own(policy={"rules": [{"name": "a", "match": {"components": ["nobody"]}}]}),
            "spec.policy.rules[a].match.components",
            "'nobody' names no component",
        ),
        (own(components=[{"name": "a", "template": {}}]), "spec.components[0].template.apiVersion", "expected a text"),
        (own(components=3), "spec.components", "expected a list (found 3)"),
        (own(cluster="prod"), "spec.cluster", "expected 'dev', as asked for (found 'prod')"),
        (own(cluster=[]), "spec.cluster", "expected 'dev', as asked for (found a list of 0)"),
        (
            {**own(), "metadata": {"name": "x", "namespace": {}}},
            "metadata.namespace",
            "expected 'default', as asked for (found an object with 0 fields)",
        ),
        (own(name="x"), "spec.name", "belongs to metadata.name"),
        ({**own(), "extra": 1}, "extra", "allowed: apiVersion, kind, metadata, spec, status"),
        ({**own(), "apiVersion": "holdfast.dev/v9"}, "apiVersion", "allowed: holdfast.dev/v1"),
        ({**own(), "spec": None}, "spec", "expected an object (found null)"),
        ({"schemaVersion": 2, "name": "x", "components": []}, "schemaVersion", "allowed: 1"),
        *((own(priority=value), "spec.priority", NO_NUMBER) for value in (True, False)),
        (
            own(policy={"budgets": [{"name": "restart", "limit": True}]}),
            "spec.policy.budgets[0].limit",
            NO_NUMBER,
        ),
        (
            own(policy={"rules": [{"name": "r", "match": {"exitCodes": [3, True]}, "action": {"kind": "Fail"}}]}),
            "spec.policy.rules[0].match.exitCodes[1]",
            NO_NUMBER,
        ),
        (
            {"schemaVersion": True, "name": "x", "components": [{"name": "c", "template": config_map()}]},
            "schemaVersion",
            NO_NUMBER,
        ),
    ],
)
def test_a_malformed_document_of_ours_is_refused(document: Json, path: str, says: str) -> None:
    problem = refusal(document)[0]
    assert problem.path == path
    assert says in str(problem)


# --- the examples


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_accepted_unmodified(example: Path) -> None:
    (workload,) = read(example.read_text(), cluster="dev")
    assert isinstance(workload, Workload)
    assert workload.expected_pods > 0
    assert one(workload.model_dump_json()) == workload


def test_the_examples_custom_resource_has_its_definition() -> None:
    (definition,) = yaml.safe_load_all((EXAMPLES / "crds/trainingplans.yaml").read_text())
    workload = one((EXAMPLES / "appwrapper-custom-resource.yaml").read_text())
    template = workload.components[0].template
    assert template["apiVersion"] == f"{definition['spec']['group']}/{definition['spec']['versions'][0]['name']}"
    assert template["kind"] == definition["spec"]["names"]["kind"]
