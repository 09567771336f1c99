"""A training script as users have them: it knows nothing of Holdfast. It trains until its test says otherwise."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]

CHANNEL = socket.socket(socket.AF_UNIX)
_unread = b""


def say(word: object) -> None:
    """Tell the test."""
    CHANNEL.sendall(json.dumps(word).encode() + b"\n")


def ordered() -> dict[str, object]:
    """Return the next thing the test wants, if there is any."""
    global _unread
    if select.select([CHANNEL], [], [], 0)[0]:
        _unread += CHANNEL.recv(1 << 16)
    line, newline, rest = _unread.partition(b"\n")
    if not newline:
        return {}
    _unread = rest
    return json.loads(line)


def main(path: str, *arguments: str) -> None:
    """Reduce ones over all ranks, again and again; the sum is the world size, or this is no training."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    CHANNEL.connect(path)
    name = os.environ["HOLDFAST_MEMBER"]
    argv = [name, *arguments]
    say({"name": name, "pid": os.getpid(), "session": 0, "environment": dict(os.environ), "argv": argv})
    late = 0.0
    while True:
        order = ordered()
        if order.get("do") == "exit":
            sys.exit(int(str(order["code"])))
        if order.get("do") == "raise":
            raise ValueError("no such sample")
        late = float(str(order.get("late", late)))
        step = torch.tensor([1.0, 1.0 if order.get("do") == "finish" else 0.0])
        dist.all_reduce(step)
        assert step[0] == size, f"rank {rank}: {step[0]} of {size}"
        if step[1]:
            break
        time.sleep(0.02)
    dist.destroy_process_group()
    time.sleep(late)
    print(f"rank {rank} of {size} has trained", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
