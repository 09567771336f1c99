"""Chooses loopback ports that stay reserved for the stack while one of its parts restarts."""

import random
import socket
from collections.abc import Collection, Iterable

LOOPBACK = "127.0.0.1"

# Below the kernel's range for outgoing connections, above the well-known ports, and below NodePort services: a port
# that is unused for two minutes while the API server is down must still be free afterwards.
RANGE = range(20_000, 30_000)


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen on this port of an address of this machine now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def choose(names: Iterable[str], taken: Collection[int] = (), among: range = RANGE) -> dict[str, int]:
    """Return a free port for each name.

    Args:
        names: the purposes of the ports.
        taken: ports that belong to other stacks, running or not.
        among: the ports to choose from; by default those of stacks.

    Raises:
        OSError: there is no free port left.
    """
    chosen: dict[str, int] = {}
    candidates = iter(random.sample(among, len(among)))
    for name in names:
        for port in candidates:
            if port not in taken and is_free(port):
                chosen[name] = port
                break
        else:
            raise OSError(f"no free port between {among.start} and {among.stop - 1} on {LOOPBACK}")
    return chosen
