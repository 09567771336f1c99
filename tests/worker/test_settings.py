"""Settings: which source wins, and that each wrong value is refused with its field, its source and what is allowed."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.facts.nodes import Marks
from holdfast.errors import HoldfastError
from holdfast.worker.data import NoClient, opened
from holdfast.worker.evidence import evidence_store
from holdfast.worker.reach import installation_of
from holdfast.worker.runtime.data_settings import quota_of
from holdfast.worker.runtime.health import Health
from holdfast.worker.runtime.settings import Role, Settings, SettingsError, load, misspelled
from holdfast.workflows.entities.cluster_watch import MEMO_INSTALLATION
from tests.worker.temporal.authority import Authority


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in list(os.environ):
        if variable.startswith(("HOLDFAST_", "TEMPORAL_")) or variable == "KUBECONFIG":
            monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)


def test_defaults() -> None:
    settings = load({"cluster": "c"})
    assert settings.roles == tuple(Role)
    assert settings.max_cached_workflows == 600
    assert settings.health_address == "127.0.0.1:8085"
    assert settings.metrics_address == "127.0.0.1:9464"
    assert settings.limits.grace_period_maximum == timedelta(hours=24)
    assert settings.limits.success_ttl_maximum is None
    assert settings.namespaces == ()
    assert (settings.rendezvous_address, settings.rendezvous_url) == ("", "")


def test_where_gangs_are_served_and_where_pods_find_that(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "authority", "gangs").sign("door")
    given = {
        "cluster": "c",
        "rendezvous_address": "0.0.0.0:8086",
        "rendezvous_url": "https://gangs.holdfast-system:8086/",
        "rendezvous_tls_cert_file": pair.certificate,
        "rendezvous_tls_key_file": pair.key,
    }
    settings = load(given)
    assert settings.rendezvous_address == "0.0.0.0:8086"
    assert settings.rendezvous_url == "https://gangs.holdfast-system:8086"
    with pytest.raises(SettingsError, match=r"rendezvous_url.*expected a URL"):
        load({**given, "rendezvous_url": "gangs.holdfast-system"})
    with pytest.raises(SettingsError, match=r"rendezvous_address.*expected host:port"):
        load({**given, "rendezvous_address": "8086"})
    with pytest.raises(SettingsError, match="rendezvous_address: expected with a role that acts on a cluster"):
        load({"roles": "workflows", "rendezvous_address": "0.0.0.0:8086"})


@pytest.mark.row("X9", level="pure")
def test_X9_a_gang_door_without_a_certificate_is_refused_unless_the_operator_says_so(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority", "gangs")
    pair, other = authority.sign("door"), authority.sign("other")
    address = {"rendezvous_address": "0.0.0.0:8086"}
    certificate = {"rendezvous_tls_cert_file": pair.certificate, "rendezvous_tls_key_file": pair.key}
    ca = {"rendezvous_tls_ca_file": authority.certificate}
    plain, secure = {"rendezvous_url": "http://gangs:8086"}, {"rendezvous_url": "https://gangs:8086"}
    insecure = {"rendezvous_insecure": True}
    both, large = tmp_path / "both.pem", tmp_path / "large.pem"
    both.write_text(pair.certificate.read_text() + pair.key.read_text())
    large.write_text(authority.certificate.read_text() * 200)
    for given, said in (
        (address, "rendezvous_address: pods send their tokens there: expected rendezvous_tls_cert_file"),
        (plain, "rendezvous_url: 'http://gangs:8086': pods send their tokens there: expected https"),
        (address | plain | certificate, "expected https"),
        (address | certificate | insecure, "rendezvous_insecure: expected without rendezvous_tls_cert_file"),
        (certificate, "rendezvous_tls_cert_file: expected with rendezvous_address"),
        (address | {"rendezvous_tls_cert_file": pair.certificate}, "rendezvous_tls_cert_file: expected together with"),
        (ca, "rendezvous_tls_ca_file: expected with a certificate"),
        (address | insecure | plain | ca, "rendezvous_tls_ca_file: expected with a certificate"),
        (address | certificate | {"rendezvous_tls_key_file": other.key}, "rendezvous_tls_cert_file: .*KEY_VALUES"),
        (address | certificate | {"rendezvous_tls_cert_file": pair.key}, "expected a PEM certificate and its key"),
        (secure | {"rendezvous_tls_ca_file": pair.key}, "rendezvous_tls_ca_file: .*private key"),
        (secure | {"rendezvous_tls_ca_file": both}, "rendezvous_tls_ca_file: .*private key"),
        (secure | {"rendezvous_tls_ca_file": large}, "rendezvous_tls_ca_file: .*expected at most 65536"),
        (secure | {"rendezvous_tls_ca_file": Path(__file__)}, "rendezvous_tls_ca_file: .*expected certificates, PEM"),
        (secure | {"rendezvous_tls_ca_file": tmp_path / "none"}, "rendezvous_tls_ca_file.*none"),
    ):
        with pytest.raises(SettingsError, match=said):
            load({"cluster": "c", **given})
    for given in (
        address | certificate,
        address | certificate | ca | secure,
        secure | ca,
        address | insecure,
        address | insecure | plain,
        address | insecure | secure | ca,
        {},
    ):
        load({"cluster": "c", **given})


def test_flags_win_over_ours_over_the_shared_over_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('cluster = "file"\ntemporal_address = "file:1"\nlog_format = "console"\nidentity = "file"\n')
    assert load({}, file).temporal_address == "file:1"
    monkeypatch.setenv("TEMPORAL_ADDRESS", "shared:2")
    assert load({}, file).temporal_address == "shared:2"
    monkeypatch.setenv("HOLDFAST_TEMPORAL_ADDRESS", "ours:3")
    assert load({}, file).temporal_address == "ours:3"
    settings = load({"temporal_address": "flag:4", "identity": None}, file)
    assert settings.temporal_address == "flag:4"
    assert (settings.log_format, settings.identity, settings.cluster) == ("console", "file", "file")


def test_the_file_is_found_by_variable_and_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('cluster = "here"\n')
    assert load().cluster == "here"
    (tmp_path / "other.toml").write_text('cluster = "there"\n')
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "other.toml"))
    assert load().cluster == "there"


def test_a_table_of_the_file_is_a_prefix(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('cluster = "c"\nroles = ["watch", "workflows"]\n[temporal]\naddress = "t:7"\nnamespace = "n"\n')
    settings = load({}, file)
    assert (settings.temporal_address, settings.temporal_namespace) == ("t:7", "n")
    assert settings.roles == (Role.WORKFLOWS, Role.WATCH)


def test_lists_are_words_in_flags_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_ROLES", "watch, cluster")
    monkeypatch.setenv("HOLDFAST_NAMESPACES", "a,b")
    settings = load({"cluster": "c"})
    assert settings.roles == (Role.CLUSTER, Role.WATCH)
    assert settings.namespaces == ("a", "b")


def test_durations_and_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_GRACE_PERIOD_MAXIMUM", "90m")
    settings = load({"cluster": "c", "success_ttl_maximum": "1h"})
    assert settings.limits.grace_period_maximum == timedelta(minutes=90)
    assert settings.limits.success_ttl_maximum == timedelta(hours=1)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("roles", "watch,dance", "workflows, cluster, wait, watch, admission"),
        ("roles", ",", "workflows, cluster, wait, watch, admission"),
        ("temporal_address", "nowhere", "host:port"),
        ("health_address", "127.0.0.1:99999", "host:port"),
        ("log_format", "xml", "'json' or 'console'"),
        ("log_level", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("max_cached_workflows", -1, "greater than or equal to 0"),
        ("max_concurrent_activities", 0, "greater than or equal to 1"),
        ("grace_period_maximum", "5 years", "90s, 1m30s, 1h or 7d"),
        ("cluster", "Not_a_label", "DNS label"),
        ("namespaces", "ok,Bad_One", "DNS label"),
        ("node_eviction_labels", "health=a=b", "expected key or key=value"),
        ("node_fault_conditions", "with space", "expected key or key=value"),
        ("watch_shard_sets", 65, "less than or equal to 64"),
        ("temporal_api_key_file", "/no/such/file", "file that can be read"),
    ],
)
def test_a_wrong_value_is_refused_with_its_field_and_what_is_allowed(field: str, value: object, allowed: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        load({"cluster": "c", field: value})
    assert str(refusal.value).startswith(field)
    assert f"--{field.replace('_', '-')}" in str(refusal.value)
    assert allowed in str(refusal.value)
    assert isinstance(refusal.value, HoldfastError)


def test_a_refusal_names_the_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "nowhere")
    with pytest.raises(SettingsError, match="TEMPORAL_ADDRESS"):
        load({"cluster": "c"})
    monkeypatch.delenv("TEMPORAL_ADDRESS")
    file = tmp_path / "bad.toml"
    file.write_text('cluster = "c"\nlog_format = "xml"\nlog_levle = "info"\n')
    with pytest.raises(SettingsError) as refusal:
        load({}, file)
    assert f"log_format ({file})" in str(refusal.value)
    assert "did you mean log_level?" in str(refusal.value)


@pytest.mark.parametrize("content", [None, "cluster = ", "\xff"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "broken.toml"
    if content is not None:
        file.write_bytes(content.encode("latin-1"))
    with pytest.raises(SettingsError, match="config: "):
        load({}, file)


def test_only_workflows_needs_no_cluster() -> None:
    assert not load({"roles": "workflows"}).acts_on_cluster
    with pytest.raises(SettingsError, match="cluster: expected"):
        load({"roles": "watch"})


def test_what_belongs_together_is_refused_alone(tmp_path: Path) -> None:
    some = tmp_path / "cert"
    some.write_text("x")
    for alone in ({"temporal_tls_cert_file": some}, {"deployment_name": "d"}, {"build_id": "b"}):
        with pytest.raises(SettingsError, match="expected together"):
            load({"cluster": "c", **alone})


@pytest.mark.row("X7", level="pure")
def test_X7_what_contradicts_itself_about_tls_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key, ca = tmp_path / "key", tmp_path / "ca"
    key.write_text("swordfish\n")
    ca.write_text("ca")
    for given, said in (
        ({"temporal_tls": False, "temporal_api_key_file": key}, "never sent without TLS"),
        ({"temporal_tls": False, "temporal_tls_ca_file": ca}, "a server CA"),
        ({"temporal_address": "http://t:1"}, "without a scheme"),
        ({"temporal_address": "a:1,b:2", "temporal_api_key_file": key}, "temporal_tls_server_name"),
    ):
        with pytest.raises(SettingsError, match=said):
            load({"cluster": "c", **given})
    assert load({"cluster": "c", "temporal_api_key_file": key}).credentials().api_key == "swordfish"
    monkeypatch.setenv("TEMPORAL_API_KEY", "other\n")
    assert load({"cluster": "c"}).credentials().api_key == "other"
    assert load({"cluster": "c", "temporal_api_key_file": key}).credentials().api_key == "swordfish"


def test_a_kubeconfig_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="kubeconfig"):
        load({"cluster": "c", "kubeconfig": str(tmp_path / "none")})
    some = tmp_path / "one"
    some.write_text("x")
    assert load({"cluster": "c", "kubeconfig": f"{tmp_path / 'none'}:{some}"}).kubeconfig.endswith("one")


def test_a_misspelled_variable_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TEMPORAL_ADRESS", "x:1")
    monkeypatch.setenv("HOLDFAST_SOMETHING_ELSE_ENTIRELY", "x")
    monkeypatch.setenv("HOLDFAST_ATTEMPT", "3")
    assert misspelled() == ["HOLDFAST_TEMPORAL_ADRESS is no setting: did you mean HOLDFAST_TEMPORAL_ADDRESS?"]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64])
def test_shard_sets_cover_every_shard_once(count: int) -> None:
    sets = load({"cluster": "c", "watch_shard_sets": count}).shard_sets
    assert len(sets) == count
    assert [shard for first, last in sets for shard in range(first, last + 1)] == list(range(names.SHARDS))


def test_every_setting_is_an_option_of_the_command() -> None:
    import inspect

    from holdfast.cli.cluster.worker_options import run

    options = set(inspect.signature(run).parameters) - {"config"}
    assert options == set(Settings.model_fields)


def test_marks_of_bad_nodes_are_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load({"cluster": "c"}).marks == Marks()
    monkeypatch.setenv("HOLDFAST_NODE_FAULT_CONDITIONS", "GpuReady=False, FanBroken")
    monkeypatch.setenv("HOLDFAST_NODE_FAULT_TAINTS", ",")
    assert load({"cluster": "c"}).marks == Marks(taints=(), conditions=("GpuReady=False", "FanBroken"))


def test_L15_where_machines_are_found_and_by_which_right(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("swordfish")
    url = "https://bmc.example.com/redfish/v1/Systems/{node}"
    given = {"cluster": "c", "provisioner_url": url, "provisioner_user": "admin"}
    settings = load({**given, "provisioner_password_file": password, "fence": True})
    assert settings.redfish is not None
    assert (settings.redfish.template, settings.redfish.password()) == (url, "swordfish")
    assert settings.node_timings.fence
    assert load({"cluster": "c"}).redfish is None
    assert "fence" not in load({"cluster": "c"}).node_timings.model_dump()
    for wrong in ("bmc", "https://bmc/redfish/v1/Systems/1", "ftp://bmc/{node}"):
        with pytest.raises(SettingsError, match=r"provisioner_url.*expected a URL such as"):
            load({**given, "provisioner_url": wrong})
    with pytest.raises(SettingsError, match="expected no name and no password in it"):
        load({**given, "provisioner_url": "https://admin:swordfish@bmc/{node}"})
    with pytest.raises(SettingsError, match="provisioner_user: expected together with provisioner_password_file"):
        load(given)
    assert (settings.redfish.from_nodes, settings.redfish.allow_unverified) == ((), False)
    with pytest.raises(SettingsError, match="fence: expected with provisioner_url"):
        load({"cluster": "c", "fence": True})
    with pytest.raises(SettingsError, match="fence: expected with provisioner_url, and with node_monitor"):
        load({"cluster": "c", "provisioner_url": url, "fence": True, "node_monitor": False})
    monkeypatch.setattr("holdfast.worker.runtime.settings.redfish_is_installed", lambda: False)
    with pytest.raises(SettingsError, match=r"needs the extra `redfish`: pip install 'holdfast\[redfish\]'"):
        load({"cluster": "c", "provisioner_url": url})
    assert load({"roles": "workflows", "provisioner_url": url}).redfish is not None


@pytest.mark.row("X1", level="pure")
def test_X1_a_worker_refuses_an_address_that_could_give_its_password_away(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("swordfish")
    listed = "provisioner_addresses_from_nodes"
    url = "https://{node}.bmc.corp/redfish/v1/Systems/1"
    given = {"cluster": "c", "provisioner_url": url}
    ours = "https://{node}.bmc.corp/redfish/v1/Systems/Self"
    settings = load({**given, listed: f"{ours}, https://10.0.0.7/redfish/v1/Systems/1"})
    assert settings.redfish is not None
    assert settings.redfish.from_nodes == (ours, "https://10.0.0.7/redfish/v1/Systems/1")
    for wrong in ("https://bmc.corp", "https://bmc.corp\\.evil.example.com/x", "bmc.corp", "https://bmc.corp/{nodes}"):
        with pytest.raises(SettingsError, match="expected a URL such as") as refusal:
            load({**given, listed: f"{ours},{wrong}"})
        assert str(refusal.value).startswith(f"{listed} (--{listed.replace('_', '-')}): {wrong!r}: ")
    with pytest.raises(SettingsError, match=f"{listed}: expected with provisioner_url"):
        load({"cluster": "c", listed: ours})
    secret = {**given, "provisioner_user": "admin", "provisioner_password_file": password}
    for clear in ({"provisioner_url": url.replace("https", "http")}, {listed: ours.replace("https", "http")}):
        with pytest.raises(SettingsError, match=r"provisioner_user: 'http://.*': expected https://, since by http://"):
            load({**secret, **clear})
        assert load({**given, **clear}).redfish is not None, "there is no password to read"


def test_L14_where_data_sets_come_from_and_who_may_have_them() -> None:
    given = {"cluster": "c", "data_directory": "/srv/data/", "data_sources": "team=s3://datasets/team/, *=s3://public"}
    settings = load(given)
    assert settings.data_directory == "/srv/data"
    assert settings.data_sources == ("team=s3://datasets/team", "*=s3://public")
    for field, value, why in [
        ("data_directory", "srv", "expected an absolute path"),
        ("data_directory", "", "data_directory: expected with data_sources"),
        ("data_sources", "", "data_sources: expected with data_directory"),
        ("data_sources", "team", r"expected namespace=s3://bucket/prefix"),
        ("data_sources", "team=http://x", r"expected s3://bucket/prefix"),
        ("data_endpoint", "http://store:9000", "expected https, or data_allow_http"),
        ("data_credentials_file", "nowhere", "no file that can be read"),
        ("data_seal_file", "nowhere", "no file that can be read"),
        ("data_quotas", "10Ti", "expected namespace=quantity, such as team=10Ti"),
        ("data_quotas", "Team=10Ti", "expected namespace=quantity"),
        ("data_quotas", "team=much", "'much' is not a quantity"),
        ("data_quotas", "team=0", "expected at least 1 byte"),
        ("data_quotas", "team=1,team=2", "expected one quota for team"),
    ]:
        with pytest.raises(SettingsError, match=why):
            load({**given, field: value})
    with pytest.raises(SettingsError, match="data_claim: expected without data_host_path"):
        load({**given, "data_claim": "datasets", "data_host_path": "/mnt/data"})


@pytest.mark.row("P3", level="pure")
def test_P3_where_evidence_is_kept() -> None:
    given = {"cluster": "c", "evidence_store": "s3://logs/evidence/", "data_endpoint": "https://store:9000"}
    settings = load(given)
    assert settings.evidence_store == "s3://logs/evidence"
    assert settings.evidence_lifetime == timedelta(days=14)
    assert evidence_store(load({"cluster": "c"}), DataConverter.default) is None
    kept_in = evidence_store(settings, DataConverter.default)
    assert kept_in is not None
    assert (kept_in.source, kept_in.lifetime) == ("s3://logs/evidence", timedelta(days=14))
    data = {"data_directory": "/srv/data", "data_sources": "*=s3://logs/evidence/of-others"}
    for changes, why in [
        ({"evidence_store": "logs"}, "expected s3://bucket/prefix"),
        ({"evidence_store": "s3://logs"}, "expected a prefix, such as s3://logs/evidence"),
        ({"evidence_lifetime": "0s"}, "expected more than 0s"),
        ({"data_endpoint": "http://store:9000"}, "expected https, or data_allow_http"),
        (data, "evidence_store: s3://logs/evidence: expected another prefix than that of the data sets"),
        ({**data, "data_sources": "*=s3://logs"}, "expected another prefix than that of the data sets under s3://logs"),
    ]:
        with pytest.raises(SettingsError, match=why):
            load({**given, **changes})
    with pytest.raises(SettingsError, match="data_directory: expected with data_endpoint"):
        load({"cluster": "c", "data_endpoint": "https://store:9000"})


@pytest.mark.row("P3", level="pure")
def test_P3_a_worker_keeps_evidence_only_with_the_client_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = load({"cluster": "c", "evidence_store": "s3://logs/evidence"})
    monkeypatch.setitem(sys.modules, "holdfast.activities.data.s3", None)
    with pytest.raises(SettingsError, match="pip install 'holdfast\\[s3\\]'"):
        evidence_store(given, DataConverter.default)


def test_X10_quotas_and_the_key_of_records(tmp_path: Path) -> None:
    given = {"cluster": "c", "data_directory": "/srv/data", "data_sources": "*=s3://public"}
    quotas = load({**given, "data_quotas": "team=10Ti, *=1500m"}).data_quotas
    assert [quota_of(quotas, one) for one in ("team", "other")] == [10 * 2**40, 1]
    assert quota_of((), "team") is None
    with pytest.raises(SettingsError, match="data_directory: expected with data_quotas"):
        load({"cluster": "c", "data_quotas": "*=1Ti"})
    key = tmp_path / "seal"
    key.write_bytes(bytes(31))
    with pytest.raises(SettingsError, match="has 31 bytes: expected at least 32 random ones"):
        opened(load({**given, "data_seal_file": str(key)}))
    key.write_bytes(bytes(32))
    assert opened(load({**given, "data_seal_file": str(key)})) is not None


def test_L14_a_worker_finds_its_store_only_with_the_client_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = load({"cluster": "c", "data_directory": "/srv/data", "data_sources": "*=s3://public"})
    assert opened(load({"cluster": "c"})) is None
    data = opened(given)
    assert data is not None
    assert (data.host_path, data.claim, data.grants) == ("/srv/data", "", (("*", "s3://public"),))
    monkeypatch.setitem(sys.modules, "holdfast.activities.data.s3", None)
    with pytest.raises(NoClient, match=r"pip install 'holdfast\[s3\]'"):
        opened(given)


class _Watched:
    """A Temporal namespace in which the cluster's watch has begun, or has not."""

    def __init__(self, memo: dict[str, str] | None) -> None:
        self._memo = memo

    def get_workflow_handle(self, _: str) -> _Watched:
        return self

    async def describe(self, **_: object) -> _Watched:
        if self._memo is None:
            raise RPCError("", RPCStatusCode.NOT_FOUND, b"")
        return self

    async def memo(self) -> dict[str, str]:
        assert self._memo is not None
        return self._memo


