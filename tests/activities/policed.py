"""A cluster in memory: objects with owners, a collector, and policies that refuse to have some of them deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from holdfast import names
from holdfast.activities.kube.client import KubeError, NotFound, Object
from holdfast.activities.site.site import Site
from holdfast.model import Limits, Phase, Reason, Report
from holdfast.model.calls.cluster import ObjectRef, PlannedComponent, Target

TARGET = Target(
    cluster="dev",
    cluster_uid="dev-uid",
    namespace="default",
    name="train",
    workload_uid="w",
    workflow_id="workload/dev/default/train",
    shard=0,
    run_as="runner",
)
OWNER_UID = "train-a1-uid"
QUIET = Report(sequence=1, phase=Phase.RUNNING, reason=Reason.SUBMITTED, repeats=True)
"""A report that writes nothing."""


class Policed:
    """What stands in one namespace, by kind and name; the attempt's owner is there from the start."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.policies: dict[tuple[str, str], KubeError] = {}
        """How the deletion of an object is refused."""
        self.graces: list[tuple[str, int | None]] = []
        """The pods that were deleted, each with the grace period that the deletion gave."""
        self.site = Site(cast("Any", self), TARGET.cluster, TARGET.cluster_uid, "here", Limits())
        self.put(names.ATTEMPT_KIND, TARGET.attempt_name(1), "anchor-uid", workloadUid=TARGET.workload_uid, attempt=1)

    def put(self, kind: str, name: str, *owners: str, labels: dict[str, str] | None = None, **spec: Any) -> str:
        """Add an object of the workload with these owners' uids, and return its own uid."""
        labels = {names.LABEL_WORKLOAD_UID: TARGET.workload_uid, names.LABEL_ATTEMPT: "1"} | (labels or {})
        metadata = {"name": name, "namespace": TARGET.namespace, "uid": f"{name}-uid", "resourceVersion": "1"}
        references = [{"uid": uid, "kind": "", "name": ""} for uid in owners]
        self.objects[kind, name] = {
            "metadata": {**metadata, "labels": labels, "ownerReferences": references},
            "spec": spec,
        }
        return f"{name}-uid"

    @property
    def left(self) -> list[str]:
        """What is left, as `kind name`."""
        return sorted(f"{kind} {name}" for kind, name in self.objects)

    async def list(
        self, _version: str, kind: str, _namespace: str, *, labels: str = "", keep: Callable[[Object], Any], **_: Any
    ) -> Object:
        wanted = dict(pair.split("=") for pair in labels.split(",") if pair)
        there = [one for (of, _), one in self.objects.items() if of == kind]
        there = [one for one in there if wanted.items() <= one["metadata"]["labels"].items()]
        return {"items": [it for it in map(keep, there) if it is not None], "metadata": {"resourceVersion": "1"}}

    async def find(self, _version: str, kind: str, name: str, _namespace: str = "") -> Object | None:
        return self.objects.get((kind, name))

    async def get(self, _version: str, kind: str, name: str, _namespace: str = "", **_: Any) -> Object:
        if (kind, name) not in self.objects:
            raise NotFound(404, "NotFound", f"{kind} {name} is not there")
        return self.objects[kind, name]

    async def patch(
        self, _version: str, kind: str, name: str, _namespace: str, *, patch: dict[str, Any], **_: Any
    ) -> Object:
        if "status" in patch:
            self.objects[kind, name]["status"] = patch["status"]
        return self.objects[kind, name]

    async def delete(self, version: str, kind: str, name: str, _namespace: str, *, uid: str, **options: Any) -> Object:
        found = await self.get(version, kind, name)
        assert found["metadata"]["uid"] == uid
        if (kind, name) in self.policies:
            raise self.policies[kind, name]
        if kind == "Pod":
            self.graces.append((name, options.get("grace_period")))
        self._collect(self.objects.pop((kind, name)))
        return found

    def _collect(self, gone: Object) -> None:
        for key, thing in list(self.objects.items()):
            owners = thing["metadata"]["ownerReferences"]
            left = [one for one in owners if one["uid"] != gone["metadata"]["uid"]]
            thing["metadata"]["ownerReferences"] = left
            if owners and not left and self.objects.pop(key, None):
                self._collect(thing)


def planned(kind: str, name: str, api_version: str, **more: Any) -> PlannedComponent:
    """Return the plan of one component, by the name of its object."""
    return PlannedComponent(name=name, api_version=api_version, kind=kind, object_name=name, **more)


def made(plan: PlannedComponent) -> ObjectRef:
    """Return the object that was made of a component."""
    uid = f"{plan.object_name}-uid"
    return ObjectRef(api_version=plan.api_version, kind=plan.kind, name=plan.object_name, uid=uid)
