"""Reads the logs of an attempt whose pods are gone from the evidence that a worker has kept of them (rows P3, E2)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.activities.kube.raw import mapping, mappings, sequence
from holdfast.errors import HoldfastError, NotReachable
from holdfast.model import Evidence
from holdfast.model.words import plain

if TYPE_CHECKING:
    from holdfast.activities.kube.client import Kube

_ENV: Final = "HOLDFAST_DATA_"
_TRUE: Final = frozenset({"1", "true", "yes", "on"})


class Kept(NamedTuple):
    """What evidence tells of the logs that are asked for."""

    remarks: tuple[str, ...]
    """How each container ended, its termination message, and what is missing."""
    lines: tuple[str, ...]
    """Lines of logs and stacks, each after its pod."""


class Whose(NamedTuple):
    """The cluster and the namespace whose logs are asked for."""

    cluster: str
    cluster_uid: str
    """According to the cluster's watch; empty: not known."""
    namespace: str


async def evidence_document(kube: Kube, whose: Whose, evidence: Evidence, key: str) -> Mapping[str, Any]:
    """Return the document of evidence, from the store that the environment names, if the caller may read such logs.

    Args:
        kube: the cluster that the kubeconfig leads to, with the caller's rights.
        whose: the workload's cluster and namespace.
        evidence: what the history says of the document.
        key: how its key must end below the cluster and the namespace: whoever answers for a worker may name another
            document.

    Raises:
        HoldfastError: if the kubeconfig leads to another cluster, the caller may read no logs in the namespace, or the
            document cannot be used.
        NotReachable: if the store does not answer.
    """
    from holdfast.activities.data.storage import Away, BadData
    from holdfast.activities.evidence.store import opened, read_stored
    from holdfast.codec.options import from_environment

    end = f"/{whose.cluster}/{whose.namespace}/{key}"
    if not evidence.link.endswith(end):
        raise HoldfastError(f"{evidence.link}: expected the evidence of this attempt, whose key ends with {end}")
    await _check_cluster(kube, whose)
    await _check_rights(kube, whose.namespace)
    codec = from_environment()["data_converter"].payload_codec
    assert codec is not None
    try:
        stored = await read_stored(_storage(), evidence.link)
        if stored is None:
            raise HoldfastError(f"{evidence.link}: the evidence has expired, or the store's endpoint is another one")
        if stored.digest != evidence.digest:
            raise HoldfastError(f"{evidence.link} was changed: its SHA-256 is not the one in the workload's history")
        return await opened(stored, codec)
    except Away as error:
        remedy = f"{_ENV}ENDPOINT and {_ENV}CREDENTIALS_FILE name the store and your credentials for it"
        raise NotReachable("the store of evidence", evidence.link, remedy, str(error)) from None
    except BadData as error:
        raise HoldfastError(f"{evidence.link}: {error}") from None


async def _check_cluster(kube: Kube, whose: Whose) -> None:
    """Refuse another cluster than the workload's: it cannot say who may read logs in the workload's."""
    from holdfast.activities.kube.client import KubeError

    if not whose.cluster_uid:
        raise HoldfastError(
            f"no watch of {whose.cluster} is known to Temporal, so that no cluster can say whether you may read its "
            "logs: expected a worker of it that runs"
        )
    try:
        here = (await kube.get("v1", "Namespace", "kube-system"))["metadata"]["uid"]
    except KubeError as error:
        raise HoldfastError(
            f"whether the kubeconfig leads to cluster {whose.cluster} is not known: expected the right to get "
            f"namespace kube-system there: {error.message}"
        ) from None
    if here != whose.cluster_uid:
        raise HoldfastError(
            f"the kubeconfig leads to the cluster of uid {here}: expected {whose.cluster}, of uid {whose.cluster_uid}. "
            "Give --context or --kubeconfig"
        )


