"""Settings of a worker: flags override the environment, which overrides a TOML file; all are checked before start."""

from __future__ import annotations

import difflib
import itertools
import os
import re
import tomllib
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from holdfast import __version__, names
from holdfast.activities.facts.nodes import CONDITIONS, LABELS, TAINTS, Marks, Silence
from holdfast.activities.nodes.redfish import Access
from holdfast.activities.nodes.redfish import is_installed as redfish_is_installed
from holdfast.codec.keyfile import read as read_keys
from holdfast.errors import HoldfastError
from holdfast.model import Duration, Limits, NodeTimings, format_duration
from holdfast.model.entities.provisioner import AT_ONCE
from holdfast.policy.nodes.machine_address import EXPECTED, PLACEHOLDER, unusable
from holdfast.relay import addresses_of
from holdfast.tls import Credentials, check_target, is_secured, key_of
from holdfast.worker.runtime import rendezvous_settings
from holdfast.worker.runtime.data_settings import (
    checked_directory,
    checked_grants,
    checked_quotas,
    checked_store,
    problem_with,
)
from holdfast.worker.runtime.rendezvous_settings import RendezvousFiles
from holdfast.workflows.patches import release

ENV_PREFIX = "HOLDFAST_"
ENV_CONFIG = "HOLDFAST_CONFIG"
ENV_API_KEY = "TEMPORAL_API_KEY"
"""Holds Temporal's API key. It is no setting: others can read a command's flags."""
ENV_FAILPOINT = "HOLDFAST_FAILPOINT"
ENV_FAILPOINT_TRACE = "HOLDFAST_FAILPOINT_TRACE"
ENV_ALLOW_FAILPOINTS = "HOLDFAST_ALLOW_FAILPOINTS"
DECIDED_WITHIN = timedelta(seconds=10)
"""Time from the end of a node's allowed silence until it is found Down and its workloads are told."""
CONFIG_DEFAULT = Path("holdfast.toml")
SHARD_SETS_MAXIMUM = 64

# Variables shared with other tools; ours, with the prefix, take precedence.
SHARED_VARIABLES: dict[str, str] = {
    "TEMPORAL_ADDRESS": "temporal_address",
    "TEMPORAL_NAMESPACE": "temporal_namespace",
    "TEMPORAL_TLS": "temporal_tls",
    "TEMPORAL_TLS_SERVER_CA_CERT_PATH": "temporal_tls_ca_file",
    "TEMPORAL_TLS_CLIENT_CERT_PATH": "temporal_tls_cert_file",
    "TEMPORAL_TLS_CLIENT_KEY_PATH": "temporal_tls_key_file",
    "TEMPORAL_TLS_SERVER_NAME": "temporal_tls_server_name",
    "KUBECONFIG": "kubeconfig",
}

# Set for other purposes, or for tests alone (failpoints.py): neither settings nor misspelled settings.
_FOREIGN_VARIABLES = {
    ENV_CONFIG,
    ENV_FAILPOINT,
    ENV_FAILPOINT_TRACE,
    ENV_ALLOW_FAILPOINTS,
    names.ENV_ATTEMPT,
    names.ENV_WORKLOAD_UID,
    names.ENV_RENDEZVOUS,
    names.ENV_RENDEZVOUS_TOKEN,
    names.ENV_RENDEZVOUS_CA,
}


class SettingsError(HoldfastError):
    """One or more settings cannot be used; each line of the message names the field and what is allowed."""


class Role(StrEnum):
    """What a worker process does; one task queue each."""

    WORKFLOWS = "workflows"
    """Decides: runs the workflows. Needs Temporal only."""
    CLUSTER = "cluster"
    """Acts: short activities on one cluster."""
    WAIT = "wait"
    """Waits: removal proofs and other long activities on one cluster."""
    WATCH = "watch"
    """Sees: watches one cluster and signals workflows."""
    ADMISSION = "admission"
    """Admits: runs the workflows of admission queues, each on a task queue of its own. Needs Temporal only."""


