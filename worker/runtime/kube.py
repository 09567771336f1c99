"""The worker's client of a cluster: the activities' client, plus paged lists and a count of every request."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kubernetes.aio.config import ConfigException

from holdfast.activities.kube.blindness import Answers, Sight
from holdfast.activities.kube.client import CONNECT_TIMEOUT, POOL_SIZE, TOTAL_TIMEOUT, Kube, Object
from holdfast.activities.kube.errors import of_configuration
from holdfast.worker.runtime.api_spans import api_span, set_status
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.runtime.settings import Settings, SettingsError

if TYPE_CHECKING:
    import aiohttp
    from opentelemetry.trace import Tracer

PAGE_DEADLINE = 30.0
CONNECTING: Final = 60.0
"""Seconds to make a client: where a credential program hangs, another worker is to do the work."""


class WorkerKube(Kube):
    """Reads lists page by page, so that it never holds a whole list; counts and traces its requests."""

    metrics: Metrics | None = None
    tracer: Tracer | None = None

    @property
    def host(self) -> str:
        """The API server's address."""
        return str(self._configuration.host)

    async def page(self, path: str, query: dict[str, str]) -> Object:
        """Return one page of a list."""
        return await self._request("GET", path, query=query, timeout=PAGE_DEADLINE)

    async def review_token(self, token: str, audience: str) -> Object:
        """Return the status of a TokenReview: the API server's answer about a service account's token."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        }
        answer = await self._request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body=body)
        return answer.get("status") or {}

    async def published_keys(self) -> tuple[str, list[Object]]:
        """Return the issuer of the cluster's tokens, and the keys that they are signed with, as JWKs."""
        issued = await self._request("GET", "/.well-known/openid-configuration")
        keys = await self._request("GET", "/openid/v1/jwks")
        return str(issued.get("issuer") or ""), list(keys.get("keys") or ())

    async def _send(
        self,
        method: str,
        url: str,
        body: Object | None,
        content_type: str,
        impersonate: str,
        deadline: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        verb = "WATCH" if "watch=1" in url else method
        begun, code = time.monotonic(), 0
        with nullcontext() if self.tracer is None else api_span(self.tracer, method, url) as span:
            try:
                response = await super()._send(method, url, body, content_type, impersonate, deadline)
                code = response.status
                return response
            finally:
                if self.metrics is not None:
                    self.metrics.count_request(verb, code, time.monotonic() - begun)
                if span is not None:
                    set_status(span, code)


class Connector:
    """Makes clients of the one cluster that the settings name."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        client: type[WorkerKube] = WorkerKube,
        tracer: Tracer | None = None,
    ) -> None:
        """Store the cluster's location, the class of its clients, and what traces their requests."""
        self._client = client
        self._kubeconfig = settings.kubeconfig or _default()
        self._context = settings.kube_context or None
        self._metrics = metrics
        self._tracer = tracer
        self._answers = Answers()
        self.host = ""
        """The API server's address; empty until a client is made."""

    @property
    def where(self) -> str:
        """The cluster's address for messages, or the kubeconfig that has it."""
        return self.host or self._kubeconfig or "the pod's own service account"

    async def __call__(
        self, sight: Sight | None = None, deadline: float | None = None, pool_size: int = POOL_SIZE
    ) -> WorkerKube:
        """Return a client, without contacting the cluster yet.

        Args:
            sight: the record of when the API server did not answer; one of its own by default.
            deadline: seconds that each request may take.
            pool_size: requests that run at once; further ones wait.

        Raises:
            SettingsError: if the kubeconfig cannot be used, or its credential program does not end.
        """
        try:
            async with asyncio.timeout(CONNECTING):
                kube = await self._client.connect(
                    self._kubeconfig,
                    context=self._context,
                    sight=sight,
                    pool_size=pool_size,
                    connect_timeout=deadline or CONNECT_TIMEOUT,
                    timeout=deadline or TOTAL_TIMEOUT,
                )
        except TimeoutError as error:
            raise SettingsError(
                f"kubeconfig: {self.where} gives no credentials within {CONNECTING:g} s: does its program hang?"
            ) from error
        except (ConfigException, OSError, ValueError) as error:
            why = of_configuration(error)
            raise SettingsError(f"kubeconfig: {self.where} cannot be used: {why}") from None  # It may quote a token.
        kube.metrics, kube.tracer, kube.answers = self._metrics, self._tracer, self._answers
        self.host = kube.host
        return kube


def _default() -> str | None:
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    return str(Path("~/.kube/config").expanduser())
