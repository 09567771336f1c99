"""A training in PyTorch as users have them, which tells its steps and saves; its loader hangs where it is told to."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import torch  # pyright: ignore[reportMissingImports]

from holdfast import progress


def batches(first: int, last: int, hangs_at: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the batch of each step; wait for ever for that of step `hangs_at`."""
    for number in range(first, last):
        if number == hangs_at:
            threading.Event().wait()
        x = torch.randn(32, 4, generator=torch.Generator().manual_seed(number))
        yield x, x @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]])


def main(save: Path, steps: int, saved_every: int, hangs_at: int) -> None:
    """Train from the last save on, save every few steps, and print the loss of the last one."""
    torch.manual_seed(7)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    first = 0
    if save.exists():
        kept = torch.load(save, weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first = kept["step"]
    print(f"begins after step {first}", flush=True)
    loss = torch.tensor(0.0)
    for number, (x, y) in enumerate(batches(first, steps, hangs_at), first + 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        saved = number - number % saved_every
        if saved == number:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": number}
            torch.save(state, save.with_suffix(".new"))
            os.replace(save.with_suffix(".new"), save)
        progress.step(number, total=steps, saved=saved or None, loss=loss.item())
    print(f"loss {loss.item():.9f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
