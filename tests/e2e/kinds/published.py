"""Kinds of other projects, by their published definitions: those of the Go modules that Kueue's build pins."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import yaml

from holdfast.activities.kube.client import UnknownKind, Unreachable
from holdfast.local.programs.gobuild import module_source
from holdfast.worker.cleanup.namespace import apply
from tests.e2e.ground.site import Site, until

_BUILD: Final = "kueue"
DEFINITIONS: Final = {
    "PyTorchJob": ("github.com/kubeflow/training-operator", "manifests/base/crds/kubeflow.org_pytorchjobs.yaml"),
    "TrainJob": ("github.com/kubeflow/trainer/v2", "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml"),
    "RayCluster": ("github.com/ray-project/kuberay/ray-operator", "config/crd/bases/ray.io_rayclusters.yaml"),
    "LeaderWorkerSet": ("sigs.k8s.io/lws", "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml"),
}
"""The module that publishes a kind, and the file of its definition there."""


async def serve(site: Site, kind: str) -> tuple[str, str]:
    """Have the cluster serve a published kind; return its API version and kind."""
    definition = await asyncio.to_thread(_read, *DEFINITIONS[kind])
    await apply(site.kube, definition)
    spec = definition["spec"]
    (version,) = [one["name"] for one in spec["versions"] if one["storage"]]
    key = (f"{spec['group']}/{version}", kind)

    async def served() -> bool:
        try:
            await site.kube.list(*key, "default")
        except (UnknownKind, Unreachable):  # Its storage is being set up.
            return False
        return True

    await until(served, 60, f"{kind} is served")
    return key


def _read(module: str, path: str) -> dict[str, Any]:
    # A definition has up to 25,000 lines: the parser in Python takes seconds for them.
    return yaml.load((Path(module_source(module, _BUILD)) / path).read_text(), Loader=yaml.CSafeLoader)
