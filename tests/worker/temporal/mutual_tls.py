"""A Temporal server that asks for client certificates, in memory, and ends each connection after two seconds."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
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
def mutual_tls_server(folder: Path, *argv: str) -> Iterator[Server]:
    """Run the server while the block runs; it may take some seconds until it answers.

    Args:
        folder: an empty folder for its files.
        argv: a program to run in place of temporal-server, and its arguments; `{config}` is the configuration's path.
    """
    if not argv:
        published = str(resolve(["temporal-server"], lambda line: None)["temporal-server"])
        argv = (published, "--config-file={config}", "--allow-no-auth", "start")
    authority = Authority(folder / "authority", "the server's authority")
    ports = choose([*_SERVICES, *(f"{one}-membership" for one in _SERVICES)])
    config, log = folder / "server.yaml", folder / "server.log"
    config.write_text(yaml.safe_dump(_config(folder, authority, authority.sign("server", unit="*:admin"), ports)))
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


def _config(folder: Path, authority: Authority, own: Pair, ports: Mapping[str, int]) -> dict[str, Any]:
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
            for one in _SERVICES
        },
        main=store,
        visibility=store,
        shards=1,
        broadcast=LOOPBACK,
        frontend=f"{LOOPBACK}:{ports['frontend']}",
        dynamic=dynamic,
        tls={
            "frontend": {
                "server": {**pair, "clientCaFiles": [signed], "requireClientAuth": True},
                "client": client,
            },
            "systemWorker": {**pair, "client": client},
        },
    )
