"""What `doctor` says of trust: connections, settings, files and rights that weaken it. Pure."""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.activities.kube.errors import Forbidden
from holdfast.cli.cluster import trust
from holdfast.cli.cluster.checks import Check
from holdfast.cli.cluster.rbac import granted
from holdfast.cli.common.kubernetes import reached
from holdfast.errors import NotReachable
from holdfast.worker.runtime.settings import Settings, load
from tests.worker.temporal.authority import Authority

NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of this machine count."""
    for name in ("TEMPORAL_TLS", "TEMPORAL_API_KEY", "TEMPORAL_ADDRESS", "HOLDFAST_TEMPORAL_ADDRESS", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))


def settings(**given: Any) -> Settings:
    return load({"cluster": "prod", **given})


def brief(checks: Sequence[Check]) -> list[tuple[str, bool, bool]]:
    assert all(one.remedy for one in checks), "each says what to do"
    return [(one.name, one.good, one.warns) for one in checks]


@pytest.mark.parametrize(
    ("target", "secured", "warns"),
    [
        ("127.0.0.1:7233", False, False),
        ("localhost:7233", False, False),
        ("[::1]:7233", False, False),
        ("127.0.0.1:7233,127.0.0.2:7233", False, False),
        ("127.0.0.1:7233,10.0.0.7:7233", False, True),
        ("temporal-frontend.temporal:7233", False, True),
        ("localhost.example.com:7233", False, True),
        ("10.0.0.7:7233", False, True),
        ("10.0.0.7:7233", True, False),
    ],
)
def test_temporal_in_clear_off_this_machine_is_warned_of(target: str, *, secured: bool, warns: bool) -> None:
    assert brief(trust.clear(target, secured=secured)) == ([("temporal tls", True, True)] if warns else [])


def test_what_this_machine_says_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trust.local(None) == []
    monkeypatch.setenv("HOLDFAST_ALLOW_FAILPOINTS", "1")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "temporal.example.com:7233")
    assert [one.name for one in trust.local(None)] == ["temporal tls", "failpoints"]
    assert [one.name for one in trust.local("127.0.0.1:7233")] == ["failpoints"]
    monkeypatch.setenv("TEMPORAL_TLS", "true")
    assert [one.name for one in trust.local(None)] == ["failpoints"]
    monkeypatch.setenv("HOLDFAST_NODE_FLAPS", "many")
    (unread, _) = trust.local(None)
    assert (unread.name, unread.unknown) == ("worker settings", True)
    assert "node_flaps" in unread.found


@pytest.mark.parametrize(
    ("given", "weak"),
    [
        ({}, []),
        ({"provisioner_url": "https://{node}.bmc.corp/redfish/v1/Systems/1"}, []),
        ({"provisioner_url": "http://{node}.bmc.corp/redfish/v1/Systems/1"}, ["provisioner_url"]),
        (
            {
                "provisioner_url": "https://{node}.bmc.corp/redfish/v1/Systems/1",
                "provisioner_insecure": True,
                "provisioner_allow_unverified_machine": True,
                "provisioner_addresses_from_nodes": "https://other.bmc.corp/redfish/v1/Systems/1",
            },
            ["provisioner_insecure", "provisioner_allow_unverified_machine", "provisioner_addresses_from_nodes"],
        ),
        ({"provisioner_insecure": True}, []),
        ({"data_sources": "team=s3://bucket/team"}, []),
        ({"data_sources": "*=s3://bucket/all"}, ["data_sources"]),
    ],
)
def test_each_setting_that_weakens_is_named(given: dict[str, Any], weak: list[str], tmp_path: Path) -> None:
    if "data_sources" in given:
        given = {**given, "data_directory": str(tmp_path)}
    found = list(trust.weakened(settings(**given)))
    assert brief(found) == [(f"setting {one}", True, True) for one in weak]


@pytest.mark.parametrize(
    ("left", "found"),
    [
        (timedelta(days=15), []),
        (timedelta(days=13), [("file temporal_tls_cert_file", True, True)]),
        (timedelta(0), [("file temporal_tls_cert_file", False, False)]),
    ],
)
def test_a_certificate_that_expires_is_told_two_weeks_before(
    left: timedelta, found: list[tuple[str, bool, bool]], tmp_path: Path
) -> None:
    pair = Authority(tmp_path / "ca", "root").sign("worker")
    given = settings(temporal_tls_cert_file=pair.certificate, temporal_tls_key_file=pair.key)
    pair.key.chmod(0o600)
    from cryptography.x509 import load_pem_x509_certificate

    until = load_pem_x509_certificate(pair.certificate.read_bytes()).not_valid_after_utc
    assert brief(list(trust.files(given, until - left))) == found


def test_of_trusted_authorities_the_last_counts_and_of_a_chain_the_first(tmp_path: Path) -> None:
    old, new = (Authority(tmp_path / name, name) for name in ("old", "new"))
    bundle = tmp_path / "bundle.pem"
    short = old.sign("short", ends=timedelta(days=1)).certificate.read_bytes()
    bundle.write_bytes(short + new.certificate.read_bytes())
    bundle.chmod(0o600)
    later = NOW + timedelta(hours=36)  # One has expired, and the other will within two weeks.
    found = list(trust.files(settings(temporal_tls_ca_file=bundle), later))
    assert brief(found) == [("file temporal_tls_ca_file", True, True)]
    given = settings(temporal_tls_cert_file=bundle, temporal_tls_key_file=bundle)
    assert brief(list(trust.files(given, later))) == [("file temporal_tls_cert_file", False, False)]
    bundle.write_text("no certificate")
    (unread,) = trust.files(settings(temporal_tls_ca_file=bundle), NOW)
    assert unread.unknown


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o640, False), (0o604, True), (0o602, True)])
def test_a_secret_that_others_can_use_is_warned_of(mode: int, tmp_path: Path, *, warns: bool) -> None:
    key = tmp_path / "key"
    key.write_text("secret")
    key.chmod(mode)
    found = list(trust.files(settings(temporal_api_key_file=key), NOW))
    assert brief(found) == ([("file temporal_api_key_file", True, True)] if warns else [])


class Kube:
    """An API server on which the worker's account has some rights."""

    def __init__(self, *rights: tuple[str, str], asks: bool = True) -> None:
        self.rights, self.asks = rights, asks

    async def allowed(
        self, verb: str, resource: Any, namespace: str = "", *, impersonate: str = ""
    ) -> tuple[bool, str]:
        if impersonate and not self.asks:
            raise Forbidden(403, "Forbidden", "users may not be impersonated")
        return not impersonate or ((verb, resource.plural) in self.rights and not namespace), ""


