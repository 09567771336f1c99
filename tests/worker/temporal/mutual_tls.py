"""A Temporal server in memory that asks for client certificates or API keys, and ends connections after two seconds."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from holdfast.local.extras.temporal_server import configuration, dynamic_configuration
from holdfast.local.programs.resolve import resolve
from holdfast.local.system.ports import LOOPBACK, choose
from tests.worker.temporal.authority import SERVER_NAME, Authority, Pair

_SERVICES = ("frontend", "history", "matching", "worker")
_DYNAMIC = {
    # A new connection is a new handshake: an old certificate is not used on for ever.
    "frontend.keepAliveMaxConnectionAge": '"2s"',
    "frontend.keepAliveMaxConnectionAgeGrace": '"3s"',
    "system.namespaceCacheRefreshInterval": '"1s"',
}


@dataclass(frozen=True)
class Server:
    """A running server, who signed its certificate, and a client's certificate that it accepts."""

    address: str
    authority: Authority
    client: Pair
    log: Path


@contextmanager
def mutual_tls_server(folder: Path, *argv: str, keys: Path | None = None) -> Iterator[Server]:
    """Run the server while the block runs; it may take some seconds until it answers.

    Args:
        folder: an empty folder for its files.
        argv: a program to run in place of temporal-server, and its arguments; `{config}` is the configuration's path.
        keys: a JSON Web Key Set. If given, it asks for an API key that one of these has signed, and for no certificate.
    """
    if not argv:
        published = str(resolve(["temporal-server"], lambda line: None)["temporal-server"])
        argv = (published, "--config-file={config}", *(() if keys else ("--allow-no-auth",)), "start")
    authority = Authority(folder / "authority", "the server's authority")
    # The server's own workers have no API key: they use a frontend of their own.
    services = (*_SERVICES, "internal-frontend") if keys else _SERVICES
    ports = choose([*services, *(f"{one}-membership" for one in services)])
    config, log = folder / "server.yaml", folder / "server.log"
    own = authority.sign("server", unit="*:admin")
    config.write_text(yaml.safe_dump(_config(folder, authority, own, services, ports, keys)))
    with log.open("wb") as said:
        process = subprocess.Popen([part.format(config=config) for part in argv], stdout=said, stderr=subprocess.STDOUT)
    try:
        yield Server(f"{LOOPBACK}:{ports['frontend']}", authority, authority.sign("client", unit="*:admin"), log)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _config(
    folder: Path,
    authority: Authority,
    own: Pair,
    services: Sequence[str],
    ports: Mapping[str, int],
    keys: Path | None,
) -> dict[str, Any]:
    checks = {"keySourceURIs": [f"file://{keys}"], "refreshInterval": "1h"}
    authorization = {"jwtKeyProvider": checks, "authorizer": "default", "claimMapper": "default"} if keys else {}
    dynamic = folder / "dynamic.yaml"
    dynamic.write_text(dynamic_configuration(_DYNAMIC))
    signed = str(authority.certificate)
    pair = {"certFile": str(own.certificate), "keyFile": str(own.key)}
    client = {"serverName": SERVER_NAME, "rootCaFiles": [signed]}
    store = {
        "sql": {
            "pluginName": "sqlite",
            "databaseName": "default",
            "connectAddr": "localhost",
            "connectProtocol": "tcp",
            "connectAttributes": {"mode": "memory", "cache": "private"},
            "maxConns": 1,
            "maxIdleConns": 1,
            "maxConnLifetime": "1h",
        }
    }
    return configuration(
        services={
            one: {"grpcPort": ports[one], "membershipPort": ports[f"{one}-membership"], "bindOnIP": LOOPBACK}
            for one in services
        },
        main=store,
        visibility=store,
        shards=1,
        broadcast=LOOPBACK,
        frontend=f"{LOOPBACK}:{ports['frontend']}",
        dynamic=dynamic,
        tls={
            "frontend": {
                "server": {**pair, "clientCaFiles": [signed], "requireClientAuth": keys is None},
                "client": client,
            },
            "systemWorker": {**pair, "client": client},
        },
        **({"authorization": authorization} if authorization else {}),
    )
