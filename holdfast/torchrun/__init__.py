"""torchrun's rendezvous backend `holdfast`: torchrun's agents join a gang as members, in place of Holdfast's own agent.

It runs inside users' training images. It imports the standard library, `holdfast.names`, `holdfast.progress` and
`holdfast.agent`, and PyTorch only inside functions, which PyTorch itself calls. Decision record 0030 defines the
messages to the rendezvous; record 0032 defines how torchrun sends them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

BACKEND: Final = "holdfast"


def handler() -> Callable[[Any], Any]:
    """Return the factory of the handler, as the entry point group `torchrun.handlers` requires."""
    return create


def create(parameters: Any) -> Any:
    """Create the handler of this pod's member; `parameters` are PyTorch's `RendezvousParameters`.

    Raises:
        holdfast.agent.settings.SettingsError: if this is not a pod of a gang.
    """
    from holdfast.agent.settings import from_environment
    from holdfast.torchrun.handler import Handler

    settings = from_environment()
    base: type[Any] = import_module("torch.distributed.elastic.rendezvous").RendezvousHandler
    # PyTorch's own class is the last base: it adds the methods of later versions, and ours override its abstract ones.
    made: Any = type("HoldfastRendezvous", (Handler, base), {})
    return made(parameters.backend, settings)


def register() -> None:
    """Register the backend with a PyTorch that does not read entry points; harmless if it does."""
    import_module("torch.distributed.elastic.rendezvous").rendezvous_handler_registry.register(BACKEND, create)
