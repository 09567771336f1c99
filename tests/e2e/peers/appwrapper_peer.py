"""The published AppWrapper controller beside ours: its own binary and definition, with its defaults, without webhooks.

Its webhooks only check and label what users hand in. Its limits cannot be set: one reconciler, and of its client the
defaults of controller-runtime, 20 requests a second with bursts of 30.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from holdfast.activities.kube.client import Kube, UnknownKind, Unreachable
from holdfast.local.programs.gobuild import source_of
from holdfast.local.programs.tools import TOOLS
from holdfast.worker.cleanup.namespace import apply
from tests.e2e.ground.site import free_port, until
from tests.e2e.peers.jobset_peer import launched

PROGRAM = "appwrapper-controller"
API_VERSION, KIND = "workload.codeflare.dev/v1beta2", "AppWrapper"
_CONFIG = "appwrapper-operator-config"


async def define(kube: Kube) -> None:
    """Apply its own definition of the kind, and wait until it is served."""
    source = await asyncio.to_thread(source_of, TOOLS[PROGRAM])
    definition = source / "config" / "crd" / "bases" / "workload.codeflare.dev_appwrappers.yaml"
    await apply(kube, yaml.safe_load(definition.read_text()))

    async def served() -> bool:
        try:
            await kube.list(API_VERSION, KIND, "default")
        except (UnknownKind, Unreachable):
            return False
        return True

    await until(served, 60, "AppWrappers are served", pause=0.2)


async def start(kube: Kube, program: Path, kubeconfig: Path, home: str, log: Path) -> subprocess.Popen[bytes]:
    """Start the controller, which reads its configuration in the namespace `home`, and wait until it answers."""
    health = f"127.0.0.1:{free_port()}"
    await apply(kube, _configuration(home, health))
    argv = [str(program), f"--config={_CONFIG}", f"--kubeconfig={kubeconfig}"]
    process = launched(argv, log, env=os.environ | {"NAMESPACE": home})
    await until(lambda: _alive(process, health), 60, f"the AppWrapper controller answers; see {log}", pause=0.2)
    return process


def _configuration(namespace: str, health: str) -> dict[str, Any]:
    """Return its configuration: what is not named keeps its default."""
    settings = {
        "webhooksEnabled": False,
        "controllerManager": {"health": {"bindAddress": health}, "metrics": {"bindAddress": "0"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _CONFIG, "namespace": namespace},
        "data": {"config.yaml": yaml.safe_dump(settings)},
    }


async def _alive(process: subprocess.Popen[bytes], health: str) -> bool:
    """Whether it answers. Its page /readyz is not asked: without webhooks that would begin to serve them, and fail."""
    if process.poll() is not None:
        raise AssertionError(f"the AppWrapper controller ended with {process.returncode}")
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://{health}/healthz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False
