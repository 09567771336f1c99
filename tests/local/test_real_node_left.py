"""A real node whose start was broken off: the next start goes on, and its end leaves nothing. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.local import bringup
from holdfast.local.node.real_node import RealNode
from holdfast.local.node.sweep import _forget_addresses


class Runner:
    """What starts parts, as far as a real node needs it."""

    def __init__(self, directory: Path) -> None:
        self.layout = type("Layout", (), {"directory": directory})()
        binaries = {"containerd-shim-runc-v2": "shim", "ctr": "ctr"}
        self.state = type("State", (), {"parts": {}, "binaries": binaries, "save": lambda _, __: None})()

    def wait(self, part: Any) -> None:
        """Wait for a part."""


@pytest.fixture
def swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RealNode]:
    found: list[RealNode] = []
    monkeypatch.setattr(bringup, "sweep", found.append)
    monkeypatch.setattr(RealNode, "run", property(lambda node: tmp_path / "run" / node.identity))
    monkeypatch.setattr(RealNode, "data", property(lambda node: tmp_path / "data" / node.identity))
    return found


def test_one_that_was_killed_before_anything_of_it_was_started_is_swept(tmp_path: Path, swept: list[RealNode]):
    runner: Any = Runner(tmp_path / "stack")
    bringup.remove_real_node(runner, lambda _: None)
    assert swept == [], "there was none"
    RealNode(tmp_path / "stack").run.mkdir(parents=True)
    bringup.remove_real_node(runner, lambda _: None)
    assert swept == [RealNode(tmp_path / "stack")]


def test_images_that_were_not_imported_are_imported_by_the_next_start(
    tmp_path: Path, swept: list[RealNode], monkeypatch: pytest.MonkeyPatch
):
    runner: Any = Runner(tmp_path / "stack")
    node, imports, launched = RealNode(tmp_path / "stack"), list[str](), list[str]()

    def launch(runner: Any, part: Any, _: Any) -> None:
        launched.append(part.name)
        alive = type("Process", (), {"alive": lambda _: True})()
        runner.state.parts[part.name] = type("Known", (), {"argv": part.argv, "process": alive})()

    def import_images(*_: Any) -> None:
        imports.append("tried")
        if len(imports) == 1:
            raise OSError("no space left on device")

    monkeypatch.setattr(bringup, "_launch", launch)
    monkeypatch.setattr(bringup, "_stop", lambda *_: None)
    monkeypatch.setattr(bringup.real_node, "prepare", lambda *_: node.data.mkdir(parents=True))
    monkeypatch.setattr(bringup.real_node, "import_images", import_images)
    planned: Any = {name: type("Part", (), {"name": name, "argv": (name,)})() for name in bringup.REAL_NODE_PARTS}
    kubectl: Any = lambda *_: None  # noqa: E731 - it answers nothing
    with pytest.raises(OSError, match="no space"):
        bringup._bring_up_real_node(runner, planned, kubectl, lambda _: None)
    for _ in range(2):
        bringup._bring_up_real_node(runner, planned, kubectl, lambda _: None)
    assert imports == ["tried", "tried"], "once more, and then no more"
    assert launched.count("containerd") == 1


def test_what_network_plugins_remember_of_its_pods_goes_with_it_and_others_stays(tmp_path: Path):
    node = RealNode(tmp_path / "stack")
    mine, others = f"holdfast-{node.identity}-abc-eth0", "holdfast-00000000-def-eth0"
    for name in (mine, "cni-loopback-abc-lo", others, "cni-loopback-def-lo"):
        (tmp_path / name).touch()
    _forget_addresses(node, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cni-loopback-def-lo", others]
