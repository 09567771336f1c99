"""The checks of `doctor`: each says what it found, and what to do if that is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast import names
from holdfast.cli.cluster.rbac import NODES, Right, granted
from holdfast.cli.common import kubectl
from holdfast.errors import HoldfastError, NotReachable

if TYPE_CHECKING:
    from temporalio.client import Client

    from holdfast.activities.kube.client import Kube
    from holdfast.client import Holdfast, Run


_POD_SECURITY = "pod-security.kubernetes.io/enforce"


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    good: bool
    found: str
    remedy: str = ""
    unreachable: bool = False
    """Whether a whole server could not be reached, so that nothing behind it was checked."""
    unknown: bool = False
    """Whether the check could not be made: nothing is known to be right or to be wrong (row D51)."""
    warns: bool = False
    """Whether it works, but somebody should still look at it."""


def not_known(name: str, why: str, remedy: str = "") -> Check:
    """Return a check that could not be made."""
    return Check(name, False, f"not known: {why}", remedy, unknown=True)


def binding(cluster: str, bound: str, here: str) -> Check:
    """Compare the cluster that a name stands for with the cluster that the kubeconfig leads to (row D51).

    Args:
        cluster: The name.
        bound: The uid of the cluster that the name's watch was begun on; empty if unknown.
        here: The uid of the cluster that the kubeconfig leads to; empty if unknown.
    """
    if not here:
        return not_known("cluster", "nothing says which cluster the kubeconfig leads to")
    if not bound:
        from holdfast.worker.runtime.pollers import how_to_serve

        why = f"no watch of {cluster} is known to Temporal, so that the name stands for no cluster yet"
        return not_known("cluster", why, how_to_serve("watch", cluster))
    if bound != here:
        return Check(
            "cluster",
            False,
            f"{cluster} stands for the cluster of uid {bound}, and the kubeconfig leads to that of uid {here}",
            "use the kubeconfig of that cluster (--kubeconfig, --context), or the name of this one (--cluster)",
        )
    return Check("cluster", True, f"{cluster} stands for the cluster that the kubeconfig leads to")


async def bound_uid(session: Holdfast | Run, cluster: str) -> str:
    """Return the uid of the cluster that a name stands for, from its watch; empty if there is no watch."""
    from temporalio.service import RPCError

    from holdfast.workflows.entities.cluster_watch import MEMO_CLUSTER_UID

    try:
        description = await session.client.get_workflow_handle(names.watch_workflow_id(cluster)).describe()
    except RPCError:
        return ""
    return str((await description.memo()).get(MEMO_CLUSTER_UID, ""))


@dataclass
class Uids:
    """The uid of the cluster according to each of the two servers."""

    bound: str = ""
    """According to Temporal."""
    here: str = ""
    """According to Kubernetes."""


async def temporal(
    address: str | None, namespace: str | None, cluster: str | None, *, fix: bool = False, uids: Uids | None = None
) -> AsyncIterator[Check]:
    """Check Temporal: does it answer, does it have the search attributes, do workers poll its task queues?"""
    from temporalio.service import RPCError

    from holdfast.client import Holdfast

    uids = uids or Uids()
    try:
        async with Holdfast.connect(address, namespace, cluster) as session:
            version = await _server_version(session.client)
            yield Check("temporal", True, f"{session.place}, server {version}")
            uids.bound = await bound_uid(session, cluster) if cluster else ""
            try:
                yield await _search_attributes(session.client, fix=fix)
                for check in await _pollers(session.client, cluster):
                    yield check
                for check in await _entities(session.client, cluster) if cluster else ():
                    yield check
                for check in await _provisioner(session, cluster) if cluster else ():
                    yield check
            except RPCError as error:
                yield Check("temporal", False, error.message, "check this identity's rights in the Temporal namespace")
    except NotReachable as error:
        yield Check("temporal", False, error.detail or str(error), f"{error.address}: {error.remedy}", unreachable=True)
    except HoldfastError as error:
        yield Check("temporal", False, str(error), "correct what it names, then ask again")


async def kubernetes(kubeconfig: str | None, context: str | None, uids: Uids | None = None) -> AsyncIterator[Check]:
    """Check Kubernetes: does it answer, serve the types and grant the worker its rights; are namespaces enabled?"""
    from holdfast.cli.cluster.front_door import front_door
    from holdfast.cli.cluster.trust import rights_beyond
    from holdfast.cli.common.kubernetes import reached, server_of

    try:
        async with reached(kubeconfig, context) as kube:
            identity = await kube.get("v1", "Namespace", "kube-system")
            where, uid = server_of(kubeconfig, context or kubectl.context()), str(identity["metadata"]["uid"])
            if uids is not None:
                uids.here = uid
            yield Check("kubernetes", True, f"{where}, cluster uid {uid}")
            served = True
            for kind in (names.ANCHOR_KIND, names.ATTEMPT_KIND):
                check = await _type(kube, kind)
                served = served and check.good
                yield check
            if served:
                async for check in _rights(kube):
                    yield check
                async for check in rights_beyond(kube):
                    yield check
            async for check in front_door(kube):
                yield check
            async for check in _namespaces(kube):
                yield check
    except NotReachable as error:
        yield Check(
            "kubernetes", False, error.detail or str(error), f"{error.address}: {error.remedy}", unreachable=True
        )
    except HoldfastError as error:
        yield Check("kubernetes", False, str(error), "use a context with the right to read namespaces and pods")


async def evidence(cluster: str | None) -> AsyncIterator[Check]:
    """Check the store of evidence, if this machine has a worker's settings for one (row P3)."""
    from temporalio.converter import DataConverter

    from holdfast.activities.data.storage import Away, BadData
    from holdfast.worker.evidence import evidence_store
    from holdfast.worker.runtime.settings import SettingsError, load

    name = "evidence store"
    try:
        kept_in = evidence_store(load({"cluster": cluster or "unsaid"}), DataConverter.default)
    except SettingsError as error:
        if "evidence_" in str(error):
            yield Check(name, False, str(error), "correct that setting of the worker")
        return
    if kept_in is None:
        return
    try:
        await kept_in.objects.find(kept_in.source, "doctor", 1)
    except (Away, BadData) as error:
        yield Check(name, False, str(error), "correct evidence_store, data_endpoint and data_credentials_file")
        return
    yield Check(name, True, f"{kept_in.source} can be read")


