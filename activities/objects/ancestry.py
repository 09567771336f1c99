"""Decides whether pods with a workload's labels are its own, by their chain of owner references (row D26).

A pod is foreign if its chain ends outside the workload: at an object without an owner that is of a component's kind (a
copied Job) or has no label of ours. An object that cannot be read, or is gone, proves nothing: its pods count as ours.
So do the pods of an object that lost its owner, such as a ReplicaSet of a Deployment that somebody deleted without its
dependents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from holdfast import names
from holdfast.activities.kube.client import Forbidden, NotFound, Object, UnknownKind, Unreachable
from holdfast.activities.kube.each import each
from holdfast.activities.kube.owners import Ref, owners_of
from holdfast.activities.kube.raw import mapping
from holdfast.activities.objects.attempts import attempts_of
from holdfast.activities.site.site import Site, only_its_kind, user_of
from holdfast.model.calls.cluster import PlannedComponent, Target

DEPTH: Final = 8
READ_ALONE: Final = 64
"""More controllers of one kind are listed once, by the workload's label, which a copy bears too."""
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Ancestry:
    """What is known of the controllers of some pods."""

    foreign: frozenset[str]
    """Uids of the controllers whose chain leads to an object that is not the workload's."""
    between: frozenset[tuple[str, str]]
    """API version and kind of the objects between components and pods."""

    def is_foreign(self, controller: Ref | None) -> bool:
        """Whether the pods of a controller are not the workload's."""
        return controller is not None and controller.uid in self.foreign


async def ancestry(
    site: Site, target: Target, plan: Collection[PlannedComponent], controllers: Iterable[Ref | None], ours: Set[str]
) -> Ancestry:
    """Follow the owner chains of some pods up to the workload, or to where else they end.

    Args:
        site: the cluster.
        target: the workload.
        plan: the components.
        controllers: the controllers of the pods.
        ours: uids of the workload's own objects: its attempts' owners, and its components as far as they are known.

    Raises:
        Unreachable: if the API server does not answer.
    """
    kinds = {(one.api_version.rpartition("/")[0], one.kind) for one in plan}
    asked = sorted({one for one in controllers if one is not None and one.uid not in ours})
    unreadable = set[tuple[str, str]]()
    listed = await _listed(site, target, asked)
    chains = await each(asked, lambda one: _climb(site, target, one, kinds, ours, listed, unreadable))
    between = {(one.api_version, one.kind) for path, _ in chains for one in path if one.kind != names.ATTEMPT_KIND}
    foreign = {one.uid for one, (_, leads_elsewhere) in zip(asked, chains, strict=True) if leads_elsewhere}
    return Ancestry(frozenset(foreign), frozenset(between))


async def own_pods(
    site: Site,
    target: Target,
    plan: Collection[PlannedComponent],
    pods: Sequence[P],
    made_by: Callable[[P], Ref | None],
) -> list[P]:
    """Return which of the pods with a workload's labels are its own; only these are waited for or deleted.

    Raises:
        Unreachable: if the API server does not answer.
    """
    controllers = {one for pod in pods if (one := made_by(pod)) is not None}
    if not controllers:
        return list(pods)
    ours = {str(one["metadata"]["uid"]) for one in await attempts_of(site, target)}
    chains = await ancestry(site, target, plan, controllers, ours)
    return [pod for pod in pods if not chains.is_foreign(made_by(pod))]


class _Listed(NamedTuple):
    """What was listed of kinds with very many objects.

    Attributes:
        owners: The owners of each object, by its uid.
        refused: The API versions and kinds that may not be listed.
    """

    owners: dict[str, tuple[Ref, ...]]
    refused: set[tuple[str, str]]


async def _listed(site: Site, target: Target, asked: Iterable[Ref]) -> _Listed:
    """Return the owners of objects of which very many of a kind are asked, by uid: to read each would take too long.

    Raises:
        Unreachable: if the API server does not answer.
    """
    counts = Counter((one.api_version, one.kind) for one in asked if site.links.get(one.uid) is None)
    found = _Listed({}, set())
    for api_version, kind in [one for one, count in counts.items() if count > READ_ALONE]:
        objects = await _list(site, target, api_version, kind)
        if objects is None:
            found.refused.add((api_version, kind))
        for uid, owners in objects or ():
            site.links.put(uid, owners)
            found.owners[uid] = owners
    return found


async def _list(site: Site, target: Target, api_version: str, kind: str) -> list[tuple[str, tuple[Ref, ...]]] | None:
    """Return uid and owners of all objects of a kind with the workload's label; None if they may not be listed."""

    def owned(found: Object) -> tuple[str, tuple[Ref, ...]]:
        return found["metadata"]["uid"], owners_of(found["metadata"])

    labels = f"{names.LABEL_WORKLOAD_UID}={target.workload_uid}"
    for user in (user_of(target), ""):
        try:
            listed = await site.kube.list(
                api_version, kind, target.namespace, labels=labels, keep=owned, impersonate=user
            )
        except (Forbidden, NotFound):
            continue
        except Unreachable as error:
            await only_its_kind(site, target, error)
            return []
        return listed["items"]
    return None


async def _climb(
    site: Site,
    target: Target,
    ref: Ref,
    kinds: Collection[tuple[str, str]],
    ours: Set[str],
    listed: _Listed,
    unreadable: set[tuple[str, str]],
) -> tuple[list[Ref], bool]:
    """Return the objects between a pod and the workload, and whether the chain ends outside the workload.

    `unreadable` collects the API versions and kinds that cannot be read: each is tried for one object only.
    """
    path: list[Ref] = []
    for _ in range(DEPTH):
        if ref.uid in ours:
            return path, False
        owners = site.links.get(ref.uid) or listed.owners.get(ref.uid)
        labelled = True
        if owners is None:
            found = await _read(site, target, ref, unreadable, listed.refused)
            if found is None or found["metadata"].get("uid") != ref.uid:
                return path, False
            owners = owners_of(found["metadata"])
            labelled = mapping(found["metadata"].get("labels")).get(names.LABEL_WORKLOAD_UID) == target.workload_uid
            site.links.put(ref.uid, owners)
        if not owners:
            return [], ref.type in kinds or not labelled
        path.append(ref)
        ref = next((one for one in owners if one.uid in ours), owners[0])
    return path, False


async def _read(
    site: Site, target: Target, ref: Ref, unreadable: set[tuple[str, str]], unlisted: Container[tuple[str, str]]
) -> Object | None:
    """Return an object; None if it is gone or cannot be read, for want of rights or since its kind's server is down.

    Of very many that may not be listed, one that may not be read stands for all.

    Raises:
        Unreachable: if the API server does not answer other reads either, or serves this kind itself.
    """
    for again in (False, True):
        if (ref.api_version, ref.kind) in unreadable:
            return None
        try:
            return await site.read_component(target, ref.api_version, ref.kind, ref.name)
        except (Forbidden, UnknownKind):
            if (ref.api_version, ref.kind) in unlisted:
                break
            return None
        except Unreachable as error:
            if again and "." not in ref.api_version.partition("/")[0]:
                raise  # The API server itself serves this kind: nothing is known of the pod, then.
            await only_its_kind(site, target, error)
    unreadable.add((ref.api_version, ref.kind))
    return None
