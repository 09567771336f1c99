"""The owners of an object, from its owner references; pure, except for two caches (rows D26, D27)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from holdfast.activities.kube.raw import mapping, mappings
from holdfast.model.calls.plan import PlannedComponent
from holdfast.model.words import counted

KEPT: Final = 10_000
NAMESPACES_KEPT: Final = 1_000
KINDS_KEPT: Final = 16
"""How many kinds are learned of each kind of component: whoever creates pods names their owners as they like."""
FOREIGN_TOLD: Final = 4
_CORE_CREATORS: Final = frozenset({"Pod", "ReplicationController"})
"""Kinds of the core group whose objects create pods, or own what does: leaders of a LeaderWorkerSet are pods."""


class Ref(NamedTuple):
    """An object, as an owner reference names it."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def type(self) -> tuple[str, str]:
        """API group (empty for the core group) and kind: all versions of a kind are equal."""
        return (self.api_version.rpartition("/")[0], self.kind)


class Links:
    """Caches the owners of objects that were read: an object's owners do not change once it has some."""

    def __init__(self) -> None:
        """Start empty."""
        self._known: OrderedDict[str, tuple[Ref, ...]] = OrderedDict()

    def get(self, uid: str) -> tuple[Ref, ...] | None:
        """Return the owners of an object, None where they are not known."""
        return self._known.get(uid)

    def put(self, uid: str, owners: tuple[Ref, ...]) -> None:
        """Cache an object's owners; an object without owners is not cached, as it may still be adopted."""
        if owners:
            self._known[uid] = owners
            if len(self._known) > KEPT:
                self._known.popitem(last=False)


class Between:
    """Caches which kinds lie between components of a kind and their pods, as learned from pods (row D27).

    What the pods of a namespace teach holds there alone. The namespaces used last are kept; for any other, the kinds
    are learned again from its pods.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._known: OrderedDict[str, dict[tuple[str, str], set[tuple[str, str]]]] = OrderedDict()

    def learn(
        self, namespace: str, plan: Iterable[PlannedComponent], kinds: Iterable[tuple[str, str]]
    ) -> frozenset[tuple[str, str]]:
        """Cache kinds that the pods of a plan name, and return all kinds known for the kinds of its components.

        Kinds that cannot create pods, such as claims, are left out.
        """
        named = {one for one in kinds if _may_create_pods(*one)}
        there = self._known.setdefault(namespace, {}) if named else self._known.get(namespace, {})
        known = set(named)
        for component in {(one.api_version, one.kind) for one in plan}:
            of_kind = there.setdefault(component, set()) if named else there.get(component, set())
            of_kind.update(sorted(named - of_kind)[: KINDS_KEPT - len(of_kind)])
            known |= of_kind
        if there:
            self._known.move_to_end(namespace)
        if len(self._known) > NAMESPACES_KEPT:
            self._known.popitem(last=False)
        return frozenset(known)


def _may_create_pods(api_version: str, kind: str) -> bool:
    return "/" in api_version or kind in _CORE_CREATORS


def owners_of(metadata: Mapping[str, Any]) -> tuple[Ref, ...]:
    """Return an object's owners, its controller first."""
    references = sorted(mappings(metadata.get("ownerReferences")), key=lambda one: one.get("controller") is not True)
    return tuple(
        _ref(*(str(one.get(field) or "") for field in ("apiVersion", "kind", "name", "uid"))) for one in references
    )


def controller_of(raw: Mapping[str, Any]) -> Ref | None:
    """Return the controller of an object, else its first owner; None without owners."""
    return next(iter(owners_of(mapping(raw.get("metadata")))), None)


@lru_cache(maxsize=4096)
def _ref(api_version: str, kind: str, name: str, uid: str) -> Ref:
    """Return a reference; one that thousands of pods share is kept once."""
    return Ref(api_version, kind, name, uid)


def named(controllers: Iterable[Ref | None]) -> tuple[str, ...]:
    """Name the controllers of foreign pods, with how many pods each has; at most a few of them."""
    counts: dict[str, int] = {}
    for one in controllers:
        if one is not None:
            title = f"{one.kind} {one.name}"
            counts[title] = counts.get(title, 0) + 1
    found = [f"{counted(count, 'pod')} of {title}" for title, count in sorted(counts.items())]
    more = len(found) - FOREIGN_TOLD
    return (*found[:FOREIGN_TOLD], *((f"those of {more} more",) if more > 0 else ()))


def of_another(controller: Ref | None, kinds: Collection[tuple[str, str]], ours: Collection[str]) -> bool:
    """Whether a pod's controller has a component's kind but is none of the components: it is a copy (row D26)."""
    return controller is not None and controller.type in kinds and controller.uid not in ours
