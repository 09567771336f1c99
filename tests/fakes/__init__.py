"""The clusters that tests play where a real one would say no more (record 0063).

| fake | plays | time | for |
|---|---|---|---|
| `scripted` | activities of one workload, by levers | real | the workflow's own conduct |
| `several` | activities of many workloads | real | the client and the command line |
| `virtual` | activities over the simulation's world | skipped | scripts of `holdfast simulate`, on Temporal |
| `ledger` | an API server that records each change | counted | properties over all orders of events |
| `watched` | objects as informers deliver them | counted | what deserves a signal, and when |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def activities_of(fake: object, *left_out: str) -> list[Callable[..., Any]]:
    """Return the activities that a fake plays, for a worker; without those methods."""
    found = [getattr(fake, name) for name in dir(type(fake)) if name not in left_out]
    return [one for one in found if hasattr(one, "__temporal_activity_definition")]
