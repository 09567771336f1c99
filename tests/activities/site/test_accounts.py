"""Which accounts an object names for its pods, wherever in it they stand (row X12). Pure."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.activities.site.accounts import accounts_of

POD = {"containers": [{"name": "main", "image": "i"}], "serviceAccountName": "admin"}
AT = "spec.template.spec.serviceAccountName"


def kind(spec: Any, name: str = "Thing", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": name, "metadata": {"name": "x"}, "spec": spec, **more}


TOKEN_AT = "metadata.annotations[kubernetes.io/service-account.name]"


def token(account: str) -> dict[str, Any]:
    """A Secret in which the API server is to put an account's token."""
    metadata = {"name": "x", "annotations": {"kubernetes.io/service-account.name": account}}
    return {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": metadata}


@pytest.mark.row("X12", level="pure")
@pytest.mark.parametrize(
    ("template", "found"),
    [
        (kind(POD, "Pod"), [("admin", "spec.serviceAccountName")]),
        (kind({"template": {"spec": POD}}, "Job"), [("admin", AT)]),
        (kind({"jobTemplate": {"spec": {"template": {"spec": POD}}}}), [("admin", f"spec.jobTemplate.{AT}")]),
        (
            kind({"replicatedJobs": [{"template": {}}, {"template": {"spec": {"template": {"spec": POD}}}}]}, "JobSet"),
            [("admin", f"spec.replicatedJobs[1].template.{AT}")],
        ),
        (kind({"serviceAccount": "admin"}, "Pod"), [("admin", "spec.serviceAccount")]),
        (
            kind({"driver": {"serviceAccount": "a"}, "executor": {"serviceAccount": "b"}}, "SparkApplication"),
            [("a", "spec.driver.serviceAccount"), ("b", "spec.executor.serviceAccount")],
        ),
        (kind({"serviceAccountName": "default"}, "Pod"), []),
        (kind({"serviceAccountName": ""}, "Pod"), []),
        (kind({"containers": []}, "Pod"), []),
        (kind({"serviceAccountName": None}, "Pod"), []),
        (
            kind({"sparkConf": {"spark.kubernetes.authenticate.driver.serviceAccountName": "a"}}),
            [("a", "spec.sparkConf.spark.kubernetes.authenticate.driver.serviceAccountName")],
        ),
        (kind({"taskServiceAccountName": "a"}), [("a", "spec.taskServiceAccountName")]),
        (kind({"serviceAccount": {"name": "a", "create": False}}), [("a", "spec.serviceAccount.name")]),
        (
            kind({"generate": {"data": {"spec": POD}}}, "Policy"),
            [("admin", "spec.generate.data.spec.serviceAccountName")],
        ),
        (kind({"selector": {"serviceAccount": "a"}}, "Service"), []),
        (kind({"nodeSelector": {"example.com/serviceAccountName": "a"}}, "Pod"), []),
        ({"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"serviceAccountName": "admin"}}, []),
        ({"kind": "Pod", "metadata": {"annotations": {"serviceAccountName": "admin"}}}, []),
        (token("deployer"), [("deployer", TOKEN_AT)]),
        (token("default"), [("default", TOKEN_AT)]),
        (token(""), []),
        ({**token("deployer"), "type": "Opaque"}, []),
        ({**token("deployer"), "kind": "ConfigMap"}, []),
        ({**token("deployer"), "metadata": {"name": "x"}}, []),
    ],
    ids=lambda value: value.get("kind") if isinstance(value, dict) else None,
)
def test_X12_each_account_is_found_with_its_field(template: dict[str, Any], found: list[tuple[str, str]]) -> None:
    assert [tuple(one) for one in accounts_of(template)] == found