_APART = {Role.WORKFLOWS, Role.ADMISSION}
"""Roles that need no cluster."""


def _address(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{value!r} is not an address: expected host:port, for example 127.0.0.1:7233")
    return value


def _addresses(value: str) -> str:
    try:
        check_target(value)
    except HoldfastError as error:
        raise ValueError(str(error)) from None
    return ",".join(_address(one) for one in addresses_of(value)) or _address(value)


def _optional_address(value: str) -> str:
    return _address(value) if value else value


def _optional_url(value: str) -> str:
    parts = urlsplit(value)
    if value and not (parts.scheme in {"http", "https"} and parts.hostname and not parts.query):
        raise ValueError(f"{value!r}: expected a URL such as https://holdfast-rendezvous.holdfast-system:8086")
    return value.rstrip("/")


def _node_url(value: str) -> str:
    if value and PLACEHOLDER not in value:
        raise ValueError(f"{value!r}: {EXPECTED}")
    return _machine(value.rstrip("/"))


def _machines(value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_machine, value))


def _machine(address: str) -> str:
    if address and (wrong := unusable(address)):
        raise ValueError(f"{address!r}: {wrong}")
    return address


def _label(value: str) -> str:
    if value and not names.DNS_LABEL.match(value):
        raise ValueError(f"{value!r}: expected a DNS label, at most 63 characters of [-a-z0-9]")
    return value


def _earlier_release(value: str) -> str:
    if not value:
        return value
    own = release(__version__)
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", value) or not (own[0], own[1] - 1) <= release(value) <= own:
        known = f"{own[0]}.{own[1] - 1} or {own[0]}.{own[1]}"
        raise ValueError(f"{value!r}: expected the release before this one, or this one: {known}")
    return value


def _words(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    return value


def _roles(value: Any) -> Any:
    words = _words(value)
    if not isinstance(words, (tuple, list, set, frozenset)):
        raise ValueError(f"{value!r}: expected some of {', '.join(Role)}")
    given = {str(word) for word in cast("tuple[object, ...]", words)}
    unknown = sorted(given - set(Role))
    if unknown or not given:
        found = f"{', '.join(map(repr, unknown))} is no role" if unknown else "no role is given"
        raise ValueError(f"{found}: expected some of {', '.join(Role)}, separated by commas")
    return tuple(role for role in Role if role in given)


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("expected more than 0s")
    return value


def _file(value: Path) -> Path:
    if not value.is_file():
        raise ValueError(f"{str(value)!r} is no file that can be read")
    return value


def _key_file(value: Path | None) -> Path | None:
    if value is not None:
        try:
            read_keys(value)
        except HoldfastError as error:
            raise ValueError(str(error)) from None
    return value


_MARK = re.compile(r"[A-Za-z0-9]([A-Za-z0-9./_-]*[A-Za-z0-9])?(=[A-Za-z0-9._-]*)?")


def _marks(value: tuple[str, ...]) -> tuple[str, ...]:
    for mark in value:
        if not _MARK.fullmatch(mark):
            raise ValueError(f"{mark!r}: expected key or key=value, for example autopilot.ibm.com/gpuhealth=EVICT")
    return value


NodeMarks = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words), AfterValidator(_marks)]
Address = Annotated[str, AfterValidator(_address)]
Addresses = Annotated[str, AfterValidator(_addresses)]
OptionalAddress = Annotated[str, AfterValidator(_optional_address)]
OptionalUrl = Annotated[str, AfterValidator(_optional_url)]
NodeUrl = Annotated[str, AfterValidator(_node_url)]
Label = Annotated[str, AfterValidator(_label)]
File = Annotated[Path, AfterValidator(_file)]
Count = Annotated[int, Field(ge=1, le=100_000)]
_config_file: ContextVar[Path | None] = ContextVar("holdfast_config_file", default=None)


