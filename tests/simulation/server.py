"""A Temporal server that skips time, for tests: io.temporal:temporal-test-server, by Java and Maven where they are.

`HOLDFAST_TIME_SKIPPING_SERVER` names the program instead. What Maven fetches, once, stays in the user's cache.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from holdfast import names
from holdfast.client.connection import add_search_attributes
from holdfast.local.system.lock import file_lock
from holdfast.local.system.paths import cache_dir

VERSION = "1.31.0"
FETCH_SECONDS = 300
_POM = f"""<project>
<modelVersion>4.0.0</modelVersion>
<groupId>dev.holdfast</groupId><artifactId>time-skipping-server</artifactId><version>1</version>
<dependencies><dependency>
<groupId>io.temporal</groupId><artifactId>temporal-test-server</artifactId><version>{VERSION}</version>
</dependency></dependencies>
</project>
"""


@asynccontextmanager
async def open_server() -> AsyncIterator[WorkflowEnvironment]:
    """Run a server, with Holdfast's columns defined, while the block runs."""
    program = await asyncio.to_thread(time_skipping_server)
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=program,
        test_server_startup_timeout=timedelta(minutes=4),
        data_converter=pydantic_data_converter,
    ) as env:
        await add_search_attributes(env.client, dict(names.SEARCH_ATTRIBUTES))
        yield env


@cache
def time_skipping_server() -> str:
    """Return the server's program, fetched if it is not there; skip the test where that cannot be had."""
    given = os.environ.get("HOLDFAST_TIME_SKIPPING_SERVER")
    if given:
        return given
    missing = [name for name in ("java", "mvn") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)}: HOLDFAST_TIME_SKIPPING_SERVER names no server either")
    folder = cache_dir() / "java" / f"temporal-test-server-{VERSION}"
    program = folder / "temporal-test-server"
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.with_suffix(".lock")):
        if not program.exists():
            _fetch(folder, program)
    return str(program)


def _fetch(folder: Path, program: Path) -> None:
    (folder / "pom.xml").write_text(_POM, encoding="utf-8")
    # Strict checksums; the plugin's version is Maven's own choice of what is stable.
    command = ("mvn", "-q", "-B", "-C", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}")
    fetched = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    if fetched.returncode:
        said = (fetched.stdout + fetched.stderr).strip().splitlines()
        pytest.skip(f"Maven could not fetch temporal-test-server {VERSION}: {said[0] if said else 'it said nothing'}")
    written = program.with_suffix(".new")
    written.write_text(f'#!/bin/sh\nexec java -cp "{folder}/jars/*" io.temporal.testserver.TestServer "$@"\n')
    written.chmod(0o755)
    written.replace(program)
