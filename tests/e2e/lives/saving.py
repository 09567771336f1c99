"""Workloads that save their state, and the pods' part in it: what a test answers in their place, on fake nodes."""

from __future__ import annotations

from typing import Any

import yaml

from holdfast import names
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Space, pod_template

REQUEST = names.ANNOTATION_CHECKPOINT_REQUEST
Pod = dict[str, Any]


def gang(name: str = "train", pods: int = 4, **settings: str) -> str:
    """Return a Job on fake nodes whose pods are asked by annotation; settings as in `holdfast.dev/<setting>`."""
    given = {"checkpoint": "annotation", "successTTL": "0s", "retryPausePeriod": "0s", **settings}
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": {f"{names.GROUP}/{key}": value for key, value in given.items()}},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": pod_template(annotations={"holdfast.dev/kwok-delete-delay": "1s"}),
        },
    }
    return yaml.safe_dump(document)


def noted(pod: Pod) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


async def asked(space: Space, name: str = "train", pods: int = 4, number: int = 1) -> list[Pod]:
    """Wait until so many pods are asked to save their state, and return them, in the order of their names."""
    found: list[Pod] = []
    handle = space.site.client.get_workflow_handle(names.workflow_id(space.site.cluster, space.namespace, name))

    async def check() -> bool:
        given = [one for one in await space.pods(name) if noted(one).get(REQUEST)]
        if number > 1:
            request = (await space.site.status(handle)).checkpoint
            wanted = str(request.sent) if request is not None and request.number == number else ""
            given = [one for one in given if noted(one)[REQUEST] == wanted]
        found[:] = given
        return len(found) >= pods

    await until(check, 120, f"{pods} pods of {name} are asked for checkpoint {number}")
    return sorted(found, key=lambda one: one["metadata"]["name"])


async def answers(space: Space, pod: Pod, state: str, uri: str | None = None) -> None:
    """Answer in a pod's place."""
    said = {
        names.ANNOTATION_CHECKPOINT_STATE: state,
        names.ANNOTATION_CHECKPOINT_URI: uri,
        names.ANNOTATION_CHECKPOINT_ANSWERS: noted(pod)[REQUEST],
    }
    await space.patch("v1", "Pod", pod["metadata"]["name"], {"metadata": {"annotations": said}})


async def save(space: Space, uri: str, name: str = "train", pods: int = 4, number: int = 1) -> None:
    """Wait until all pods are asked, and let them have saved."""
    for one in await asked(space, name, pods, number):
        await answers(space, one, "Complete", uri)
