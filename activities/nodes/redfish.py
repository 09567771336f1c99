"""Machines by Redfish (DMTF DSP0266) over HTTP, with OpenStack's client sushy: the one module that imports it (L15)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from holdfast import names
from holdfast.activities.kube.raw import mapping, mappings, one_line
from holdfast.activities.nodes.machine import Away, Erasure, NotNow, Refusal
from holdfast.activities.nodes.one_service import stay_at
from holdfast.model.entities.provisioner import Checked
from holdfast.policy.nodes.machine_address import PLACEHOLDER, SETTING, address, addresses

CONNECT_SECONDS: Final = 5
READ_SECONDS: Final = 20
_SAID_MAXIMUM: Final = 200
_IGNORED: Final = f"its annotation {names.ANNOTATION_REDFISH} is ignored: see the setting {SETTING}"
_THREADS: Final = 64
"""As many fences run at the same time; each machine may hang until the time-out of its answer."""
_ERASE: Final = "#Drive.SecureErase"
_RUNNING: Final = frozenset({"New", "Starting", "Running", "Pending", "Suspended", "Stopping", "Service", "Cancelling"})
"""States of a task that is not over (DSP0268)."""

T = TypeVar("T")


def is_installed() -> bool:
    """Whether the client is installed: it comes with the extra `redfish`."""
    return find_spec("sushy") is not None


@dataclass(frozen=True)
class Access:
    """Where machines are found, and the credentials for them."""

    template: str
    """A ComputerSystem's URL, in which `{node}` stands for its node's name."""
    user: str = ""
    password_file: Path | None = None
    """Read for each try, so that a new password needs no restart of the worker."""
    ca_file: Path | None = None
    insecure: bool = False
    from_nodes: tuple[str, ...] = ()
    """Addresses that a node's annotation may name besides the template's. Empty: annotations are ignored."""
    allow_unverified: bool = False
    """Whether to accept a machine by its URL alone, if the machine or its node reports no UUID."""

    def password(self) -> str:
        """Return the password.

        Raises:
            Away: if it cannot be read.
        """
        if self.password_file is None:
            return ""
        try:
            return self.password_file.read_text().strip()
        except OSError as error:
            raise Away(f"the file of the password cannot be read: {error.strerror or error}") from error


def service_of(url: str) -> str:
    """Return scheme, host and port of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


