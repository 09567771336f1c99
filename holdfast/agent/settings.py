"""The settings of an agent, from its command line and the environment that Holdfast gives the pods of a gang."""

from __future__ import annotations

import argparse
import os
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast import names
from holdfast.agent.messages import instant

_LOCAL_MAXIMUM: Final = 1024
_ROLE = re.compile(r".{1,63}")

_DESCRIPTION: Final = """\
Runs in each pod of an elastic gang: joins its rendezvous, starts the workers of each round with the environment that
torchrun gives them, stops them with their whole process group (TERM, KILL after the grace) when a new round forms, and
reports how they end. Everything else it needs to know is in the environment that Holdfast gives such a pod."""
_EPILOG: Final = """\
exit codes: 0 the gang has succeeded; a failed worker's own, 128 and the signal's number where one ended it; 2 usage, or
refused by the rendezvous; 143 told to end (SIGTERM); else what the rendezvous says."""


class SettingsError(Exception):
    """The agent's settings are invalid; the text says what was expected, what was found, and what to do."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How this agent was started.

    Attributes:
        command: The command of each worker.
        workers: The number of workers that it starts each round.
        url: The URL of its rendezvous: scheme, host and port.
        token_file: The file of the pod's token for the rendezvous; the kubelet renews it.
        workload_uid: The uid of the gang's workload.
        attempt: The attempt of the workload.
        member: Its place in the gang.
        pod_uid: The uid of the pod.
        address: The address at which other members reach this pod.
        ca_file: The file of the authority that signed the rendezvous' certificate; empty: the public ones.
        role: The role of its workers.
        node: The node of the pod.
        incarnation: A random id of this process.
        started_at: When the process started, in seconds since the epoch.
    """

    command: Sequence[str]
    workers: int
    url: str
    token_file: str
    workload_uid: str
    attempt: int
    member: str
    pod_uid: str
    address: str
    ca_file: str = ""
    role: str = "default"
    node: str = ""
    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex)
    started_at: float = field(default_factory=time.time)

    def join(self, port: int) -> dict[str, Any]:
        """Return this member's identity in its wire format, with a port that is free here."""
        return {
            "member": self.member,
            "podUid": self.pod_uid,
            "attempt": self.attempt,
            "incarnation": self.incarnation,
            "startedAt": instant(self.started_at),
            "node": self.node,
            "role": self.role,
            "localWorldSize": self.workers,
            "address": self.address,
            "port": port,
        }


def read(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings from the command line and the environment.

    Raises:
        SettingsError: if a setting is missing or invalid.
        SystemExit: after `--help`, and if the command line cannot be parsed.
    """
    own, command = _split(arguments)
    given = _parser().parse_args(own)
    if not command:
        raise SettingsError("no command: expected what each worker is to run after --, as in: -- python train.py")
    if not 1 <= given.nproc_per_node <= _LOCAL_MAXIMUM:
        raise SettingsError(f"--nproc-per-node: {given.nproc_per_node}: expected 1 to {_LOCAL_MAXIMUM}")
    return from_environment(environment, command, given.nproc_per_node)


def from_environment(
    environment: Mapping[str, str] = os.environ, command: Sequence[str] = (), workers: int = 1
) -> Settings:
    """Read the settings from the environment that Holdfast gives the pods of a gang.

    Args:
        environment: The environment of the process.
        command: The command of each worker, if the agent starts the workers.
        workers: The number of workers in this pod.

    Raises:
        SettingsError: if a setting is missing or invalid.
    """
    needed = {
        name: environment.get(name, "")
        for name in (
            names.ENV_RENDEZVOUS,
            names.ENV_RENDEZVOUS_TOKEN,
            names.ENV_WORKLOAD_UID,
            names.ENV_ATTEMPT,
            names.ENV_MEMBER,
            names.ENV_POD_UID,
            names.ENV_POD_ADDRESS,
        )
    }
    if missing := [name for name, value in needed.items() if not value]:
        raise SettingsError(
            f"{', '.join(missing)}: not set; expected the environment that Holdfast gives the pods of a gang"
        )
    attempt = needed[names.ENV_ATTEMPT]
    if not attempt.isdecimal() or int(attempt) < 1:
        raise SettingsError(f"{names.ENV_ATTEMPT}: {attempt!r}: expected a whole number from 1")
    role = environment.get(names.ENV_ROLE) or "default"
    if not _ROLE.fullmatch(role):
        raise SettingsError(f"{names.ENV_ROLE}: {role!r}: expected at most 63 characters")
    return Settings(
        command=command,
        workers=workers,
        url=_url(needed[names.ENV_RENDEZVOUS]),
        token_file=needed[names.ENV_RENDEZVOUS_TOKEN],
        workload_uid=needed[names.ENV_WORKLOAD_UID],
        attempt=int(attempt),
        member=needed[names.ENV_MEMBER],
        pod_uid=needed[names.ENV_POD_UID],
        address=needed[names.ENV_POD_ADDRESS],
        ca_file=environment.get(names.ENV_RENDEZVOUS_CA, ""),
        role=role,
        node=environment.get(names.ENV_NODE, ""),
    )


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the agent's own arguments, and the command after the first `--`."""
    words = list(arguments)
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        fits = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise SettingsError(f"{names.ENV_RENDEZVOUS}: {text!r}: expected a URL such as https://host:8086")
    return text.rstrip("/")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="holdfast agent",
        usage="holdfast agent [--nproc-per-node N] -- COMMAND...",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--nproc-per-node",
        "--nproc_per_node",
        type=int,
        default=1,
        metavar="N",
        help="workers to start in this pod (default: 1)",
    )
    return parser
