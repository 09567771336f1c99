"""The environment of a worker: every variable that `torchrun` sets, under the same conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.agent.messages import Assignment

ERROR_FILE: Final = "TORCHELASTIC_ERROR_FILE"
_OMP: Final = "OMP_NUM_THREADS"
_NCCL: Final = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
_LOCAL_RANK_MACRO: Final = "${local_rank}"


def variables(place: Assignment, local_rank: int, error_file: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a worker's environment adds to the agent's.

    Args:
        place: The member's place in the round.
        local_rank: The local rank of the worker, from 0.
        error_file: The file to which the worker may write its error.
        inherited: The agent's environment; its settings for threads and NCCL override torchrun's defaults.

    Raises:
        ValueError: if the member has no such worker.
    """
    if not 0 <= local_rank < place.local_world_size:
        raise ValueError(f"{local_rank}: expected a local rank below {place.local_world_size}")
    found = {
        "LOCAL_RANK": str(local_rank),
        "RANK": str(place.rank + local_rank),
        "GROUP_RANK": str(place.group_rank),
        "ROLE_RANK": str(place.role_rank + local_rank),
        "ROLE_NAME": place.role,
        "LOCAL_WORLD_SIZE": str(place.local_world_size),
        "WORLD_SIZE": str(place.world_size),
        "GROUP_WORLD_SIZE": str(place.group_world_size),
        "ROLE_WORLD_SIZE": str(place.role_world_size),
        "MASTER_ADDR": place.master_address,
        "MASTER_PORT": str(place.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(place.restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(place.max_restarts),
        "TORCHELASTIC_RUN_ID": place.run_id,
        # The first worker hosts the store: an agent could host it only with PyTorch.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        ERROR_FILE: error_file,
        _NCCL: inherited.get(_NCCL, "1"),
    }
    if place.local_world_size > 1 and _OMP not in inherited:
        found[_OMP] = "1"
    return found


def command(argv: list[str], local_rank: int) -> list[str]:
    """Return the worker's command, with `${local_rank}` replaced by its local rank, as torchrun does."""
    return [word.replace(_LOCAL_RANK_MACRO, str(local_rank)) for word in argv]
