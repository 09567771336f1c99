"""The store of a round, hosted by torchrun's agent of group rank 0: who enters, and what PyTorch keeps in it."""

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
"""After one that took longer a client is not used any more: its answer may still come."""
_PYTORCH_LIMIT: Final = timedelta(minutes=5)
"""As PyTorch has it for an agent's own exchanges through the store."""
_HERE: Final = "holdfast/here"
_BEGUN: Final = "holdfast/begun"
_PORT: Final = "holdfast/port"
_ROLE_INFO: Final = "torchelastic/role_info"
_ATTEMPT: Final = "/attempt_"
_BARRIERS: Final = ("torchelastic/agent/terminal_state", f"{_ROLE_INFO}/finished")
"""Keys by which PyTorch's agents wait for each other: at their end, and until all have read who has which rank."""


def is_prefixed() -> bool:
    """Return whether this PyTorch's workers prefix a store that they share by their own agent's restart count.

    2.4 and 2.5 do (pytorch#135712), though each round's store is a new one. Whether it is so is read from PyTorch's own
    function, or, where that is gone, from its version.
    """
    code = getattr(getattr(import_module("torch.distributed.rendezvous"), "_create_c10d_store", None), "__code__", None)
    if code is not None:
        return any(isinstance(one, str) and _ATTEMPT in one for one in code.co_consts)
    return str(import_module("torch").__version__).startswith(("2.4.", "2.5."))


class Server:
    """The store this member hosts if it becomes group rank 0: its port is held from before it joins, so it is free."""

    def __init__(self, address: str) -> None:
        """Listen, on a port of the kernel's choice.

        Args:
            address: Where this pod reaches itself, as the others reach it.

        Raises:
            RuntimeError, OSError: if it cannot.
        """
        self.store: Any = _distributed().TCPStore(
            host_name=address, port=0, is_master=True, wait_for_workers=False, timeout=_OPERATION_LIMIT
        )
        self.port: int = self.store.port


class Entry:
    """The way into one round: it begins for nobody before all of its members are there.

    So nobody starts workers that would wait for one that was lost in between; and what PyTorch's agents tell each other
    afterwards is there already, so that none of them waits in PyTorch, where no directive reaches it.
    """

    def __init__(self, place: Assignment, server: Server, role: str, *, shared: bool) -> None:
        """Prepare it.

        Args:
            place: The member's place in the round.
            server: What it hosts as group rank 0.
            role: The workers', as torchrun has it.
            shared: Whether the workers use the same store.
        """
        self.place = place
        self._server = server  # it listens as long as this is held, whichever client is used
        self._role = role
        self._shared = shared
        self._client: Any = server.store if place.group_rank == 0 else None
        self._store: Any = None
        self._come = 0
        """As group rank 0: how many members are known to be there, counted from it."""

    def tried(self) -> bool:
        """Go one step further; return whether the round has begun."""
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
            # It is gone, or slow: the rendezvous says which.
            self._store = self._client = None
            return False

    def master(self) -> tuple[str, int]:
        """Return where the workers of a round that has begun meet."""
        port = self.place.master_port if self._shared else int(self._store.get(_PORT))
        return self.place.master_address, port

    def store(self) -> Any:
        """Return the store of a round that has begun, as PyTorch's agent is to have it."""
        self._client.set_timeout(_PYTORCH_LIMIT)
        return _round_store(self._prefix(), self._client, self.place.master_address)

    def _entered(self) -> Any | None:
        """Return the store with this member in it, or None while it cannot be reached."""
        place = self.place
        self._client = self._client or _client(place.master_address, place.master_port)
        if self._client is None:
            return None
        store = _distributed().PrefixStore(self._prefix(), self._client)
        for key, value in _known(place, self._role):
            store.set(key, value)
        store.add(f"{_HERE}/{place.group_rank}", 1)  # more than once, where it has to connect again: it is there
        return store

    def _prefix(self) -> str:
        return f"holdfast/{self.place.run_id}/{self.place.round}"


def _known(place: Assignment, role: str) -> list[tuple[str, str]]:
    """Return what a PyTorch agent will write, under the names of 1.13 to 2.15, for whoever waits for it."""
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
    """Return a client of that store, or None while nobody listens there."""
    with contextlib.suppress(OSError):
        # PyTorch's client waits for its whole limit, and hears no signal meanwhile.
        socket.create_connection((address, port), _CONNECT_LIMIT).close()
        return _distributed().TCPStore(
            host_name=address, port=port, is_master=False, wait_for_workers=False, timeout=_OPERATION_LIMIT
        )
    return None


def _round_store(prefix: str, client: Any, address: str) -> Any:
    """Return a `PrefixStore` in which no agent waits for the others, and whose MASTER_ADDR is one they can reach.

    The barrier at the end is the rendezvous's own (row T2), and the other one's purpose, that group rank 0 outlives its
    clients, is served by that. MASTER_ADDR is put there by PyTorch before 2.4: the host's name, which few pods resolve.
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
