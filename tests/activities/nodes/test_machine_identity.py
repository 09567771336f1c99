"""Which machine is a node's, by their UUIDs alone (row D9). Pure."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.activities.kube.client import Kube
from holdfast.activities.nodes.machine_identity import Identities, key_of, problem

ROW = pytest.mark.row
A = "00112233-4455-6677-8899-aabbccddeeff"
A_SWAPPED = "33221100-5544-7766-8899-aabbccddeeff"
A_FAULTY = "33221100-4455-6677-8899-aabbccddeeff"
"""One field swapped alone: no vendor does that."""
B = "f2c1f2a4-3d5e-4c55-9d29-0c4b0d1e7a33"
B_SWAPPED = "a4f2c1f2-5e3d-554c-9d29-0c4b0d1e7a33"
ZERO = "00000000-0000-0000-0000-000000000000"
FULL = "ffffffff-ffff-ffff-ffff-ffffffffffff"


def node(uuid: str | None) -> dict[str, Any]:
    return {"metadata": {"name": "n"}, "status": {"nodeInfo": {"systemUUID": uuid}} if uuid is not None else {}}


@ROW("D9", level="pure")
@pytest.mark.parametrize(
    ("machine", "of_node", "others", "verdict"),
    [
        (A, A, {}, "same"),
        (A.upper(), A, {}, "same"),
        (f" {A.replace('-', '')} ", A, {}, "same"),
        (A_SWAPPED, A, {}, "same"),
        (A, A_SWAPPED, {}, "same"),
        (A_FAULTY, A, {}, "another"),
        (B, A, {}, "another"),
        (B, A, {"o": B}, "of node o"),
        (B_SWAPPED, A, {"o": B}, "of node o"),
        (A, A, {"o": B}, "same"),
        ("", A, {}, "absent"),
        (ZERO, ZERO, {}, "absent"),
        (FULL, FULL, {}, "absent"),
        (FULL.upper(), A, {}, "absent"),
        (A, ZERO, {}, "absent"),
        (A, FULL, {}, "absent"),
        (A, "", {}, "absent"),
        (A, None, {}, "absent"),
        ("Not Specified", A, {}, "absent"),
        (A, "Not Settable", {}, "absent"),
        (A, A, {"o": A}, "absent"),
        (A, A, {"o": A_SWAPPED}, "absent"),
        (B, A, {"o": A}, "absent"),
        (B, A, {"o": A, "p": B}, "of node p"),
        (B, "", {"p": B}, "of node p"),
        (B, A, {"o": B, "p": B}, "another"),
    ],
)
def test_D9_a_machine_is_its_nodes_by_their_uuids(
    machine: str, of_node: str | None, others: dict[str, str], verdict: str
):
    owners: dict[str, list[str]] = {key_of(of_node): ["n"]} if key_of(of_node) else {}
    for name, uuid in others.items():
        owners.setdefault(key_of(uuid), []).append(name)
    said = problem("n", node(of_node), machine, owners, allow_absent=False)
    allowed = problem("n", node(of_node), machine, owners, allow_absent=True)
    if verdict == "same":
        assert (said, allowed) == ("", "")
    elif verdict == "absent":
        assert "cannot be told from another machine: see the setting provisioner_allow_unverified_machine" in said
        assert allowed == ""
    else:
        assert f"its URL leads to {'another' if verdict == 'another' else 'the'} machine" in said
        assert verdict == "another" or verdict in said
        assert allowed == said, "that differs is never allowed"


@ROW("D9", level="pure")
@given(st.uuids())
def test_D9_both_orders_of_bytes_have_the_same_key(uuid: Any):
    swapped = type(uuid)(bytes=uuid.bytes_le)
    assert key_of(uuid) == key_of(swapped) != ""
    assert type(uuid)(bytes=swapped.bytes_le) == uuid


class _Kube:
    lists = 0

    async def list(self, api_version: str, kind: str, **options: Any) -> dict[str, Any]:
        self.lists += 1
        nodes = [{**node(uuid), "metadata": {"name": f"n{number}"}} for number, uuid in enumerate((A, A_SWAPPED, ZERO))]
        return {"items": [kept for one in nodes if (kept := options["keep"](one)) is not None]}


@ROW("D9", level="pure")
async def test_D9_which_nodes_have_which_is_read_once_for_many_requests():
    kube, identities = _Kube(), Identities()
    found = [await identities.owners(cast("Kube", kube)) for _ in range(500)]
    assert (dict(found[-1]), kube.lists) == ({key_of(A): ["n0", "n1"]}, 1)
