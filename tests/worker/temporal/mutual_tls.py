"""A Temporal server that asks for client certificates, in memory, and ends each connection after two seconds."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from holdfast.local.programs.resolve import resolve
from tests.worker.temporal.authority import SERVER_NAME, Authority, Pair

_SERVICES = ("frontend", "history", "matching", "worker")
_DYNAMIC = {
    # A new connection is a new handshake: an old certificate is not used on for ever.
    "frontend.keepAliveMaxConnectionAge": "2s",
    "frontend.keepAliveMaxConnectionAgeGrace": "3s",
    "system.namespaceCacheRefreshInterval": "1s",
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
    ports = _free_ports(2 * len(_SERVICES))
    config, log = folder / "server.yaml", folder / "server.log"
    config.write_text(yaml.safe_dump(_config(folder, authority, authority.sign("server", unit="*:admin"), ports)))
    with log.open("wb") as said:
        process = subprocess.Popen([part.format(config=config) for part in argv], stdout=said, stderr=subprocess.STDOUT)
    try:
        yield Server(f"127.0.0.1:{ports[0]}", authority, authority.sign("client", unit="*:admin"), log)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _config(folder: Path, authority: Authority, own: Pair, ports: list[int]) -> dict[str, Any]:
    dynamic = folder / "dynamic.yaml"
    dynamic.write_text(yaml.safe_dump({key: [{"value": value}] for key, value in _DYNAMIC.items()}))
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
    pairs = zip(_SERVICES, ports[::2], ports[1::2], strict=True)
    return {
        "log": {"stdout": True, "level": "warn"},
        "persistence": {
            "defaultStore": "main",
            "visibilityStore": "visibility",
            "numHistoryShards": 1,
            "datastores": {"main": store, "visibility": store},
        },
        "global": {
            "membership": {"maxJoinDuration": "30s", "broadcastAddress": "127.0.0.1"},
            "tls": {
                "frontend": {
                    "server": {**pair, "clientCaFiles": [signed], "requireClientAuth": True},
                    "client": client,
                },
                "systemWorker": {**pair, "client": client},
            },
        },
        "services": {
            name: {"rpc": {"grpcPort": grpc, "membershipPort": membership, "bindOnIP": "127.0.0.1"}}
            for name, grpc, membership in pairs
        },
        "clusterMetadata": {
            "enableGlobalNamespace": False,
            "failoverVersionIncrement": 10,
            "masterClusterName": "active",
            "currentClusterName": "active",
            "clusterInformation": {
                "active": {
                    "enabled": True,
                    "initialFailoverVersion": 1,
                    "rpcName": "frontend",
                    "rpcAddress": f"127.0.0.1:{ports[0]}",
                }
            },
        },
        "dynamicConfigClient": {"filepath": str(dynamic), "pollInterval": "10s"},
    }


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as open_:
        found = [open_.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]
