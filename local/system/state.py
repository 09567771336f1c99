"""The state of a stack between commands: stack.json in the stack's folder."""

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
        stopped: whether a user stopped it; it stays stopped until a user or the next `up` starts it.
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
        kueue: whether Kueue runs in it.
        ha: whether Temporal runs as two servers on a PostgreSQL, in place of one development server.
        dynamic_config: Temporal dynamic config values beyond the stack's own, as JSON texts.
        encrypted: whether what Temporal stores is encrypted with a key file of the stack.
        audit_bodies: whether the API server's audit log includes request and response bodies.
        given_kubeconfig: the kubeconfig of a cluster to use in place of the stack's own, or empty.
        given_temporal: the address of a Temporal server to use in place of the stack's own, or empty.
        ports: loopback port by purpose.
        parts: the parts that were started, by name.
        binaries: path of each program.
    """

    name: str
    nodes: int = 8
    real_node: bool = False
    kueue: bool = False
    ha: bool = False
    dynamic_config: dict[str, str] = field(default_factory=dict[str, str])
    encrypted: bool = False
    audit_bodies: bool = True
    given_kubeconfig: str = ""
    given_temporal: str = ""
    ports: dict[str, int] = field(default_factory=dict[str, int])
    parts: dict[str, PartState] = field(default_factory=dict[str, PartState])
    binaries: dict[str, str] = field(default_factory=dict[str, str])

    def save(self, directory: Path) -> None:
        """Write stack.json in one step, so that a reader never sees a partial file."""
        fresh = directory / f".{FILE_NAME}.new"
        fresh.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")
        fresh.replace(directory / FILE_NAME)

    @classmethod
    def load(cls, directory: Path) -> "StackState | None":
        """Read stack.json; return None if it does not exist, or if its version cannot be read."""
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
    """Return every stack with a folder in the usual place, running or not, by name."""
    found: dict[str, StackState] = {}
    for folder in sorted(stacks_dir().glob("*/")):
        if state := StackState.load(folder):
            found[folder.name] = state
    return found
