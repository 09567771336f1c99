"""Kinds whose controllers this cluster lacks, defined as far as their pod templates: enough to validate and store."""

from __future__ import annotations

from typing import Any

from holdfast import names
from holdfast.activities.kube.client import UnknownKind, Unreachable
from holdfast.worker.cleanup.namespace import apply
from tests.e2e.ground.site import Site, until

Schema = dict[str, Any]
COUNT: Schema = {"type": "integer", "format": "int32", "minimum": 0}
PODS: Schema = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "spec": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "required": ["containers"],
            "properties": {
                "containers": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "image": {"type": "string"}},
                    },
                },
                "restartPolicy": {"type": "string", "enum": ["Always", "Never", "OnFailure"]},
            },
        },
    },
}


def structure(*required: str, **properties: Schema) -> Schema:
    found: Schema = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


def several(items: Schema) -> Schema:
    return {"type": "array", "items": items}


TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
ROLE = structure("template", replicas=COUNT, restartPolicy={"type": "string"}, template=PODS)
CLUSTER = structure(
    "headGroupSpec",
    headGroupSpec=structure("template", rayStartParams=TEXTS, template=PODS),
    workerGroupSpecs=several(
        structure(
            "groupName",
            "template",
            groupName={"type": "string"},
            replicas=COUNT,
            numOfHosts=COUNT,
            rayStartParams=TEXTS,
            template=PODS,
        )
    ),
)
JOB = structure("template", parallelism=COUNT, completions=COUNT, backoffLimit=COUNT, template=PODS)
SPECS: dict[tuple[str, str, str], Schema] = {
    ("jobset.x-k8s.io", "v1alpha2", "JobSet"): structure(
        suspend={"type": "boolean"},
        ttlSecondsAfterFinished=COUNT,
        replicatedJobs=several(
            structure("name", "template", name={"type": "string"}, replicas=COUNT, template=structure("spec", spec=JOB))
        ),
    ),
    ("kubeflow.org", "v1", "PyTorchJob"): structure(
        "pytorchReplicaSpecs", pytorchReplicaSpecs={"type": "object", "additionalProperties": ROLE}
    ),
    ("ray.io", "v1", "RayCluster"): CLUSTER,
    ("ray.io", "v1", "RayJob"): structure(entrypoint={"type": "string"}, clusterSelector=TEXTS, rayClusterSpec=CLUSTER),
}
READERS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "test-reads-other-kinds", "labels": {f"{names.GROUP}/aggregate-to-worker": "true"}},
    "rules": [
        {
            "apiGroups": sorted({group for group, _, _ in SPECS}),
            "resources": ["*"],
            "verbs": ["get", "list", "watch"],
        }
    ],
}
"""The right to see how one of them ends."""


def definition(group: str, version: str, kind: str, spec: Schema) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    status: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": structure(spec=spec, status=status)},
                }
            ],
        },
    }


async def serve(site: Site) -> list[tuple[str, str]]:
    """Have the cluster serve these kinds, and the worker see them; tests side by side may ask for the same."""
    await apply(site.kube, READERS)
    kinds: list[tuple[str, str]] = []
    for (group, version, kind), spec in SPECS.items():
        wanted = definition(group, version, kind, spec)
        key = (wanted["apiVersion"], wanted["kind"], wanted["metadata"]["name"])
        if await site.kube.find(*key) is None:
            await apply(site.kube, wanted)
        kinds.append((f"{group}/{version}", kind))

    async def known() -> bool:
        try:
            for kind in kinds:
                await site.kube.list(*kind, "default")
        except (UnknownKind, Unreachable):
            return False
        return True

    await until(known, 60, "the kinds are served")
    return kinds
