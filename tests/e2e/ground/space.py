"""A test's own namespace on a site that several tests share, watched from its beginning and emptied at its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from holdfast import formats, names
from holdfast.activities.kube.client import KubeError, NotFound, UnknownKind, Unreachable
from holdfast.model import Explanation, OperationKind, Policy, Status, Workload
from holdfast.worker.cleanup.namespace import apply
from tests.e2e.ground.site import Site, until
from tests.e2e.witness.truth import Act, Truth, activities, watched
from tests.plugins.spent import CLEAN_UP, END, spent

Handle = WorkflowHandle[Any, Status]
STUBBORN = {"holdfast.dev/kwok-stubborn": "true"}
PENDING = {"holdfast.dev/kwok-hold": "true"}
FOREIGN_FINALIZER = "example.com/hold"


@dataclass
class Space:
    """What a test works with."""

    site: Site
    namespace: str
    truth: Truth
    handles: list[Handle] = field(default_factory=list[Handle])

    # --- workloads

    async def submit(
        self, document: dict[str, Any] | str | Workload, *, defaults: Policy | None = None, encrypted: bool = False
    ) -> Handle:
        """Start the workflow of a published document, given as it is."""
        workload = document
        if not isinstance(workload, Workload):
            (workload,) = formats.read(
                workload if isinstance(workload, str) else yaml.safe_dump(workload),
                cluster=self.site.cluster,
                namespace=self.namespace,
                defaults={defaults.profile: defaults} if defaults is not None else None,
                payloads_encrypted=encrypted,
            )
        handle = await self.site.submit(workload)
        self.handles.append(handle)
        return handle

    async def reach(self, handle: Handle, phase: str, attempt: int | None = None, seconds: float = 120) -> Status:
        return await self.site.reach(handle, phase, seconds, attempt)

    async def explain(self, handle: Handle) -> Explanation:
        return await self.site.explain(handle)

    async def ended(self, handle: Handle, seconds: float = 120) -> Status:
        """Wait for the end, and return the status it ended with, whichever it is."""
        try:
            with spent(END):
                return await asyncio.wait_for(handle.result(), seconds)
        except WorkflowFailureError as error:
            cause = error.cause
            assert isinstance(cause, ApplicationError), cause
            assert cause.type == names.ERROR_WORKLOAD_FAILED
            return Status.model_validate(cause.details[0])

    async def unhealthy(self, handle: Handle, seconds: float = 90) -> None:
        """Wait until a workload knows that it is unhealthy."""

        async def check() -> bool:
            status = await self.site.status(handle)
            return any(one.type == "Unhealthy" and one.status for one in status.conditions)

        await until(check, seconds, f"{handle.id} is unhealthy")

    async def acts(self, handle: Handle, *kinds: str) -> list[Act]:
        """Return its activities, as history has them."""
        return [act for act in await activities(handle) if not kinds or act.name in kinds]

    async def assert_paused(self, handle: Handle, workload: str, attempt: int, pause: float) -> float:
        """Assert that an attempt was created no sooner than this after the proof; return how long after."""
        removals = await self.acts(handle, OperationKind.REMOVE, OperationKind.FORCE_REMOVE)
        proofs = [act.ended for act in removals if act.ended and act.result and act.result["gone"]]
        created = self.created("attempts", names.attempt_name(workload, attempt))
        proof = max(at for at in proofs if at < created)
        waited = (created - proof).total_seconds()
        assert waited >= pause, f"attempt {attempt} was created {waited:.2f} s after the proof"
        return waited

    def created(self, resource: str, name: str) -> datetime:
        """Return when an object was first created, by the audit log."""
        return min(
            one.time
            for one in self.truth.requests()
            if (one.verb, one.resource, one.subresource, one.name) == ("create", resource, "", name)
        )

    # --- objects

    async def pods(self, workload: str = "") -> list[dict[str, Any]]:
        """Return the pods (of a workload)."""
        return [
            pod
            for pod in await self.site.pods(self.namespace)
            if not workload or pod["metadata"].get("annotations", {}).get(names.ANNOTATION_WORKLOAD) == workload
        ]

    async def fail_pod(self, workload: str, exit_code: int = 1) -> str:
        """Make one of a workload's running pods fail, and return its name."""
        running = [pod for pod in await self.pods(workload) if pod["status"].get("phase") == "Running"]
        name = running[0]["metadata"]["name"]
        await self.site.annotate("Pod", name, self.namespace, kwok_exit_code=str(exit_code), kwok_fail="0s")
        return name

    async def complete(self, workload: str) -> None:
        """Make a workload's running pods succeed."""
        for pod in await self.pods(workload):
            if pod["status"].get("phase") == "Running":
                await self.site.annotate("Pod", pod["metadata"]["name"], self.namespace, kwok_complete="0s")

    async def patch(self, api_version: str, kind: str, name: str, patch: dict[str, Any]) -> None:
        """Merge a patch into an object."""
        found = await self.site.kube.get(api_version, kind, name, self.namespace)
        await self.site.kube.patch(api_version, kind, name, self.namespace, uid=found["metadata"]["uid"], patch=patch)

    async def finalize(self, api_version: str, kind: str, name: str, *finalizers: str) -> None:
        """Give an object these finalizers beside those it has; none takes ours off again."""
        found = await self.site.kube.get(api_version, kind, name, self.namespace)
        kept = [one for one in found["metadata"].get("finalizers") or () if one != FOREIGN_FINALIZER]
        await self.patch(api_version, kind, name, {"metadata": {"finalizers": [*kept, *finalizers]}})

    async def delete(self, api_version: str, kind: str, name: str, **options: Any) -> None:
        """Delete an object, as a person with kubectl would."""
        found = await self.site.kube.get(api_version, kind, name, self.namespace)
        await self.site.kube.delete(api_version, kind, name, self.namespace, uid=found["metadata"]["uid"], **options)

    async def make(self, document: dict[str, Any]) -> dict[str, Any]:
        """Create an object in this namespace, or merge it into the one that is there."""
        document = {**document, "metadata": {**document["metadata"], "namespace": self.namespace}}
        return await apply(self.site.kube, document)

    async def add_beside(self, pod: str, name: str, **labels: str) -> None:
        """Make a pod that belongs to the same attempt as another, but to no component, and wait until it runs."""
        beside = await self.site.kube.get("v1", "Pod", pod, self.namespace)
        copied = {key: dict(beside["metadata"][key]) for key in ("labels", "annotations")}
        copied["labels"] |= labels | {names.LABEL_COMPONENT: "another"}
        added = pod_template(name=name, **copied, ownerReferences=beside["metadata"]["ownerReferences"])
        await self.make({"apiVersion": "v1", "kind": "Pod", **added})

        async def runs() -> bool:
            found = await self.site.kube.get("v1", "Pod", name, self.namespace)
            return found["status"].get("phase") == "Running"

        await until(runs, 60, f"pod {name} runs")

    async def anchor(self, workload: str) -> dict[str, Any]:
        return await self.site.kube.get(names.API_VERSION, names.ANCHOR_KIND, workload, self.namespace)

    # --- the end

    async def close(self) -> None:
        """End what still runs, and let go of whatever holds the namespace."""
        with spent(CLEAN_UP):
            await self._close()

    async def _close(self) -> None:
        for handle in self.handles:
            with contextlib.suppress(RPCError):
                await handle.terminate("the test is over")
        await self.truth.stop()
        kube = self.site.kube
        with contextlib.suppress(NotFound):
            # From now on no controller makes anything new in it.
            found = await kube.get("v1", "Namespace", self.namespace)
            await kube.delete("v1", "Namespace", self.namespace, uid=found["metadata"]["uid"])
        await until(self._emptied, 60, f"nothing holds namespace {self.namespace}")
        self.site.namespaces.remove(self.namespace)

    async def _emptied(self) -> bool:
        """Take away the finalizers of what is left, and force the pods that ignore their deletion."""
        kube, pods = self.site.kube, 0
        for api_version, kind in self.truth.kinds:
            try:
                listed = await kube.list(api_version, kind, self.namespace)
            except Unreachable:  # It is asked again: a kind's storage may be set up anew at this moment.
                return False
            except UnknownKind:  # The test has taken the kind off the cluster.
                continue
            for found in listed["items"]:
                key = (api_version, kind, found["metadata"]["name"], self.namespace)
                uid = found["metadata"]["uid"]
                with contextlib.suppress(KubeError):
                    if found["metadata"].get("finalizers"):
                        await kube.patch(*key, uid=uid, patch={"metadata": {"finalizers": None}})
                    if kind == "Pod":
                        pods += 1
                        await kube.delete(*key, uid=uid, grace_period=0)
        return not pods


@asynccontextmanager
async def open_space(site: Site, *kinds: tuple[str, str]) -> AsyncIterator[Space]:
    """Make a namespace of a test's own, enabled for workloads."""
    namespace = await site.namespace()
    async with watched(site, namespace, *kinds) as truth:
        space = Space(site, namespace, truth)
        try:
            yield space
            await site.judge_ledgers(f'{names.SA_NAMESPACE} = "{namespace}"')
        finally:
            await space.close()


def pod_template(**metadata: Any) -> dict[str, Any]:
    """Return what makes a pod, for fake nodes."""
    return {
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"holdfast.dev/node": "fake"},
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "example.com/train:1", "command": ["train"]}],
        },
    }


def pod(name: str = "worker", **metadata: Any) -> dict[str, Any]:
    """Return an AppWrapper component that is a bare pod, on a fake node."""
    return {"template": {"apiVersion": "v1", "kind": "Pod", **pod_template(name=name, **metadata)}}


def example(name: str) -> str:
    """Return one of the published examples, as it is."""
    return (Path(__file__).parents[3] / "examples" / name).read_text()
