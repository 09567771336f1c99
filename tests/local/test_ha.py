"""The parts of two Temporal servers as data: the same ports on two addresses, and no secret where others read it."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.local import Stack
from holdfast.local.bringup import plan
from holdfast.local.extras import ha
from holdfast.local.system.errors import StackError
from holdfast.local.system.parts import Layout
from holdfast.local.system.state import StackState


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


def stub(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return folder / name


def test_the_newest_postgresql_is_chosen_also_beside_one_of_before_10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for version in ("9.6", "16", "9.5", "17"):
        stub(tmp_path / version / "bin", "initdb", "true")
    monkeypatch.setattr(ha, "DEBIAN", tmp_path, raising=False)
    assert ha.program("initdb") == str(tmp_path / "17" / "bin" / "initdb")


def test_a_database_that_was_killed_as_it_was_made_is_made_anew(layout: Layout, monkeypatch: pytest.MonkeyPatch):
    """As initdb does, whose first file is PG_VERSION."""
    written = 'for word in "$@"; do case $word in --pgdata=*) mkdir -p "${word#*=}"; '
    written += 'echo 17 > "${word#*=}/PG_VERSION";; esac; done'
    bin_folder = layout.directory / "bin"
    monkeypatch.setattr(ha, "program", lambda name: str(bin_folder / name))
    monkeypatch.setattr(ha.Database, "folder", property(lambda self: self.stack / "pg"))
    monkeypatch.setattr(ha, "as_user", lambda *argv: argv)
    monkeypatch.setattr(ha.os, "geteuid", lambda: 1000)
    stub(bin_folder, "initdb", f"{written}; exit 137")
    with pytest.raises(StackError, match="initdb failed with 137"):
        ha.prepare(layout)
    stub(bin_folder, "initdb", f'{written}; touch "{layout.directory}/whole"')
    ha.prepare(layout)
    assert (layout.directory / "whole").exists(), "what was half-made is no database"
    assert (ha.Database(layout.directory).data / "PG_VERSION").exists()


def test_who_works_in_a_database_is_found_also_where_a_link_leads_to_it(tmp_path: Path, layout: Layout):
    (tmp_path / "really").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "really")
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path / "really") as process:
        try:
            found = ha._at_home(tmp_path / "link")  # pyright: ignore[reportPrivateUsage]
            assert found == [process.pid], "else its lock would be taken from a database that lives"
        finally:
            process.kill()


def test_a_copy_gets_a_name_of_its_own_after_an_older_one_was_removed(layout: Layout, monkeypatch: pytest.MonkeyPatch):
    made: list[str] = []
    monkeypatch.setattr(ha, "_run", lambda *argv, **_: made.extend(argv))
    monkeypatch.setattr(ha.Database, "folder", property(lambda self: self.stack / "pg"))
    for name in ("base-1", "base-2"):
        (layout.directory / "pg" / name).mkdir(parents=True)
    assert ha.take_base_backup(layout, PORTS).name == "base-3"
    assert f"--pgdata={layout.directory / 'pg' / 'base-3'}" in made


def test_a_program_that_does_not_end_is_told_as_such(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ha, "RUN_SECONDS", 0.2, raising=False)
    with pytest.raises(StackError, match="sleep has not ended after"):
        ha._run("sleep", "30")  # pyright: ignore[reportPrivateUsage]
