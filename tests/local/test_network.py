"""The bridge of a real node: whoever made it may have been killed before it had its address."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.local.node import real_node
from holdfast.local.node.real_node import RealNode


@pytest.mark.parametrize("there", [True, False])
def test_a_bridge_gets_its_address_also_where_it_is_there_already(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    said: list[str] = []
    monkeypatch.setattr(real_node, "_run", lambda *argv: said.append(" ".join(argv)))
    if there:
        monkeypatch.setattr(RealNode, "bridge", "lo")
    node = RealNode(tmp_path)
    real_node.ensure_network(node)
    assert [one for one in said if one.startswith("ip link add")] == ([] if there else [said[0]])
    assert len([one for one in said if f"{node.address}/24 dev {node.bridge}" in one]) == 1
    assert said[-1] == f"ip link set {node.bridge} up"
