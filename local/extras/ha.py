"""Runs Temporal without a single point of failure of its own: two servers on one PostgreSQL, on this machine."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from holdfast.local.extras.temporal_server import configuration, dynamic_configuration
from holdfast.local.programs.tools import TEMPORAL_SERVER
from holdfast.local.system.credentials import write_private
from holdfast.local.system.errors import StackError
from holdfast.local.system.parts import DYNAMIC_CONFIG, Layout, Part
from holdfast.local.system.ports import LOOPBACK

DATABASE = "postgresql"
SERVERS = {"temporal-1": "127.0.0.1", "temporal-2": "127.0.0.2"}
"""The servers and their addresses: they find each other by address, and use the same ports."""
_SERVICES = ("history", "matching", "worker")
SHARED_PORTS = (
    "temporal",
    "temporal-http",
    "temporal-metrics",
    "temporal-membership",
    *(f"temporal-{service}{kind}" for service in _SERVICES for kind in ("", "-membership")),
)
PORTS = ("postgresql", *SHARED_PORTS, "temporal-ui", *(f"{name}-pprof" for name in SERVERS))
OWNERS = {
    **dict.fromkeys(SHARED_PORTS, "temporal-1"),
    **{f"{name}-pprof": name for name in SERVERS},
}
RELEASED_SECONDS = 10.0
READY_SECONDS = 60.0
HISTORY_SHARDS = 16
STORES = {"temporal": "temporal", "temporal_visibility": "visibility"}
"""The databases, and the embedded schema of each."""
_USER = "temporal"
DEBIAN = Path("/usr/lib/postgresql")
RUN_SECONDS = 120.0


@dataclass(frozen=True)
class Database:
    """The paths of one stack's PostgreSQL. For root it runs as `postgres`, which cannot read root's folders.

    Attributes:
        stack: folder of the stack.
    """

    stack: Path

    @property
    def folder(self) -> Path:
        """The folder of all its files."""
        if os.geteuid() != 0:
            return self.stack / "data" / DATABASE
        return Path("/var/lib/holdfast") / f"pg-{hashlib.sha256(str(self.stack).encode()).hexdigest()[:8]}"

    @property
    def data(self) -> Path:
        """The database cluster."""
        return self.folder / "data"

    @property
    def archive(self) -> Path:
        """Finished segments of the write-ahead log."""
        return self.folder / "wal"

    @property
    def password(self) -> Path:
        """The password of the only user."""
        return self.folder / "password"


def program(name: str) -> str:
    """Return the path of a PostgreSQL program: the newest Debian version, else the one on PATH.

    Debian's wrappers on PATH only select a version, by settings that do not belong to a stack.

    Raises:
        StackError: the program is not installed.
    """
    installed = sorted(DEBIAN.glob(f"*/bin/{name}"), key=lambda path: _version(path.parents[1].name))
    found = str(installed[-1]) if installed else shutil.which(name)
    if not found:
        raise StackError(
            f"two Temporal servers need PostgreSQL 12 or newer, and there is no {name}",
            "install it; on Debian: apt-get install postgresql",
        )
    return found


def _version(text: str) -> tuple[int, ...]:
    """Return a version as numbers; before 10 a major version had two numbers (9.6)."""
    return tuple(int(part) for part in text.split(".") if part.isdecimal())


def as_user(*argv: str) -> tuple[str, ...]:
    """Return a command that runs as a user that can run PostgreSQL, which refuses to run as root."""
    if os.geteuid() != 0:
        return argv
    return ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--", *argv)


def parts(
    layout: Layout,
    binaries: Mapping[str, str],
    ports: Mapping[str, int],
    dynamic: Mapping[str, str],
    decrypts: str = "",
) -> list[Part]:
    """Return the database, both servers, and the Web UI, which has payloads decrypted at that URL, if there is one."""
    found = [_database(layout, ports)]
    for name, address in SERVERS.items():
        config = layout.write_config(f"{name}.yaml", yaml.safe_dump(_server(layout, name, address, ports, dynamic)))
        argv = (
            binaries.get("temporal-server", "temporal-server"),
            f"--config-file={config}",
            "--allow-no-auth",
            "start",
        )
        owned = tuple(port for port, owner in OWNERS.items() if owner == name)
        health = f"http://{address}:{ports['temporal-http']}/api/v1/cluster-info"
        found.append(Part(name, argv, f"{address}:{ports['temporal']}", health, owned, 120))
    return [*found, _ui(layout, binaries.get("temporal-ui-server", "temporal-ui-server"), ports, decrypts)]


def _database(layout: Layout, ports: Mapping[str, int]) -> Part:
    place, port = Database(layout.directory), ports["postgresql"]
    options = {
        "listen_addresses": LOOPBACK,
        "port": port,
        "unix_socket_directories": "",
        "max_connections": 200,
        "shared_buffers": "128MB",
        # As with etcd: a crash of the machine may lose the newest data, a kill -9 does not.
        "fsync": "off",
        "wal_level": "replica",
        "archive_mode": "on",
        "archive_command": f"test ! -f {place.archive}/%f && cp %p {place.archive}/%f",
        "restore_command": f"cp {place.archive}/%f %p",
        "logging_collector": "off",
    }
    argv = as_user(program("postgres"), "-D", str(place.data), *(f"--{key}={value}" for key, value in options.items()))
    return Part(DATABASE, argv, f"{LOOPBACK}:{port}", f"tcp://{LOOPBACK}:{port}", (DATABASE,), 60)


def _server(
    layout: Layout, name: str, address: str, ports: Mapping[str, int], dynamic: Mapping[str, str]
) -> dict[str, Any]:
    """Return one server's configuration: all four services in one process."""
    password = _password(layout)

    def store(database: str, connections: int) -> dict[str, Any]:
        return {
            "sql": {
                "pluginName": "postgres12",
                "databaseName": database,
                "connectAddr": f"{LOOPBACK}:{ports['postgresql']}",
                "connectProtocol": "tcp",
                "user": _USER,
                "password": password,
                "maxConns": connections,
                "maxIdleConns": connections,
                "maxConnLifetime": "1h",
            }
        }

    def service(grpc: str, membership: str, **more: Any) -> dict[str, Any]:
        return {"grpcPort": ports[grpc], "membershipPort": ports[membership], "bindOnIP": address, **more}

    return configuration(
        services={
            "frontend": service("temporal", "temporal-membership", httpPort=ports["temporal-http"]),
            **{one: service(f"temporal-{one}", f"temporal-{one}-membership") for one in _SERVICES},
        },
        main=store("temporal", 40),
        visibility=store("temporal_visibility", 10),
        shards=HISTORY_SHARDS,
        broadcast=address,
        frontend=f"{LOOPBACK}:{ports['temporal']}",
        dynamic=layout.write_config("temporal-dynamic.yaml", dynamic_configuration({**DYNAMIC_CONFIG, **dynamic})),
        pprof={"port": ports[f"{name}-pprof"]},
        metrics={"prometheus": {"listenAddress": f"{address}:{ports['temporal-metrics']}"}},
    )


