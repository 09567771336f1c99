"""How PyTorch finds the backend, what it needs of an image, and what it says outside a gang; without PyTorch."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

import holdfast
from holdfast.agent.settings import SettingsError
from holdfast.torchrun import create

PACKAGES = Path(holdfast.__file__).parent.parent


def test_what_the_entry_point_names_is_called_and_returns_what_makes_a_handler() -> None:
    assert EntryPoint("holdfast", "holdfast.torchrun:handler", "torchrun.handlers").load()() is create


def test_an_image_needs_nothing_but_python_and_pytorch() -> None:
    # -S leaves out all that is installed, the editable install too: what is imported then is the standard library's.
    modules = ", ".join(f"holdfast.torchrun.{name}" for name in ("__main__", "handler", "launcher", "member", "store"))
    code = f"import sys; sys.path.insert(0, {str(PACKAGES)!r})\nimport {modules}\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_outside_a_gang_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_RENDEZVOUS", raising=False)
    with pytest.raises(SettingsError, match=r"HOLDFAST_RENDEZVOUS, .*expected the environment that Holdfast gives"):
        create(SimpleNamespace(backend="holdfast"))