async def test_rights_beyond_those_of_deploy_are_warned_of() -> None:
    assert not set(trust.TOO_MUCH) & set(granted()) | set(trust.TOO_MUCH) & set(granted("appwrapper/rbac.yaml"))
    assert [one async for one in trust.rights_beyond(Kube(("get", "pods"), ("patch", "nodes")))] == []
    (found,) = [one async for one in trust.rights_beyond(Kube(("delete", "pods"), ("get", "secrets")))]
    assert (found.good, found.warns) == (True, True)
    assert "may delete pods, get secrets in every namespace" in found.found
    # An administrator's own rights say nothing of the worker's.
    assert [one async for one in trust.rights_beyond(Kube(asks=False))] == []


async def test_nothing_secret_of_a_kubeconfig_is_printed(tmp_path: Path) -> None:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "a"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://me:S3CR3T@127.0.0.1:1"}}],
        "users": [{"name": "a", "token": "S3CR3T"}],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    with pytest.raises(NotReachable) as caught:
        async with reached(str(path), None):
            pass
    assert "S3CR3T" not in str(caught.value)
    assert "Expected key user" in str(caught.value)
    assert "https://127.0.0.1:1" in str(caught.value)
    assert "S3CR3T" not in "".join(traceback.format_exception(caught.value))
