"""What is insecure in manifests: of pods, and of the rights of accounts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from holdfast import names

Document = dict[str, Any]

POD_MUST = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_MUST = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
HOST = ("hostNetwork", "hostPID", "hostIPC")
SIZED = (
    ("requests", "cpu"),
    ("requests", "memory"),
    ("requests", "ephemeral-storage"),
    ("limits", "memory"),
    ("limits", "ephemeral-storage"),
)
"""A limit on CPU would slow a worker that has work while the node is idle."""
READS = {"get", "list", "watch"}
GRANTING = {"bind", "escalate", "impersonate", "*"}
WORKLOADS = {"pods", "jobs", "deployments", "statefulsets", "replicasets", "cronjobs", "*"}
EVERYBODY = {"system:authenticated", "system:unauthenticated", "system:anonymous", "system:serviceaccounts"}


def problems(documents: Iterable[Document]) -> list[str]:
    """Return what is insecure in the documents of one installation, each with where it stands."""
    known = list(documents)
    holders = {
        (subject.get("namespace"), subject["name"])
        for one in known
        if one["kind"].endswith("RoleBinding")
        for subject in one.get("subjects", ())
    }
    found: list[str] = []
    for one in known:
        where = f"{one['kind']} {one['metadata']['name']}"
        if one["kind"] == "Deployment":
            pod = one["spec"]["template"]["spec"]
            found += (f"{where}: {what}" for what in _of_pod(pod))
            account = (one["metadata"]["namespace"], pod.get("serviceAccountName"))
            if pod.get("automountServiceAccountToken", True) is not (account in holders):
                found.append(f"{where}: automountServiceAccountToken: expected only where the account has rights")
        elif one["kind"] in {"Role", "ClusterRole"}:
            found += (f"{where}: {what}" for rule in one.get("rules", ()) for what in _of_rule(rule))
        elif one["kind"] in {"RoleBinding", "ClusterRoleBinding"}:
            if one["roleRef"]["name"] in {"cluster-admin", "admin", "edit"}:
                found.append(f"{where}: roleRef: {one['roleRef']['name']}")
            if (
                one["roleRef"]["name"] != names.CONNECTION
            ):  # It is for all who log in, and one ConfigMap is all it grants.
                found += (f"{where}: subjects: {one['name']}" for one in one["subjects"] if one["name"] in EVERYBODY)
    return found


def _of_pod(pod: Document) -> Iterator[str]:
    context = pod.get("securityContext", {})
    yield from (f"securityContext.{field}" for field, wanted in POD_MUST.items() if context.get(field) != wanted)
    yield from (field for field in HOST if pod.get(field))
    yield from (f"volume {one['name']}: hostPath" for one in pod.get("volumes", ()) if "hostPath" in one)
    for container in [*pod.get("initContainers", ()), *pod["containers"]]:
        yield from (f"container {container['name']}: {what}" for what in _of_container(container))


def _of_container(container: Document) -> Iterator[str]:
    context = container.get("securityContext", {})
    yield from (f"securityContext.{field}" for field, wanted in CONTAINER_MUST.items() if context.get(field) != wanted)
    if context.get("privileged"):
        yield "securityContext.privileged"
    if context.get("runAsNonRoot") is False or context.get("runAsUser") == 0:
        yield "securityContext: runs as root"
    name, _, tag = container["image"].rpartition(":")
    if not name or "/" in tag or tag == "latest":
        yield f"image {container['image']}: no fixed tag"
    resources = container.get("resources", {})
    yield from (f"resources.{which}.{what}" for which, what in SIZED if what not in resources.get(which, {}))
    yield from (f"hostPort {port['hostPort']}" for port in container.get("ports", ()) if port.get("hostPort"))


def _of_rule(rule: Document) -> Iterator[str]:
    verbs, resources = set(rule["verbs"]), {one.partition("/")[0] for one in rule.get("resources", ())}
    told = f"{'|'.join(rule['verbs'])} {'|'.join(rule.get('resources', rule.get('nonResourceURLs', ())))}"
    if "*" in {*rule.get("apiGroups", ()), *resources, *verbs, *rule.get("nonResourceURLs", ())}:
        yield f"wildcard: {told}"
    if verbs & GRANTING and not rule.get("resourceNames"):
        yield f"grants what is not its own: {told}"
    if "secrets" in resources:
        yield f"secrets: {told}"
    if resources & WORKLOADS and verbs - READS:
        yield f"touches workloads: {told}"
    if "nodes" in resources and verbs - READS - {"patch"}:
        yield f"nodes: {told}"