class _Shared(PydanticBaseSettingsSource):
    """The variables shared with other tools."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        for variable, name in SHARED_VARIABLES.items():
            if name == field_name and os.environ.get(variable):
                return os.environ[variable], field_name, False
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        return {name: os.environ[var] for var, name in SHARED_VARIABLES.items() if os.environ.get(var)}


class _File(PydanticBaseSettingsSource):
    """The TOML file. A table is a prefix: `[temporal] address = ...` is `temporal_address = ...`."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self().get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        path = _config_file.get()
        return {} if path is None else _read(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError(f"config: {path}: {error.strerror or error}: expected a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"config: {path} is not TOML: {error}") from None
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            table = cast("dict[str, Any]", value)
            flat.update({f"{key}_{inner}".replace("-", "_"): item for inner, item in table.items()})
        else:
            flat[key.replace("-", "_")] = value
    return flat


def own_manager(value: str) -> str:
    """Reject a `managedBy` that is another controller's.

    Raises:
        ValueError: if it is not one of Holdfast's own.
    """
    if not names.is_own_manager(value):
        raise ValueError(f"{value!r}: expected {names.GROUP}/ and a DNS label, for example {names.MANAGED_BY}")
    return value


class Settings(BaseSettings):
    """All settings of a worker process. A field `x_y` is `--x-y`, `HOLDFAST_X_Y` and `x_y` in the TOML file."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    cluster: Label = ""
    """Name of the cluster this worker acts on. Needed by every role but `workflows` and `admission`."""
    roles: Annotated[tuple[Role, ...], NoDecode, BeforeValidator(_roles)] = tuple(Role)
    """Some of workflows, cluster, wait, watch, admission, by commas. Default: all five."""
    queues: Annotated[tuple[Label, ...], NoDecode, BeforeValidator(_words)] = ()
    """The only admission queues that the role `admission` serves. Empty: all of the cluster, or of all clusters."""
    installation: Label = ""
    """Label of this installation's objects. Empty: derived from the cluster's identity. A second one needs its own."""
    managed_by: Annotated[str, AfterValidator(own_manager)] = names.MANAGED_BY
    """The `managedBy` of custom resources that are run here. A second installation has one of its own, and a label."""
    identity: str = ""
    """Name of this process in Temporal. Empty: its pid and host."""

    temporal_address: Addresses = "127.0.0.1:7233"
    """host:port, or several by commas if no name stands for all servers: any that answers is used."""
    temporal_namespace: Annotated[str, Field(min_length=1)] = "default"
    temporal_tls: bool | None = None
    """Whether to use TLS for Temporal. Default: if a file or name below, or an API key, needs it."""
    temporal_tls_ca_file: File | None = None
    temporal_tls_cert_file: File | None = None
    temporal_tls_key_file: File | None = None
    temporal_tls_server_name: str = ""
    temporal_api_key_file: File | None = None
    """A file with the API key, read again when it changes, as certificates are. Else the variable TEMPORAL_API_KEY."""

    codec_keys: Annotated[Path | None, AfterValidator(_key_file)] = None
    """Key file that encrypts what Temporal stores, read again when it changes. None: nothing is encrypted."""
    codec_accept_plaintext: bool = False
    """Whether payloads that are not encrypted are taken too; whoever writes to Temporal needs no key then."""

    kubeconfig: str = ""
    """Path, or several separated by colons. Empty: the pod's own service account, else ~/.kube/config."""
    kube_context: str = ""
    """Context of the kubeconfig. Empty: the current one."""
    namespaces: Annotated[tuple[Label, ...], NoDecode, BeforeValidator(_words)] = ()
    """The only namespaces in which this worker makes or changes anything; it removes everywhere. Empty: all enabled."""

    grace_period_maximum: Duration = Limits().grace_period_maximum
    """Caps every workload's waits, for example 24h."""
    success_ttl_maximum: Duration | None = None
    """Caps how long a finished workload is kept."""

    node_eviction_labels: NodeMarks = LABELS
    """Labels that mark a node whose pods must leave: `key` or `key=value`. Empty: none."""
    node_fault_taints: NodeMarks = TAINTS
    """Taints that mark a node with broken hardware: `key` or `key=value`."""
    node_fault_conditions: NodeMarks = CONDITIONS
    """Conditions that mark a node with broken hardware: `type` if True is bad, else `type=status`."""
    node_monitor: bool = True
    """Whether to find silent nodes Down, by their leases. Without it only marks count."""
    node_degraded: Annotated[Duration, AfterValidator(_positive)] = NodeTimings().degraded
    """Time without a lease renewal after which a node is Degraded; kubelets renew their lease every 10 s."""
    node_down: Annotated[Duration, AfterValidator(_positive)] = NodeTimings().down
    """Further time without a renewal after which the node is Down, and the workloads with pods there are told."""
    node_sensitive_down: Annotated[Duration, AfterValidator(_positive)] = NodeTimings().sensitive_down
    """The same for sensitive workloads."""
    node_check: Annotated[Duration, AfterValidator(_positive)] = NodeTimings().check
    """How long a node back from Down must renew its lease before the health check that lets it have pods again."""
    node_flaps: Annotated[int, Field(ge=1, le=16)] = NodeTimings().flaps
    """A node that falls silent this often in `node_flap_window` stays Degraded until it renews for that long."""
    node_flap_window: Annotated[Duration, AfterValidator(_positive)] = NodeTimings().flap_window

    provisioner_url: NodeUrl = ""
    """Redfish URL of a node's ComputerSystem, with `{node}` for its name. Empty: nothing boots or powers off nodes."""
    provisioner_user: str = ""
    provisioner_password_file: File | None = None
    """A file with the password. As with the API key, there is no setting for the password itself."""
    provisioner_ca_file: File | None = None
    provisioner_insecure: bool = False
    """Whether to accept any certificate of the service."""
    provisioner_addresses_from_nodes: Annotated[
        tuple[str, ...], NoDecode, BeforeValidator(_words), AfterValidator(_machines)
    ] = ()
    """Whole URLs, by commas, that a node's annotation may name; `{node}` as above. Empty: annotations are ignored."""
    provisioner_allow_unverified_machine: bool = False
    """Whether to power or erase a machine by its URL alone if it or its node reports no UUID to compare."""
    provisioner_at_once: Annotated[int, Field(ge=1, le=100)] = AT_ONCE
    """How many of its requests run at once; in addition, as many fences of each service."""
    fence: bool = False
    """Whether to power off a node that is Down by its silence before its pods are replaced."""

    max_concurrent_workflow_tasks: Count = 100
    max_concurrent_activities: Count = 200
    max_fresh_activities: Count = 24
    """How many of them may have begun within the last four seconds, so that a burst runs one after another."""
    max_concurrent_waits: Count = 1000
    """Removals, checkpoints and other activities that wait for the cluster."""
    max_fresh_waits: Count = 32
    """How many of them may have begun within the last second; removals that have asked for deletions do not count."""
    max_concurrent_probes: Count = 1000
    """Services that are probed: each holds one slot for as long as it runs (role wait)."""
    max_cached_workflows: Annotated[int, Field(ge=0, le=100_000)] = 600
    graceful_shutdown: Duration = timedelta(seconds=10)
    """How long running work may continue after SIGTERM."""

    watch_shard_sets: Annotated[int, Field(ge=1, le=SHARD_SETS_MAXIMUM)] = 1
    """Number of watch activities that share the cluster's 256 shards."""
    watch_signals_per_second: Annotated[float, Field(gt=0, le=10_000)] = 200

    watchdog_every: Annotated[Duration, AfterValidator(_positive)] = timedelta(seconds=10)
    """How often to check the cluster's entities: queues, graphs, the node monitor and others (role watch)."""
    watchdog_patience: Annotated[Duration, AfterValidator(_positive)] = timedelta(minutes=2)
    """How long an entity may fail its tasks before it is terminated and restarted: longer than a rolling upgrade takes.

    It doubles each time that the same entity is terminated, up to an hour.
    """

    rendezvous_address: OptionalAddress = ""
    """host:port that serves the agents of elastic gangs, over TLS. Empty: this worker serves no gang."""
    rendezvous_url: OptionalUrl = ""
    """URL of the workers that serve gangs, for pods; its host may stand for several. Empty: the address itself."""
    rendezvous_tls_cert_file: File | None = None
    """PEM certificate for the host of that URL. It and its key are read again when they change."""
    rendezvous_tls_key_file: File | None = None
    rendezvous_tls_ca_file: File | None = None
    """The authority that signed it, which pods verify it by. None: the public ones."""
    rendezvous_insecure: bool = False
    """Whether to serve gangs over plain HTTP: whoever reads the network can take a pod's token."""
    max_concurrent_gangs: Count = 200
    """Gangs that this worker serves: each holds one slot for as long as it runs."""

    data_directory: Annotated[str, AfterValidator(checked_directory)] = ""
    """Folder on a file system that nodes share, for staged data sets: each namespace's own in a folder of its name.

    Empty: this worker stages none.
    """
    data_host_path: Annotated[str, AfterValidator(checked_directory)] = ""
    """That folder as nodes see it. Empty: under the same path."""
    data_claim: Label = ""
    """Name of the claim, in each workload's namespace, that holds that namespace's folder instead."""
    data_endpoint: OptionalUrl = ""
    """URL of the S3 store that data sets come from, and that evidence is kept in. Empty: Amazon's, of `data_region`."""
    data_region: str = ""
    """Empty: us-east-1."""
    data_allow_http: bool = False
    """Whether the store may be reached without TLS."""
    data_credentials_file: File | None = None
    """A file such as ~/.aws/credentials, read again when it changes. None: the AWS_* variables."""
    data_sources: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words), AfterValidator(checked_grants)] = ()
    """Sources that a namespace's workloads may stage: namespace=s3://bucket/prefix, or *=s3://... for all."""
    data_quotas: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words), AfterValidator(checked_quotas)] = ()
    """Bytes that a namespace may keep staged: namespace=10Ti, or *=1Ti for all others. Empty: no limit, none goes."""
    data_seal_file: File | None = None
    """A file of at least 32 random bytes that all workers have: it seals what is recorded of staged files.

    None: whoever can write to the folder can also forge the records.
    """

    evidence_store: Annotated[str, AfterValidator(checked_store)] = ""
    """s3://bucket/prefix that keeps evidence of failed attempts, at the endpoint of data sets. Empty: none is kept."""
    evidence_lifetime: Annotated[Duration, AfterValidator(_positive)] = timedelta(days=14)
    """How long evidence is kept."""

    health_address: Address = "127.0.0.1:8085"
    """host:port of /livez and /readyz."""
    metrics_address: Address = "127.0.0.1:9464"
    """host:port of /metrics."""
    log_format: Literal["json", "console"] = "json"
    """json or console."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """debug, info, warning or error."""

    compatible_with: Annotated[str, AfterValidator(_earlier_release)] = ""
    """The earliest release that must be able to go on with each workflow, such as 0.1: set it during an upgrade."""

    deployment_name: str = ""
    """Worker deployment for Temporal's worker versioning; with `build_id`. Empty: no versioning."""
    build_id: str = ""

    temporal_wait: Annotated[Duration, AfterValidator(_positive)] = timedelta(seconds=2)
    """Longest pause between two tries to reach Temporal or the cluster at start."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        acting = [role for role in self.roles if role not in _APART]
        if acting and not self.cluster:
            raise ValueError(f"cluster: expected the cluster's name, which the roles {', '.join(acting)} need")
        if self.rendezvous_address and not acting:
            raise ValueError("rendezvous_address: expected with a role that acts on a cluster: cluster, wait or watch")
        given = self.model_dump()
        if problem := problem_with(given) or rendezvous_settings.problem_with(given):
            raise ValueError(problem)
        if self.codec_accept_plaintext and self.codec_keys is None:
            raise ValueError("codec_accept_plaintext: expected with codec_keys: without it nothing is encrypted")
        if bool(self.temporal_tls_cert_file) != bool(self.temporal_tls_key_file):
            raise ValueError("temporal_tls_cert_file: expected together with temporal_tls_key_file, or neither")
        try:
            secured = is_secured(self.credentials())
        except (HoldfastError, OSError) as error:
            raise ValueError(str(error)) from None
        if secured and not self.temporal_tls_server_name and len(addresses_of(self.temporal_address)) > 1:
            raise ValueError(
                "temporal_tls_server_name: missing: with several addresses it is the name that all of them prove"
            )
        if self.provisioner_url and acting and not redfish_is_installed():
            raise ValueError("provisioner_url: needs the extra `redfish`: pip install 'holdfast[redfish]'")
        if bool(self.provisioner_user) != bool(self.provisioner_password_file):
            raise ValueError("provisioner_user: expected together with provisioner_password_file, or neither")
        if self.provisioner_addresses_from_nodes and not self.provisioner_url:
            raise ValueError("provisioner_addresses_from_nodes: expected with provisioner_url")
        for address in (self.provisioner_url, *self.provisioner_addresses_from_nodes):
            if self.provisioner_user and address and (wrong := unusable(address, password=True)):
                raise ValueError(f"provisioner_user: {address!r}: {wrong}")
        if self.fence and not (self.provisioner_url and self.node_monitor):
            raise ValueError("fence: expected with provisioner_url, and with node_monitor, which finds nodes Down")
        if bool(self.deployment_name) != bool(self.build_id):
            raise ValueError("deployment_name: expected together with build_id, or neither")
        files = [Path(part).expanduser() for part in self.kubeconfig.split(":") if part]
        if acting and files and not any(file.is_file() for file in files):
            raise ValueError(f"kubeconfig: {self.kubeconfig!r} is no file that can be read")
        return self

    def credentials(self) -> Credentials:
        """Read what the connection to Temporal trusts, and what it proves itself with.

        Raises:
            OSError: if a file cannot be read.
            HoldfastError: if the API key's file has more than a key.
        """
        files = (self.temporal_tls_ca_file, self.temporal_tls_cert_file, self.temporal_tls_key_file)
        ca, certificate, key = (file.read_bytes() if file is not None else None for file in files)
        key_file = self.temporal_api_key_file
        variable = os.environ.get(ENV_API_KEY)
        api_key = key_of(key_file) if key_file is not None else variable.strip() if variable else None
        return Credentials(self.temporal_tls, self.temporal_tls_server_name, ca, certificate, key, api_key)

    @property
    def rendezvous_files(self) -> RendezvousFiles:
        """Where the certificate and key of the gang door are, and the authority that pods are given."""
        return RendezvousFiles(self.rendezvous_tls_cert_file, self.rendezvous_tls_key_file, self.rendezvous_tls_ca_file)

    @property
    def limits(self) -> Limits:
        """The operator's limits, which cap what a submission asks for."""
        return Limits(grace_period_maximum=self.grace_period_maximum, success_ttl_maximum=self.success_ttl_maximum)

    @property
    def marks(self) -> Marks:
        """Identifies a bad node."""
        return Marks(self.node_eviction_labels, self.node_fault_taints, self.node_fault_conditions)

    def marks_for(self, installation: str) -> Marks:
        """Return the marks of a bad node, including those that this installation's own monitor sets."""
        return replace(self.marks, installation=installation)

    @property
    def node_timings(self) -> NodeTimings:
        """How long a node may be silent."""
        return NodeTimings(
            degraded=self.node_degraded,
            down=self.node_down,
            sensitive_down=self.node_sensitive_down,
            check=self.node_check,
            flaps=self.node_flaps,
            flap_window=self.node_flap_window,
            fence=self.fence,
        )

    @property
    def redfish(self) -> Access | None:
        """Access to the machines of nodes; None if nothing boots or powers them off."""
        if not self.provisioner_url:
            return None
        return Access(
            template=self.provisioner_url,
            user=self.provisioner_user,
            password_file=self.provisioner_password_file,
            ca_file=self.provisioner_ca_file,
            insecure=self.provisioner_insecure,
            from_nodes=self.provisioner_addresses_from_nodes,
            allow_unverified=self.provisioner_allow_unverified_machine,
        )

    @property
    def silence(self) -> Silence:
        """The longest silence of a node before it is found Down; zero if the node monitor is off."""
        if not self.node_monitor:
            return Silence(timedelta(0), timedelta(0))
        return Silence(*(one + DECIDED_WITHIN for one in (self.node_timings.until_down, self.node_timings.until_lost)))

    @property
    def acts_on_cluster(self) -> bool:
        """Whether any role of this worker needs Kubernetes."""
        return not _APART.issuperset(self.roles)

    @property
    def shard_sets(self) -> tuple[tuple[int, int], ...]:
        """First and last shard of each watch activity."""
        count = self.watch_shard_sets
        edges = [names.SHARDS * index // count for index in range(count + 1)]
        return tuple((begin, end - 1) for begin, end in itertools.pairwise(edges))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then HOLDFAST_*, then the variables of other tools, then the file."""
        return init_settings, env_settings, _Shared(settings_cls), _File(settings_cls)


def load(flags: Mapping[str, Any] | None = None, config: Path | None = None) -> Settings:
    """Read the settings from flags (None: not given), the environment and the TOML file.

    Raises:
        SettingsError: naming each field that is wrong, where its value came from, and what is allowed.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None and value != []}
    path = _config_path(config)
    token = _config_file.set(path)
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingsError("\n".join(_lines(error, given, path))) from None
    finally:
        _config_file.reset(token)


