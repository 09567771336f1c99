"""The Kubernetes client: raw JSON, typed errors, a deadline on every call, and one place where all changes pass."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp
from kubernetes.aio.client.configuration import Configuration

from holdfast import names
from holdfast.activities.kube.errors import (
    REFUSED,
    AlreadyExists,
    Cause,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    QuotaExceeded,
    Unauthorized,
    UnknownKind,
    Unreachable,
    WebhookFailed,
    error_of,
)
from holdfast.activities.kube.http import (
    CONNECT_TIMEOUT,
    POOL_SIZE,
    TOTAL_TIMEOUT,
    Contact,
    Object,
    Transport,
    lines,
    parsed,
)
from holdfast.activities.kube.pages import whole_list
from holdfast.activities.kube.resources import Discovery, Resource

_MERGE_PATCH = "application/merge-patch+json"
_STRICT = {"fieldValidation": "Strict"}
PAGE = 100
"""Objects per page of a list: memory holds the text and the parsed objects of only one page at a time.

A parsed pod takes some 30 KiB; a node of a real cluster has twenty times the text of a pod.
"""


def service_account_user(namespace: str, service_account: str) -> str:
    """Return the user name under which the API server knows a service account."""
    return f"system:serviceaccount:{namespace}:{service_account}"


class Kube(Transport):
    """One process's client of one cluster.

    A call that fails raises a `KubeError`; `Unreachable` means that nothing is known. Reads are quorum reads unless a
    `resource_version` is given. `impersonate` is a user name (`service_account_user`); the API server adds the groups.
    """

    def __init__(self, configuration: Configuration, **options: Any) -> None:
        super().__init__(configuration, **options)
        self.discovery = Discovery(self._get_path)

    # Reading.

    async def resource(self, api_version: str, kind: str) -> Resource:
        """Return how the cluster serves a kind.

        Raises:
            UnknownKind: if it does not.
        """
        return await self.discovery.resource(api_version, kind)

    async def get(
        self, api_version: str, kind: str, name: str, namespace: str = "", *, impersonate: str = ""
    ) -> Object:
        """Return one object.

        Raises:
            NotFound: if there is none, or the cluster does not serve the kind (`UnknownKind`).
        """
        path = (await self.resource(api_version, kind)).path(namespace, name)
        return await self._request("GET", path, impersonate=impersonate)

    async def find(
        self, api_version: str, kind: str, name: str, namespace: str = "", *, impersonate: str = ""
    ) -> Object | None:
        """Return one object, or None where there is none."""
        try:
            return await self.get(api_version, kind, name, namespace, impersonate=impersonate)
        except NotFound:
            return None

    async def list(
        self,
        api_version: str,
        kind: str,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str | None = None,
        limit: int | None = None,
        keep: Callable[[Object], Any] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a deadline of the HTTP request, not of this coroutine
        impersonate: str = "",
    ) -> Object:
        """Return a whole list: `items`, and `metadata.resourceVersion`, the version of the cluster it shows.

        The list is read in pages of `limit` objects (0: in one), all of the version of the first page. If a page comes
        too late (410), the list is read again from the start, see `whole_list`. `keep` returns what to keep of each
        item, None to skip it; the rest is freed with its page.
        `resource_version="0"` asks for whatever the server's cache holds; None is a quorum read.
        """
        path = (await self.resource(api_version, kind)).path(namespace)
        query: dict[str, str] = {}
        if labels:
            query["labelSelector"] = labels
        if fields:
            query["fieldSelector"] = fields
        if resource_version is not None:
            query["resourceVersion"] = resource_version
        if limit is None:
            limit = PAGE if resource_version is None else 0
        if limit:
            query["limit"] = str(limit)

        async def ask(query: dict[str, str]) -> Object:
            return await self._request("GET", path, query=query, timeout=timeout, impersonate=impersonate)

        return await whole_list(ask, query, keep)

    async def watch(
        self,
        api_version: str,
        kind: str,
        namespace: str = "",
        *,
        resource_version: str,
        labels: str = "",
        fields: str = "",
        timeout_seconds: int = 300,
        quiet_seconds: float | None = None,
    ) -> AsyncIterator[Object]:
        """Yield watch events (`type`, `object`; bookmarks too) until the server ends the stream.

        `quiet_seconds` bounds the silence between two events: bookmarks come about once a minute, so that a longer
        silence means a dead connection.

        Raises:
            Gone: if `resource_version` is too old: list again.
        """
        path = (await self.resource(api_version, kind)).path(namespace)
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
        }
        if labels:
            query["labelSelector"] = labels
        if fields:
            query["fieldSelector"] = fields
        deadline = aiohttp.ClientTimeout(
            total=timeout_seconds + self.timeout, sock_connect=self.connect_timeout, sock_read=quiet_seconds
        )
        contact = Contact(datetime.now(UTC), stream=True)
        async with self._sent(
            "GET", path, query=query, deadline=deadline, contact=contact, opening=self.timeout
        ) as response:
            async for line in lines(response):
                contact.at = datetime.now(UTC)
                self.sight.regained(contact.at)
                event: Object = parsed(line, "GET", path)
                if event.get("type") == "ERROR":
                    status: Object = event.get("object") or {}
                    raise error_of(int(status.get("code") or 500), status, "GET", path)
                yield event

    # Questions: they change nothing.

    async def allowed(
        self, verb: str, resource: Resource, namespace: str, *, name: str = "", impersonate: str = ""
    ) -> tuple[bool, str]:
        """Return whether the user may do this (on a subresource too: `anchors/status`), and the authorizer's reason."""
        plural, _, part = resource.plural.partition("/")
        attributes = {"verb": verb, "group": resource.group, "resource": plural, "namespace": namespace}
        if part:
            attributes["subresource"] = part
        if name:
            attributes["name"] = name
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        status: Object = (await self._request("POST", path, body=body, impersonate=impersonate)).get("status") or {}
        if not status.get("allowed"):
            if not await self.ready():
                raise Unreachable(503, "NotReady", "it is starting, and does not know all roles yet")
            status = (await self._request("POST", path, body=body, impersonate=impersonate)).get("status") or {}
        return bool(status.get("allowed")), str(status.get("reason") or status.get("evaluationError") or "")

    async def would_create(self, body: Mapping[str, Any], *, impersonate: str = "") -> None:
        """Ask whether the server would create an object, by a dry run as strict as `kubectl` about fields.

        Raises:
            KubeError: what `create` would raise, and `Invalid` for a field that the server does not know.
        """
        metadata: Mapping[str, Any] = body["metadata"]
        path = (await self.resource(body["apiVersion"], body["kind"])).path(metadata.get("namespace", ""))
        query = {"fieldManager": names.FIELD_MANAGER, "dryRun": "All"} | _STRICT
        await self._request("POST", path, query=query, body=dict(body), impersonate=impersonate)

    # Changing.

    async def create(self, body: Mapping[str, Any], *, impersonate: str = "", strict: bool = False) -> Object:
        """Create an object, in the namespace its metadata names; `strict` refuses fields that the server does not know.

        Raises:
            AlreadyExists: if there is one of that name.
        """
        metadata: Mapping[str, Any] = body["metadata"]
        path = (await self.resource(body["apiVersion"], body["kind"])).path(metadata.get("namespace", ""))
        query = {"fieldManager": names.FIELD_MANAGER} | (_STRICT if strict else {})
        return await self.mutate("POST", path, query=query, body=dict(body), impersonate=impersonate)

    async def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str = "",
        *,
        uid: str,
        resource_version: str = "",
        propagation: str = "Background",
        grace_period: int | None = None,
        impersonate: str = "",
    ) -> Object:
        """Delete the object of this name if it still is the one with this uid (and, where given, of this version).

        Raises:
            NotFound: if there is none.
            Conflict: if there is another of that name, or it has changed meanwhile.
            ValueError: if no uid is given.
        """
        if not uid:
            raise ValueError(f"delete {kind} {namespace}/{name}: no uid given, and without one another's could be hit")
        options: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": propagation,
        }
        if resource_version:
            options["preconditions"]["resourceVersion"] = resource_version
        if grace_period is not None:
            options["gracePeriodSeconds"] = grace_period
        path = (await self.resource(api_version, kind)).path(namespace, name)
        return await self.mutate("DELETE", path, body=options, impersonate=impersonate)

    async def patch(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str = "",
        *,
        uid: str,
        patch: Mapping[str, Any],
        resource_version: str = "",
        subresource: str = "",
        impersonate: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Merge-patch the object of this name if it is the one with this uid (and, where given, of this version).

        With `dry_run` the server says what it would do, and changes nothing.

        Raises:
            NotFound: if there is none.
            Conflict: if there is another of that name, or it has changed meanwhile.
            ValueError: if no uid is given, or no version for a subresource, where the server ignores the uid.
        """
        if not uid or (subresource and not resource_version):
            raise ValueError(f"patch {kind} {namespace}/{name} {subresource}: without identity another's could be hit")
        metadata: Object = {**patch.get("metadata", {}), "uid": uid}
        if resource_version:
            metadata["resourceVersion"] = resource_version
        path = (await self.resource(api_version, kind)).path(namespace, name)
        if subresource:
            path += f"/{subresource}"
        query = {"fieldManager": names.FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})}
        send = self._request if dry_run else self.mutate
        try:
            return await send(
                "PATCH",
                path,
                query=query,
                body={**patch, "metadata": metadata},
                content_type=_MERGE_PATCH,
                impersonate=impersonate,
            )
        except Invalid as error:
            # For some kinds the server reports a foreign uid as an invalid `metadata.uid`, for others as a conflict.
            if "metadata.uid" in error.message:
                raise Conflict(409, "Conflict", error.message) from None
            raise

    async def mutate(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
        impersonate: str = "",
    ) -> Object:
        """Send one change. All changes that this process makes to the cluster pass here, and no other request does."""
        return await self._request(
            method, path, query=query, body=body, content_type=content_type, impersonate=impersonate
        )

    async def _get_path(self, path: str) -> Object:
        return await self._request("GET", path)


__all__ = [
    "CONNECT_TIMEOUT",
    "PAGE",
    "POOL_SIZE",
    "REFUSED",
    "TOTAL_TIMEOUT",
    "AlreadyExists",
    "Cause",
    "Conflict",
    "Forbidden",
    "Gone",
    "Invalid",
    "Kube",
    "KubeError",
    "NotFound",
    "Object",
    "QuotaExceeded",
    "Resource",
    "Unauthorized",
    "UnknownKind",
    "Unreachable",
    "WebhookFailed",
    "service_account_user",
]
