"""The public interface of the local stack: bring it up, get its addresses, break parts of it, take it down."""

import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from holdfast.local.bringup import bring_up, plan, take_down
from holdfast.local.extras import backup, codec
from holdfast.local.extras import ha as ha_servers
from holdfast.local.node.sweep import remove_tree
from holdfast.local.programs.resolve import Progress, resolve
from holdfast.local.programs.tools import SNAPSHOT_TOOLS
from holdfast.local.system.cluster import Kubectl, publish
from holdfast.local.system.errors import NotRunningError, StackError
from holdfast.local.system.lock import file_lock
from holdfast.local.system.parts import Layout, Part
from holdfast.local.system.paths import stacks_dir
from holdfast.local.system.ports import LOOPBACK
from holdfast.local.system.runner import PartStatus, Runner
from holdfast.local.system.state import StackState, known_stacks

SEVERAL_ADDRESSES = "HOLDFAST_TEMPORAL_ADDRESS"
"""The environment variable with all addresses of Temporal, if there are two servers."""
NAMESPACE = "default"
"""The Temporal namespace of every local stack."""


def quiet(line: str) -> None:
    """Discard a line of progress."""


class Stack:
    """One local stack: Kubernetes with fake nodes, and Temporal.

    Create one with `Stack.up` or `Stack.load`. Its processes keep running when the Python process ends.
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
        encrypted: bool | None = None,
        kubeconfig: Path | None = None,
        temporal_address: str | None = None,
        apply: bool | None = None,
        progress: Progress = quiet,
    ) -> "Stack":
        """Bring a stack up, or start its missing parts; running parts keep running.

        Args:
            name: name of the stack, also of its cluster (`HOLDFAST_CLUSTER`).
            directory: its folder; by default below `$XDG_STATE_HOME/holdfast/stacks`.
            nodes: the minimum number of fake nodes; None keeps the current number, 8 at first.
            real_node: whether to add a real node, which requires root; None keeps the current setting.
            ha: whether to run two Temporal servers on a PostgreSQL, on Linux, in place of one development server. They
                do not share its data. None keeps the current setting.
            kueue: whether to run the published Kueue, which requires root; None keeps the current setting.
            dynamic_config: Temporal dynamic config by key, values as JSON texts; a change restarts Temporal.
            audit_bodies: whether the audit log includes request and response bodies, the default; without them the API
                server has about half the work. A change restarts it. None keeps the current setting.
            encrypted: whether to encrypt what Temporal stores, with a key file of the stack (`environment` has it).
                None keeps the current setting; not at first.
            kubeconfig: a cluster to use in place of the stack's own.
            temporal_address: a Temporal server to use in place of the stack's own.
            apply: whether to apply CRDs and RBAC from deploy/; None: only on the stack's own cluster.
            progress: receives each step.

        Raises:
            StackError: a step failed; the error names the step and a remedy.
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
            if encrypted is not None:
                state.encrypted = encrypted
            if kubeconfig is not None:
                state.given_kubeconfig = str(kubeconfig.expanduser().resolve())
            if temporal_address is not None:
                state.given_temporal = temporal_address
            stack = cls(directory, state)
            bring_up(stack.runner, apply, progress)
            if not state.given_kubeconfig and apply is not False:
                publish(stack.kubectl, stack.connection)
            return stack

    @classmethod
    def load(cls, name: str = "dev", directory: Path | None = None) -> "Stack":
        """Load the stack of that name in its last state; some of its parts may not run.

        Raises:
            NotRunningError: no such stack exists.
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
        """Folder with all files of the stack."""
        return self.layout.directory

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the cluster's administrator, or the one that was given."""
        return Path(self.state.given_kubeconfig) if self.state.given_kubeconfig else self.layout.kubeconfig

    @property
    def temporal_address(self) -> str:
        """`host:port` of Temporal's frontend; with two servers, both addresses separated by a comma."""
        if self.state.ha and not self.state.given_temporal:
            return ha_servers.addresses(self.state.ports)
        return self.state.given_temporal or f"{LOOPBACK}:{self.state.ports['temporal']}"

    @property
    def temporal_ui(self) -> str:
        """Address of Temporal's Web UI; empty if Temporal was given."""
        return "" if self.state.given_temporal else f"http://{LOOPBACK}:{self.state.ports['temporal-ui']}"

    @property
    def encrypts(self) -> bool:
        """Whether what its own Temporal stores is encrypted."""
        return self.state.encrypted and not self.state.given_temporal

    @property
    def temporal_http(self) -> str:
        """Address of Temporal's HTTP API; empty if Temporal was given."""
        return "" if self.state.given_temporal else f"http://{LOOPBACK}:{self.state.ports['temporal-http']}"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log, one JSON document per line; a given cluster does not write it."""
        return self.layout.audit_log

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that a shell needs to access the stack."""
        first, *others = self.temporal_address.split(",")
        # Temporal's own tools accept one address only.
        several = {SEVERAL_ADDRESSES: self.temporal_address} if others else {}
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "TEMPORAL_ADDRESS": first,
            **several,
            "TEMPORAL_NAMESPACE": NAMESPACE,
            "HOLDFAST_CLUSTER": self.name,
            **(codec.environment(self.layout, self.state.ports) if self.encrypts else {}),
        }

    @property
    def connection(self) -> dict[str, str]:
        """What its cluster publishes to whoever has only the kubeconfig."""
        return {
            "HOLDFAST_CLUSTER": self.name,
            "TEMPORAL_ADDRESS": self.temporal_address,
            "TEMPORAL_NAMESPACE": NAMESPACE,
        }

    @property
    def commands(self) -> Path:
        """Folder with `kubectl` and `temporal`, as far as the stack has them: to put on PATH."""
        folder = self.directory / "bin"
        folder.mkdir(exist_ok=True)
        for name in ("kubectl", "temporal"):
            link, program = folder / name, self.state.binaries.get(name)
            if program is not None and not (link.is_symlink() and link.readlink() == Path(program)):
                link.unlink(missing_ok=True)
                link.symlink_to(program)
        return folder

    @property
    def kubectl(self) -> Kubectl:
        """The kubectl program, with the administrator's permissions."""
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
        """Check each part now, and return its status."""
        return [self.runner.status(part) for part in self.parts().values()]

    def stop_part(self, name: str, number: int = signal.SIGTERM) -> None:
        """Stop a part (`signal.SIGKILL`: without warning) and return when it is gone. It stays down until started."""
        with file_lock(self.directory / "lock"):
            self._reload()
            self.runner.stop(name, number)

    def start_part(self, name: str, **options: str) -> None:
        """Start a part again, on the same ports and data, and return when it is healthy.

        Args:
            name: the part; a running part keeps running, unless its options differ.
            options: new values for options on its command line, for example `kubeconfig="path"`.

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
        """Resume a frozen part."""
        self._reload()
        self.runner.thaw(name)

    def copy_data(self, name: str, target: Path) -> None:
        """Copy the data of `etcd` or `temporal` into a new folder. The part stops for the copy, and starts again.

        Raises:
            StackError: the part has no data of its own, or the folder exists.
        """
        with file_lock(self.directory / "lock"):
            self._reload()
            backup.take(self.runner, self.parts(), name, target)

    def restore_data(self, name: str, source: Path) -> None:
        """Replace the data of `etcd` or `temporal` with a copy, and restart all parts that depend on that data.

        Raises:
            StackError: the part has no data of its own, or the folder has no copy of it.
        """
        with file_lock(self.directory / "lock"):
            self._reload()
            backup.restore(self.runner, self.parts(), name, source)

    def take_snapshot(self, target: Path) -> None:
        """Write a snapshot of the Kubernetes data into a new file, while all parts run.

        Raises:
            StackError: the file exists, or etcd returned no complete snapshot.
        """
        self._reload()
        backup.take_snapshot(self._part("etcd").address, target)

    def restore_snapshot(self, source: Path, *, raised_by: int = 0, progress: Progress = quiet) -> None:
        """Replace the Kubernetes data with a snapshot, and restart all parts that depend on that data.

        Args:
            source: the snapshot.
            raised_by: the number to add to its revision; older revisions are marked as compacted; 0 keeps it.
            progress: receives the steps of getting the program that reads it.

        Raises:
            StackError: the file is not a snapshot, or the program that reads it is not available.
        """
        (etcdutl,) = resolve(SNAPSHOT_TOOLS, progress).values()
        with file_lock(self.directory / "lock"):
            self._reload()
            backup.restore_snapshot(self.runner, self.parts(), etcdutl, source, raised_by=raised_by)

    def take_base_backup(self) -> Path:
        """Copy the data of two Temporal servers, while all parts run, and return the path of the copy.

        Raises:
            StackError: the backup failed; with the program's output.
        """
        self._reload()
        return ha_servers.take_base_backup(self.layout, self.state.ports)

    def restore_base_backup(self, source: Path, until: datetime) -> None:
        """Kill both Temporal servers and their database, and restart them as they were at a time after the copy.

        Raises:
            StackError: the restore failed; with the program's output.
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
            purge: whether to remove its folder, too, with the data of etcd and Temporal.
            progress: receives each step.
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
        """Return every part that this stack should have, in start order."""
        return plan(self.layout, self.state)

    def _start(self, part: Part) -> None:
        """Start a part and return when it is healthy; a database that was killed needs a while."""
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
        """Reload the state, which other processes may have changed."""
        if state := StackState.load(self.directory):
            self.state = state
            self.runner.state = state


def given_by_environment() -> tuple[Path | None, str | None]:
    """Return KUBECONFIG and TEMPORAL_ADDRESS, unless they belong to a local stack (`eval "$(holdfast dev env)"`)."""
    named = os.environ.get("KUBECONFIG") or None
    path = Path(named).expanduser().resolve() if named else None
    own = list(known_stacks().values())
    # A stack's kubeconfig is next to its stack.json, wherever its folder is.
    if path and (state := StackState.load(path.parent)):
        own.append(state)
        path = None
    address = os.environ.get("TEMPORAL_ADDRESS") or None
    if address in {f"{LOOPBACK}:{state.ports.get('temporal')}" for state in own}:
        address = None
    return path, address