async def store(cluster: str | None) -> AsyncIterator[Check]:
    """Check the store of data sets, if this machine has a worker's settings for one (row L14)."""
    from holdfast.model.words import counted
    from holdfast.worker.data import NoClient, opened
    from holdfast.worker.runtime.settings import SettingsError, load

    try:
        data = opened(load({"cluster": cluster or "unsaid"}))
    except (SettingsError, NoClient) as error:
        if "data_" in str(error):
            yield Check("store", False, str(error), "correct that setting of the worker")
        return
    if data is None:
        return
    why = await data.away()
    remedy = "start it, or correct data_endpoint and data_credentials_file; what waits for it goes on by itself"
    yield Check("store", not why, why or f"{data.storage.name} answers", remedy if why else "")
    unusable = data.cache.unusable()
    remedy = "mount the shared file system there, or let this account write to it"
    yield Check("data directory", not unusable, unusable or "can be written", remedy if unusable else "")
    if old := data.cache.outdated():
        found = f"{counted(old, 'data set is', 'data sets are')} laid out as by earlier releases, and not used any more"
        remedy = "once no pod of an attempt from before the upgrade runs: rm -r their folders, of 64 hexadecimal digits"
        yield Check("data sets", False, found, remedy)


async def _server_version(client: Client) -> str:
    from temporalio.api.workflowservice.v1 import GetSystemInfoRequest

    return (await client.workflow_service.get_system_info(GetSystemInfoRequest())).server_version


async def _search_attributes(client: Client, *, fix: bool) -> Check:
    from holdfast.client.connection import add_search_attributes, search_attributes

    missing, wrong = await search_attributes(client)
    if wrong:
        told = (f"{name} is {kind}, expected {names.SEARCH_ATTRIBUTES[name]}" for name, kind in wrong.items())
        return Check(
            "search attributes",
            False,
            "; ".join(told),
            "a type cannot be changed: remove each (`temporal operator search-attribute remove --namespace "
            f"{client.namespace} --name NAME`), then `holdfast doctor --fix`",
        )
    if missing and fix:
        await add_search_attributes(client, missing)
        return Check("search attributes", True, f"{len(missing)} added")
    if missing:
        return missing_attributes(client.namespace, missing)
    return Check("search attributes", True, f"all {len(names.SEARCH_ATTRIBUTES)} there")


