"""A real S3 server (versitygw), for demos and tests: its objects are files in a folder."""

import contextlib
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from holdfast.local.system.errors import StackError
from holdfast.local.system.ports import LOOPBACK

KEY: Final = "holdfast"
SECRET: Final = "holdfast-secret"  # noqa: S105 - of a server on this machine alone, for as long as a demo
REGION: Final = "us-east-1"
BUCKET: Final = "datasets"
_READY: Final = 20.0


@dataclass
class StoreServer:
    """The server: its objects outlive its process.

    Attributes:
        directory: the folder of its objects and its log.
        program: the path of versitygw.
        port: where it listens.
        process: its process; None if it does not run.
    """

    directory: Path
    program: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def credentials(self) -> Path:
        """A file as AWS tools have it."""
        path = self.directory / "credentials"
        if not path.exists():
            path.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
        return path

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the settings by which workers and commands reach it."""
        return {
            "HOLDFAST_DATA_ENDPOINT": self.endpoint,
            "HOLDFAST_DATA_REGION": REGION,
            "HOLDFAST_DATA_ALLOW_HTTP": "true",
            "HOLDFAST_DATA_CREDENTIALS_FILE": str(self.credentials),
        }

    def start(self) -> None:
        """Start it with one bucket, and wait until it answers.

        Raises:
            StackError: if it does not.
        """
        (self.directory / "objects" / BUCKET).mkdir(parents=True, exist_ok=True)
        (self.directory / "notes").mkdir(exist_ok=True)
        argv = [str(self.program), "--access", KEY, "--secret", SECRET, "--region", REGION]
        argv += ["--port", f"{LOOPBACK}:{self.port}", "--health", "/health", "--quiet", "posix"]
        # Beside the files, since not every file system has extended attributes.
        argv += ["--sidecar", str(self.directory / "notes"), str(self.directory / "objects")]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        deadline = time.monotonic() + _READY
        while True:
            with contextlib.suppress(OSError), urlopen(f"{self.endpoint}/health", timeout=1):
                return
            if time.monotonic() > deadline or self.process.poll() is not None:
                tail = (self.directory / "log").read_text()[-2000:]
                raise StackError("the S3 server does not answer", log_tail=tail)
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill it with -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
