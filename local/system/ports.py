"""Choosing loopback ports that stay the stack's own while a part of it is stopped and started again."""

import random
import socket
from collections.abc import Collection, Iterable

LOOPBACK = "127.0.0.1"

# Below the range from which the kernel takes ports for outgoing connections and above the well-known ones: a port that
# is free for two minutes while the API server is down must still be free afterwards. Below NodePort services, too.
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
    """A free port for each name.

    Args:
        names: what the ports are for.
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