async def _check_rights(kube: Kube, namespace: str) -> None:
    """Refuse a caller who could not have read the logs while their pods were there."""
    right = {"namespace": namespace, "verb": "get", "resource": "pods", "subresource": "log"}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    body |= {"spec": {"resourceAttributes": right}}
    answer = await kube.mutate("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body)
    if not mapping(answer.get("status")).get("allowed"):
        raise HoldfastError(f"you may not read logs in namespace {namespace}: expected the right to get pods/log there")


def _storage() -> Any:
    try:
        from holdfast.activities.data.s3 import Address, S3Storage
    except ImportError:
        raise HoldfastError("the S3 client is not installed: pip install 'holdfast[s3]'") from None
    credentials = os.environ.get(f"{_ENV}CREDENTIALS_FILE")
    return S3Storage(
        Address(
            os.environ.get(f"{_ENV}ENDPOINT", ""),
            os.environ.get(f"{_ENV}REGION", ""),
            os.environ.get(f"{_ENV}ALLOW_HTTP", "").strip().lower() in _TRUE,
            Path(credentials) if credentials else None,
        )
    )


def kept_logs(
    document: Mapping[str, Any],
    *,
    pod: str = "",
    container: str | None = None,
    previous: bool = False,
    tail: int | None = None,
) -> Kept:
    """Return what a document of evidence tells of logs. Pure.

    Args:
        document: the document.
        pod: only of the pod of this name; empty: of all.
        container: only of containers of this name; None: of all.
        previous: of each container's instance before its last restart.
        tail: at most so many lines from the end of each log, and of no stacks; None: all that were kept.

    Raises:
        HoldfastError: if there is no such pod or container.
    """
    pods = [one for one in mappings(document.get("pods")) if pod in {"", one.get("name")}]
    if not pods:
        raise HoldfastError(f"no evidence of pod {pod} was kept: evidence tells of a few pods of an attempt")
    known = {str(each.get("name")) for one in pods for each in mappings(one.get("containers"))}
    if container is not None and container not in known:
        raise HoldfastError(f"-c {container!r}: expected one of {', '.join(sorted(known))}")
    remarks, lines = list[str](), list[str]()
    for one in pods:
        for each in mappings(one.get("containers")):
            if container in {None, each.get("name")}:
                many = len(mappings(one.get("containers"))) > 1
                prefix = f"{one.get('name')}/{each.get('name')}" if many else str(one.get("name"))
                state = mapping(each.get("previous" if previous else "state"))
                remarks += [f"{prefix}: {text}" for text in _end(state)]
                log = _log(document, one, each, previous=previous)
                lines += [f"{prefix}: {line}" for line in (log[-tail:] if tail else log if tail is None else [])]
        if container is None and not previous:
            lines += [f"{one.get('name')}: {line}" for line in _stacks(document, one)]
    remarks += [f"not kept: {one}" for one in map(str, sequence(document.get("missing")))]
    return Kept(tuple(map(plain, remarks)), tuple(lines))


def _end(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield how an instance of a container ended, and its termination message."""
    if state.get("state") == "terminated":
        yield f"exit code {state.get('exitCode')} ({state.get('reason')}) at {state.get('finishedAt')}"
        if state.get("message"):
            yield f"termination message: {str(state['message']).strip()}"


def _stacks(document: Mapping[str, Any], pod: Mapping[str, Any]) -> list[str]:
    """Return the stacks of a pod's program, below a title."""
    told = [one for one in mappings(document.get("stacks")) if one.get("uid") == pod.get("uid")]
    lines = [str(line) for one in told for line in sequence(one.get("lines"))]
    return ["stacks of its program, before its pod was deleted:", *lines] if lines else []


def _log(
    document: Mapping[str, Any], pod: Mapping[str, Any], container: Mapping[str, Any], *, previous: bool
) -> list[str]:
    """Return the lines that were kept of a container; of one that waits to be restarted, those of its last instance."""
    found = {
        bool(one.get("previous")): [str(line).partition(" ")[2] for line in sequence(one.get("lines"))]
        for one in mappings(document.get("logs"))
        if (one.get("uid"), one.get("container")) == (pod.get("uid"), container.get("name"))
    }
    return found.get(previous, found.get(True, []))
