"""What docker-compose.yml says of the worker, for the tests that run its exact command line without Docker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

COMPOSE_FILE = Path(__file__).parents[2] / "docker-compose.yml"

_VARIABLE = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?:(?P<operator>:-|:\?)(?P<operand>[^}]*))?\})")


@dataclass(frozen=True)
class WorkerService:
    """The worker as compose would start it."""

    command: list[str]
    environment: dict[str, str]
    readiness_url: str


def read_compose() -> dict[str, Any]:
    """Read the compose file, its variables not yet filled in."""
    document = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def interpolate(text: str, environment: Mapping[str, str]) -> str:
    """Fill in `${NAME}`, `${NAME:-default}` and `${NAME:?message}` as compose does, and undouble `$$`.

    Raises:
        ValueError: with the message of a variable that must be set and is not.
    """

    def value(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "$"
        found = environment.get(match["name"], "")
        if found or match["operator"] is None:
            return found
        if match["operator"] == ":?":
            raise ValueError(f"{match['name']}: {match['operand']}")
        return match["operand"]

    return _VARIABLE.sub(value, text)


def worker_service(environment: Mapping[str, str] | None = None) -> WorkerService:
    """Return the worker's command line and environment, with variables taken from `environment`.

    Addresses in it (TEMPORAL_ADDRESS, KUBECONFIG) are those inside the compose network: a test that runs the command
    natively replaces them by its own.
    """
    given = environment or {}
    worker = read_compose()["services"]["worker"]
    return WorkerService(
        command=[interpolate(word, given) for word in worker["command"]],
        environment={name: interpolate(str(value), given) for name, value in worker["environment"].items()},
        readiness_url=re.findall(r"http://[^\"']+", worker["healthcheck"]["test"][-1])[0],
    )
