"""An image of the worker, built without Docker: this machine's Python, what it is linked with, and Holdfast."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from holdfast.local.node.requirements import find_static_busybox
from holdfast.local.programs.images import Image, base_layer, write_images
from holdfast.local.programs.python_layer import HOME, add, libraries_of, python_layer

ROOT: Final = Path(__file__).parents[3]
PACKAGES: Final = f"{HOME}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
_SCRIPT: Final = b'#!/bin/sh\nexec python -m holdfast "$@"\n'


def write_worker_image(target: Path, tag: str, folder: Path) -> None:
    """Write the image to a docker-archive.

    Args:
        target: the tar file.
        tag: the image's name.
        folder: an empty one to install into: what `requirements/runtime.lock` names, and Holdfast.

    Raises:
        subprocess.CalledProcessError: if something cannot be installed.
    """
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pip += ["--no-compile", "--target", str(folder)]
    subprocess.run([*pip, "--require-hashes", "-r", str(ROOT / "requirements" / "runtime.lock")], check=True)
    subprocess.run([*pip, "--no-build-isolation", str(ROOT)], check=True)
    # Its files have no times of their own there, and a worker that compiled all of them would start for a minute.
    compiled = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(folder)]
    subprocess.run([sys.executable, *compiled], check=True)
    busybox = find_static_busybox()
    assert busybox is not None, "the real node has one"
    write_images(
        target, [Image(tag, ["holdfast", "worker"], [base_layer(busybox), python_layer(), _installed(folder)])]
    )


def _installed(folder: Path) -> bytes:
    out = io.BytesIO()
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    with tarfile.open(fileobj=out, mode="w") as tar:
        # The interpreter's library may lie there, and the worker is not root.
        home = tarfile.TarInfo("root")
        home.type, home.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(home)
        for file in files:
            add(tar, f"{PACKAGES}/{file.relative_to(folder)}", file.read_bytes(), 0o644)
        for library in libraries_of(file for file in files if ".so" in file.suffixes):
            if not library.is_relative_to(folder):
                add(tar, str(library), library.resolve().read_bytes(), 0o755)
        add(tar, "bin/holdfast", _SCRIPT, 0o755)
    return out.getvalue()
