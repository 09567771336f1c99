"""Copies of what a stack remembers, the cluster's store and Temporal's database, and putting an older one back.

A copy is taken cold: the part is stopped, its files are copied, it is started again. For etcd that is not a snapshot by
its own tool, which also raises the revision: restored from this, the cluster counts its versions from an older one on,
which is the harder case for whoever watches it.
"""

import shutil
from pathlib import Path

from holdfast.local.errors import StackError
from holdfast.local.parts import Layout, Part
from holdfast.local.runner import Runner

REMEMBERERS = {
    "etcd": ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubelet"),
    "temporal": (),
}
"""The parts that have data of their own, and those that remember something of it, in the order of their start."""


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
    affected = [name, *(each for each in REMEMBERERS[name] if runner.process(each))]
    for each in reversed(affected):
        if runner.process(each):
            runner.stop(each)
    for path in _files(runner.layout, name):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in copies:
        _copy(path, runner.layout.data(name).parent / path.name)
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