def missing_attributes(namespace: str, missing: Mapping[str, str]) -> Check:
    """Return the check that failed because a Temporal namespace lacks search attributes, which have a type each."""
    command = " ".join(f"--name {name} --type {kind}" for name, kind in missing.items())
    return Check(
        "search attributes",
        False,
        f"missing: {', '.join(missing)}",
        f"`holdfast doctor --fix` adds them; your Temporal user needs the right to change namespace {namespace}\n"
        f"or: `temporal operator search-attribute create --namespace {namespace} {command}`",
    )


_UNSERVED: Final = {
    "workflows": "no workload is begun, no failure is acted on, and no suspend, cancel or retry is carried out",
    "cluster": "nothing is created in this cluster, and no status is written to it",
    "wait": "nothing is removed from this cluster or looked at before a decision, and no data is staged",
    "probe": "nothing in this cluster is probed",
    "watch": "what happens in this cluster is not noticed: pods that fail or finish, nodes that are lost",
    "admission": "no workload of it is admitted, and its quota is not released",
}
"""What does not happen while no worker serves a role."""


async def _pollers(client: Client, cluster: str | None) -> list[Check]:
    from holdfast.worker.runtime.pollers import ACTIVITY, WORKFLOW

    queues = [("workflows", "workflows", names.QUEUE_WORKFLOWS, WORKFLOW)]
    if cluster:
        queues += [
            ("cluster", "cluster", names.queue_cluster(cluster), ACTIVITY),
            ("wait", "wait", names.queue_wait(cluster), ACTIVITY),
            ("wait", "probe", names.queue_probe(cluster), ACTIVITY),
            ("watch", "watch", names.queue_watch(cluster), ACTIVITY),
        ]
    checks = [
        await _served(client, f"worker: {role}", role, _UNSERVED[what], (queue, kind), cluster)
        for role, what, queue, kind in queues
    ]
    if not cluster:
        remedy = "set HOLDFAST_CLUSTER, or give --cluster"
        checks.append(Check("worker: cluster", False, "no cluster is given", remedy))
        return checks
    return checks + await _admission(client, cluster)


async def _admission(client: Client, cluster: str) -> list[Check]:
    """Check for each existing admission queue whether a worker serves it."""
    from holdfast.client.connection import Place
    from holdfast.client.entities.queue import of_cluster
    from holdfast.worker.runtime.pollers import WORKFLOW

    place = Place(target=client.service_client.config.target_host, namespace=client.namespace)
    checks: list[Check] = []
    for one in await of_cluster(client, place, cluster):
        queue = names.queue_admission(cluster, one.name)
        name = f"admission queue {one.name}"
        checks.append(await _served(client, name, "admission", _UNSERVED["admission"], (queue, WORKFLOW), cluster))
    return checks


async def _entities(client: Client, cluster: str) -> list[Check]:
    """Check the workflows that workloads depend on: one line each, but graphs and gangs only if unhealthy."""
    from holdfast.client.entities.health import of_cluster
    from holdfast.policy.entities.health import may_be_unwanted

    checks: list[Check] = []
    for one in await of_cluster(client, cluster):
        name = one.entity.name_of(one.workflow_id)
        if not one.verdict.healthy:
            found, warns = one.sentence.removeprefix(f"{name}: "), may_be_unwanted(one.entity, one.execution)
            remedy = f"if it is wanted, {one.verdict.remedy}" if warns else one.verdict.remedy
            checks.append(Check(name, warns, found, remedy, warns=warns))
        elif one.entity.type not in {names.GRAPH_WORKFLOW, names.RENDEZVOUS_WORKFLOW}:
            checks.append(Check(name, True, f"its workflow is {one.execution.value.lower()}"))
    return checks


async def _served(
    client: Client, name: str, role: str, unserved: str, queue: tuple[str, Any], cluster: str | None
) -> Check:
    """Check whether a worker polls a task queue; Temporal still lists a killed worker for five minutes."""
    from holdfast.worker.runtime.pollers import how_to_serve, polled

    found = await polled(client, *queue)
    told = found.sentence(datetime.now(UTC))
    if found.served:
        return Check(name, True, told)
    return Check(name, False, f"{told}: {unserved}", how_to_serve(role, cluster or ""))


