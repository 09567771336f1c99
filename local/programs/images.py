"""Writes container images as docker-archive files: a static busybox needs no registry."""

import hashlib
import io
import json
import struct
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.local.programs.python_layer import HOME, add, link, python_layer
from holdfast.local.programs.tools import ARCH

BUSYBOX = "holdfast.local/busybox:1"
PAUSE = "holdfast.local/pause:1"
PYTHON = "holdfast.local/python:1"


def is_static(program: Path) -> bool:
    """Whether an ELF program runs without a dynamic linker, as required in an image that contains nothing else."""
    content = program.read_bytes()
    if content[:5] != b"\x7fELF\x02":
        return False
    (table,) = struct.unpack_from("<Q", content, 0x20)
    size, count = struct.unpack_from("<HH", content, 0x36)
    wants_interpreter = 3
    return all(
        struct.unpack_from("<I", content, table + number * size)[0] != wants_interpreter for number in range(count)
    )


@dataclass(frozen=True)
class Image:
    """An image to write.

    Attributes:
        tag: its name.
        command: the default command of its containers.
        layers: its layers as tar files, the lowest first.
    """

    tag: str
    command: Sequence[str]
    layers: Sequence[bytes]


def write_archive(target: Path, busybox: Path) -> None:
    """Write the images of the real node to one docker-archive: busybox, the pause image of every pod, and Python.

    Args:
        target: the path of the tar file.
        busybox: the path of a static busybox.
    """
    base, python = base_layer(busybox), python_layer()
    pause = ["/bin/busybox", "sleep", "2147483647"]
    write_images(
        target,
        [Image(BUSYBOX, ["sh"], [base]), Image(PAUSE, pause, [base]), Image(PYTHON, ["python"], [base, python])],
    )


def write_images(target: Path, images: Sequence[Image]) -> None:
    """Write images to one docker-archive, each layer once."""
    files: dict[str, bytes] = {}
    manifest: list[dict[str, object]] = []
    for image in images:
        digests = [hashlib.sha256(layer).hexdigest() for layer in image.layers]
        layers = [f"{digest}/layer.tar" for digest in digests]
        files |= dict(zip(layers, image.layers, strict=True))
        config = json.dumps(_config(digests, image.command)).encode()
        name = f"{hashlib.sha256(config).hexdigest()}.json"
        files[name] = config
        manifest.append({"Config": name, "RepoTags": [image.tag], "Layers": layers})
    files["manifest.json"] = json.dumps(manifest).encode()
    target.write_bytes(_tar(files))


def _config(digests: Sequence[str], command: Sequence[str]) -> dict[str, object]:
    return {
        "architecture": ARCH,
        "os": "linux",
        "config": {
            "Env": ["PATH=/bin:/usr/bin:/sbin", f"PYTHONHOME={HOME}", "PYTHONUNBUFFERED=1"],
            "Cmd": list(command),
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created_by": "holdfast dev"} for _ in digests],
    }


def base_layer(busybox: Path) -> bytes:
    """Return the layer with a static busybox and a link for each of its applets."""
    applets = subprocess.run([str(busybox), "--list"], capture_output=True, text=True, check=True).stdout.split()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("root", 0o700), ("tmp", 0o1777), ("www", 0o755)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        add(tar, "bin/busybox", busybox.read_bytes(), 0o755)
        add(tar, "etc/passwd", b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/tmp:/bin/sh\n", 0o644)
        add(tar, "etc/group", b"root:x:0:\nnogroup:x:65534:\n", 0o644)
        for applet in applets:
            if applet != "busybox":
                link(tar, f"bin/{applet}", "busybox")
    return out.getvalue()


def _tar(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            add(tar, name, content, 0o644)
    return out.getvalue()
