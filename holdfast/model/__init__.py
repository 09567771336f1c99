"""The contract: types of submission, observation, memory and report. No I/O, no clock.

`__init__.pyi` lists the names and where each is defined. A name's module is loaded when the name is first used: without
that, a command that reads one status would build the models of every entity (row E13).
"""

import lazy_loader  # pyright: ignore[reportMissingTypeStubs]

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # pyright: ignore[reportUnknownVariableType]