async def _provisioner(session: Holdfast, cluster: str) -> list[Check]:
    """Check the provisioning service through a worker, which alone must reach it, and whether nodes wait for it."""
    from holdfast.client.entities.provisioner import NoProvisioner
    from holdfast.model.words import counted
    from holdfast.policy.nodes.provisioner_status import unfenced
    from holdfast.worker.runtime.pollers import how_to_serve

    provisioner = session.provisioner(cluster)
    try:
        told = await provisioner.status()
        found = await provisioner.check()
    except NoProvisioner:
        return []
    except NotReachable:
        raise
    except HoldfastError as error:
        return [Check("provisioner", False, str(error), how_to_serve("workflows,wait", cluster))]
    checks = [Check("provisioner", found.good and not told.away, f"{found.found}; {told.message}", found.remedy)]
    if told.away and found.good:
        away = "; ".join(f"{service}: {one.why}" for service, one in sorted(told.away.items()))
        remedy = "look whether these answer: what is asked of them goes on by itself"
        checks[0] = Check("provisioner", False, f"{found.found}; {away}", remedy)
    book = await session.node_book(cluster)
    fencing = unfenced(book, told) if book is not None else {}
    if fencing:
        which = ", ".join(f"{node} ({why})" for node, why in list(fencing.items())[:3])
        remedy = "bring the service back, or cut the power by hand: holdfast node fenced NODE --reason WHY"
        silent = counted(len(fencing), "silent node is", "silent nodes are")
        found_text = f"{silent} not off yet, and workloads wait for that: {which}"
        checks.append(Check("fencing", False, found_text, remedy))
    return checks


async def _type(kube: Kube, kind: str) -> Check:
    from holdfast.activities.kube.errors import UnknownKind

    try:
        await kube.resource(names.API_VERSION, kind)
    except UnknownKind:
        return Check(f"type {kind}", False, f"{names.API_VERSION} is not served", "kubectl apply -k deploy/")
    return Check(f"type {kind}", True, f"{names.API_VERSION} is served")


WORKER: Final = "the worker's account"


async def _rights(kube: Kube) -> AsyncIterator[Check]:
    """Check the rights of the worker's account against deploy/. Report those on nodes apart: it can do without them."""
    needed = granted()
    who, lacking = await lacking_of_worker(kube, needed)
    if not who:
        yield not_known("rights", "this identity may not ask about rights", "use a context that may")
        return
    if who != WORKER:
        # The caller's own rights say nothing about the worker's: an administrator has all rights.
        may = f"it may not {', '.join(map(str, lacking))}" if lacking else "it may do all of that itself"
        remedy = "use a context that may impersonate service accounts, or one of that account itself"
        yield not_known("rights", f"this identity may not ask what {WORKER} may do; {may}", remedy)
        return
    for name, told, loss in (
        ("rights", [right for right in lacking if right.resource not in NODES], ""),
        ("nodes", [right for right in lacking if right.resource in NODES], ": silent or marked nodes are not noticed"),
    ):
        if told:
            found = f"{who} may not {', '.join(map(str, told))}{loss}"
            yield Check(name, False, found, "kubectl apply -k deploy/")
        else:
            yield Check(name, True, f"{who} may do what a worker must")


async def lacking_of_worker(kube: Kube, needed: Sequence[Right]) -> tuple[str, list[Right]]:
    """Return the checked identity and the rights it lacks: the worker, or the caller if it may not impersonate that."""
    from holdfast.activities.kube.client import service_account_user
    from holdfast.activities.kube.errors import Forbidden

    worker = service_account_user(names.WORKER_NAMESPACE, names.WORKER_SERVICE_ACCOUNT)
    for user, who in ((worker, WORKER), ("", "this identity")):
        try:
            return who, await lacking(kube, needed, user)
        except Forbidden:
            continue
    return "", []


