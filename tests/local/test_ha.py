"""The parts of two Temporal servers as data: the same ports on two addresses, and no secret where others read it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.local import Stack, ha
from holdfast.local.bringup import plan
from holdfast.local.parts import Layout
from holdfast.local.state import StackState


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setattr(ha, "program", lambda name: f"/usr/bin/{name}")
    for folder in ("pki", "config", "data"):
        (tmp_path / folder).mkdir()
    return Layout(tmp_path)


PORTS = {name: 20_000 + index for index, name in enumerate(ha.PORTS)}


def configuration(layout: Layout, name: str) -> tuple[Path, dict[str, Any]]:
    part = next(one for one in ha.parts(layout, {}, PORTS, {"frontend.rps": "7"}) if one.name == name)
    (path,) = (Path(word.partition("=")[2]) for word in part.argv if word.startswith("--config-file="))
    return path, yaml.safe_load(path.read_text())


def test_both_servers_have_the_same_ports_at_addresses_of_their_own(layout: Layout):
    (_, first), (_, second) = (configuration(layout, name) for name in ha.SERVERS)
    for name, service in first["services"].items():
        mine, other = service["rpc"], second["services"][name]["rpc"]
        assert (mine.pop("bindOnIP"), other.pop("bindOnIP")) == ("127.0.0.1", "127.0.0.2")
        assert mine == other
    assert first["global"]["pprof"] != second["global"]["pprof"]
    assert first["persistence"] == second["persistence"]
    values = yaml.safe_load(Path(first["dynamicConfigClient"]["filepath"]).read_text())
    assert values["frontend.rps"] == [{"value": 7}]


def test_the_password_stands_in_private_files_alone(layout: Layout):
    path, config = configuration(layout, "temporal-1")
    password = config["persistence"]["datastores"]["main"]["sql"]["password"]
    assert len(password) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for part in ha.parts(layout, {}, PORTS, {}):
        assert not any(password in word for word in part.argv)


def test_a_stack_with_two_servers_has_no_development_server_and_tells_both_addresses(layout: Layout):
    state = StackState("ha", ha=True, given_kubeconfig="somebody's", ports=PORTS)
    assert list(plan(layout, state)) == ["postgresql", "temporal-1", "temporal-2", "temporal-ui"]
    assert ha.addresses(PORTS) == f"127.0.0.1:{PORTS['temporal']},127.0.0.2:{PORTS['temporal']}"
    assert set(ha.OWNERS) <= set(ha.PORTS)
    told = Stack(layout.directory, state).environment
    assert told["TEMPORAL_ADDRESS"] == f"127.0.0.1:{PORTS['temporal']}", "Temporal's own tools know one"
    assert told["HOLDFAST_TEMPORAL_ADDRESS"] == ha.addresses(PORTS)
