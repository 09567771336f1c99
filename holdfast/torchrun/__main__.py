"""Runs torchrun with this backend by `python -m holdfast.torchrun`, for a PyTorch that does not read entry points."""

from __future__ import annotations

import sys
from importlib import import_module

from holdfast.torchrun import BACKEND, register


def main() -> None:
    """Run torchrun with the given arguments."""
    register()
    import_module("torch.distributed.run").main([f"--rdzv_backend={BACKEND}", *sys.argv[1:]])


if __name__ == "__main__":
    main()
