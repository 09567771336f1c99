"""Enables a namespace for workloads: its label, the run-as account, and the rights of that account and the worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast import names
from holdfast.activities.kube.client import AlreadyExists, Forbidden, Kube, NotFound, Object, service_account_user
from holdfast.activities.kube.raw import mapping, mappings
from holdfast.errors import HoldfastError
from holdfast.worker.cleanup.flow import admit
from holdfast.worker.cleanup.impersonation import ACT_AS, ACT_ON, AUTHENTICATION, constrained, may

_RBAC = "rbac.authorization.k8s.io"
_IN_FORCE_SECONDS = 10.0
_VERBS = ["create", "get", "list", "watch", "patch", "delete"]
_LOGS = "pods/log"
_PART_OF = {"app.kubernetes.io/part-of": "holdfast"}
LABELS: Final = "app.kubernetes.io/part-of=holdfast"
"""Selects the objects that Holdfast has created for itself."""

# The built-in kinds a workload is usually made of, by API group.
RUNNER_KINDS: dict[str, list[str]] = {
    "": ["pods", "services", "configmaps", "persistentvolumeclaims"],
    "batch": ["jobs", "cronjobs"],
    "apps": ["deployments", "statefulsets", "replicasets"],
}


def manifests(
    namespace: str,
    service_account: str = names.RUN_AS_DEFAULT,
    extra_groups: Sequence[str] = (),
    secrets: bool = False,
    *,
    logs: bool = False,
    constrain: bool = False,
) -> list[dict[str, Any]]:
    """Return the objects that enable a namespace, in the order in which to apply them.

    Args:
        namespace: the namespace, which may exist already.
        service_account: the account as which components are created; it is created, and opted in.
        extra_groups: API groups whose kinds the account may handle too, for example `jobset.x-k8s.io`.
        secrets: whether the account may handle the namespace's Secrets, so that workloads may bring some (row X6).
        logs: whether the account may read the logs of pods, which the worker then keeps as evidence (row P3). The
            namespace says so too: an account may have that right for another reason.
        constrain: whether the worker may act as the account on these kinds alone, which an API server must know
            (`constrained`); otherwise it may do all that the account may do (row X5).
    """
    impersonator = _impersonator(service_account)
    about: dict[str, Any] = {"name": namespace, "labels": {names.LABEL_NAMESPACE_ENABLED: "true"}}
    if logs:
        about["annotations"] = {names.ANNOTATION_EVIDENCE: "true"}
    rules: list[dict[str, Any]] = [
        {"apiGroups": [group], "resources": kinds, "verbs": _VERBS} for group, kinds in RUNNER_KINDS.items()
    ]
    rules += [{"apiGroups": [group], "resources": ["*"], "verbs": _VERBS} for group in extra_groups]
    if secrets:
        rules.append({"apiGroups": [""], "resources": ["secrets"], "verbs": _VERBS})
    if logs:
        rules.append({"apiGroups": [""], "resources": [_LOGS], "verbs": ["get"]})
    acting = _constrained(service_account, rules) if constrain else [_acting("", service_account, "impersonate")]
    # If the cluster enforces `blockOwnerDeletion`, the creator of an object with such an owner needs this right.
    rules.append({"apiGroups": [names.GROUP], "resources": [f"{names.ATTEMPT_PLURAL}/finalizers"], "verbs": ["update"]})
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": about,
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {
                **_metadata(namespace, service_account),
                "annotations": {names.ANNOTATION_RUN_AS: names.RUN_AS_ALLOWED},
            },
        },
        _role(namespace, service_account, rules),
        _binding(namespace, service_account, namespace, service_account),
        _role(namespace, impersonator, acting),
        _binding(namespace, impersonator, names.WORKER_NAMESPACE, names.WORKER_SERVICE_ACCOUNT),
    ]


async def enable(
    kube: Kube,
    namespace: str,
    dry_run: bool = False,
    *,
    service_account: str = names.RUN_AS_DEFAULT,
    extra_groups: Sequence[str] = (),
    secrets: bool = False,
    logs: bool = False,
) -> list[dict[str, Any]]:
    """Enable a namespace with the caller's own rights, and return the applied objects; may be repeated.

    What was granted before stays: groups, Secrets, logs, and that the worker may act on these kinds alone.

    Raises:
        Forbidden: if the caller may not grant these rights.
        HoldfastError: if a role or binding of that name exists that is not Holdfast's.
    """
    groups, had, was_constrained = await _granted(kube, namespace, service_account)
    constrain = await constrained(kube)
    wanted = manifests(
        namespace,
        service_account,
        tuple(dict.fromkeys((*groups, *extra_groups))),
        secrets or "secrets" in had,
        logs=logs or _LOGS in had,
        constrain=was_constrained if constrain is None else constrain,
    )
    if not dry_run:
        for manifest in [await _beside(kube, one) for one in wanted]:
            await apply(kube, manifest)
        await admit(kube, namespace, service_account)
        await _in_force(kube, namespace, service_account, constrain=_is_constrained(wanted))
    return wanted


async def _granted(kube: Kube, namespace: str, service_account: str) -> tuple[tuple[str, ...], set[str], bool]:
    """Return what `enable` has granted before: groups, resources by name, and whether impersonation is bounded."""
    version = f"{_RBAC}/v1"
    account = await kube.find(version, "Role", service_account, namespace)
    acting = await kube.find(version, "Role", _impersonator(service_account), namespace)
    rules = mappings(account.get("rules")) if account is not None and is_own(account) else ()
    groups = tuple(group for rule in rules if "*" in rule.get("resources", ()) for group in rule.get("apiGroups", ()))
    bounded = _is_constrained([acting]) if acting is not None and is_own(acting) else False
    return groups, {one for rule in rules for one in rule.get("resources", ())}, bounded


def _is_constrained(objects: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a role among these bounds on what the worker may act as an account."""
    rules = [rule for one in objects for rule in mappings(one.get("rules"))]
    return any(ACT_AS in rule.get("verbs", ()) for rule in rules)