def misspelled() -> list[str]:
    """Say which HOLDFAST_* variables are close to a setting's name without being one."""
    known = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}
    lines: list[str] = []
    for variable in sorted(os.environ):
        if variable.startswith(ENV_PREFIX) and variable not in known | _FOREIGN_VARIABLES:
            near = difflib.get_close_matches(variable, known, n=1, cutoff=0.85)
            if near:
                lines.append(f"{variable} is no setting: did you mean {near[0]}?")
    return lines


def _config_path(config: Path | None) -> Path | None:
    if config is not None:
        return config
    if os.environ.get(ENV_CONFIG):
        return Path(os.environ[ENV_CONFIG])
    return CONFIG_DEFAULT if CONFIG_DEFAULT.is_file() else None


def _lines(error: ValidationError, flags: Mapping[str, Any], path: Path | None) -> list[str]:
    lines: list[str] = []
    for entry in error.errors(include_url=False):
        message = entry["msg"].removeprefix("Value error, ")
        if not entry["loc"]:
            lines.append(message)
            continue
        field = str(entry["loc"][0])
        if entry["type"] == "extra_forbidden":
            near = difflib.get_close_matches(field, Settings.model_fields, n=1)
            lines.append(f"{field} ({path}): is no setting" + (f": did you mean {near[0]}?" if near else ""))
            continue
        found = "" if repr(entry["input"]) in message else f", found {_show(entry['input'])}"
        lines.append(f"{field} ({_origin(field, flags, path)}): {message}{found}")
    return lines


def _show(value: object) -> str:
    return format_duration(value) if isinstance(value, timedelta) else repr(value)


def _origin(field: str, flags: Mapping[str, Any], path: Path | None) -> str:
    if field in flags:
        return "--" + field.replace("_", "-")
    variables = [f"{ENV_PREFIX}{field.upper()}", *(var for var, name in SHARED_VARIABLES.items() if name == field)]
    for variable in variables:
        if os.environ.get(variable):
            return variable
    return str(path)
