"""Copies of what a stack remembers, the cluster's store and Temporal's database, and putting an older one back.

A copy is taken cold: the part is stopped, its files are copied, it is started again. A snapshot is etcd's own: taken
while it runs, and put back by etcdutl, which can also raise the revision, as is advised for Kubernetes. From a copy, or
from a snapshot whose revision is not raised, the cluster counts its versions from an older one on: the harder case for
whoever watches it.
"""

import base64
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from holdfast.local.system.errors import StackError
from holdfast.local.system.parts import Layout, Part
from holdfast.local.system.runner import Runner

REMEMBERERS = {
    "etcd": ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubelet"),
    "temporal": (),
}
"""The parts that have data of their own, and those that remember something of it, in the order of their start."""
SNAPSHOT_SECONDS = 60.0
SNAPSHOT_FOLDER = "from-snapshot"


def take(runner: Runner, planned: dict[str, Part], name: str, target: Path) -> None:
    """Copy a part's data into the folder `target`, which must not exist yet.

    Raises:
        StackError: the part has no data.
    """
    _check(name)
    if target.exists():
        raise StackError(f"{target} exists already", "give a folder that does not")
    runner.stop(name)
    target.mkdir(parents=True, mode=0o700)
    for path in _files(runner.layout, name):
        _copy(path, target / path.name)
    for each in (name, *REMEMBERERS[name][:1]):
        runner.start(planned[each])


def restore(runner: Runner, planned: dict[str, Part], name: str, source: Path) -> None:
    """Put a copy in the place of a part's data; what remembers anything of that is started afresh too.

    Raises:
        StackError: the part has no data, or there is no copy of it.
    """
    _check(name)
    copies = list(source.glob(f"{runner.layout.data(name).name}*"))
    if not copies:
        raise StackError(f"there is no copy of {name} in {source}", "take one first")

    def put() -> None:
        for path in copies:
            _copy(path, runner.layout.data(name).parent / path.name)

    _replace(runner, planned, name, put)


def take_snapshot(etcd: str, target: Path) -> None:
    """Write a snapshot of the etcd at an address into the file `target`, while it runs.

    Raises:
        StackError: the file exists, or etcd gave no whole snapshot.
    """
    if target.exists():
        raise StackError(f"{target} exists already", "give a file that does not")
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    request = urllib.request.Request(f"{etcd}/v3/maintenance/snapshot", data=b"{}")
    left = -1
    try:
        with urllib.request.urlopen(request, timeout=SNAPSHOT_SECONDS) as answer, target.open("wb") as out:
            for line in answer:
                part = json.loads(line)["result"]
                out.write(base64.b64decode(part.get("blob", "")))
                left = int(part.get("remaining_bytes", 0))
    except (urllib.error.URLError, OSError, KeyError, ValueError) as error:
        raise StackError(f"etcd at {etcd} gave no snapshot: {error}", "look into its log") from None
    if left != 0:
        raise StackError(f"etcd at {etcd} gave no whole snapshot: {left} bytes are missing", "take it again")


def restore_snapshot(runner: Runner, planned: dict[str, Part], etcdutl: Path, source: Path, *, raised_by: int) -> None:
    """Put a snapshot in the place of etcd's data; what remembers anything of that is started afresh too.

    Args:
        runner: of the stack.
        planned: the stack's parts.
        etcdutl: the program that reads snapshots.
        source: the snapshot, a file.
        raised_by: by how much the revision is raised above the snapshot's, with all before it marked as compacted; 0
            leaves it.

    Raises:
        StackError: it is no snapshot.
    """
    fresh = runner.layout.data("etcd").with_name(SNAPSHOT_FOLDER)
    shutil.rmtree(fresh, ignore_errors=True)
    argv = [str(etcdutl), "snapshot", "restore", str(source), "--data-dir", str(fresh)]
    argv += ["--bump-revision", str(raised_by), "--mark-compacted"] if raised_by else []
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StackError(f"{source} cannot be put back", "take a snapshot anew", done.stderr[-2000:])
    _replace(runner, planned, "etcd", lambda: fresh.replace(runner.layout.data("etcd")))


def _replace(runner: Runner, planned: dict[str, Part], name: str, put: Callable[[], object]) -> None:
    """Stop a part and those that remember something of it, put other data in its place, and start them again."""
    affected = [name, *(each for each in REMEMBERERS[name] if runner.process(each))]
    for each in reversed(affected):
        if runner.process(each):
            runner.stop(each)
    for path in _files(runner.layout, name):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    put()
    for each in affected:
        runner.start(planned[each])


def _check(name: str) -> None:
    if name not in REMEMBERERS:
        raise StackError(f"part {name!r} has no data of its own", f"one of: {', '.join(REMEMBERERS)}")


def _files(layout: Layout, name: str) -> list[Path]:
    """Return a part's data: a folder, or a database file with the files it has beside it."""
    return sorted(layout.data(name).parent.glob(f"{layout.data(name).name}*"))


def _copy(path: Path, target: Path) -> None:
    shutil.copytree(path, target) if path.is_dir() else shutil.copy2(path, target)