async def lacking(kube: Kube, needed: Sequence[Right], user: str = "") -> list[Right]:
    """Return which of these rights a user lacks; without a user, which the caller lacks.

    Raises:
        Forbidden: if the caller may not impersonate the user.
    """
    from holdfast.activities.kube.resources import Resource

    found: list[Right] = []
    for right in needed:
        resource = Resource(right.group, "", "", right.resource, bool(right.namespace), frozenset())
        if not (await kube.allowed(right.verb, resource, right.namespace, impersonate=user))[0]:
            found.append(right)
    return found


async def _namespaces(kube: Kube) -> AsyncIterator[Check]:
    from holdfast.activities.kube.errors import Forbidden
    from holdfast.activities.site.closed import opted_in
    from holdfast.worker.cleanup.impersonation import constrained

    try:
        listed = await kube.list("v1", "Namespace", labels=f"{names.LABEL_NAMESPACE_ENABLED}=true")
    except Forbidden:
        yield not_known("namespaces", "this identity may not list them", "use a context that may")
        return
    staying = [each["metadata"] for each in listed["items"] if "deletionTimestamp" not in each["metadata"]]
    if not staying:
        yield Check("namespaces", False, "none is enabled", "holdfast namespace enable NAMESPACE")
    bounds = bool(await constrained(kube))
    for metadata in staying:
        accounts: dict[str, Any] = await kube.list("v1", "ServiceAccount", metadata["name"])
        allowed = [str(each["metadata"]["name"]) for each in accounts["items"] if opted_in(each["metadata"])]
        yield namespace(metadata, allowed)
        for name in allowed:
            if (check := await _account(kube, metadata["name"], name)) is not None:
                yield check
            if bounds and (check := await _acting(kube, metadata["name"], name)) is not None:
                yield check


async def _acting(kube: Kube, namespace: str, name: str) -> Check | None:
    """Warn if the worker may do all that an account may do, on a cluster that can bound that (row X5)."""
    from holdfast.activities.kube.client import service_account_user
    from holdfast.worker.cleanup.impersonation import may

    worker = service_account_user(names.WORKER_NAMESPACE, names.WORKER_SERVICE_ACCOUNT)
    anything = {"verb": "impersonate", "resource": "serviceaccounts", "namespace": namespace, "name": name}
    if not await may(kube, worker, anything):  # Who knows that the cluster can bound it may ask.
        return None
    found = "the worker may do all that it may do; this cluster can bound that to the kinds of workloads"
    remedy = f"holdfast namespace enable {namespace} --service-account {name}"
    return Check(f"account {namespace}/{name}", True, found, remedy, warns=True)


async def _account(kube: Kube, namespace: str, name: str) -> Check | None:
    """Warn of an account that can create pods, but cannot force them out or ask them for checkpoints (row X5)."""
    from holdfast.activities.kube.client import service_account_user
    from holdfast.activities.kube.errors import Forbidden

    needed = [Right("", "pods", verb, namespace) for verb in ("delete", "patch")]
    try:
        missing = await lacking(kube, needed, service_account_user(namespace, name))
    except Forbidden:
        return None
    if not missing:
        return None
    found = f"it may not {', '.join(map(str, missing))}: pods cannot be forced out, or be asked for checkpoints"
    remedy = f"grant it, or holdfast namespace enable {namespace} --service-account {name}"
    return Check(f"account {namespace}/{name}", True, found, remedy, warns=True)


def namespace(metadata: dict[str, Any], allowed: Sequence[str]) -> Check:
    """Check whether workloads can run in an enabled namespace, and whether Pod Security restricts their pods.

    Args:
        metadata: the metadata of the namespace.
        allowed: the service accounts that have opted in.
    """
    name = str(metadata["name"])
    if not allowed:
        return Check(f"namespace {name}", False, "no service account is opted in", f"holdfast namespace enable {name}")
    text = f"components run as {', '.join(allowed)}"
    labels: dict[str, str] = metadata.get("labels") or {}
    if labels.get(_POD_SECURITY, "privileged") != "privileged":
        return Check(f"namespace {name}", True, text)
    # Row X12: refusing host paths, host networks and privileged pods is the job of Pod Security.
    loose = "its labels enforce no Pod Security level: pods may be privileged, or use the node's files and network"
    remedy = f"kubectl label namespace {name} {_POD_SECURITY}=baseline (which forbids data sets on nodes' own disks)"
    return Check(f"namespace {name}", True, f"{text}; {loose}", remedy, warns=True)
