"""How narrowly an API server lets a worker act as another account (row X5; KEP-5284, on from Kubernetes 1.36)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import aiohttp

from holdfast import names
from holdfast.activities.kube.client import Kube, KubeError, service_account_user

AUTHENTICATION: Final = "authentication.k8s.io"
ACT_AS: Final = "impersonate:serviceaccount"
"""The verb, on a service account of the group `AUTHENTICATION`, that lets others act as it."""
ACT_ON: Final = "impersonate-on:serviceaccount:"
"""Before a verb: what may be done, and on what, while acting as a service account."""

_FEATURE: Final = b'kubernetes_feature_enabled{name="ConstrainedImpersonation"'
_TIMEOUT: Final = aiohttp.ClientTimeout(total=10.0)
# A worker asks what an account may do by acting as it. `deploy/rbac.yaml` grants that.
_REVIEW: Final = {"verb": f"{ACT_ON}create", "group": "authorization.k8s.io", "resource": "selfsubjectaccessreviews"}


async def constrained(kube: Kube) -> bool | None:
    """Whether the API server constrains impersonation, and the worker has the one right in the cluster that this needs.

    None if that is not known, for example since the caller may not ask.
    """
    worker = service_account_user(names.WORKER_NAMESPACE, names.WORKER_SERVICE_ACCOUNT)
    try:
        return await _enabled(kube) and await may(kube, worker, _REVIEW)
    except KubeError:
        return None


async def may(kube: Kube, user: str, right: Mapping[str, str]) -> bool:
    """Return whether a user has a right.

    Args:
        kube: the cluster, with the right to create SubjectAccessReviews.
        user: the name of the user.
        right: the `resourceAttributes` of a SubjectAccessReview.

    Raises:
        Forbidden: if the caller may not ask.
    """
    spec = {"user": user, "resourceAttributes": dict(right)}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = await kube.mutate("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=body)
    return bool(answer["status"].get("allowed"))


async def _enabled(kube: Kube) -> bool:
    async with kube.streamed("/metrics", {}, _TIMEOUT) as response:
        async for line in response.content:
            if line.startswith(_FEATURE):
                return line.split()[-1] == b"1"
    return False
