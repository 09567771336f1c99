"""torchrun's rendezvous backend `holdfast`: members of a gang that are torchrun's agents instead of Holdfast's own.

It runs inside users' training images: the standard library, `holdfast.names` and `holdfast.agent`, and PyTorch only
inside functions, which PyTorch itself calls. What is said to the rendezvous is decision record 0030; how torchrun is
made to say it, record 0032.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

BACKEND: Final = "holdfast"


def handler() -> Callable[[Any], Any]:
    """Return what makes the handler: so the entry point group `torchrun.handlers` has it."""
    return create


def create(parameters: Any) -> Any:
    """Make the handler of this pod's member; `parameters` are PyTorch's `RendezvousParameters`.

    Raises:
        holdfast.agent.settings.SettingsError: if this is no pod of a gang.
    """
    from holdfast.agent.settings import from_environment
    from holdfast.torchrun.handler import Handler

    settings = from_environment()
    base: type[Any] = import_module("torch.distributed.elastic.rendezvous").RendezvousHandler
    # PyTorch's own class comes last: what a later PyTorch adds to it is there, and what it leaves abstract is ours.
    made: Any = type("HoldfastRendezvous", (Handler, base), {})
    return made(parameters.backend, settings)


def register() -> None:
    """Make the backend known to a PyTorch that asks for no entry points; harmless where it does."""
    import_module("torch.distributed.elastic.rendezvous").rendezvous_handler_registry.register(BACKEND, create)