class Redfish:
    """The provisioning service, or several of them: each machine may have one of its own."""

    def __init__(self, access: Access, machines: type[System] | None = None) -> None:
        """Prepare; this sends no request.

        Args:
            access: how the service is reached.
            machines: the class of each machine; `System` by default.
        """
        self._access = access
        self._machines = machines or System
        # The client blocks. A service that hangs must not use up the threads that the rest of the process needs.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="redfish")

    @property
    def allows_unverified(self) -> bool:
        """Whether to act on a machine that cannot be compared with its node."""
        return self._access.allow_unverified

    def service_of(self, node: str, said: str = "") -> str:
        """Return the service of a node's machine.

        Raises:
            Refusal: if the node names an address that the settings do not list.
        """
        return service_of(self._address(node, said))

    async def machine(self, node: str, said: str = "") -> System:
        """Return a node's machine.

        Raises:
            ServiceError: if it cannot be read, or the node names an address that the settings do not list.
        """
        url = self._address(node, said)
        looks = f"looking at {urlsplit(url).path}"
        return await self.threaded(looks, lambda: self._machines(self, self._system(url)))

    def _address(self, node: str, said: str) -> str:
        found = address(node, said, self._access.template, self._access.from_nodes)
        if found.refused:
            raise Refusal(found.refused)
        return found.url

    async def check(self, node: str = "", said: str = "") -> Checked:
        """Ask the service for a node's machine; without a node, ask how many machines it has."""
        asked = service_of(self._access.template)
        if not node and PLACEHOLDER in asked:
            return Checked(good=True, found=f"each node has a service of its own ({asked}): name one to ask it")
        try:
            if not node:
                found = await self.threaded("asking for its machines", lambda: self._systems(asked))
                return Checked(good=True, found=f"{asked} answers, and knows {found} machines")
            asked = self._address(node, said)
            power = await (await self.machine(node, said)).power()
            ignored = "" if self._access.from_nodes or said in {"", asked} else f"; {_IGNORED}"
            return Checked(good=True, found=f"{service_of(asked)} answers: {asked} is {power}{ignored}")
        except Away as error:
            remedy = "look whether it runs, whether this worker reaches it, and whether user and password are right"
            return Checked(good=False, found=f"{service_of(asked)}: {error}", remedy=remedy)
        except (NotNow, Refusal) as error:
            remedy = f"look at the settings provisioner_url and {SETTING}"
            return Checked(good=False, found=f"{asked}: {error}", remedy=remedy)

    async def answers(self, node: str, service: str) -> bool:
        """Whether a service answers, if it is one that the machine of this node may have."""
        access = self._access
        if service not in map(service_of, addresses(node, access.template, access.from_nodes)):
            return False
        try:
            await self.threaded("asking what it is", lambda: self._root(service))
        except Away:
            return False
        except Refusal:
            pass
        return True

    async def threaded(self, what: str, call: Callable[[], T]) -> T:
        """Make a call of the client in a thread, and translate its errors.

        Raises:
            ServiceError: if it fails.
        """
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: self._translate_errors(what, call)
        )

    def _translate_errors(self, what: str, call: Callable[[], T]) -> T:
        errors = _client().exceptions
        try:
            return call()
        except errors.HTTPError as error:
            status, text = int(error.status_code or 0), one_line(f"{what}: {error.detail or error}", _SAID_MAXIMUM)
            if status in {401, 403} or status >= 500:
                raise Away(f"{text} ({status})", broken=status >= 500) from error
            if status in {400, 404, 405, 410}:
                raise Refusal(f"{text} ({status})") from error
            raise NotNow(f"{text} ({status})") from error
        except errors.ConnectionError as error:
            raise Away(one_line(f"{what}: {error}", _SAID_MAXIMUM)) from error
        except errors.SushyError as error:  # The answer is not valid Redfish, or the service cannot do this.
            raise Refusal(one_line(f"{what}: {error}", _SAID_MAXIMUM)) from error
        except ValueError as error:  # Something answers there, but not in JSON.
            raise Away(one_line(f"{what}: {error}", _SAID_MAXIMUM)) from error

    def _root(self, service: str) -> Any:
        sushy, access = _client(), self._access
        # Basic authentication, not a session: each killed worker would leave a session behind, and machines keep few.
        auth = sushy.auth.BasicAuth(username=access.user, password=access.password()) if access.user else _anybody()
        connector = sushy.connector.Connector(
            service,
            verify=False if access.insecure else str(access.ca_file) if access.ca_file is not None else True,
            # The caller retries, and reports why meanwhile.
            server_side_retries=1,
            server_side_retries_delay=0,
            default_request_timeout=READ_SECONDS,
            connect_timeout=CONNECT_SECONDS,
        )
        stay_at(service, connector._session)
        return sushy.Sushy(service, auth=auth, connector=connector, public_connector=connector)

    def _system(self, url: str) -> Any:
        return self._root(service_of(url)).get_system(urlsplit(url).path)

    def _systems(self, service: str) -> int:
        return len(self._root(service).get_system_collection().members_identities)


