"""A worker's settings for data sets: the store, the grants, the cache, and where pods find the cache (row L14)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.activities.data.cache import Cache
from holdfast.activities.data.storage import Away, Storage
from holdfast.activities.site.site import refused
from holdfast.model.spec.mount import Mount, is_under


@dataclass(frozen=True)
class Data:
    """What a worker needs to stage data sets: the store, the cache, the grants, and where pods find the cache."""

    storage: Storage
    cache: Cache
    grants: tuple[tuple[str, str], ...]
    """Pairs of a namespace, or `*` for all, and a source: everything under the source is granted."""
    host_path: str = ""
    """The path of the cache on nodes."""
    claim: str = ""
    """Name of the claim, in each workload's namespace, that holds that namespace's folder of the cache instead."""
    seen: Callable[[bool], None] = lambda _: None
    """Called with whether the store could be used, each time that is known."""
    missed: Callable[[], None] = lambda: None
    """Called for each staging that found the store away."""

    def check(self, namespace: str, mount: Mount) -> None:
        """Refuse a source that is not granted to a namespace.

        Raises:
            ApplicationError: of type `Refused`.
        """
        if why := self.not_granted(namespace, mount.source):
            raise refused(f"mount {mount.name}: {why}")

    def not_granted(self, namespace: str, source: str) -> str:
        """Return why a source is not granted to a namespace; empty if it is."""
        given = [granted for whose, granted in self.grants if whose in {"*", namespace}]
        if any(is_under(source, granted) for granted in given):
            return ""
        return (
            f"source {source} is not granted to namespace {namespace}: "
            f"expected one under {', '.join(given) or 'what its operator grants'} (setting `data_sources`)"
        )

    async def away(self) -> str:
        """Return why the store cannot be used; empty if it can."""
        why = ""
        for source in dict.fromkeys(source for _, source in self.grants):
            try:
                await self.storage.answers(source)
            except Away as error:
                why = str(error)
                break
        self.seen(not why)
        return why