def _ui(layout: Layout, binary: str, ports: Mapping[str, int], decrypts: str) -> Part:
    """Return the Web UI, which uses the first server: while that server is down it shows nothing."""
    config = {
        "temporalGrpcAddress": f"{LOOPBACK}:{ports['temporal']}",
        "host": LOOPBACK,
        "port": ports["temporal-ui"],
        "enableUi": True,
        "cors": {"allowOrigins": [f"http://{LOOPBACK}:{ports['temporal-ui']}"]},
        "defaultNamespace": "default",
        **({"codec": {"endpoint": decrypts}} if decrypts else {}),
    }
    path = layout.write_config("temporal-ui.yaml", yaml.safe_dump(config))
    argv = (
        binary,
        f"--config={path.parent.relative_to(layout.directory)}",
        f"--root={layout.directory}",
        f"--env={path.stem}",
        "start",
    )
    address = f"http://{LOOPBACK}:{ports['temporal-ui']}"
    return Part("temporal-ui", argv, address, f"{address}/healthz", ("temporal-ui",))


def addresses(ports: Mapping[str, int]) -> str:
    """Return the addresses of both servers, in the format of `TEMPORAL_ADDRESS`."""
    return ",".join(f"{address}:{ports['temporal']}" for address in SERVERS.values())


