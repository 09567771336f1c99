"""How PyTorch finds the backend, what it needs of an image, and what it says outside a gang; without PyTorch."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

import holdfast
from holdfast import torchrun
from holdfast.agent.settings import Settings, SettingsError
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


def prefixes(attempt: str) -> str:
    """As `_create_c10d_store` of PyTorch 2.4 and 2.5 names what it shares."""
    return f"/worker/attempt_{attempt}"


def shares(attempt: str) -> str:
    """As that of 2.6 and later does."""
    return attempt


@pytest.mark.row("D41", level="pure")
@pytest.mark.parametrize(
    ("version", "creates", "shared"),
    [
        ("2.4.1", prefixes, False),
        ("2.5.1+cu124", prefixes, False),
        ("2.6.0", shares, True),
        ("2.15.0", shares, True),
        ("2.5.0", None, False),
        ("2.15.0", None, True),
    ],
)
def test_D41_the_store_is_not_shared_where_pytorch_prefixes_it(
    monkeypatch: pytest.MonkeyPatch, version: str, creates: object, shared: bool
) -> None:
    api = SimpleNamespace(RendezvousHandler=SimpleNamespace(use_agent_store=True))
    created = SimpleNamespace(**({"_create_c10d_store": creates} if creates else {}))
    for name, module in {
        "torch": SimpleNamespace(__version__=version),
        "torch.distributed": SimpleNamespace(),
        "torch.distributed.rendezvous": created,
        "torch.distributed.elastic": SimpleNamespace(),
        "torch.distributed.elastic.rendezvous": SimpleNamespace(),
        "torch.distributed.elastic.rendezvous.api": api,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)  # pyright: ignore[reportArgumentType]
    # The module has the name of a function of its package, and takes its place there.
    monkeypatch.setattr(torchrun, "handler", torchrun.handler)
    made = import_module("holdfast.torchrun.handler")
    settings = Settings((), 1, "http://hub:8080", "/token", "u-1", 1, "train-0", "p-0", "10.0.0.7")
    assert made.Handler("holdfast", settings).use_agent_store is shared


def test_outside_a_gang_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_RENDEZVOUS", raising=False)
    with pytest.raises(SettingsError, match=r"HOLDFAST_RENDEZVOUS, .*expected the environment that Holdfast gives"):
        create(SimpleNamespace(backend="holdfast"))
