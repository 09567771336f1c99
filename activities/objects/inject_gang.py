"""What the Job and pods of an elastic gang get in addition: the number of pods, a token, the authority
that signed the rendezvous' certificate, the agent's environment.

A member is a pod, identified by its name. The Job replaces each lost pod, as often as it takes (decision record 0030).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from holdfast import names
from holdfast.activities.kube.raw import mapping

TOKEN_LIFE: Final = 600
"""Seconds; the kubelet renews the token before they pass."""
TOKEN_VOLUME: Final = "holdfast-rendezvous"  # noqa: S105 - a name
TOKEN_DIRECTORY: Final = f"/var/run/secrets/{names.RENDEZVOUS_AUDIENCE}"
TOKEN_FILE: Final = f"{TOKEN_DIRECTORY}/token"
CA_FILE: Final = f"{TOKEN_DIRECTORY}/ca.crt"
TERMINATION_GRACE: Final = 45
"""Seconds between TERM and KILL if the template does not say: the agent gives its workers 30 of them, and then
announces that it leaves."""
_EVERY_FAILURE: Final = 2**31 - 1

_OF_POD: Final = {
    names.ENV_MEMBER: "metadata.name",
    names.ENV_POD_UID: "metadata.uid",
    names.ENV_POD_ADDRESS: "status.podIP",
    names.ENV_NODE: "spec.nodeName",
}


class GangProblem(ValueError):
    """The template does not allow what a gang's pods need at `path`."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message


def add_gang(sent: dict[str, Any], component: str, pods: int, url: str, *, with_ca: bool = False) -> None:
    """Turn a Job into the Job of a gang, in place.

    Args:
        sent: the Job.
        component: the component's name, which is the role of its workers unless the template sets another.
        pods: how many pods the Job gets.
        url: the URL of the gang's rendezvous.
        with_ca: whether the pods verify its certificate by an authority of their own (`add_ca`).

    Raises:
        GangProblem: if the template already has something in the place of what is added.
    """
    sent["spec"] = shaped(sent["spec"], pods)
    pod: dict[str, Any] = sent["spec"]["template"]["spec"]
    if pod.get("terminationGracePeriodSeconds") is None:
        pod["terminationGracePeriodSeconds"] = TERMINATION_GRACE
    _add_token(pod, with_ca)
    told = {
        names.ENV_RENDEZVOUS: {"value": url},
        names.ENV_RENDEZVOUS_TOKEN: {"value": TOKEN_FILE},
        **({names.ENV_RENDEZVOUS_CA: {"value": CA_FILE}} if with_ca else {}),
        names.ENV_ROLE: {"value": component},
        **{name: {"valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _OF_POD.items()},
    }
    for container in cast("list[dict[str, Any]]", pod["containers"]):
        present: list[Any] = container.get("env") or []
        given = {mapping(one).get("name") for one in present}
        container["env"] = [*({"name": key, **one} for key, one in told.items() if key not in given), *present]


def add_ca(sent: dict[str, Any], ca: str) -> None:
    """Add the authority that signed the rendezvous' certificate to the pods of a gang's Job, in place.

    It is an annotation of each pod, which the pod reads as a file: no object has to be made and removed for it.
    """
    metadata: dict[str, Any] = sent["spec"]["template"]["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), names.ANNOTATION_RENDEZVOUS_CA: ca}


def shaped(spec: Mapping[str, Any], pods: int) -> dict[str, Any]:
    """Return a Job's spec with the fields of a gang's Job that its controller and the kubelets use."""
    # The rendezvous decides which failures are too many: the Job replaces pods as often as it takes.
    limit = {"backoffLimit": _EVERY_FAILURE} if spec.get("backoffLimitPerIndex") is None else {}
    template = mapping(spec.get("template"))
    pod = {"restartPolicy": "Never", **mapping(template.get("spec"))}
    return {**limit, **spec, **size(pods), "completionMode": "Indexed", "template": {**template, "spec": pod}}


def size(pods: int) -> dict[str, int]:
    """Return the fields of an Indexed Job that set its number of pods; it accepts them only together."""
    return {"parallelism": pods, "completions": pods}


def _add_token(pod: dict[str, Any], with_ca: bool) -> None:
    volumes: list[Any] = pod.get("volumes") or []
    if any(mapping(one).get("name") == TOKEN_VOLUME for one in volumes):
        raise GangProblem("volumes", f"expected none named {TOKEN_VOLUME!r}, which a gang's own token is in")
    token = {"audience": names.RENDEZVOUS_AUDIENCE, "expirationSeconds": TOKEN_LIFE, "path": "token"}
    sources: list[Any] = [{"serviceAccountToken": token}]
    if with_ca:
        field = {"fieldPath": f"metadata.annotations['{names.ANNOTATION_RENDEZVOUS_CA}']"}
        sources.append({"downwardAPI": {"items": [{"path": "ca.crt", "fieldRef": field}]}})
    pod["volumes"] = [*volumes, {"name": TOKEN_VOLUME, "projected": {"sources": sources}}]
    for index, container in enumerate(cast("list[dict[str, Any]]", pod["containers"])):
        mounts: list[Any] = container.get("volumeMounts") or []
        if any(mapping(one).get("mountPath") == TOKEN_DIRECTORY for one in mounts):
            where = f"containers[{index}].volumeMounts"
            raise GangProblem(where, f"expected none at {TOKEN_DIRECTORY}, where a gang's own token is")
        container["volumeMounts"] = [*mounts, {"name": TOKEN_VOLUME, "mountPath": TOKEN_DIRECTORY, "readOnly": True}]
