"""Whose pods are that bear a workload's labels: their chain of owners tells (rows D26, D27)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from holdfast import names
from holdfast.activities.kube.client import Forbidden, UnknownKind, Unreachable
from holdfast.activities.kube.each import AT_ONCE
from holdfast.activities.kube.owners import KINDS_KEPT, NAMESPACES_KEPT, Between, Links, Ref, named
from holdfast.activities.objects.ancestry import READ_ALONE, Ancestry, ancestry, own_pods
from holdfast.activities.site.site import Site
from holdfast.model.calls.cluster import PlannedComponent, Target
from holdfast.worker.watch.seen import pod_seen
from tests.activities.shapes import NOW
from tests.fakes.watched import World

D26 = pytest.mark.row("D26", level="pure")
D27 = pytest.mark.row("D27", level="pure")
TARGET = Target(
    cluster="c", namespace="ns", name="w", workload_uid="w", workflow_id="workload/c/ns/w", shard=0, run_as="runner"
)
JOB = PlannedComponent(name="train", api_version="batch/v1", kind="Job", object_name="train")
SERVE = PlannedComponent(name="serve", api_version="apps/v1", kind="Deployment", object_name="serve")
LWS = PlannedComponent(name="lws", api_version="leaderworkerset.x-k8s.io/v1", kind="LeaderWorkerSet", object_name="l")


@dataclass
class There:
    """Objects that can be read, by uid, and how often each was."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    refused: dict[str, Exception] = field(default_factory=dict)
    passing: dict[str, Exception] = field(default_factory=dict)
    """Errors of the first read of an object."""
    away: bool = False
    """Whether the API server answers nothing else either."""
    links: Links = field(default_factory=Links)
    reads: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)
    unlisted: Exception | None = None
    """The error of each list."""

    def put(self, ref: Ref, *owners: Ref, labelled: bool = True) -> Ref:
        references = [{"apiVersion": a, "kind": k, "name": n, "uid": u} for a, k, n, u in owners]
        labels = {names.LABEL_WORKLOAD_UID: "w"} if labelled else {}
        metadata = {"name": ref.name, "uid": ref.uid, "labels": labels, "ownerReferences": references}
        self.objects[ref.name] = {"metadata": metadata}
        return ref

    async def read_component(self, target: Target, api_version: str, kind: str, name: str) -> dict[str, Any] | None:
        self.reads.append(name)
        if name in self.refused:
            raise self.refused[name]
        if name in self.passing:
            raise self.passing.pop(name)
        return self.objects.get(name)

    async def list(self, _version: str, kind: str, _namespace: str, *, keep: Any, **_: Any) -> dict[str, Any]:
        self.lists.append(kind)
        if self.unlisted is not None:
            raise self.unlisted
        return {"items": [keep(one) for one in self.objects.values() if one["metadata"]["labels"]]}

    @property
    def gathered(self) -> There:
        return self

    async def of(self, *_: Any) -> list[dict[str, Any]]:
        return [{"metadata": {"uid": "attempt-uid"}}]

    @property
    def kube(self) -> There:
        return self

    async def find(self, api_version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
        assert (kind, name) == ("Namespace", TARGET.namespace)
        if self.away:
            raise Unreachable(503, "", "etcd has no leader")
        return {"metadata": {"name": name}}

    async def chains(self, plan: PlannedComponent, *refs: Ref) -> Ancestry:
        return await ancestry(cast("Site", self), TARGET, (plan,), refs, {"attempt-uid", "train-uid", "serve-uid"})


def ref(kind: str, name: str, api: str = "batch/v1") -> Ref:
    return Ref(api, kind, name, f"{name}-uid")


@D26
async def test_D26_pods_of_a_copied_job_are_anothers_and_those_of_its_own_are_not_asked_about() -> None:
    there = There()
    copy = there.put(ref("Job", "copy"))
    assert (await there.chains(JOB, copy, ref("Job", "train"))).foreign == {"copy-uid"}
    assert there.reads == ["copy"]


@D26
async def test_D26_a_copied_deployments_pods_are_known_through_their_replica_set() -> None:
    there = There()
    theirs, ours = ref("ReplicaSet", "copy-1", "apps/v1"), ref("ReplicaSet", "serve-1", "apps/v1")
    there.put(theirs, there.put(ref("Deployment", "copy", "apps/v1")))
    there.put(ours, ref("Deployment", "serve", "apps/v1"))
    found = await there.chains(SERVE, theirs, ours)
    assert (found.foreign, found.between) == ({"copy-1-uid"}, {("apps/v1", "ReplicaSet")})
    await there.chains(SERVE, ours)
    assert there.reads.count("serve-1") == 1, "who owns what has an owner is asked once"


@D26
async def test_D26_pods_whose_labels_alone_were_copied_into_anothers_template_are_anothers() -> None:
    there = There()
    other = there.put(ref("DaemonSet", "other", "apps/v1"), labelled=False)
    assert (await there.chains(JOB, other)).foreign == {"other-uid"}


@D26
async def test_D26_what_cannot_be_read_is_gone_or_has_lost_its_owner_proves_nothing() -> None:
    there = There(refused={"secret": Forbidden(403, "", ""), "old": UnknownKind(404, "", "")})
    orphan = there.put(ref("ReplicaSet", "orphan", "apps/v1"))
    unsure = (ref("Trainer", "secret"), ref("Trainer", "old"), ref("Job", "gone"), orphan)
    assert (await there.chains(SERVE, *unsure)).foreign == frozenset()


BROKEN = [Unreachable(500, "", "conversion webhook failed"), Unreachable(503, "", "no server"), Unreachable(0, "", "")]


@D26
@pytest.mark.parametrize("error", BROKEN, ids=["500", "503", "silent"])
async def test_D26_a_kind_whose_own_server_is_down_proves_nothing_and_stops_no_look(error: Unreachable) -> None:
    jobs = [ref("Trainer", f"copy-{number}", "example.com/v1") for number in range(100)]
    there = There(refused={one.name: error for one in jobs})
    assert (await there.chains(JOB, *jobs)).foreign == frozenset()
    assert len(there.reads) <= 2 * AT_ONCE, "once it is known, no further object of the kind is asked for"


def copies_of(there: There, number: int) -> tuple[list[Ref], Ref]:
    """Return so many Jobs of the workload, and a copy that somebody made of one of them."""
    attempt = ref(names.ATTEMPT_KIND, "attempt", names.API_VERSION)
    return [there.put(ref("Job", f"w-{index}"), attempt) for index in range(number)], there.put(ref("Job", "copy"))


@D26
async def test_D26_of_very_many_jobs_a_copy_is_still_known_and_none_is_read_alone() -> None:
    there = There()
    jobs, copy = copies_of(there, READ_ALONE + 1)
    for _ in range(2):
        own = await own_pods(cast("Site", there), TARGET, (JOB,), [*jobs, copy], lambda one: one)
        assert own == jobs
    assert (there.lists, there.reads) == (["Job"], ["copy"]), "whose owners are known is asked no more"


@D26
@pytest.mark.parametrize("error", [Forbidden(403, "", ""), UnknownKind(404, "", ""), Unreachable(503, "", "down")])
async def test_D26_where_very_many_jobs_cannot_be_listed_each_is_read(error: Exception) -> None:
    there = There(unlisted=error)
    jobs, copy = copies_of(there, READ_ALONE + 1)
    own = await own_pods(cast("Site", there), TARGET, (JOB,), [*jobs, copy], lambda one: one)
    assert own == jobs
    assert len(there.reads) == len(jobs) + 1


@D26
async def test_D26_of_very_many_that_may_be_neither_listed_nor_read_few_are_tried() -> None:
    refused: dict[str, Exception] = {
        "copy": Forbidden(403, "", ""),
        **{f"w-{index}": Forbidden(403, "", "") for index in range(200)},
    }
    there = There(unlisted=Forbidden(403, "", ""), refused=refused)
    jobs, copy = copies_of(there, 200)
    own = await own_pods(cast("Site", there), TARGET, (JOB,), [*jobs, copy], lambda one: one)
    assert own == [*jobs, copy], "as where nothing is known of an owner"
    assert len(there.reads) < 100


@D26
async def test_D26_nothing_is_said_of_very_many_jobs_while_the_api_server_does_not_answer() -> None:
    there = There(unlisted=Unreachable(0, "", "away"), away=True)
    jobs, copy = copies_of(there, READ_ALONE + 1)
    with pytest.raises(Unreachable):
        await own_pods(cast("Site", there), TARGET, (JOB,), [*jobs, copy], lambda one: one)


@D26
@pytest.mark.parametrize("status", [0, 401, 429, 503])
async def test_D26_nothing_is_said_of_pods_while_the_api_server_answers_nothing(status: int) -> None:
    job = ref("Job", "copy")
    there = There(refused={"copy": Unreachable(status, "", "away")}, away=status in {0, 503})
    with pytest.raises(Unreachable):
        await there.chains(JOB, job)


@D26
async def test_D26_an_error_that_passes_makes_no_pod_of_anothers_ours() -> None:
    """Pods that count as the workload's are deleted with it."""
    there = There(passing={"copy": Unreachable(503, "", "etcd has no leader")})
    copy = there.put(ref("Job", "copy"))
    assert (await there.chains(JOB, copy)).foreign == {"copy-uid"}
    there = There(refused={"copy": Unreachable(503, "", "etcd has no leader")})
    with pytest.raises(Unreachable):  # Nothing else serves Jobs.
        await there.chains(JOB, there.put(ref("Job", "copy")))


@D27
async def test_D27_what_stands_between_a_component_and_its_pods_is_learned_from_them_for_any_kind() -> None:
    there, learned = There(), Between()
    lws = ref("LeaderWorkerSet", "l", LWS.api_version)
    leaders = there.put(ref("StatefulSet", "leaders", "apps/v1"), lws, labelled=False)
    leader = there.put(ref("Pod", "leader", "v1"), leaders)
    workers = there.put(ref("StatefulSet", "workers", "apps/v1"), leader, labelled=False)
    found = await ancestry(cast("Site", there), TARGET, (LWS,), (leaders, workers), {lws.uid})
    kinds = {("apps/v1", "StatefulSet"), ("v1", "Pod")}
    assert (found.foreign, found.between) == (frozenset(), kinds)
    assert learned.learn("ns", (LWS,), found.between) == kinds
    assert learned.learn("ns", (LWS,), ()) == kinds, "once learned, known of every LeaderWorkerSet of the namespace"
    assert learned.learn("ns", (JOB,), ()) == frozenset()
    assert learned.learn("other", (LWS,), ()) == frozenset(), "what pods of one namespace name holds in no other"


@D27
async def test_D27_a_pod_that_a_claim_owns_makes_no_claim_stand_between() -> None:
    there, learned = There(), Between()
    claim = there.put(ref("PersistentVolumeClaim", "scratch", "v1"), ref("Job", "train"))
    found = await there.chains(JOB, claim)
    assert found.between == {("v1", "PersistentVolumeClaim")}
    creates = {("v1", "ReplicationController"), ("v1", "Pod")}
    other = {("v1", kind) for kind in ("ConfigMap", "Secret", "Service", "ServiceAccount")}
    assert learned.learn("ns", (JOB,), found.between | other | creates) == creates
    assert learned.learn("ns", (JOB,), ()) == creates


@D27
def test_D27_of_what_pods_name_few_kinds_are_kept_and_of_namespaces_those_used_last() -> None:
    learned, kind = Between(), ("apps/v1", "ReplicaSet")
    many = {("example.com/v1", f"Kind{number}") for number in range(100)}
    assert learned.learn("ns", (SERVE,), many) == many
    assert len(learned.learn("ns", (SERVE,), ())) == KINDS_KEPT
    for number in range(NAMESPACES_KEPT + 1):
        learned.learn(f"ns-{number}", (SERVE,), {kind})
        learned.learn("ns-0", (SERVE,), ())
        learned.learn(f"unused-{number}", (JOB,), ())
    assert learned.learn("ns", (SERVE,), ()) == frozenset()
    assert learned.learn("ns-0", (SERVE,), ()) == {kind}, "it is still used"
    assert learned.learn("ns-1", (SERVE,), ()) == frozenset()
    assert learned.learn(f"ns-{NAMESPACES_KEPT}", (SERVE,), ()) == {kind}


@D26
def test_D26_foreign_controllers_are_named_a_few_and_counted() -> None:
    copy = ref("Job", "copy")
    assert named([copy, copy, None, ref("Job", "b")]) == ("1 pod of Job b", "2 pods of Job copy")
    assert named(ref("Job", f"j{number}") for number in range(9))[-1] == "those of 5 more"


@D26
def test_D26_the_watch_does_not_count_pods_of_a_copied_job() -> None:
    world = World()
    world.running(pods=1)
    raw = {
        "metadata": {
            "uid": "copied",
            "name": "copy-x",
            "namespace": "ns",
            "resourceVersion": "900",
            "labels": {
                names.LABEL_WORKLOAD_UID: "w",
                names.LABEL_ATTEMPT: "1",
                names.LABEL_COMPONENT: "c0",
            },
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "copy", "uid": "copy-uid"}],
        },
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running"},
    }
    seen = pod_seen(raw)
    assert seen is not None
    world.cache.put_pod(seen)
    newest = world.cache.newest(world.key())
    assert newest is not None
    observed = world.cache.observe(newest, NOW, frozenset(), ())
    assert observed.components["c0"].pods.running == 1
    assert observed.foreign == ("1 pod of Job copy",)
