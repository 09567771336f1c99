"""The in-place restart agent: what it decides, and the process itself with real files and a real socket (row J24)."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from holdfast.agent.in_place import Act, Agent, Orders, Settings, SettingsError, begin, decide, read
from holdfast.agent.process import free_port

ROW = pytest.mark.row("J24", level="pure")


@ROW
@pytest.mark.parametrize(
    ("own", "ran", "orders", "is_lifted", "expected"),
    [
        (0, None, Orders(0, None), False, (0, Act.WAIT)),
        (0, None, Orders(0, 0), False, (0, Act.LIFT)),
        (0, 0, Orders(0, 0), True, (0, Act.WAIT)),
        (0, 0, Orders(1, 0), True, (0, Act.RESTART)),
        (1, 0, Orders(1, 0), False, (1, Act.WAIT)),
        (1, 0, Orders(1, 1), False, (1, Act.LIFT)),
        # Its pod failed, and it started again: it never runs an attempt twice, and waits for the next one.
        (1, 1, Orders(1, 1), False, (1, Act.WAIT)),
        (1, 1, Orders(2, 1), False, (2, Act.WAIT)),
        # A new pod, made from a template that is older than the others' attempt.
        (0, None, Orders(3, None), False, (3, Act.WAIT)),
        # Allowed, and then asked for a later attempt before it looked: the worker waits for its restart.
        (1, 0, Orders(2, 1), False, (1, Act.RESTART)),
        # Orders that say less than before, as an empty file does while it is written.
        (2, 1, Orders(None, None), False, (2, Act.WAIT)),
        (2, 2, Orders(1, 1), True, (2, Act.WAIT)),
    ],
)
def test_J24_the_agent_decides(own: int, ran: int | None, orders: Orders, is_lifted: bool, expected: tuple[int, Act]):
    assert decide(own, ran, orders, is_lifted=is_lifted) == expected


@ROW
@pytest.mark.parametrize(
    ("ran", "orders", "expected"),
    [
        (None, Orders(None, None), None),
        (None, Orders(0, None), 0),
        (0, Orders(1, 0), 1),
        (0, Orders(1, 1), 1),
        # Allowed, and then asked for a later attempt before it first looked.
        (None, Orders(1, 0), 0),
        (0, Orders(2, 1), 1),
    ],
)
def test_J24_the_agent_begins(ran: int | None, orders: Orders, expected: int | None):
    assert begin(ran, orders) == expected


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    for name in ("orders", "memory"):
        (tmp_path / name).mkdir()
    return Settings(str(tmp_path / "orders"), str(tmp_path / "memory"), probe_port=free_port())


def order(settings: Settings, **orders: int) -> None:
    for name, number in orders.items():
        Path(settings.orders, name).write_text(str(number))


def probed(settings: Settings, path: str = "/barrier-is-down") -> int | None:
    """Return the status with which the startup probe is answered; None if nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{settings.probe_port}{path}", timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


@ROW
def test_J24_the_startup_probe_succeeds_once_the_barrier_is_lifted(settings: Settings):
    agent = Agent(settings)
    assert agent.step() is Act.WAIT
    order(settings, request=0)
    assert (agent.step(), probed(settings)) == (Act.WAIT, None)
    order(settings, attempt=0)
    assert (agent.step(), probed(settings), probed(settings, "/")) == (Act.LIFT, 200, 404)
    assert (agent.step(), probed(settings)) == (Act.WAIT, 200)


@ROW
def test_J24_a_restarted_agent_remembers_which_attempt_has_run(settings: Settings):
    order(settings, request=0, attempt=0)
    assert Agent(settings).step() is Act.LIFT
    again = Agent(settings._replace(probe_port=free_port()))
    assert again.step() is Act.WAIT
    order(settings, request=1)
    assert again.step() is Act.WAIT
    order(settings, attempt=1)
    assert again.step() is Act.LIFT


@ROW
def test_J24_an_agent_that_first_looks_when_the_next_attempt_is_requested_restarts_once(settings: Settings):
    order(settings, request=2, attempt=1)
    assert (Agent(settings).step(), probed(settings)) == (Act.RESTART, None)
    again = Agent(settings)
    assert again.step() is Act.WAIT
    order(settings, attempt=2)
    assert (again.step(), probed(settings)) == (Act.LIFT, 200)


@ROW
def test_J24_without_orders_the_barrier_is_no_barrier(settings: Settings):
    Path(settings.orders).rmdir()
    Agent(settings).step()
    assert probed(settings) == 200


@ROW
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("IN_PLACE_RESTART_EXIT_CODE", "0"),
        ("IN_PLACE_RESTART_EXIT_CODE", "256"),
        ("STARTUP_PROBE_PORT", "none"),
        ("STARTUP_PROBE_PATH", "barrier"),
        ("WORKER_COMMAND", "sleep 1"),
    ],
)
def test_J24_a_wrong_setting_is_refused_by_name(name: str, value: str):
    with pytest.raises(SettingsError, match=f"^{name}: "):
        read({name: value})


@ROW
def test_J24_the_settings_have_the_published_names_and_defaults():
    assert read({}).probe_path == "/barrier-is-down"
    found = read({"STARTUP_PROBE_PATH": "/up", "STARTUP_PROBE_PORT": "9000", "IN_PLACE_RESTART_EXIT_CODE": "7"})
    assert (found.probe_path, found.probe_port, found.exit_code) == ("/up", 9000, 7)
