"""Faults planted in a worker: `python -m tests.e2e.lives.faults FAULT worker ...` patches one thing, then runs it.

Production code knows nothing of it. Each is a fault of what touches the cluster; those of decisions are planted in
`tests/policy/laws/faults.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from holdfast.activities.kube.client import Kube
from holdfast.activities.operations import remove
from holdfast.activities.operations.remains import Remains, find_owner
from holdfast.activities.site.site import Site
from holdfast.model.calls.cluster import RemoveInput


def background() -> None:
    """Owners of attempts go at once, and what they own after them, whenever the collector comes by."""
    delete = Kube.delete

    async def wrong(self: Kube, *place: str, **options: Any) -> Any:
        return await delete(self, *place, **{**options, "propagation": "Background"})

    Kube.delete = wrong  # pyright: ignore[reportAttributeAccessIssue]


def by_name() -> None:
    """Deletions say the name of what they mean, and not its uid."""
    mutate = Kube.mutate

    async def wrong(self: Kube, method: str, path: str, **given: Any) -> Any:
        if method == "DELETE":
            given["body"] = {key: value for key, value in given["body"].items() if key != "preconditions"}
        return await mutate(self, method, path, **given)

    Kube.mutate = wrong  # pyright: ignore[reportAttributeAccessIssue]


def collectors_word() -> None:
    """An owner that is gone is taken for a proof that all it owned is."""

    async def wrong(site: Site, given: RemoveInput) -> Remains:
        return Remains(owner=await find_owner(site, given), components=(), between=(), pods=())

    remove.find_remains = wrong


def none() -> None:
    """Nothing is wrong: what a fault is compared with."""


FAULTS: dict[str, Callable[[], None]] = {
    "background": background,
    "by-name": by_name,
    "collectors-word": collectors_word,
    "none": none,
}


def main() -> None:
    """Plant a fault, and go on as the command line."""
    from holdfast.cli import main as holdfast

    FAULTS[sys.argv.pop(1)]()
    holdfast()


if __name__ == "__main__":
    main()
