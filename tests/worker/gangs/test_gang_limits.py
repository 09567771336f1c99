"""How often a source may ask, and which connections are kept if there are too many (row X9)."""

from __future__ import annotations

import pytest

from holdfast.worker.gangs.connections import Connections
from holdfast.worker.gangs.limits import Buckets, Limited, source_of

X9 = pytest.mark.row("X9", level="pure")


@X9
def test_X9_a_source_that_has_used_up_its_requests_gets_more_as_time_passes_and_others_are_not_charged():
    buckets = Buckets[str](per_second=2, burst=3)
    for _ in range(3):
        buckets.take("a", 10)
    with pytest.raises(Limited) as limited:
        buckets.take("a", 10)
    assert limited.value.seconds == 1
    buckets.take("b", 10)
    buckets.take("a", 10.5)
    with pytest.raises(Limited):
        buckets.take("a", 10.5)
    buckets.give_back("a", 10.5)
    buckets.take("a", 10.5)
    for _ in range(3):
        buckets.take("a", 1000)
    with pytest.raises(Limited):
        buckets.take("a", 1000)


@X9
def test_X9_a_bucket_never_holds_more_than_its_burst():
    buckets = Buckets[str](per_second=1, burst=1)
    buckets.give_back("a", 0)
    buckets.take("a", 0)
    with pytest.raises(Limited):
        buckets.take("a", 0)


@X9
def test_X9_however_many_sources_ask_memory_is_bounded_and_the_busiest_is_not_forgotten():
    buckets = Buckets[str](per_second=1, burst=1, at_most=100)
    buckets.take("busy", 0)
    for index in range(10_000):
        if index % 50 == 0:
            buckets.give_back("busy", 0)
            buckets.take("busy", 0)
        buckets.take(f"source-{index}", 0)
    assert len(buckets) == 100
    with pytest.raises(Limited):
        buckets.take("busy", 0)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:2", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("unix", "unix"),
    ],
)
@X9
def test_X9_whoever_has_one_address_of_an_ipv6_network_has_all_of_them(address: str, source: str):
    assert source_of(address) == source


@X9
def test_X9_a_source_with_too_many_connections_loses_its_own_oldest():
    connections = Connections[str](at_most=100, of_source=2)
    assert connections.add("a1", "a") is None
    assert connections.add("b1", "b") is None
    assert connections.add("a2", "a") is None
    assert connections.add("a3", "a") == "a1"
    assert sorted(connections) == ["a2", "a3", "b1"]
    connections.prove("a2", "pod-a")
    assert connections.add("a4", "a") is None
    assert connections.add("a5", "a") == "a3"


@X9
def test_X9_with_too_many_in_all_the_oldest_unproven_goes_and_a_pods_own_never():
    connections = Connections[str](at_most=3, of_source=2)
    for name in ("a", "b", "c"):
        connections.add(name, name)
    connections.prove("a", "pod-a")
    assert connections.add("d", "d") == "b"
    connections.prove("c", "pod-c")
    connections.prove("d", "pod-d")
    assert connections.add("e", "e") == "e"
    assert sorted(connections) == ["a", "c", "d"]
    connections.remove("a")
    connections.remove("a")
    assert connections.add("f", "f") is None
    assert len(connections) == 3


@X9
def test_X9_a_pod_with_too_many_connections_loses_its_own_oldest_and_no_others():
    connections = Connections[str](at_most=100, of_source=2, of_pod=2)
    connections.add("b1", "node")
    assert connections.prove("b1", "pod-b") is None
    dropped: list[str | None] = []
    for index in range(10):
        assert connections.add(f"a{index}", "node") is None
        dropped.append(connections.prove(f"a{index}", "pod-a"))
    assert dropped == [None, None, *[f"a{index}" for index in range(8)]]
    assert sorted(connections) == ["a8", "a9", "b1"]
    # What a pod has used lately stays; what is closed counts no more.
    assert connections.prove("a8", "pod-a") is None
    connections.add("a10", "node")
    assert connections.prove("a10", "pod-a") == "a9"
    assert connections.prove("a9", "pod-a") is None
    connections.remove("a8")
    connections.add("a11", "node")
    assert connections.prove("a11", "pod-a") is None
    assert sorted(connections) == ["a10", "a11", "b1"]


@X9
def test_X9_a_connection_counts_for_the_pod_that_has_proven_itself_on_it_last():
    connections = Connections[str](at_most=100, of_pod=1)
    connections.add("gateway", "node")
    connections.prove("gateway", "pod-a")
    connections.prove("gateway", "pod-b")
    connections.add("a", "node")
    assert connections.prove("a", "pod-a") is None
    connections.add("b", "node")
    assert connections.prove("b", "pod-b") == "gateway"
