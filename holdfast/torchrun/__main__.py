"""`python -m holdfast.torchrun`: torchrun with this backend, for a PyTorch that asks for no entry points."""

from __future__ import annotations

import sys
from importlib import import_module

from holdfast.torchrun import BACKEND, register


def main() -> None:
    """Be torchrun, with the arguments that follow."""
    register()
    import_module("torch.distributed.run").main([f"--rdzv_backend={BACKEND}", *sys.argv[1:]])


if __name__ == "__main__":
    main()
