"""The client: submit workloads, ask about them, steer them. It needs a Temporal connection and nothing else.

`__init__.pyi` lists the names; each is loaded when it is first used (row E13).
"""

import lazy_loader  # pyright: ignore[reportMissingTypeStubs]

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # pyright: ignore[reportUnknownVariableType]
