"""The checks of `doctor` on trust: what weakens a worker, its connection, its files or its account (docs/security.md).

They see the settings and the files of the machine that `doctor` runs on. All but an expired certificate warn: what they
find works, and somebody may want it so.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.cluster.rbac import Right
from holdfast.errors import HoldfastError
from holdfast.relay import addresses_of
from holdfast.tls import CERTIFICATES, expiry_of

if TYPE_CHECKING:
    from holdfast.cli.cluster.checks import Check
    from holdfast.worker.runtime.settings import Settings

EXPIRES_SOON: Final = timedelta(days=14)
_OTHERS: Final = 0o007

TOO_MUCH: Final = (
    *(Right("", "pods", verb) for verb in ("create", "delete", "patch", "update")),
    Right("", "pods/exec", "create"),
    *(Right("", "secrets", verb) for verb in ("get", "list")),
    *(Right("", "serviceaccounts", verb) for verb in ("impersonate", "patch")),
    Right("authentication.k8s.io", "serviceaccounts", "impersonate:serviceaccount"),
    Right("", "serviceaccounts/token", "create"),
    Right("", "nodes", "delete"),
    *(Right("rbac.authorization.k8s.io", "clusterroles", verb) for verb in ("bind", "escalate")),
)
"""Rights in every namespace that no worker needs, and that let whoever has its token act as others (row X5)."""

_SECRETS: Final = (
    "temporal_tls_key_file",
    "temporal_api_key_file",
    "provisioner_password_file",
    "data_credentials_file",
)


def _warning(name: str, found: str, remedy: str) -> Check:
    from holdfast.cli.cluster.checks import Check

    return Check(name, True, found, remedy, warns=True)


def local(address: str | None) -> list[Check]:
    """Check what this machine says of trust: the connection to Temporal, a worker's settings and files, failpoints.

    Args:
        address: Temporal's address as given on the command line.
    """
    from holdfast.cli.cluster.checks import not_known
    from holdfast.worker.runtime.settings import SettingsError, load

    try:
        worker = load({"cluster": "unsaid"})
    except SettingsError as error:
        why = str(error).partition("\n")[0]
        rest = [not_known("worker settings", why, "correct that setting of the worker, then ask again")]
    else:
        rest = [*weakened(worker), *files(worker, datetime.now(UTC))]
    return [*_connection(address), *rest, *failpoints(os.environ)]


def _connection(address: str | None) -> list[Check]:
    from temporalio.envconfig import ClientConfigProfile

    from holdfast.client.connection import DEFAULT_TARGET, ENV_ADDRESS, credentials_of
    from holdfast.tls import is_secured

    try:
        profile = ClientConfigProfile.load()
        secured = is_secured(credentials_of(profile))
    except (HoldfastError, OSError, ValueError, RuntimeError):
        return []  # The check of Temporal itself says why: it cannot connect either.
    return clear(address or os.environ.get(ENV_ADDRESS) or profile.address or DEFAULT_TARGET, secured=secured)


def clear(target: str, *, secured: bool) -> list[Check]:
    """Warn if the connection to Temporal leaves this machine without TLS.

    Args:
        target: host:port of Temporal, or several by commas.
        secured: whether the connection uses TLS.
    """
    away = [one for one in addresses_of(target) if not _is_loopback(one.rpartition(":")[0])]
    if secured or not away:
        return []
    found = f"{', '.join(away)} is reached without TLS: documents and requests can be read and changed on the way"
    return [_warning("temporal tls", found, "set TEMPORAL_TLS=true, and TEMPORAL_TLS_* for your own certificates")]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def weakened(given: Settings) -> Iterator[Check]:
    """Warn of each setting of a worker that gives up a protection."""
    access = given.redfish
    named = ", ".join(given.provisioner_addresses_from_nodes)
    everybody = ", ".join(one for one in given.data_sources if one.startswith("*="))
    for setting, weak, found, remedy in (
        (
            "provisioner_insecure",
            access is not None and given.provisioner_insecure,
            "any certificate of a BMC is accepted: whoever is on the way can take the password",
            "name the BMCs' authority in provisioner_ca_file instead",
        ),
        (
            "provisioner_url",
            given.provisioner_url.startswith("http://"),
            "BMCs are asked without TLS: whoever is on the way can power off machines",
            "use an https:// URL",
        ),
        (
            "provisioner_allow_unverified_machine",
            access is not None and given.provisioner_allow_unverified_machine,
            "a machine that reports no UUID is powered off and wiped by its URL alone: it may be another node's",
            "leave it out once the BMCs report UUIDs",
        ),
        (
            "provisioner_addresses_from_nodes",
            bool(named),
            f"whoever may annotate nodes chooses among {named}",
            "leave it out if provisioner_url fits all nodes",
        ),
        (
            "data_allow_http",
            given.data_allow_http,
            "data sets may be fetched without TLS: whoever is on the way can read and change them",
            "use an https:// endpoint and leave it out",
        ),
        (
            "data_sources",
            bool(everybody),
            f"every namespace may stage {everybody}",
            "grant it to the namespaces that need it: namespace=s3://bucket/prefix",
        ),
    ):
        if weak:
            yield _warning(f"setting {setting}", found, remedy)


def failpoints(environment: Mapping[str, str]) -> list[Check]:
    """Warn if a worker that is started with this environment kills itself at failpoints."""
    from holdfast.worker.runtime.settings import ENV_ALLOW_FAILPOINTS

    if environment.get(ENV_ALLOW_FAILPOINTS) != "1":
        return []
    found = f"{ENV_ALLOW_FAILPOINTS}=1 lets a worker kill itself at its failpoints"
    return [_warning("failpoints", found, f"unset {ENV_ALLOW_FAILPOINTS}: it is for tests")]


def files(given: Settings, now: datetime) -> Iterator[Check]:
    """Check the certificates and secrets that a worker's settings name.

    Args:
        given: the settings.
        now: the time, with its zone.
    """
    for setting in CERTIFICATES:
        if (file := getattr(given, setting)) is not None:
            yield from _certificate(setting, file, now)
    for setting in _SECRETS:
        if (file := getattr(given, setting)) is not None and (mode := _mode(file)) & _OTHERS:
            found = f"{file} has mode {mode:04o}: every user of this machine may use it"
            yield _warning(f"file {setting}", found, f"chmod o= {file}")


def _mode(file: Path) -> int:
    try:
        return file.stat().st_mode & 0o7777
    except OSError:
        return 0  # Whoever reads the file says that it cannot be read.


def _certificate(setting: str, file: Path, now: datetime) -> Iterator[Check]:
    """Check when the certificates of a file expire."""
    from holdfast.cli.cluster.checks import Check, not_known

    name = f"file {setting}"
    try:
        until = expiry_of(setting, file.read_bytes())
    except (OSError, ValueError) as error:
        yield not_known(name, f"{file} has no certificate that can be read: {error}", "put a PEM certificate there")
        return
    day = until.date().isoformat()
    remedy = "put a new one there: workers read it again by themselves"
    if until <= now:
        yield Check(name, False, f"a certificate in {file} expired on {day}", remedy)
    elif until - now < EXPIRES_SOON:
        yield _warning(name, f"a certificate in {file} expires on {day}", remedy)


async def rights_beyond(kube: Any) -> AsyncIterator[Check]:
    """Warn of rights that the worker's account has in every namespace and does not need; silent if it may not ask."""
    from holdfast.cli.cluster.checks import WORKER, lacking_of_worker

    who, lacking = await lacking_of_worker(kube, TOO_MUCH)
    beyond: Sequence[Right] = [right for right in TOO_MUCH if right not in lacking]
    if who != WORKER or not beyond:
        return
    found = f"{WORKER} may {', '.join(map(str, beyond))} in every namespace: whoever has its token may, too"
    remedy = "find what grants it beside deploy/, and remove that: kubectl get clusterrolebindings -o wide"
    yield _warning("rights beyond", found, remedy)
