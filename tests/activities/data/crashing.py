"""Stages data sets in a process of its own that dies at the n-th touch of the file system: for `test_data_crash`."""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count
from pathlib import Path
from typing import Any

from holdfast.activities.data import record
from holdfast.activities.data.cache import Cache
from tests.activities.data.stored import Memory, knows, staged

TOUCHES = {
    "open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.utime", "os.truncate", "fcntl.flock",
}  # fmt: skip
"""Audit events before which it may die: all that change files here, and some that do not."""
DIED, DONE = 9, 0


def objects() -> Memory:
    return Memory(old={"f": b"o" * 60}, new={"a": b"n" * 30, "deep/b": b"m" * 30})


def run(root: Path, at: int) -> None:
    """Evict one data set for another, and die before the `at`-th touch; return if there are not that many."""
    touched = count(1)
    seen = str(root)

    def is_here(event: str, args: tuple[Any, ...]) -> bool:
        """Whether it touches a file in the cache: by its path, or by its name in an open folder."""
        if event == "open" and args[2] & os.O_DIRECTORY:
            return False
        return isinstance(args[0], str | Path) and (seen in str(args[0]) or not os.path.isabs(args[0]))

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in TOUCHES and (event == "fcntl.flock" or is_here(event, args)) and next(touched) == at:
            os._exit(DIED)

    record.SETTLED = 0.0
    sys.addaudithook(hook)
    cache = Cache(root, lambda _: 100)
    done = asyncio.run(staged(cache, objects(), "v", "new", ended=knows({"u"})))
    assert done.sets, done
    os._exit(DONE)