def _impersonator(service_account: str) -> str:
    return f"holdfast-impersonate-{service_account}"


def is_own(thing: Object) -> bool:
    """Whether an object is labelled as part of Holdfast."""
    return mapping(thing["metadata"].get("labels")).items() >= _PART_OF.items()


async def _beside(kube: Kube, manifest: Object) -> Object:
    """Return the manifest to apply if someone else may own an object of that name: their account is only opted in.

    Raises:
        HoldfastError: if someone else owns a role or binding of that name.
    """
    metadata = manifest["metadata"]
    if metadata.get("labels") != _PART_OF:
        return manifest
    found = await kube.find(manifest["apiVersion"], manifest["kind"], metadata["name"], metadata["namespace"])
    if found is None or is_own(found):
        return manifest
    if manifest["kind"] == "ServiceAccount":
        return {**manifest, "metadata": {**metadata, "labels": {}}}
    raise HoldfastError(
        f"{manifest['kind']} {metadata['namespace']}/{metadata['name']} is there, and is not Holdfast's: nothing is "
        "changed; name another account by --service-account"
    )


async def _in_force(kube: Kube, namespace: str, service_account: str, *, constrain: bool) -> None:
    """Wait until the API server's authorizer has read the new roles, which takes a moment after they are created.

    A caller that may not review others' rights does not wait: an immediate submission may then be refused.
    """
    worker = service_account_user(names.WORKER_NAMESPACE, names.WORKER_SERVICE_ACCOUNT)
    runner = service_account_user(namespace, service_account)
    act_as = {"resource": "serviceaccounts", "name": service_account}
    act_as |= {"verb": ACT_AS, "group": AUTHENTICATION} if constrain else {"verb": "impersonate"}
    asked = [
        (worker, act_as),
        (runner, {"verb": "delete", "group": "batch", "resource": "jobs"}),
    ]
    with contextlib.suppress(Forbidden, TimeoutError):
        async with asyncio.timeout(_IN_FORCE_SECONDS):
            for user, attributes in asked:
                right = {**attributes, "namespace": namespace}
                while not await may(kube, user, right):  # noqa: ASYNC110 - it is another process that knows
                    await asyncio.sleep(0.05)


async def apply(kube: Kube, manifest: dict[str, Any]) -> Object:
    """Create an object, or merge it into the existing one."""
    metadata = manifest["metadata"]
    key = (manifest["apiVersion"], manifest["kind"], metadata["name"], metadata.get("namespace", ""))
    while True:
        found = await kube.find(*key)
        try:
            if found is None:
                return await kube.create(manifest)
            return await kube.patch(*key, uid=found["metadata"]["uid"], patch=manifest)
        except (AlreadyExists, NotFound) as error:
            if isinstance(error, NotFound) and found is None:
                raise  # The namespace or the kind is missing, not the object.


def _constrained(service_account: str, rules: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rules by which the worker may act as the account, on what the account has been granted here alone."""
    acting = [{**rule, "verbs": [ACT_ON + verb for verb in rule["verbs"]]} for rule in rules]
    return [_acting(AUTHENTICATION, service_account, ACT_AS), *acting]


def _acting(group: str, service_account: str, verb: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": ["serviceaccounts"], "resourceNames": [service_account], "verbs": [verb]}


def _metadata(namespace: str, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "labels": _PART_OF}


def _role(namespace: str, name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": _metadata(namespace, name), "rules": rules}


def _binding(namespace: str, role: str, subject_namespace: str, subject: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": _metadata(namespace, role),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": subject, "namespace": subject_namespace}],
    }
