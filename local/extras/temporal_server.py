"""The configuration of a Temporal server that is run as its own program."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def configuration(
    *,
    services: Mapping[str, Mapping[str, Any]],
    main: Mapping[str, Any],
    visibility: Mapping[str, Any],
    shards: int,
    broadcast: str,
    frontend: str,
    dynamic: Path,
    **more: Any,
) -> dict[str, Any]:
    """Return the configuration of one server, all of whose services run in one process.

    Args:
        services: each service's `rpc`, by its name.
        main: the store of histories.
        visibility: the store of lists.
        shards: the number of history shards, which a store keeps for ever.
        broadcast: the address at which other servers find this one.
        frontend: the frontend's address, host:port.
        dynamic: the file of the dynamic configuration.
        more: further keys of `global`.
    """
    return {
        "log": {"stdout": True, "level": "warn"},
        "persistence": {
            "defaultStore": "main",
            "visibilityStore": "visibility",
            "numHistoryShards": shards,
            "datastores": {"main": dict(main), "visibility": dict(visibility)},
        },
        "global": {"membership": {"maxJoinDuration": "30s", "broadcastAddress": broadcast}, **more},
        "services": {name: {"rpc": dict(rpc)} for name, rpc in services.items()},
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
                    "rpcAddress": frontend,
                }
            },
        },
        "dynamicConfigClient": {"filepath": str(dynamic), "pollInterval": "10s"},
    }


def dynamic_configuration(values: Mapping[str, str]) -> str:
    """Return the file of the dynamic configuration, from JSON values by key."""
    return yaml.safe_dump({key: [{"value": json.loads(value)}] for key, value in values.items()})