BLUE = {"managed_by": "holdfast.dev/blue"}
DERIVED = {MEMO_INSTALLATION: "holdfast-abcd1234"}


@pytest.mark.row("F15", level="pure")
@pytest.mark.parametrize(
    ("given", "memo", "label"),
    [
        ({}, None, "holdfast-abcd1234"),
        ({"installation": "ours"}, None, "ours"),
        (BLUE | {"installation": "blue"}, None, "blue"),
        (BLUE, DERIVED, "holdfast-abcd1234"),
    ],
    ids=["alone", "named", "second", "begun under an earlier release"],
)
async def test_F15_an_installation_keeps_its_label(given: dict[str, str], memo: dict[str, str] | None, label: str):
    settings = load({"cluster": "c", **given})
    client = cast("Client", _Watched(memo))
    assert await installation_of(client, settings, "abcd1234-0000", Health()) == label


@pytest.mark.row("F15", level="pure")
@pytest.mark.parametrize("memo", [None, {}, {MEMO_INSTALLATION: "holdfast-99999999"}])
async def test_F15_a_second_installation_begins_with_a_label_of_its_own_or_not_at_all(memo: dict[str, str] | None):
    client = cast("Client", _Watched(memo))
    with pytest.raises(SettingsError, match=r"installation: missing: with managed_by 'holdfast.dev/blue'.*'blue'"):
        await installation_of(client, load({"cluster": "c", **BLUE}), "abcd1234-0000", Health())
