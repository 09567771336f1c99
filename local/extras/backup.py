"""Copies the data of a stack, the cluster's etcd and Temporal's database, and restores an older copy.

A copy is cold: the part stops, its files are copied, and it starts again. A snapshot is etcd's own: etcd takes it while
it runs, and etcdutl restores it. etcdutl can also raise the revision, as Kubernetes recommends. After a restore from a
copy, or from a snapshot without a raised revision, resource versions continue from an older one: the harder case for
watching clients.
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
"""The parts with data of their own, and the parts that hold state derived from it, in start order."""
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
    """Replace a part's data with a copy, and restart the parts that depend on that data.

    Raises:
        StackError: the part has no data, or the folder has no copy of it.
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
    """Write a snapshot of the running etcd at an address into the file `target`.

    Raises:
        StackError: the file exists, or etcd returned no complete snapshot.
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
    """Replace etcd's data with a snapshot, and restart the parts that depend on that data.

    Args:
        runner: the stack's runner.
        planned: the stack's parts.
        etcdutl: the program that reads snapshots.
        source: the file of the snapshot.
        raised_by: the number to add to the snapshot's revision; older revisions are marked as compacted; 0
            keeps the revision.

    Raises:
        StackError: the file is not a snapshot.
    """
    fresh = runner.layout.data("etcd").with_name(SNAPSHOT_FOLDER)
    shutil.rmtree(fresh, ignore_errors=True)
    argv = [str(etcdutl), "snapshot", "restore", str(source), "--data-dir", str(fresh)]
    argv += ["--bump-revision", str(raised_by), "--mark-compacted"] if raised_by else []
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StackError(f"{source} cannot be restored", "take a new snapshot", done.stderr[-2000:])
    _replace(runner, planned, "etcd", lambda: fresh.replace(runner.layout.data("etcd")))


def _replace(runner: Runner, planned: dict[str, Part], name: str, put: Callable[[], object]) -> None:
    """Stop a part and the running parts that depend on its data, replace the data, and start them again."""
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
    """Return a part's data: a folder, or a database file with the files next to it."""
    return sorted(layout.data(name).parent.glob(f"{layout.data(name).name}*"))


def _copy(path: Path, target: Path) -> None:
    shutil.copytree(path, target) if path.is_dir() else shutil.copy2(path, target)
