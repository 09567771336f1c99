"""A lock between processes, held on a file: one build of a program, one `up` of a stack at a time."""

import fcntl
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def file_lock(path: Path, waiting: Callable[[], None] | None = None) -> Generator[None]:
    """Hold the lock on `path` (created if needed); the kernel releases it if this process dies.

    Args:
        path: the lock file.
        waiting: called once if another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if waiting is not None and not told:
                    waiting()
                told = True
                time.sleep(0.2)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
