"""The stack that all end-to-end tests share, whichever folder they are in and whichever process they run in."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from holdfast.local import NotRunningError, Stack
from holdfast.local.system.lock import file_lock
from holdfast.local.system.paths import stacks_dir

NAME: Final = os.environ.get("HOLDFAST_TEST_STACK", "test")
_NEEDED: Final = ("kube-apiserver", "temporal")


def shared_stack() -> Stack:
    """Return the stack, brought up by the first that asks.

    One that is up is taken as it is: to bring it up again would put right what another test has taken away from it at
    that moment, a kubelet that is dead, frozen or parted from its API server among that.
    """
    place = stacks_dir()
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    with file_lock(place / f"{NAME}.tests.lock"):
        try:
            stack = Stack.load(NAME)
        except NotRunningError:
            return Stack.up(NAME)
        return stack if all(stack.pid(part) for part in _NEEDED) else Stack.up(NAME)


@contextlib.contextmanager
def own_stack(prefix: str, directory: Path, **options: Any) -> Iterator[Stack]:
    """Bring up a stack of a test's own; it is gone afterwards, also where it did not come up."""
    name = f"{prefix}-{secrets.token_hex(3)}"
    try:
        yield Stack.up(name, directory, **options)
    finally:
        with contextlib.suppress(NotRunningError):
            Stack.load(name, directory).down(purge=True)
