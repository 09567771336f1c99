"""What is remembered of a stack between commands: stack.json in the stack's folder."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.local.system.paths import stacks_dir
from holdfast.local.system.process import Process

FILE_NAME = "stack.json"


@dataclass
class PartState:
    """A part that was started.

    Attributes:
        argv: the command; a different one means that the part must be restarted.
        process: the process, which may be gone.
        stopped: it was stopped on purpose, and stays so until it is started on purpose or by the next `up`.
    """

    argv: list[str]
    process: Process
    stopped: bool = False


@dataclass
class StackState:
    """One stack.

    Attributes:
        name: its name; also the Temporal-side name of its cluster.
        nodes: number of fake nodes.
        real_node: whether it has the real node.
        kueue: whether Kueue runs beside it.
        ha: whether Temporal is two servers on a PostgreSQL, instead of one development server.
        dynamic_config: Temporal dynamic config values beyond the stack's own, as JSON texts.
        audit_bodies: whether the API server's audit log tells what was sent and what came of it, not only that.
        given_kubeconfig: a cluster that is used instead of an own one, or empty.
        given_temporal: a Temporal address that is used instead of an own server, or empty.
        ports: loopback port by purpose.
        parts: what was started, by name.
        binaries: path of each program.
    """

    name: str
    nodes: int = 8
    real_node: bool = False
    kueue: bool = False
    ha: bool = False
    dynamic_config: dict[str, str] = field(default_factory=dict[str, str])
    audit_bodies: bool = True
    given_kubeconfig: str = ""
    given_temporal: str = ""
    ports: dict[str, int] = field(default_factory=dict[str, int])
    parts: dict[str, PartState] = field(default_factory=dict[str, PartState])
    binaries: dict[str, str] = field(default_factory=dict[str, str])

    def save(self, directory: Path) -> None:
        """Write stack.json in one step, so that a reader never sees half of it."""
        fresh = directory / f".{FILE_NAME}.new"
        fresh.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")
        fresh.replace(directory / FILE_NAME)

    @classmethod
    def load(cls, directory: Path) -> "StackState | None":
        """Read stack.json; None if there is none, or if it is from a version that cannot be read."""
        try:
            document: dict[str, Any] = json.loads((directory / FILE_NAME).read_text())
            parts = {
                name: PartState(part["argv"], Process(**part["process"]), part["stopped"])
                for name, part in document.pop("parts").items()
            }
            return cls(**document, parts=parts)
        except (OSError, ValueError, KeyError, TypeError):
            return None


def known_stacks() -> dict[str, StackState]:
    """Every stack with a folder in the usual place, running or not, by name."""
    found: dict[str, StackState] = {}
    for folder in sorted(stacks_dir().glob("*/")):
        if state := StackState.load(folder):
            found[folder.name] = state
    return found
