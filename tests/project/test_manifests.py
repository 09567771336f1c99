"""The manifests of deploy/ and the rights in them are as small as docs/security.md says."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import formats, names
from holdfast.formats.settings import NAMES
from holdfast.worker.cleanup.namespace import manifests
from tests.project.manifests import Document, problems

DEPLOY = Path(__file__).parents[2] / "deploy"
APPLIED: list[Document] = [
    document
    for file in sorted(DEPLOY.rglob("*.yaml"))
    if "chart" not in file.parts and file.name != "kustomization.yaml"
    for document in yaml.safe_load_all(file.read_text())
]


def test_nothing_that_is_applied_is_insecure() -> None:
    assert {"Deployment", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} <= {
        one["kind"] for one in APPLIED
    }
    assert problems(APPLIED) == []


def test_an_enabled_namespace_grants_the_worker_one_account_and_the_account_no_wildcard() -> None:
    worker, runner = [], []
    for one in manifests("team"):
        bound = one["kind"] == "Role" and any("impersonate" in rule["verbs"] for rule in one["rules"])
        (worker if bound else runner).append(one)
    assert problems(worker) == []
    assert [rule["resourceNames"] for one in worker for rule in one["rules"]] == [["holdfast-runner"]]
    # The account makes the components: these are what it is for.
    assert [one for one in problems(runner) if "touches workloads" not in one] == []


def test_F18_all_who_log_in_may_read_how_to_reach_temporal_and_nothing_else() -> None:
    (role,) = (one for one in APPLIED if one["kind"] == "Role" and one["metadata"]["name"] == names.CONNECTION)
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [names.CONNECTION], "verbs": ["get"]}
    assert role["rules"] == [rule]


@pytest.mark.row("F16", level="pure")
def test_F16_a_kind_that_is_taken_off_leaves_what_holds_for_all_kinds() -> None:
    assert "front-door" in yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"]
    for form in formats.RESOURCES.values():
        brought = yaml.safe_load((DEPLOY / form.folder / "kustomization.yaml").read_text())["resources"]
        assert not any(one.startswith("..") for one in brought)


@pytest.mark.row("F16", level="pure")
def test_F16_the_api_server_tells_settings_of_a_jobset_from_what_holdfast_writes() -> None:
    policies = yaml.safe_load_all((DEPLOY / "jobset" / "policies.yaml").read_text())
    spec = next(one["spec"] for one in policies if one["metadata"]["name"] == "jobsets.holdfast.dev")
    marks = json.loads(next(one["expression"] for one in spec["variables"] if one["name"] == "marks"))
    written = {value for key, value in vars(names).items() if key.startswith("ANNOTATION_")} - {
        names.ANNOTATION_REDFISH,  # of nodes
        names.ANNOTATION_EVIDENCE,  # of namespaces
    }
    assert {one for one in written if one.startswith("holdfast.dev/") and "-" not in one} == set(marks)
    assert not [one for one in NAMES if "-" in one or f"holdfast.dev/{one}" in marks]


CHANGES: list[tuple[str, str, Any, str]] = [
    ("Deployment", "spec.template.spec.securityContext.runAsNonRoot", False, "securityContext.runAsNonRoot"),
    ("Deployment", "spec.template.spec.securityContext.seccompProfile", None, "securityContext.seccompProfile"),
    ("Deployment", "spec.template.spec.hostNetwork", True, "hostNetwork"),
    ("Deployment", "spec.template.spec.hostPID", True, "hostPID"),
    ("Deployment", "spec.template.spec.volumes.0", {"name": "x", "hostPath": {"path": "/"}}, "hostPath"),
    ("Deployment", "spec.template.spec.containers.0.securityContext.readOnlyRootFilesystem", None, "readOnlyRoot"),
    ("Deployment", "spec.template.spec.containers.0.securityContext.allowPrivilegeEscalation", True, "Escalation"),
    ("Deployment", "spec.template.spec.containers.0.securityContext.capabilities.drop", [], "capabilities"),
    ("Deployment", "spec.template.spec.containers.0.securityContext.privileged", True, "privileged"),
    ("Deployment", "spec.template.spec.containers.0.securityContext.runAsUser", 0, "runs as root"),
    ("Deployment", "spec.template.spec.containers.0.image", "holdfast:latest", "no fixed tag"),
    ("Deployment", "spec.template.spec.containers.0.image", "registry.example:5000/holdfast", "no fixed tag"),
    ("Deployment", "spec.template.spec.containers.0.resources.limits", {}, "resources.limits.memory"),
    ("Deployment", "spec.template.spec.containers.0.ports.0.hostPort", 80, "hostPort 80"),
    ("Deployment", "spec.template.spec.serviceAccountName", "holdfast-workflows", "automountServiceAccountToken"),
    ("ClusterRole", "rules.0.verbs", ["*"], "wildcard"),
    ("ClusterRole", "rules.0.resources", ["*"], "wildcard"),
    ("ClusterRole", "rules.0.verbs", ["impersonate"], "grants what is not its own"),
    ("ClusterRole", "rules.0.resources", ["secrets"], "secrets"),
    ("ClusterRole", "rules.0.resources", ["pods/eviction"], "touches workloads"),
    ("ClusterRole", "rules.0", {"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"]}, "nodes"),
    ("ClusterRoleBinding", "roleRef.name", "cluster-admin", "roleRef: cluster-admin"),
    ("ClusterRoleBinding", "subjects.0.name", "system:authenticated", "subjects: system:authenticated"),
]


@pytest.mark.parametrize(("kind", "path", "value", "told"), CHANGES, ids=[f"{one[0]}-{one[3]}" for one in CHANGES])
def test_each_weakening_is_found(kind: str, path: str, value: Any, told: str) -> None:
    documents = copy.deepcopy(APPLIED)
    place: Any = next(one for one in documents if one["kind"] == kind and (kind != "ClusterRole" or one.get("rules")))
    *parents, last = path.split(".")
    for part in parents:
        place = place[int(part) if isinstance(place, list) else part]
    place[int(last) if isinstance(place, list) else last] = value
    assert any(told in one for one in problems(documents)), problems(documents)
