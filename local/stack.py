"""The local stack as its users see it: bring it up, ask it for addresses, break parts of it, take it down."""

import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from holdfast.local.bringup import bring_up, plan, take_down
from holdfast.local.extras import backup
from holdfast.local.extras import ha as ha_servers
from holdfast.local.node.sweep import remove_tree
from holdfast.local.programs.resolve import Progress, resolve
from holdfast.local.programs.tools import SNAPSHOT_TOOLS
from holdfast.local.system.cluster import Kubectl
from holdfast.local.system.errors import NotRunningError, StackError
from holdfast.local.system.lock import file_lock
from holdfast.local.system.parts import Layout, Part
from holdfast.local.system.paths import stacks_dir
from holdfast.local.system.ports import LOOPBACK
from holdfast.local.system.runner import PartStatus, Runner
from holdfast.local.system.state import StackState, known_stacks

SEVERAL_ADDRESSES = "HOLDFAST_TEMPORAL_ADDRESS"
"""The variable with all addresses of Temporal, where there are two servers."""
NAMESPACE = "default"
"""Temporal namespace of every local stack."""


def quiet(line: str) -> None:
    """Progress that is not shown."""


class Stack:
    """One local stack: Kubernetes with fake nodes, and Temporal.

    Take one from `Stack.up` or `Stack.load`. Its processes go on when the Python process ends.
    """

    def __init__(self, directory: Path, state: StackState) -> None:
        self.layout = Layout(directory)
        self.state = state
        self.runner = Runner(self.layout, state)

    @classmethod
    def up(
        cls,
        name: str = "dev",
        directory: Path | None = None,
        *,
        nodes: int | None = None,
        real_node: bool | None = None,
        ha: bool | None = None,
        kueue: bool | None = None,
        dynamic_config: Mapping[str, str] | None = None,
        audit_bodies: bool | None = None,
        kubeconfig: Path | None = None,
        temporal_address: str | None = None,
        apply: bool | None = None,
        progress: Progress = quiet,
    ) -> "Stack":
        """Bring a stack up, or bring back what is missing of it; what runs is left running.

        Args:
            name: name of the stack, also of its cluster (`HOLDFAST_CLUSTER`).
            directory: its folder; by default below `$XDG_STATE_HOME/holdfast/stacks`.
            nodes: fake nodes at least; None keeps what the stack has, 8 at first.
            real_node: add a real node, as root; None keeps what the stack has.
            ha: two Temporal servers on a PostgreSQL, on Linux, instead of one development server, whose memory it does
                not share. None keeps what the stack has.
            kueue: the published Kueue beside it, as root; None keeps what the stack has.
            dynamic_config: Temporal dynamic config by key, values as JSON texts; restarts Temporal if it changed.
            audit_bodies: write what was sent, and what came of it, into the audit log, as at first; without, the API
                server has about half the work. Restarts it if it changed. None keeps what the stack has.
            kubeconfig: use this cluster instead of an own one.
            temporal_address: use this Temporal instead of an own one.
            apply: apply CRDs and RBAC from deploy/; None does so on the stack's own cluster only.
            progress: told each step.

        Raises:
            StackError: a step failed; it says which and what to try.
        """
        directory = (directory or stacks_dir() / name).resolve()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with file_lock(directory / "lock", lambda: progress(f"another command works on stack {name}, waiting")):
            state = StackState.load(directory) or StackState(name)
            if nodes is not None:
                state.nodes = max(nodes, state.nodes) if state.parts else nodes
            if real_node is not None:
                state.real_node = real_node
            if ha is not None:
                state.ha = ha
            if kueue is not None:
                state.kueue = kueue
            if dynamic_config is not None:
                state.dynamic_config = dict(dynamic_config)
            if audit_bodies is not None:
                state.audit_bodies = audit_bodies
            if kubeconfig is not None:
                state.given_kubeconfig = str(kubeconfig.expanduser().resolve())
            if temporal_address is not None:
                state.given_temporal = temporal_address
            stack = cls(directory, state)
            bring_up(stack.runner, apply, progress)
            return stack

    @classmethod
    def load(cls, name: str = "dev", directory: Path | None = None) -> "Stack":
        """The stack of that name, as it was left; some parts of it may not run.

        Raises:
            NotRunningError: there is none.
        """
        directory = (directory or stacks_dir() / name).resolve()
        state = StackState.load(directory)
        if state is None:
            known = ", ".join(known_stacks()) or "none"
            raise NotRunningError(f"there is no stack {name!r} in {directory} (known: {known})", "holdfast dev up")
        return cls(directory, state)

    @property
    def name(self) -> str:
        """Name of the stack and of its cluster."""
        return self.state.name

    @property
    def directory(self) -> Path:
        """Folder with everything that belongs to the stack."""
        return self.layout.directory

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the cluster's administrator, or the one that was given."""
        return Path(self.state.given_kubeconfig) if self.state.given_kubeconfig else self.layout.kubeconfig

    @property
    def temporal_address(self) -> str:
        """`host:port` of Temporal's frontend; of both, with a comma between, where there are two."""
        if self.state.ha and not self.state.given_temporal:
            return ha_servers.addresses(self.state.ports)
        return self.state.given_temporal or f"{LOOPBACK}:{self.state.ports['temporal']}"

    @property
    def temporal_ui(self) -> str:
        """Address of Temporal's Web UI; empty if Temporal was given."""
        return "" if self.state.given_temporal else f"http://{LOOPBACK}:{self.state.ports['temporal-ui']}"

    @property
    def temporal_http(self) -> str:
        """Address of Temporal's HTTP API; empty if Temporal was given."""
        return "" if self.state.given_temporal else f"http://{LOOPBACK}:{self.state.ports['temporal-http']}"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log, one JSON document a line; nobody writes it if the cluster was given."""
        return self.layout.audit_log

    @property
    def environment(self) -> dict[str, str]:
        """What a shell needs to talk to the stack."""
        first, *others = self.temporal_address.split(",")
        # Temporal's own tools know one address.
        several = {SEVERAL_ADDRESSES: self.temporal_address} if others else {}
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "TEMPORAL_ADDRESS": first,
            **several,
            "TEMPORAL_NAMESPACE": NAMESPACE,
            "HOLDFAST_CLUSTER": self.name,
        }

    @property
    def kubectl(self) -> Kubectl:
        """The kubectl program, with the administrator's rights."""
        return Kubectl(self.binary("kubectl"), self.kubeconfig)

    def binary(self, name: str) -> Path:
        """Path of a program of the stack, for example `kubectl` or `temporal`.

        Raises:
            StackError: the stack does not have it.
        """
        found = self.state.binaries.get(name)
        if found is None or not Path(found).exists():
            found = str(resolve([name], quiet)[name])
        return Path(found)

    def log(self, part: str) -> Path:
        """The log file of a part."""
        return self.layout.log(part)

    def pid(self, part: str) -> int | None:
        """Process id of a running part."""
        self._reload()
        process = self.runner.process(part)
        return process.pid if process else None

    def status(self) -> list[PartStatus]:
        """How each part is, asked now."""
        return [self.runner.status(part) for part in self.parts().values()]

    def stop_part(self, name: str, number: int = signal.SIGTERM) -> None:
        """Stop a part (`signal.SIGKILL`: without warning) and return when it is gone. It stays away until started."""
        with file_lock(self.directory / "lock"):
            self._reload()
            self.runner.stop(name, number)

    def start_part(self, name: str, **options: str) -> None:
        """Start a part again, on the same ports and data, and return when it is healthy.

        Args:
            name: the part; one that runs goes on, unless it runs with other options.
            options: of those on its command line, with other values: `kubeconfig="path"`.

        Raises:
            PartError: it does not become healthy.
        """
        with file_lock(self.directory / "lock"):
            self._reload()
            part = self._part(name)
            given = {f"--{option}": f"--{option}={value}" for option, value in options.items()}
            argv = tuple(given.get(word.partition("=")[0], word) for word in part.argv)
            self._start(replace(part, argv=argv))

    def pause_part(self, name: str) -> None:
        """Freeze a part (SIGSTOP): connections to it stay open and get no answer."""
        self._reload()
        self.runner.freeze(name)

    def resume_part(self, name: str) -> None:
        """Let a frozen part go on."""
        self._reload()
        self.runner.thaw(name)

    def copy_data(self, name: str, target: Path) -> None:
        """Copy what `etcd` or `temporal` remembers into a new folder. The part is stopped for it, and started again.

        Raises:
            StackError: the part has no data of its own, or the folder exists.
        """
        with file_lock(self.directory / "lock"):
            self._reload()
            backup.take(self.runner, self.parts(), name, target)

    def restore_data(self, name: str, source: Path) -> None:
        """Put a copy in the place of what `etcd` or `temporal` remembers, and start afresh all parts that know of it.

        Raises:
            StackError: the part has no data of its own, or there is no copy of it.
        """
        with file_lock(self.directory / "lock"):
            self._reload()
            backup.restore(self.runner, self.parts(), name, source)

    def take_snapshot(self, target: Path) -> None:
        """Write a snapshot of what Kubernetes remembers into a new file, while all goes on.

        Raises:
            StackError: the file exists, or etcd gave no whole snapshot.
        """
        self._reload()
        backup.take_snapshot(self._part("etcd").address, target)

    def restore_snapshot(self, source: Path, *, raised_by: int = 0, progress: Progress = quiet) -> None:
        """Put a snapshot in the place of what Kubernetes remembers, and start afresh all parts that know of it.

        Args:
            source: the snapshot.
            raised_by: by how much its revision is raised, all before it being marked as compacted; 0 leaves it.
            progress: told how the program comes that reads it.

        Raises:
            StackError: it is no snapshot, or the program that reads it cannot be had.
        """
        (etcdutl,) = resolve(SNAPSHOT_TOOLS, progress).values()
        with file_lock(self.directory / "lock"):
            self._reload()
            backup.restore_snapshot(self.runner, self.parts(), etcdutl, source, raised_by=raised_by)

    def take_base_backup(self) -> Path:
        """Copy what two Temporal servers remember, while all goes on, and return where the copy is.

        Raises:
            StackError: it failed; with what was said.
        """
        self._reload()
        return ha_servers.take_base_backup(self.layout, self.state.ports)

    def restore_base_backup(self, source: Path, until: datetime) -> None:
        """Kill both Temporal servers and their database, and start them as they were at a time after a copy was taken.

        Raises:
            StackError: it failed; with what was said.
        """
        with file_lock(self.directory / "lock"):
            self._reload()
            affected = [ha_servers.DATABASE, *ha_servers.SERVERS]
            for name in reversed(affected):
                if self.runner.process(name):
                    self.runner.stop(name, signal.SIGKILL)
            ha_servers.release(self.layout)
            ha_servers.restore_base_backup(self.layout, source, until)
            for name in affected:
                self._start(self.parts()[name])

    def down(self, purge: bool = False, progress: Progress = quiet) -> None:
        """Stop every part that this stack started, and nothing else.

        Args:
            purge: remove its folder too, with the data of etcd and Temporal.
            progress: told each step.
        """
        with file_lock(self.directory / "lock"):
            self._reload()
            take_down(self.runner, progress)
            self.state.parts.clear()
            self.state.save(self.directory)
            if purge:
                progress(f"removing {self.directory}")
                ha_servers.remove(self.layout)
                remove_tree(self.directory)

    def parts(self) -> dict[str, Part]:
        """Every part that this stack should have, in the order in which they are started."""
        return plan(self.layout, self.state)

    def _start(self, part: Part) -> None:
        """Start a part and return when it is healthy; a database that was killed is not, for a while."""
        if part.name != ha_servers.DATABASE:
            self.runner.start(part)
            return
        if not self.runner.process(part.name):
            ha_servers.release(self.layout)
        self.runner.start(part)
        ha_servers.await_ready(self.state.ports)

    def _part(self, name: str) -> Part:
        planned = self.parts()
        if name not in planned:
            raise StackError(f"stack {self.name!r} has no part {name!r}", f"one of: {', '.join(planned)}")
        return planned[name]

    def _reload(self) -> None:
        """See what other processes did to the stack meanwhile."""
        if state := StackState.load(self.directory):
            self.state = state
            self.runner.state = state


def given_by_environment() -> tuple[Path | None, str | None]:
    """KUBECONFIG and TEMPORAL_ADDRESS, unless they are those of a local stack (`eval "$(holdfast dev env)"`)."""
    named = os.environ.get("KUBECONFIG") or None
    path = Path(named).expanduser().resolve() if named else None
    own = list(known_stacks().values())
    # A stack's kubeconfig lies beside its stack.json, wherever its folder is.
    if path and (state := StackState.load(path.parent)):
        own.append(state)
        path = None
    address = os.environ.get("TEMPORAL_ADDRESS") or None
    if address in {f"{LOOPBACK}:{state.ports.get('temporal')}" for state in own}:
        address = None
    return path, address
