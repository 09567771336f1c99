"""Real programs that stand still or die at the same step, in real containers (rows P1, P2, P4)."""

from __future__ import annotations

import asyncio
import base64
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import names, progress
from holdfast.activities.progress.read import step_of
from holdfast.model import FailureClass, Reason
from holdfast.model.life.progress import Step
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Space
from tests.e2e.nodes.test_real_node import containers, real

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real_node,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(400),
]
ROW = pytest.mark.row
__all__ = ["real"]

CODE = Path(progress.__file__).read_text()
IMAGE = "holdfast.local/python:1"
PROGRAM = """
import os, sys, time
sys.path.insert(0, "/code")
import progress
attempt = int(os.environ["HOLDFAST_ATTEMPT"])
for n in range(1, 1_000_000):
    time.sleep(0.1)
    progress.step(n, total=1_000_000, loss=1 / n)
    if n == 40:
        with progress.phase("saving", 60):
            time.sleep(9)
    {then}
"""
HANGS = "if attempt == 1 and n == 90: time.sleep(100_000)"
DIES = "if n == 30: sys.exit(1)"


async def put_code(space: Space) -> None:
    """Put the module that tells steps into the namespace, as a ConfigMap."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "code", "namespace": space.namespace},
        "data": {"progress.py": CODE},
    }
    await asyncio.to_thread(space.site.stack.kubectl, "apply", "-f", "-", stdin=json.dumps(body))


def container(name: str, *command: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python", *command],
        "env": [{"name": progress.ENV_FILE, "value": "/told/step.json"}],
        "volumeMounts": [{"name": "code", "mountPath": "/code"}, {"name": "told", "mountPath": "/told"}],
    }


def training(then: str, **fields: Any) -> dict[str, Any]:
    """Return a program with a sidecar that serves its step."""
    spec = containers("", terminationGracePeriodSeconds=1)
    spec["containers"] = [container("main", "-c", PROGRAM.format(then=then))]
    spec["initContainers"] = [{**container("step", "/code/progress.py", "--port", "9470"), "restartPolicy": "Always"}]
    spec["volumes"] = [{"name": "code", "configMap": {"name": "code"}}, {"name": "told", "emptyDir": {}}]
    job = {"backoffLimit": 0, "template": {"spec": spec}}
    template = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "main"}, "spec": job}
    return {
        "schemaVersion": 1,
        "name": "train",
        "policy": {
            "profile": "lattice-batch",
            "timings": {"retryPausePeriod": "1s", "failureGracePeriod": "0s"},
            **fields.pop("policy", {}),
        },
        "progress": {
            "source": "http",
            "port": 9470,
            "period": "1s",
            "bound": "6s",
            "firstStep": "60s",
            **fields,
        },
        "components": [{"name": "main", "template": template}],
    }


@ROW("P1", level="e2e")
@ROW("P2", level="e2e")
async def test_P2_a_process_that_hangs_is_noticed_and_restarted_and_one_that_saves_is_not(real: Space):
    await put_code(real)
    handle = await real.submit(training(HANGS))
    status = await real.reach(handle, "Running", 2, 240)
    assert {each.name: each.used for each in status.budgets}["restart"] == 1
    (cause,) = [one.message for one in status.causes if one.reason is Reason.RESETTING]
    assert "NoProgress: step 90 of 1,000,000, no new step for" in cause, "and not in its phase, at step 40"
    assert cause.endswith("bound 6s (as declared) (rule no-progress)")
    history = await handle.fetch_history()
    follows = await real.acts(handle, names.ACTIVITY_FOLLOW)
    assert 2 <= len(follows) <= 5, "the first step, the stall, and the next attempt's"
    assert len(history.events) < 120

    async def told() -> bool:
        return "step" in (await real.site.status(handle)).steps

    await until(told, 60, "the next attempt tells its step")
    await real.truth.settle()
    real.truth.assert_one_attempt_at_a_time("train")


@ROW("P1", level="e2e")
async def test_P1_the_annotation_is_patched_with_the_rights_of_the_pods_own_account(
    real: Space, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """The real API server, and an account's token that is bound to the pod; the code runs here, where it reaches it."""
    kubectl = partial(asyncio.to_thread, real.site.stack.kubectl, "-n", real.namespace)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": containers("", nodeName="absent")}
    await kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    config = yaml.safe_load(await kubectl("config", "view", "--raw"))
    cluster = config["clusters"][0]["cluster"]
    host, _, port = cluster["server"].removeprefix("https://").rpartition(":")
    bound = ("--bound-object-kind", "Pod", "--bound-object-name", "train")
    files = {"namespace": real.namespace, "token": await kubectl("create", "token", "default", *bound)}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    monkeypatch.setattr(progress, "_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setenv("HOSTNAME", "another-name")
    with pytest.raises(OSError, match="403"):
        await asyncio.to_thread(progress.patch, {"step": 1})
    await kubectl("create", "role", "tells", "--verb=patch", "--resource=pods")
    await kubectl("create", "rolebinding", "tells", "--role=tells", f"--serviceaccount={real.namespace}:default")

    async def patched() -> bool:
        try:
            await asyncio.to_thread(progress.patch, {"step": 12, "loss": 0.5})
        except OSError:
            return False  # The API server's authorizer does not know the right yet.
        return True

    await until(patched, 90, "the right is known")
    found = json.loads(await kubectl("get", "pod", "train", "-o", "json"))
    assert step_of(found["metadata"]["annotations"][names.ANNOTATION_STEP]) == Step(step=12)


@ROW("P4", level="e2e")
async def test_P4_a_program_that_dies_at_the_same_step_three_times_fails_early_and_says_so(real: Space):
    await put_code(real)
    document = training(DIES, poisonLimit=3)
    document["policy"]["budgets"] = [{"name": "restart", "limit": 50}]
    document["policy"]["rules"] = [
        {"name": "try-again", "match": {"classes": ["App"]}, "action": {"kind": "Restart", "grace": False}}
    ]
    document["policy"].pop("profile")
    handle = await real.submit(document)
    status = await real.ended(handle, 300)
    assert (status.reason, status.attempt) == (Reason.POISON_STEP, 3)
    assert status.message.startswith("it has failed at step 30 3 times in a row: ")
    assert status.failure is not None
    assert status.failure.cls is FailureClass.APP
