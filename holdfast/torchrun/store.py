"""The store of a round, hosted by torchrun's agent of group rank 0: the entry of members, and PyTorch's own keys."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any, Final

from holdfast.agent.messages import Assignment
from holdfast.agent.process import free_port

_CONNECT_LIMIT: Final = 1.0
_OPERATION_LIMIT: Final = timedelta(seconds=30)
"""The limit of one operation; after a timeout the client is not reused, because the answer may still arrive."""
_PYTORCH_LIMIT: Final = timedelta(minutes=5)
"""The limit that PyTorch uses for an agent's own exchanges through the store."""
_HERE: Final = "holdfast/here"
_BEGUN: Final = "holdfast/begun"
_PORT: Final = "holdfast/port"
_ROLE_INFO: Final = "torchelastic/role_info"
_ATTEMPT: Final = "/attempt_"
_BARRIERS: Final = ("torchelastic/agent/terminal_state", f"{_ROLE_INFO}/finished")
"""Keys by which PyTorch's agents wait for each other: at their end, and until all have read their ranks."""


def is_prefixed() -> bool:
    """Return whether this PyTorch's workers prefix a shared store with their own agent's restart count.

    2.4 and 2.5 do (pytorch#135712), though each round's store is a new one. The answer comes from the code of PyTorch's
    own function, or from the version if that function is gone.
    """
    code = getattr(getattr(import_module("torch.distributed.rendezvous"), "_create_c10d_store", None), "__code__", None)
    if code is not None:
        return any(isinstance(one, str) and _ATTEMPT in one for one in code.co_consts)
    return str(import_module("torch").__version__).startswith(("2.4.", "2.5."))


class Server:
    """The store that this member hosts if it becomes group rank 0: it takes its port before joining, so it is free."""

    def __init__(self, address: str) -> None:
        """Listen on a port that the kernel chooses.

        Args:
            address: The address at which this pod and the others reach it.

        Raises:
            RuntimeError, OSError: if it cannot listen.
        """
        self.store: Any = _distributed().TCPStore(
            host_name=address, port=0, is_master=True, wait_for_workers=False, timeout=_OPERATION_LIMIT
        )
        self.port: int = self.store.port


class Entry:
    """The entry into one round: the round begins for no member before all members have entered.

    So no member starts workers that would wait for a lost member. The keys that PyTorch's agents exchange afterwards
    are set already, so that no agent waits inside PyTorch, where it receives no directive.
    """

    def __init__(self, place: Assignment, server: Server, role: str, *, shared: bool) -> None:
        """Prepare the entry.

        Args:
            place: The member's place in the round.
            server: The store that it hosts as group rank 0.
            role: The role of the workers in torchrun.
            shared: Whether the workers use the same store.
        """
        self.place = place
        self._server = server  # keep a reference: the store listens only while it is referenced
        self._role = role
        self._shared = shared
        self._client: Any = server.store if place.group_rank == 0 else None
        self._store: Any = None
        self._come = 0
        """As group rank 0: how many members have entered, counted from rank 0 without gaps."""

    def tried(self) -> bool:
        """Try the next step of the entry; return whether the round has begun."""
        try:
            store = self._store = self._entered() if self._store is None else self._store
            if store is None:
                return False
            if self.place.group_rank:
                return store.add(_BEGUN, 0) > 0
            while self._come < self.place.group_world_size:
                if not store.add(f"{_HERE}/{self._come}", 0):
                    return False
                self._come += 1
            if not self._shared:
                store.set(_PORT, str(free_port()))
            store.add(_BEGUN, 1)
            return True
        except (OSError, RuntimeError):
            # The store is gone or slow: the rendezvous decides which.
            self._store = self._client = None
            return False

    def master(self) -> tuple[str, int]:
        """Return the address and port at which the workers of the round meet."""
        port = self.place.master_port if self._shared else int(self._store.get(_PORT))
        return self.place.master_address, port

    def store(self) -> Any:
        """Return the store of a round that has begun, for PyTorch's agent."""
        self._client.set_timeout(_PYTORCH_LIMIT)
        return _round_store(self._prefix(), self._client, self.place.master_address)

    def _entered(self) -> Any | None:
        """Enter this member and return the store, or None while the store cannot be reached."""
        place = self.place
        self._client = self._client or _client(place.master_address, place.master_port)
        if self._client is None:
            return None
        store = _distributed().PrefixStore(self._prefix(), self._client)
        for key, value in _known(place, self._role):
            store.set(key, value)
        store.add(f"{_HERE}/{place.group_rank}", 1)  # a reconnect adds again: only a count above 0 matters
        return store

    def _prefix(self) -> str:
        return f"holdfast/{self.place.run_id}/{self.place.round}"


def _known(place: Assignment, role: str) -> list[tuple[str, str]]:
    """Return the keys that PyTorch agents wait for, in all names from 1.13 to 2.15, with their values."""
    number = place.group_rank
    info = json.dumps({"role": role, "rank": number, "local_world_size": place.local_world_size})
    ranks = json.dumps([place.rank, place.world_size, place.role_rank, place.role_world_size])
    return [
        (f"{_ROLE_INFO}{number}", info),
        (f"{_ROLE_INFO}{number}.FIN", "FIN"),
        (f"{_ROLE_INFO}/{number}", info),
        (f"torchelastic/assigned_ranks/{number}", ranks),
    ]


def _client(address: str, port: int) -> Any | None:
    """Return a client of the store at this address, or None while nothing listens there."""
    with contextlib.suppress(OSError):
        # Probe the port first: PyTorch's client blocks for its whole limit, and handles no signal meanwhile.
        socket.create_connection((address, port), _CONNECT_LIMIT).close()
        return _distributed().TCPStore(
            host_name=address, port=port, is_master=False, wait_for_workers=False, timeout=_OPERATION_LIMIT
        )
    return None


def _round_store(prefix: str, client: Any, address: str) -> Any:
    """Return a `PrefixStore` in which no agent waits for the others, and whose MASTER_ADDR they can reach.

    The rendezvous has its own final barrier (row T2). That barrier also serves the purpose of the other one: group rank
    0 outlives its clients. PyTorch before 2.4 sets MASTER_ADDR to the host's name, which few pods resolve.
    """
    base: Any = _distributed().PrefixStore

    def set_(self: Any, key: str, value: Any) -> Any:
        if not _waits(key):
            return base.set(self, key, address if key == "MASTER_ADDR" else value)
        return None

    def get(self: Any, key: str) -> Any:
        return b"" if _waits(key) else base.get(self, key)

    def add(self: Any, key: str, amount: int) -> Any:
        return 0 if _waits(key) else base.add(self, key, amount)

    def wait(self: Any, keys: Sequence[str], *limit: Any) -> Any:
        real = [key for key in keys if not _waits(key)]
        return base.wait(self, real, *limit) if real else None

    made: Any = type("RoundStore", (base,), {"set": set_, "get": get, "add": add, "wait": wait})
    return made(prefix, client)


def _waits(key: str) -> bool:
    return key.startswith(_BARRIERS)


def _distributed() -> Any:
    return import_module("torch.distributed")
