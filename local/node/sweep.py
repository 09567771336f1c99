"""Removes all traces of a real node: its containers, mounts, cgroups, network and folders."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.local.node.real_node import RealNode, cgroup_roots
from holdfast.local.system.errors import StackError
from holdfast.local.system.process import Process, birth

_MOUNTINFO: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(rb"\\([0-3][0-7]{2})")


def sweep(node: RealNode) -> None:
    """Kill the containers and shims of this node, undo its mounts, and remove its folders, cgroups and bridge.

    Kubelet and containerd must not run. The sweep does not touch other stacks or the host's own containerd: it finds
    shims by this node's socket in their command line, and everything else by its path.

    Raises:
        StackError: if something is still mounted below a folder of the node. Nothing in that folder is removed then:
            the mounted data may belong to another owner (row D58).
    """
    _kill_shims(node)
    _remove_shim_sockets(node)
    # On a machine with both cgroup versions the runtime also creates a cgroup in the unified hierarchy.
    hierarchies = [*cgroup_roots(), Path("/sys/fs/cgroup/unified")]
    roots = [root / node.cgroup.strip("/") for root in hierarchies]
    for root in roots:
        _kill_group(root)
    mounted = [point for folder in (node.run, node.data) for point in _removed(folder)]
    for root in roots:
        for group in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
            _remove_group(group)
        _remove_group(root)
    if Path("/sys/class/net", node.bridge).exists():
        subprocess.run(["ip", "link", "delete", node.bridge], capture_output=True, check=False)
    _forget_addresses(node)
    if mounted:
        raise still_mounted(mounted)


def _forget_addresses(node: RealNode, results: Path = Path("/var/lib/cni/results")) -> None:
    """Remove the network plugins' records of pods that were killed with their containers."""
    network = f"holdfast-{node.identity}-"
    for path in results.glob(f"{network}*"):
        container = path.name.removeprefix(network).rpartition("-")[0]
        path.unlink(missing_ok=True)
        (results / f"cni-loopback-{container}-lo").unlink(missing_ok=True)


def still_mounted(points: Sequence[str]) -> StackError:
    """Return the error that lists the remaining mounts in a folder that should be removed."""
    return StackError(
        f"still mounted, so that nothing in the folders above was removed: {', '.join(points)}",
        "unmount them as root (`umount PATH`), and run this command again",
    )


def remove_tree(folder: Path) -> None:
    """Remove a folder and its contents, unless something is mounted there.

    Raises:
        StackError: if something is mounted there; nothing is removed then.
    """
    mounted = _mounts_below(folder)
    if mounted:
        raise still_mounted(mounted)
    shutil.rmtree(folder, ignore_errors=True)


def _removed(folder: Path) -> list[str]:
    """Undo the mounts below a folder and remove it; if mounts remain, return them and remove nothing."""
    for point in _mounts_below(folder):
        subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)
    left = _mounts_below(folder)
    if not left:
        shutil.rmtree(folder, ignore_errors=True)
    return left


def _kill_shims(node: RealNode) -> None:
    shims: list[Process] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"-address" in words and str(node.socket).encode() in words:
                shims.append(Process(int(entry.name), birth(int(entry.name))))
    for shim in shims:
        shim.signal(signal.SIGKILL)
    for shim in shims:
        shim.wait(5)


def _remove_shim_sockets(node: RealNode) -> None:
    """Remove the sockets of shims from the folder that all containerds share; each address is in the shim's bundle."""
    for bundle in node.run.glob("containerd/io.containerd.runtime.v2.task/*/*/bootstrap.json"):
        try:
            address = str(json.loads(bundle.read_text())["address"])
        except (OSError, ValueError, KeyError):
            continue
        Path(address.removeprefix("unix://")).unlink(missing_ok=True)


def _kill_group(root: Path) -> None:
    """Kill every process in a cgroup and its children, until none is left or five seconds are over."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        pids: set[int] = set()
        for file in (*root.glob("cgroup.procs"), *root.glob("**/cgroup.procs")):
            try:
                pids |= {int(line) for line in file.read_text().split()}
            except OSError:
                continue
        if not pids:
            return
        for pid in pids:
            Process(pid, birth(pid)).signal(signal.SIGKILL)
        time.sleep(0.05)


def _mounts_below(folder: Path) -> list[str]:
    """Return the mount points at a folder and below it, the deepest first."""
    # The table has resolved paths, as bytes; the kernel writes only some of them, such as a space, as octal numbers.
    top = os.fsencode(folder.resolve())
    points: list[bytes] = []
    for line in _MOUNTINFO.read_bytes().rstrip(b"\n").split(b"\n"):
        point = _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), line.split(b" ")[4])
        if point == top or point.startswith(top.rstrip(b"/") + b"/"):
            points.append(point)
    return [os.fsdecode(point) for point in sorted(points, reverse=True)]


def _remove_group(group: Path) -> None:
    for _ in range(20):
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            # The kernel needs a moment after the last process of a cgroup has exited.
            time.sleep(0.05)
