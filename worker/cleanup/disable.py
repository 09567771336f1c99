"""Closes a namespace: nothing new begins there, and the rights that were granted there are taken away (row X11)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from holdfast import names
from holdfast.activities.kube.client import Conflict, Kube, NotFound, Object
from holdfast.activities.kube.errors import UnknownKind
from holdfast.activities.kube.raw import mapping
from holdfast.worker.cleanup.flow import dismiss
from holdfast.worker.cleanup.namespace import LABELS, is_own

Say = Callable[[str], None]

_ROLES: Final = tuple(("rbac.authorization.k8s.io/v1", kind) for kind in ("RoleBinding", "Role"))
_ACCOUNT: Final = ("v1", "ServiceAccount")


async def close(kube: Kube, namespace: str | None) -> None:
    """Take the permission away that lets workloads begin: the label of a namespace, and the opt-in of its accounts.

    The permission to keep logs goes with it.

    Args:
        kube: the cluster, with the rights of whoever asks.
        namespace: the namespace; None for all.
    """
    for account in (await kube.list(*_ACCOUNT, namespace or ""))["items"]:
        metadata = account["metadata"]
        if names.ANNOTATION_RUN_AS in mapping(metadata.get("annotations")):
            patch = {"metadata": {"annotations": {names.ANNOTATION_RUN_AS: None}}}
            await _patch(kube, _ACCOUNT, metadata, patch)
    enabled = f"{names.LABEL_NAMESPACE_ENABLED}=true"
    for one in (await kube.list("v1", "Namespace", labels=enabled))["items"]:
        if namespace in {None, one["metadata"]["name"]}:
            labels, annotations = {names.LABEL_NAMESPACE_ENABLED: None}, {names.ANNOTATION_EVIDENCE: None}
            patch = {"metadata": {"labels": labels, "annotations": annotations}}
            await _patch(kube, ("v1", "Namespace"), one["metadata"], patch)


async def revoke(kube: Kube, namespace: str | None, *, accounts: bool, say: Say) -> None:
    """Delete the roles and bindings that `enable` has created, and take the accounts off the flow schema.

    Args:
        kube: the cluster, with the rights of whoever asks.
        namespace: the namespace; None for all.
        accounts: whether to delete the accounts too: not if pods run on, which may use their tokens.
        say: receives a line about each thing that stays.
    """
    await dismiss(kube, namespace)
    for api_version, kind in (*_ROLES, *((_ACCOUNT,) if accounts else ())):
        for one in (await kube.list(api_version, kind, namespace or "", labels=LABELS))["items"]:
            if one["metadata"]["namespace"] != names.WORKER_NAMESPACE:
                await delete_own(kube, {**one, "apiVersion": api_version, "kind": kind}, say)


async def delete_own(kube: Kube, manifest: Object, say: Say) -> None:
    """Delete an object if it is labelled as Holdfast's."""
    metadata = manifest["metadata"]
    key = (manifest["apiVersion"], manifest["kind"], metadata["name"], metadata.get("namespace", ""))
    try:
        found = await kube.find(*key)
    except UnknownKind:
        return
    if found is None:
        return
    if not is_own(found):
        say(f"{manifest['kind']} {metadata['name']} stays: it does not say that it is part of Holdfast")
        return
    await unless_gone(kube.delete(*key, uid=found["metadata"]["uid"]))


async def unless_gone(change: Awaitable[object]) -> None:
    """Make a change to an object that others may have removed or replaced meanwhile."""
    with suppress(NotFound, Conflict):
        await change


async def _patch(kube: Kube, kind: tuple[str, str], metadata: Object, patch: Object) -> None:
    key = (*kind, metadata["name"], metadata.get("namespace", ""))
    await unless_gone(kube.patch(*key, uid=metadata["uid"], patch=patch))
