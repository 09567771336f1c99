"""What is done at a node's machine and on its object, in which order, and what stops it (row L15)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.activities.kube.client import Conflict, Forbidden, Invalid, KubeError, Unreachable, WebhookFailed
from holdfast.activities.nodes import machine as port
from holdfast.activities.nodes.machine import Away, Erasure, Machine, NotNow, Provisioning, Refusal
from holdfast.activities.nodes.provisioner import check, enlist, provision
from holdfast.activities.nodes.redfish import Redfish
from holdfast.activities.site.site import Site
from holdfast.model.calls.provisioner import CheckProvisionerInput, EnlistInput, ProvisionInput
from holdfast.model.entities.provisioner import Checked, NodeAction, NodeRequest, Progress, Result
from tests.policy.lives.life import START

ROW = pytest.mark.row
BMC = "https://bmc"
UUID = "00112233-4455-6677-8899-aabbccddeeff"
QUARANTINE = names.quarantine_taint("us")


@dataclass
class Cluster:
    """One node, its lease and its pods; all that is done is noted in order."""

    node: dict[str, Any] | None = field(
        default_factory=lambda: {
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "1"},
            "spec": {},
            "status": {"nodeInfo": {"systemUUID": UUID}},
        }
    )
    others: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Other nodes."""
    renewed: str = "r0"
    pods: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    conflicts: int = 0
    refused: KubeError | None = None
    """Why the node's object may not be changed."""
    dark: bool = False
    log: list[str] = field(default_factory=list[str])

    async def find(self, api_version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        if self.dark:
            raise Unreachable(0, "", "connection refused")
        if kind == "Lease":
            return {"spec": {"renewTime": self.renewed, "leaseDurationSeconds": 0}}
        return copy.deepcopy(self.node)

    async def list(self, api_version: str, kind: str, **options: Any) -> dict[str, Any]:
        keep: Callable[[Any], Any] = options["keep"]
        if kind == "Node":
            there = [*([self.node] if self.node is not None else []), *self.others]
        else:
            self.log.append("pods")
            there = self.pods
        return {"items": [kept for one in there if (kept := keep(one)) is not None]}

    async def patch(self, api_version: str, kind: str, name: str, **options: Any) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict(409, "", "it has changed")
        if self.refused is not None:
            raise self.refused
        assert self.node is not None
        assert (options["uid"], options["resource_version"]) == (self.node["metadata"]["uid"], "1")
        spec = options["patch"].get("spec")
        if spec is not None:
            self.node["spec"] = {"taints": spec["taints"] or []}
        annotations = options["patch"].get("metadata", {}).get("annotations", {})
        self.node["metadata"].setdefault("annotations", {}).update(annotations)
        self.log.append("+".join(sorted(self.taints)) or "free")

    @property
    def taints(self) -> set[str]:
        return {one["key"] for one in (self.node or {"spec": {}})["spec"].get("taints") or ()}


@dataclass
class Service:
    """A service with one machine that does as it is told, or raises what the test wants."""

    cluster: Cluster
    on: bool = True
    error: Exception | None = None
    root: bool = True
    identity: str = UUID
    allows_unverified: bool = False

    async def uuid(self) -> str:
        return self.identity

    def service_of(self, node: str, said: str) -> str:
        if said:
            raise Refusal(f"{said} may not be asked")
        return BMC

    async def machine(self, node: str, said: str) -> Machine:
        self.service_of(node, said)
        if self.error is not None:
            raise self.error
        return self

    async def answers(self, node: str, service: str) -> bool:
        assert (node, service) == ("n", BMC)
        return self.root

    async def check(self, node: str, said: str) -> Checked:
        return Checked(good=True, found=f"{node} by {said or BMC}")

    async def power(self) -> str:
        return "On" if self.on else "Off"

    async def set_power(self, on: bool) -> None:
        self.cluster.log.append("on" if on else "off")
        self.on = on

    async def boot_from_network_once(self) -> None:
        self.cluster.log.append("pxe")

    async def drives(self) -> tuple[str, ...]:
        return ("d1", "d2")

    async def erasures(self, drive: str) -> tuple[str, ...]:
        return ()

    async def erase(self, drive: str) -> str:
        self.cluster.log.append(f"erase {drive}")
        return ""

    async def erasure(self, order: str) -> Erasure:
        return Erasure.DONE


@dataclass
class _Site:
    kube: Cluster
    installation: str = "us"

    def check_cluster(self, cluster: str, cluster_uid: str) -> None:
        assert (cluster, cluster_uid) == ("c", "k")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def service(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setattr(port, "POLL_SECONDS", 0.0)
    return Service(cluster)


def request(action: NodeAction, **fields: Any) -> NodeRequest:
    base = {"number": 1, "node": "n", "action": action, "at": START, "uid": "u", "service": BMC, "enlisted": True}
    return NodeRequest.model_validate({**base, **fields})


async def tried(service: Service | Redfish | None, cluster: Cluster, one: NodeRequest) -> tuple[Result, str]:
    site = cast("Site", _Site(cluster))
    done = await provision(
        site, cast("Provisioning | None", service), ProvisionInput(cluster="c", cluster_uid="k", request=one)
    )
    return done.result, done.said


async def enlisted(service: Service | None, cluster: Cluster, one: NodeRequest) -> tuple[str, str, str]:
    site = cast("Site", _Site(cluster))
    found = await enlist(
        site, cast("Provisioning | None", service), EnlistInput(cluster="c", cluster_uid="k", request=one)
    )
    return found.uid, found.service, found.refused


@ROW("L15", level="pure")
async def test_L15_a_wipe_puts_the_node_into_quarantine_looks_at_its_pods_erases_and_lets_it_go(
    cluster: Cluster, service: Service
):
    cluster.conflicts = 2
    one = request(NodeAction.WIPE, enlisted=False, service="", uid="")
    assert await enlisted(service, cluster, one) == ("u", BMC, "")
    assert cluster.log == [QUARANTINE]
    cluster.pods = [{"metadata": {"namespace": "t", "name": f"p{n}"}, "status": {"phase": "Running"}} for n in range(5)]
    said = "5 pods are on it: t/p0, t/p1, t/p2 and 2 more"
    assert await tried(service, cluster, request(NodeAction.WIPE)) == (Result.WAITS, said)
    assert cluster.node is not None
    cluster.node["spec"], cluster.pods, cluster.log = {}, [], []
    assert await tried(service, cluster, request(NodeAction.WIPE)) == (Result.DONE, "all 2 drives are erased")
    assert cluster.log == [QUARANTINE, "pods", "erase d1", "erase d2", "free"], "put on again, if somebody took it off"


@ROW("L15", level="pure")
async def test_L15_a_node_that_replaces_one_whose_wipe_is_pending_is_not_wiped_and_stays_in_quarantine(
    cluster: Cluster, service: Service
):
    """Its Node object was deleted while the service was away, and its machine registered again, without the taint."""
    gone = "the node's object is gone, or another one has its name"
    assert cluster.node is not None
    cluster.node["metadata"]["uid"] = "v"
    cluster.refused = Forbidden(403, "Forbidden", "nodes is forbidden")
    assert await tried(service, cluster, request(NodeAction.WIPE)) == (Result.WAITS, "nodes is forbidden")
    cluster.refused = None
    assert await tried(service, cluster, request(NodeAction.POWER_OFF)) == (Result.REFUSED, gone)
    assert cluster.log == []
    kept = f"{gone}; the node that has it is in quarantine until it is released"
    assert await tried(service, cluster, request(NodeAction.WIPE)) == (Result.REFUSED, kept)
    assert cluster.log == [QUARANTINE]
    (taint,) = cluster.node["spec"]["taints"]
    assert taint["value"] == "held", "a provisioner that begins anew does not wipe it"
    released = request(NodeAction.RELEASE, uid="v", why="new disks")
    assert await tried(None, cluster, released) == (Result.DONE, "it takes pods again")
    cluster.node = None
    assert await tried(service, cluster, request(NodeAction.WIPE)) == (Result.REFUSED, gone)
    assert cluster.log == [QUARANTINE, "free"]


@ROW("L15", level="pure")
async def test_L15_a_fence_cuts_the_power_then_says_so_and_nothing_of_a_node_that_is_heard(
    cluster: Cluster, service: Service
):
    fence = request(NodeAction.POWER_OFF, fence=True, renewed="r0")
    cluster.renewed = "r1"
    assert await tried(service, cluster, fence) == (Result.WITHDRAWN, "its lease is renewed again")
    assert cluster.log == []
    cluster.renewed = "r0"
    result, said = await tried(service, cluster, fence)
    assert (result, "by proof of its PowerState (rule fence)" in said) == (Result.DONE, True)
    assert cluster.log == ["off", names.TAINT_OUT_OF_SERVICE]
    assert (await tried(service, cluster, fence))[0] is Result.DONE
    assert cluster.log == ["off", names.TAINT_OUT_OF_SERVICE], "once is enough"
    assert await tried(service, cluster, request(NodeAction.POWER_OFF, fence=True, renewed="r0", uid="v")) == (
        Result.WITHDRAWN,
        "the node's object is gone, or another one has its name",
    )


async def progressed(service: Service, cluster: Cluster, one: NodeRequest) -> tuple[Result, Progress]:
    given = ProvisionInput(cluster="c", cluster_uid="k", request=one)
    done = await provision(cast("Site", _Site(cluster)), cast("Provisioning", service), given)
    return done.result, done.progress


@ROW("L15", level="pure")
@pytest.mark.parametrize("late", [False, True])
async def test_L15_an_order_that_had_no_effect_is_sent_again_only_if_it_is_still_to_be(
    cluster: Cluster, service: Service, monkeypatch: pytest.MonkeyPatch, late: bool
):
    """A service rejects the order, or takes it and does nothing; hours later the node is heard, or holds pods again."""
    monkeypatch.setattr(port, "TURN_SECONDS", -1.0)
    sends = service.set_power

    async def set_power(on: bool) -> None:
        cluster.log.append("asked")
        if not late:
            raise NotNow("409: a reset is under way")

    monkeypatch.setattr(service, "set_power", set_power)
    fence = request(NodeAction.POWER_OFF, fence=True, renewed="r0")
    result, progress = await progressed(service, cluster, fence)
    assert result is Result.WAITS
    assert (progress.sent is not None) is late, "a request that was rejected was not sent"
    if late:
        assert progress.sent is not None
        progress = progress.model_copy(update={"sent": progress.sent - 2 * port.SENT_PATIENCE})
    monkeypatch.setattr(service, "set_power", sends)
    cluster.renewed = "r1"
    again = await progressed(service, cluster, fence.model_copy(update={"progress": progress}))
    assert (again[0], again[1].sent, service.on) == (Result.WITHDRAWN, None, True)
    cluster.pods = [{"metadata": {"namespace": "t", "name": "p"}, "status": {"phase": "Running"}}]
    plain = request(NodeAction.POWER_OFF, progress=progress)
    again = await progressed(service, cluster, plain)
    assert (again[0], again[1].sent, service.on) == (Result.WAITS, None, True)
    cluster.pods = []
    assert (await progressed(service, cluster, plain))[0] is not Result.WITHDRAWN
    assert not service.on


@ROW("L15", level="pure")
async def test_L15_a_persons_word_is_taken_unless_the_lease_is_renewed(
    cluster: Cluster, service: Service, monkeypatch: pytest.MonkeyPatch
):
    by_hand = request(NodeAction.FENCED, why="unplugged")
    seen = iter(["r0", "r1", "r1", "r1"])
    find = cluster.find

    async def renewing(api_version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        if kind == "Lease":
            cluster.renewed = next(seen)
        return await find(api_version, kind, name, namespace)

    monkeypatch.setattr(cluster, "find", renewing)
    assert await tried(None, cluster, by_hand) == (Result.REFUSED, "its lease is being renewed, so that it is on")
    result, said = await tried(None, cluster, by_hand)
    assert (result, said.endswith(": unplugged")) == (Result.DONE, True)
    assert cluster.log == [names.TAINT_OUT_OF_SERVICE]


@ROW("L15", level="pure")
@pytest.mark.parametrize(
    ("error", "root", "result"),
    [
        (Away("connection refused"), True, Result.AWAY),
        (Away("it broke (500)", broken=True), True, Result.WAITS),
        (Away("it broke (500)", broken=True), False, Result.AWAY),
        (NotNow("busy (409)"), True, Result.WAITS),
        (Refusal("no such machine (404)"), True, Result.REFUSED),
    ],
)
async def test_L15_what_the_service_says_decides_who_waits(
    cluster: Cluster, service: Service, error: Exception, root: bool, result: Result
):
    service.error, service.root = error, root
    assert await tried(service, cluster, request(NodeAction.BOOT)) == (result, str(error))


@ROW("L15", level="pure")
@pytest.mark.parametrize(
    "error",
    [
        Forbidden(403, "Forbidden", "nodes is forbidden"),
        Invalid(422, "Invalid", "a policy denied the request"),
        WebhookFailed(500, "InternalError", 'failed calling webhook "taints"'),
    ],
)
async def test_L15_what_admission_refuses_waits_and_a_quarantine_that_it_refuses_is_said(
    cluster: Cluster, service: Service, error: KubeError
):
    cluster.refused = error
    assert await tried(service, cluster, request(NodeAction.WIPE)) == (Result.WAITS, error.message)
    assert cluster.log == [], "without the quarantine nothing is erased"
    one = request(NodeAction.WIPE, enlisted=False, service="", uid="")
    if isinstance(error, WebhookFailed):
        with pytest.raises(WebhookFailed):  # It may pass: the activity is tried again.
            await enlisted(service, cluster, one)
    else:
        said = f"it cannot be put into quarantine: {error.message}"
        assert await enlisted(service, cluster, one) == ("u", "", said)


@ROW("L15", level="pure")
async def test_L15_power_is_not_cut_under_living_work_unless_that_is_wanted(cluster: Cluster, service: Service):
    cluster.pods = [{"metadata": {"namespace": "t", "name": "p"}, "status": {"phase": "Running"}}]
    assert await tried(service, cluster, request(NodeAction.POWER_OFF)) == (Result.WAITS, "1 pod is on it: t/p")
    assert await tried(service, cluster, request(NodeAction.POWER_OFF, force=True)) == (Result.DONE, "its power is Off")
    boot = request(NodeAction.BOOT, pxe=True, uid="of one before")
    assert await tried(service, cluster, boot) == (Result.DONE, "its power is On")
    assert cluster.log == ["pods", "off", "pxe", "on"]


@ROW("L15", level="pure")
async def test_L15_whom_to_ask_is_found_or_refused_with_the_reason(cluster: Cluster, service: Service):
    boot = request(NodeAction.BOOT, enlisted=False, service="", uid="")
    assert await enlisted(service, cluster, boot) == ("u", BMC, "")
    assert cluster.node is not None
    cluster.node["metadata"]["annotations"] = {names.ANNOTATION_REDFISH: "https://elsewhere/redfish/v1/Systems/1"}
    refused = "https://elsewhere/redfish/v1/Systems/1 may not be asked"
    assert await enlisted(service, cluster, boot) == ("u", "", refused)
    cluster.node = None
    assert await enlisted(service, cluster, boot) == ("", BMC, ""), "a machine may be booted before it joins"
    for action in (NodeAction.WIPE, NodeAction.RELEASE, NodeAction.FENCED):
        one = request(action, enlisted=False, service="", uid="", why="because")
        assert (await enlisted(service, cluster, one))[2] == "there is no node n"
    fence = request(NodeAction.POWER_OFF, fence=True, enlisted=False, service="")
    assert "another one has its name" in (await enlisted(service, cluster, fence))[2]


async def test_an_api_server_that_is_away_is_waited_for_and_a_worker_without_a_service_passes_it_on(
    cluster: Cluster, service: Service
):
    cluster.dark = True
    result, said = await tried(service, cluster, request(NodeAction.RELEASE))
    assert (result, said) == (Result.WAITS, "the API server does not answer: connection refused")
    for call in (tried, enlisted):
        cluster.dark = False
        with pytest.raises(ApplicationError, match="has no provisioner: see the setting provisioner_url") as raised:
            await call(None, cluster, request(NodeAction.BOOT))
        assert (raised.value.type, raised.value.non_retryable) == ("NoProvisioner", False)
    found = await check(cast("Site", _Site(cluster)), None, CheckProvisionerInput(cluster="c", cluster_uid="k"))
    assert not found.good
    given = CheckProvisionerInput(cluster="c", cluster_uid="k", node="n")
    found = await check(cast("Site", _Site(cluster)), cast("Provisioning", service), given)
    assert found.found == f"n by {BMC}"


def named(name: str, uuid: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"nodeInfo": {"systemUUID": uuid}}}


ANOTHER = "f2c1f2a4-3d5e-4c55-9d29-0c4b0d1e7a33"
DONE = [
    request(NodeAction.POWER_OFF, fence=True, renewed="r0"),
    request(NodeAction.POWER_OFF),
    request(NodeAction.WIPE),
    request(NodeAction.BOOT, pxe=True),
]


@ROW("D9", level="pure")
@pytest.mark.parametrize("one", DONE, ids=["fence", "power-off", "wipe", "boot"])
async def test_D9_a_swapped_cable_cuts_no_power_and_erases_nothing(
    cluster: Cluster, service: Service, one: NodeRequest
):
    service.on, service.identity = one.action is not NodeAction.BOOT, ANOTHER
    cluster.others = [named("healthy", ANOTHER)]
    result, said = await tried(service, cluster, one)
    assert result is Result.REFUSED
    assert said.startswith(f"its URL leads to the machine of node healthy (UUID {ANOTHER})")
    assert not {"on", "off", "pxe", "erase d1", names.TAINT_OUT_OF_SERVICE} & set(cluster.log)
    cluster.others = []
    assert (await tried(service, cluster, one))[1].startswith(f"its URL leads to another machine: UUID {ANOTHER}")
    service.allows_unverified = True
    assert (await tried(service, cluster, one))[0] is Result.REFUSED, "what differs is never allowed"
    service.identity = "33221100-5544-7766-8899-AABBCCDDEEFF"
    assert (await tried(service, cluster, one))[0] is Result.DONE, "the same in the other order of bytes"


@ROW("D9", level="pure")
@pytest.mark.parametrize("machine", ["", UUID], ids=["machine-none", "node-none"])
async def test_D9_a_machine_that_cannot_be_compared_is_acted_on_only_where_that_is_allowed(
    cluster: Cluster, service: Service, machine: str
):
    fence = request(NodeAction.POWER_OFF, fence=True, renewed="r0")
    service.identity = machine
    assert cluster.node is not None
    if machine:
        cluster.node["status"]["nodeInfo"]["systemUUID"] = "00000000-0000-0000-0000-000000000000"
    result, said = await tried(service, cluster, fence)
    assert (result, "provisioner_allow_unverified_machine" in said, cluster.log) == (Result.REFUSED, True, [])
    service.allows_unverified = True
    assert (await tried(service, cluster, fence))[0] is Result.DONE


@ROW("D9", level="pure")
async def test_D9_a_machine_is_booted_before_it_joins_unless_it_is_that_of_a_node(cluster: Cluster, service: Service):
    cluster.node, service.on = None, False
    boot = request(NodeAction.BOOT, pxe=True, uid="")
    cluster.others = [named("healthy", UUID)]
    assert (await tried(service, cluster, boot))[0] is Result.REFUSED
    cluster.others = []
    assert (await tried(service, cluster, boot))[0] is Result.DONE


@ROW("D9", level="pure")
async def test_D9_a_look_at_a_nodes_machine_says_that_it_is_another(cluster: Cluster, service: Service):
    site, given = cast("Site", _Site(cluster)), CheckProvisionerInput(cluster="c", cluster_uid="k", node="n")
    assert (await check(site, cast("Provisioning", service), given)).good
    service.identity = ANOTHER
    found = await check(site, cast("Provisioning", service), given)
    assert (found.good, "its URL leads to another machine" in found.found) == (False, True)