def _password(layout: Layout) -> str:
    place = layout.pki / "postgresql-password"
    if not place.exists():
        write_private(place, os.urandom(18).hex())
    return place.read_text()


def prepare(layout: Layout) -> None:
    """Create the database's folder and the database cluster in it, unless they exist.

    Raises:
        StackError: PostgreSQL is missing or its setup failed, or the folder holds data of an unfinished restore.
    """
    place, owner = Database(layout.directory), "postgres" if os.geteuid() == 0 else None
    if (place.data / "PG_VERSION").exists():
        return
    kept = [path.name for path in (_left(place), *place.folder.glob("base-*")) if path.exists()]
    if kept:
        raise StackError(
            f"{place.folder} has no database, but what a restoration needs: {', '.join(sorted(kept))}",
            "restore it again; or give it up with `holdfast dev down --purge`",
        )
    shutil.rmtree(place.folder, ignore_errors=True)
    # Use another name until it is complete: initdb writes PG_VERSION first, and may be killed after that.
    half_made = place.data.with_name("half-made")
    for folder in (place.folder, place.archive):
        folder.mkdir(parents=True, mode=0o700)
    write_private(place.password, _password(layout))
    if owner:
        for path in (place.folder, place.archive, place.password):
            shutil.chown(path, owner, owner)
    _run(
        *as_user(
            program("initdb"),
            f"--pgdata={half_made}",
            f"--username={_USER}",
            f"--pwfile={place.password}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ),
        cwd=place.folder,
    )
    half_made.replace(place.data)


def await_ready(ports: Mapping[str, int]) -> None:
    """Wait until the database accepts connections: after a crash it listens for a while before it does.

    Raises:
        StackError: it does not accept any within a minute.
    """
    argv = (program("pg_isready"), f"--host={LOOPBACK}", f"--port={ports['postgresql']}", "--quiet")
    deadline = time.monotonic() + READY_SECONDS
    while subprocess.run(argv, check=False).returncode != 0:
        if time.monotonic() > deadline:
            raise StackError(f"the database takes no connections after {READY_SECONDS:g} s", "read its log")
        time.sleep(0.1)


def release(layout: Layout) -> None:
    """Remove the lock of a killed database, so that it can start again, once none of its processes is alive.

    PostgreSQL itself treats a process that has not been reaped yet as alive.

    Raises:
        StackError: some of its processes are still alive.
    """
    data = Database(layout.directory).data
    deadline = time.monotonic() + RELEASED_SECONDS
    while pids := _at_home(data):
        if time.monotonic() > deadline:
            raise StackError(f"processes of a database that was killed live on in {data}: {pids}")
        time.sleep(0.05)
    (data / "postmaster.pid").unlink(missing_ok=True)


def _at_home(data: Path) -> list[int]:
    """Return the processes whose working directory is this folder: PostgreSQL's processes run in its data folder."""
    found = list[int]()
    data = data.resolve()  # As in /proc: a parent folder may be a link.
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cwd").readlink() == data:
                found.append(int(entry.name))
    return found


def define(layout: Layout, sql_tool: str, ports: Mapping[str, int]) -> None:
    """Create both databases and update their schemas to this version, unless that is done.

    Raises:
        StackError: it failed; with the program's output.
    """
    # Next to the databases: if they are removed, this marker is removed, too.
    done = Database(layout.directory).folder / f"schema-{TEMPORAL_SERVER}"
    if done.exists():
        return
    reach = [sql_tool, "--plugin=postgres12", f"--ep={LOOPBACK}", f"--port={ports['postgresql']}", f"--user={_USER}"]
    secret = {"SQL_PASSWORD": _password(layout)}
    for database, schema in STORES.items():
        with contextlib.suppress(StackError):  # It may exist already.
            _run(*reach, f"--db={database}", "create-database", cwd=layout.directory, **secret)
        _run(*reach, f"--db={database}", "setup-schema", "-v", "0.0", cwd=layout.directory, **secret)
        name = f"postgresql/v12/{schema}"
        _run(*reach, f"--db={database}", "update-schema", f"--schema-name={name}", cwd=layout.directory, **secret)
    done.touch()


def define_namespace(temporal: str, address: str, name: str) -> None:
    """Create the stack's namespace, unless it exists.

    Raises:
        StackError: it failed; with the program's output.
    """
    try:
        _run(temporal, "operator", "namespace", "create", "--address", address, "-n", name, "--retention", "72h")
    except StackError as error:
        if "already" not in str(error).lower():
            raise


def take_base_backup(layout: Layout, ports: Mapping[str, int]) -> Path:
    """Copy the database cluster while it runs, and return the path of the copy.

    Raises:
        StackError: it failed; with the program's output.
    """
    place = Database(layout.directory)
    taken = (path.name.removeprefix("base-") for path in place.folder.glob("base-*"))
    target = place.folder / f"base-{max((int(number) for number in taken if number.isdecimal()), default=-1) + 1}"
    reach = (f"--host={LOOPBACK}", f"--port={ports['postgresql']}", f"--username={_USER}", "--no-password")
    argv = as_user(program("pg_basebackup"), *reach, f"--pgdata={target}", "--checkpoint=fast")
    _run(*argv, cwd=place.folder, PGPASSWORD=_password(layout))
    return target


def restore_base_backup(layout: Layout, source: Path, until: datetime) -> None:
    """Replace the database cluster with a copy; at its next start it recovers from the copy to the given time.

    It keeps the archived segments of the write-ahead log, and takes the others from the replaced cluster.
    """
    place = Database(layout.directory)
    left, fresh = _left(place), place.data.with_name("restoring")
    shutil.rmtree(fresh, ignore_errors=True)
    _run("cp", "-a", str(source), str(fresh))
    target = f"recovery_target_time = '{until.isoformat()}'\nrecovery_target_action = 'promote'\n"
    with (fresh / "postgresql.auto.conf").open("a") as file:
        file.write(target)
    signal = fresh / "recovery.signal"
    signal.touch()
    if os.geteuid() == 0:
        shutil.chown(signal, "postgres", "postgres")
    # If an earlier try was interrupted here, the folder that it moved aside is the database.
    if place.data.exists():
        shutil.rmtree(left, ignore_errors=True)
        place.data.replace(left)
    for segment in (left / "pg_wal").iterdir():
        if segment.is_file() and not (place.archive / segment.name).exists():
            _run("cp", "-a", str(segment), str(place.archive))
    fresh.replace(place.data)


def _left(place: Database) -> Path:
    """Return the path of the database that a restore has moved aside."""
    return place.data.with_name("left")


def remove(layout: Layout) -> None:
    """Remove the database's folder."""
    shutil.rmtree(Database(layout.directory).folder, ignore_errors=True)


def _run(*argv: str, cwd: Path | None = None, **environment: str) -> None:
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            cwd=cwd,
            env=os.environ | environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        message = f"{Path(argv[0]).name} has not ended after {RUN_SECONDS:g} s, and was killed"
        raise StackError(message, f"try it yourself: {' '.join(argv)}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-1500:]
        raise StackError(
            f"{Path(argv[0]).name} failed with {done.returncode}: {said}", f"read what it says: {argv[-1]}"
        )
