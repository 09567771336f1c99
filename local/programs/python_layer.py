"""An image layer with this machine's Python and Holdfast's agent: what a member of a gang needs to run."""

import importlib.util
import io
import py_compile
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import holdfast

HOME: Final = "/usr/local"
"""PYTHONHOME in the image."""
_VERSION: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
_ZIP: Final = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
_LEFT_OUT: Final = frozenset(
    {"__pycache__", "ensurepip", "idlelib", "lib-dynload", "lib2to3", "pydoc_data", "site-packages", "test", "tests"}
    | {"tkinter", "turtledemo"}
)
_EXTENSIONS_LEFT_OUT: Final = re.compile(r"_(tkinter|curses|dbm|gdbm|sqlite3|test|xx|crypt)|readline|xx|nis")
"""Extensions for tests or terminals, and extensions that need libraries which a member does not use."""
_PACKAGE: Final = Path(holdfast.__file__).parent
_SCRIPT: Final = """#!/bin/sh
if [ "$1" != agent ]; then echo "this image has Holdfast's agent alone: holdfast agent -- COMMAND..." >&2; exit 2; fi
shift
exec python -m holdfast.agent "$@"
"""


def python_layer() -> bytes:
    """Return the layer: a tar of the interpreter, the libraries it is linked with, its standard library, and the agent.

    The standard library is one archive of compiled modules: if a container's root is a copy of its image, fewer files
    copy faster.

    Raises:
        subprocess.CalledProcessError: if `ldd` cannot list the libraries of the interpreter.
    """
    program = Path(sys.executable).resolve()
    standard = Path(sysconfig.get_path("stdlib"))
    extensions = [
        file
        for file in sorted((standard / "lib-dynload").glob("*.so"))
        if not _EXTENSIONS_LEFT_OUT.match(file.name.partition(".")[0])
    ]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        add(tar, f"{HOME}/bin/{_VERSION}", program.read_bytes(), 0o755)
        for name in ("python3", "python"):
            link(tar, f"bin/{name}", f"{HOME}/bin/{_VERSION}")
        for file in extensions:
            add(tar, f"{HOME}/lib/{_VERSION}/lib-dynload/{file.name}", file.read_bytes(), 0o755)
        for library in libraries_of([program, *extensions]):
            add(tar, str(library), library.resolve().read_bytes(), 0o755)
        add(tar, f"{HOME}/lib/{_ZIP}", _compiled(standard), 0o644)
        for file in _agent():
            # As files, not in the archive: the agent starts its keeper by the path of its file.
            place = f"{HOME}/lib/{_VERSION}/site-packages/holdfast/{file.relative_to(_PACKAGE)}"
            add(tar, place, file.read_bytes(), 0o644)
            add(tar, importlib.util.cache_from_source(place), _compiled_alone(file, place), 0o644)
        add(tar, "bin/holdfast", _SCRIPT.encode(), 0o755)
    return out.getvalue()


def add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    """Add a file to a tar, with its path relative to the root."""
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def link(tar: tarfile.TarFile, name: str, target: str) -> None:
    """Add a symbolic link to a tar."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def libraries_of(programs: Iterable[Path]) -> list[Path]:
    """Return the libraries of programs, including the dynamic linker, at the paths where the programs look for them.

    Raises:
        subprocess.CalledProcessError: if `ldd` fails.
    """
    told = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=True).stdout
    return sorted({Path(found) for found in re.findall(r"(?:=>\s*|^\s+)(/\S+) \(0x", told, re.MULTILINE)})


def _compiled(standard: Path) -> bytes:
    out = io.BytesIO()
    # Uncompressed: the interpreter reads the archive before it can load zlib.
    with zipfile.PyZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for entry in sorted(standard.iterdir()):
            if entry.name in _LEFT_OUT or entry.name.startswith("config-"):
                continue
            if entry.suffix == ".py":
                archive.writepy(str(entry))
            elif (entry / "__init__.py").is_file():
                archive.writepy(str(entry), filterfunc=_kept)
    return out.getvalue()


def _compiled_alone(file: Path, place: str) -> bytes:
    """Return a module compiled for its place in the image, so that no start of an agent compiles it."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "compiled.pyc"
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(file), str(target), dfile=place, doraise=True, invalidation_mode=mode)
        return target.read_bytes()


def _kept(path: str) -> bool:
    return not _LEFT_OUT.intersection(Path(path).parts[-2:])


def _agent() -> list[Path]:
    """Return the agent's source files, and what tells steps: only the standard library is needed (record 0031)."""
    alone = ("__init__.py", "names.py", "progress.py")
    return [*(_PACKAGE / name for name in alone), *sorted((_PACKAGE / "agent").glob("*.py"))]