class System:
    """A ComputerSystem."""

    def __init__(self, service: Redfish, system: Any) -> None:
        """Wrap a ComputerSystem that was just read."""
        self._service, self._system = service, system

    async def uuid(self) -> str:
        """Return its UUID, as of when the ComputerSystem was read."""
        return str(self._system.json.get("UUID") or "")

    async def power(self) -> str:
        """Return its power state."""

        def ask() -> str:
            self._system.refresh(force=True)
            return str(self._system.json.get("PowerState") or "unknown")

        return await self._service.threaded("asking for its power", ask)

    async def set_power(self, on: bool) -> None:
        """Power it on or off, by ComputerSystem.Reset."""
        kind = "ON" if on else "FORCE_OFF"
        await self._service.threaded(
            "resetting it", lambda: self._system.reset_system(getattr(_client().ResetType, kind))
        )

    async def boot_from_network_once(self) -> None:
        """Set its boot override to the network, for one boot."""
        sushy = _client()
        source, once = sushy.BootSource.PXE, sushy.BootSourceOverrideEnabled.ONCE
        await self._service.threaded(
            "setting its boot override", lambda: self._system.set_system_boot_options(source, enabled=once)
        )

    async def drives(self) -> tuple[str, ...]:
        """Return the names of the drives of all its storages."""

        def ask() -> tuple[str, ...]:
            storages = self._system.storage.get_members()
            return tuple(str(drive["@odata.id"]) for one in storages for drive in mappings(one.json.get("Drives")))

        return await self._service.threaded("asking for its drives", ask)

    async def erasures(self, drive: str) -> tuple[str, ...]:
        """Return the tasks that were ordered by the drive's erase action; empty if the service keeps no tasks."""
        return await self._service.threaded(f"asking for tasks of {drive}", lambda: tuple(self._tasks(drive)))

    async def erase(self, drive: str) -> str:
        """Order the erasure; return its task, else its task monitor; empty if it is done already."""

        def order() -> str:
            answer = self._connector.post(self._action(drive), data={})
            if answer.status_code != 202:
                return ""
            body = _body(answer)
            found = str(body.get("@odata.id") or "") if "TaskState" in body else ""
            found = found or str(answer.headers.get("Location") or "")
            if not found:
                raise _client().exceptions.MissingHeaderError(target_uri=drive, header="Location")
            return urlsplit(found).path

        return await self._service.threaded(f"erasing {drive}", order)

    async def erasure(self, order: str) -> Erasure:
        """Return the state of a task or a task monitor."""

        def ask() -> tuple[int, Mapping[str, Any]]:
            answer = self._connector.get(order)
            return answer.status_code, _body(answer)

        status, body = await self._service.threaded(f"asking for {order}", ask)
        state, health = str(body.get("TaskState") or ""), str(body.get("TaskStatus") or "OK")
        if status == 202 or state in _RUNNING:
            return Erasure.RUNNING
        if state not in {"", "Completed"} or health == "Critical":
            words = " ".join(str(one.get("Message") or "") for one in mappings(body.get("Messages")))
            raise Refusal(one_line(f"{order} has ended as {state or health} {words}".strip(), _SAID_MAXIMUM))
        return Erasure.DONE

    @property
    def _connector(self) -> Any:
        return self._system._conn  # The client has no call of its own for this action.

    def _action(self, drive: str) -> str:
        actions = mapping(mapping(self._connector.get(drive).json()).get("Actions"))
        target = mapping(actions.get(_ERASE)).get("target")
        if not target:
            raise _client().exceptions.MissingActionError(action=_ERASE, resource=drive)
        return str(target)

    def _tasks(self, drive: str) -> list[str]:
        action = self._action(drive)
        root = mapping(self._connector.get("/redfish/v1/").json())
        link = mapping(root.get("Tasks")).get("@odata.id")
        if not link:
            return []
        service = mapping(self._connector.get(str(link)).json())
        listed = mapping(service.get("Tasks")).get("@odata.id")
        members: Sequence[Mapping[str, Any]] = (
            mappings(mapping(self._connector.get(str(listed)).json()).get("Members")) if listed else ()
        )
        found: list[str] = []
        for one in members:
            task = mapping(self._connector.get(str(one["@odata.id"])).json())
            if mapping(task.get("Payload")).get("TargetUri") == action:
                found.append(str(one["@odata.id"]))
        return found


def _body(answer: Any) -> Mapping[str, Any]:
    return mapping(answer.json() if answer.content else None)


def _client() -> Any:
    """Return the client's module.

    Raises:
        Refusal: if it is not installed.
    """
    try:
        import sushy  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise Refusal("Redfish needs the extra `redfish`: pip install 'holdfast[redfish]'") from error
    return sushy  # This import also loads its exceptions and authentication modules.


def _anybody() -> Any:
    """Return an authentication without credentials, for a service that needs none."""
    base: Any = _client().auth.AuthBase

    class Anybody(base):
        def _do_authenticate(self) -> None:
            """Send no credentials."""

        def can_refresh_session(self) -> bool:
            """Return that there is no session."""
            return False

    return Anybody()
