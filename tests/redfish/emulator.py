"""A Redfish service for machines of tests: OpenStack's published emulator, and what it lacks of drives and tasks.

The published emulator (sushy-tools, `sushy_tools.emulator`, with its driver of fake systems) serves systems, power,
Reset, boot override, storage and drives. Its state is kept in a folder, and outlives `kill -9`. Ours are
Drive.SecureErase and the tasks that tell of it, as the schemas of Drive and Task say (DSP0268): 202 with a Task as its
body and its monitor as Location; the Task, with the action as its Payload's TargetUri; the list of tasks.

Run as `python -m tests.redfish.emulator CONFIG`, where CONFIG is a JSON document (`tests/redfish/server.py` writes it).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import flask
from sushy_tools.emulator import memoize
from sushy_tools.emulator.main import app
from sushy_tools.emulator.resources.systems import fakedriver

TASKS = "/redfish/v1/TaskService/Tasks"


class Clockwork:
    """Stands for the random delay with which the published driver changes power: always as long."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def randint(self, least: int, most: int) -> int:
        return self.seconds


def kept(folder: str, name: str) -> Any:
    """Return a dict that outlives the process, as the published driver keeps its systems."""
    found = memoize.PersistentDict()
    found.make_permanent(folder, name)
    return found


def serve_erasures(config: dict[str, Any]) -> None:
    """Add SecureErase to each drive, and its tasks."""
    tasks: Any = kept(config["state"], "tasks")
    seconds, fails = float(config["erase_seconds"]), set(config["erase_fails"])

    def document(number: str) -> dict[str, Any]:
        task = tasks[number]
        over = time.time() >= task["begun"] + seconds
        failed = over and task["drive"] in fails
        return {
            "@odata.type": "#Task.v1_4_3.Task",
            "@odata.id": f"{TASKS}/{number}",
            "Id": number,
            "Name": f"Task {number}",
            "TaskMonitor": f"/taskmon/{number}",
            "TaskState": "Exception" if failed else "Completed" if over else "Running",
            "TaskStatus": "Critical" if failed else "OK",
            "Messages": [{"MessageId": "Base.1.0.GeneralError", "Message": "the drive is frozen"}] if failed else [],
            "Payload": {"HttpOperation": "POST", "TargetUri": task["target"]},
        }

    @app.route(
        "/redfish/v1/Systems/<identity>/Storage/<storage>/Drives/<drive>/Actions/Drive.SecureErase", methods=["POST"]
    )
    def secure_erase(identity: str, storage: str, drive: str) -> flask.Response:
        number = str(len(list(tasks)) + 1)
        tasks[number] = {"drive": drive, "target": flask.request.path, "begun": time.time()}
        if config["erase_at_once"]:
            return flask.Response(status=204)
        body = {**document(number), "TaskState": "New"}
        headers = {"Location": f"/taskmon/{number}"}
        return flask.Response(json.dumps(body), 202, headers, content_type="application/json")

    @app.route("/taskmon/<number>")
    def monitor(number: str) -> flask.Response:
        body = document(number)
        running = body["TaskState"] == "Running"
        return flask.Response(json.dumps(body), 202 if running else 200, content_type="application/json")

    def listed() -> flask.Response:
        members = [{"@odata.id": f"{TASKS}/{number}"} for number in tasks]
        return flask.Response(json.dumps({"Members": members}), content_type="application/json")

    def one(number: str) -> flask.Response:
        return flask.Response(json.dumps(document(number)), content_type="application/json")

    app.add_url_rule(TASKS, "our_tasks", listed)
    app.add_url_rule(f"{TASKS}/<number>", "our_task", one)

    @app.after_request
    def completed(response: flask.Response) -> flask.Response:
        """Complete what the published emulator serves, where this is told of."""
        if response.status_code != 200 or response.content_type != "application/json":
            return response
        body: Any = response.get_json()
        path = str(body.get("@odata.id", ""))
        if "#Drive." in str(body.get("@odata.type", "")) and not config["no_erase"]:
            body["Actions"] = {"#Drive.SecureErase": {"target": f"{urlsplit(path).path}/Actions/Drive.SecureErase"}}
        elif "#ComputerSystem." in str(body.get("@odata.type", "")) and body["Name"] in config["reset_at"]:
            body["Actions"]["#ComputerSystem.Reset"]["target"] = config["reset_at"][body["Name"]]
        elif "#ServiceRoot." in str(body.get("@odata.type", "")):
            body["Tasks"] = {"@odata.id": "/redfish/v1/TaskService"}
        elif "#TaskService." in str(body.get("@odata.type", "")):
            body["Tasks"] = {"@odata.id": TASKS}
        else:
            return response
        response.set_data(json.dumps(body))
        return response


def serve_redirects(config: dict[str, Any]) -> None:
    """Send whoever asks for a machine by its name to another place, for some."""

    @app.before_request
    def moved() -> Any:
        target = config["moved"].get(flask.request.path.removeprefix("/redfish/v1/Systems/"))
        return flask.redirect(target, code=307, Response=flask.Response) if target else None


def main(path: str) -> None:
    config = json.loads(Path(path).read_text())
    fakedriver.random = Clockwork(config["power_seconds"])  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    systems, storage, drives = [], {}, {}
    for uuid, name in config["systems"].items():
        systems.append(
            {
                "uuid": uuid,
                "name": name,
                "power_state": "Off" if name in config["off"] else "On",
                "external_notifier": False,
                "nics": [],
            }
        )
        controllers = [{"MemberId": "0", "Name": "RAID", "SpeedGbps": 12}]
        storage[uuid] = [{"Id": "1", "Name": "Local", "StorageControllers": controllers, "Drives": config["drives"]}]
        one = {"Name": "Drive", "CapacityBytes": 899527000000, "Protocol": "SAS"}
        drives[uuid, "1"] = [{"Id": drive, **one} for drive in config["drives"]]
    extra = {
        "SUSHY_EMULATOR_FAKE_DRIVER": True,
        "SUSHY_EMULATOR_FAKE_SYSTEMS": systems,
        "SUSHY_EMULATOR_STATE_DIR": config["state"],
        "SUSHY_EMULATOR_STORAGE": storage,
        "SUSHY_EMULATOR_DRIVES": drives,
    }
    if config["auth_file"]:
        extra["SUSHY_EMULATOR_AUTH_FILE"] = config["auth_file"]
    app.configure(extra_config=extra)
    serve_erasures(config)
    serve_redirects(config)
    pair = config["certificate"]
    app.run(host="127.0.0.1", port=config["port"], threaded=True, ssl_context=tuple(pair) if pair else None)


if __name__ == "__main__":
    main(sys.argv[1])
