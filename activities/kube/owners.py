"""Who owns an object, as its owner references say; pure, but for what is remembered of it (rows D26, D27)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from holdfast.activities.kube.raw import mapping, mappings
from holdfast.model.calls.plan import PlannedComponent

KEPT: Final = 10_000
FOREIGN_TOLD: Final = 4


class Ref(NamedTuple):
    """An object, as an owner reference names it."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def type(self) -> tuple[str, str]:
        """API group (empty for the core group) and kind: two versions of a kind are one."""
        return (self.api_version.rpartition("/")[0], self.kind)


class Links:
    """The owners of objects that were read: of an object that has owners they do not change."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: OrderedDict[str, tuple[Ref, ...]] = OrderedDict()

    def get(self, uid: str) -> tuple[Ref, ...] | None:
        """Return the owners of an object, None where they are not known."""
        return self._known.get(uid)

    def put(self, uid: str, owners: tuple[Ref, ...]) -> None:
        """Remember them; one without owners may be adopted yet."""
        if owners:
            self._known[uid] = owners
            if len(self._known) > KEPT:
                self._known.popitem(last=False)


class Between:
    """Which kinds stand between components of a kind and their pods, learned from pods (row D27)."""

    def __init__(self) -> None:
        """Begin with none."""
        self._kinds: dict[tuple[str, str], set[tuple[str, str]]] = {}

    def learn(self, plan: Iterable[PlannedComponent], kinds: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """Remember kinds that pods of a plan have named, and return all that are known of its components' kinds."""
        known = set(kinds)
        for one in plan:
            of_kind = self._kinds.setdefault((one.api_version, one.kind), set())
            of_kind.update(kinds)
            known.update(of_kind)
        return frozenset(known)


def owners_of(metadata: Mapping[str, Any]) -> tuple[Ref, ...]:
    """Return an object's owners, its controller first."""
    references = sorted(mappings(metadata.get("ownerReferences")), key=lambda one: one.get("controller") is not True)
    return tuple(
        _ref(*(str(one.get(field) or "") for field in ("apiVersion", "kind", "name", "uid"))) for one in references
    )


def controller_of(raw: Mapping[str, Any]) -> Ref | None:
    """Return what made an object, None where nothing owns it."""
    return next(iter(owners_of(mapping(raw.get("metadata")))), None)


@lru_cache(maxsize=4096)
def _ref(api_version: str, kind: str, name: str, uid: str) -> Ref:
    """Return a reference; what thousands of pods have in common is kept once."""
    return Ref(api_version, kind, name, uid)


def named(controllers: Iterable[Ref | None]) -> tuple[str, ...]:
    """Name the controllers of foreign pods, with how many pods each has; at most a few of them."""
    counts: dict[str, int] = {}
    for one in controllers:
        if one is not None:
            title = f"{one.kind} {one.name}"
            counts[title] = counts.get(title, 0) + 1
    found = [f"{count} pod{'' if count == 1 else 's'} of {title}" for title, count in sorted(counts.items())]
    more = len(found) - FOREIGN_TOLD
    return (*found[:FOREIGN_TOLD], *((f"those of {more} more",) if more > 0 else ()))


def of_another(controller: Ref | None, kinds: Collection[tuple[str, str]], ours: Collection[str]) -> bool:
    """Whether a pod's controller is of a component's kind and is none of the components: a copy of one (row D26)."""
    return controller is not None and controller.type in kinds and controller.uid not in ours
