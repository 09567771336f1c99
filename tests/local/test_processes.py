"""Processes, ports and the memory of a stack: nothing foreign is ever stopped, and nothing of one's own forgotten."""

import os
import signal
import socket
import sys
import time
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.local import NotRunningError, Stack, StackError, given_by_environment
from holdfast.local.system import runner
from holdfast.local.system.parts import CLUSTER_PORTS, TEMPORAL_PORTS, Layout
from holdfast.local.system.paths import stacks_dir
from holdfast.local.system.ports import RANGE, choose, is_free
from holdfast.local.system.process import Process, birth, spawn, tail
from holdfast.local.system.runner import Runner
from holdfast.local.system.state import PartState, StackState, known_stacks


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)


def sleeper(tmp_path: Path, code: str = "") -> Process:
    argv = [sys.executable, "-c", f"import signal, time\n{code}\nprint('ready', flush=True)\ntime.sleep(60)"]
    log = tmp_path / "sleeper.log"
    started = spawn(argv, log, os.environ, tmp_path)
    deadline = time.monotonic() + 10
    while "ready" not in tail(log) and time.monotonic() < deadline:
        time.sleep(0.02)
    return started


def test_a_process_is_stopped_and_then_known_to_be_gone(tmp_path: Path) -> None:
    process = sleeper(tmp_path)
    assert process.alive()
    process.stop()
    assert not process.alive()
    assert process.signal(signal.SIGTERM) is False


def test_a_recycled_pid_is_never_signalled() -> None:
    stranger = Process(os.getpid(), "the birth of another process")
    assert not stranger.alive()
    # This test would not survive it.
    assert stranger.signal(signal.SIGKILL) is False
    stranger.stop(0)


def test_no_process_has_no_birth() -> None:
    assert birth(2**22 + 1) == ""
    assert birth(os.getpid()) != ""


def test_a_process_that_ignores_term_is_killed_after_its_grace(tmp_path: Path) -> None:
    process = sleeper(tmp_path, "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    process.stop(grace=0.2)
    assert not process.alive()


def test_a_frozen_process_can_be_stopped(tmp_path: Path) -> None:
    process = sleeper(tmp_path)
    process.signal(signal.SIGSTOP)
    started = time.monotonic()
    process.stop(grace=10)
    assert not process.alive()
    assert time.monotonic() - started < 5


def test_ports_are_distinct_free_and_outside_the_range_of_outgoing_connections() -> None:
    chosen = choose(["a", "b", "c"])
    assert len(set(chosen.values())) == 3
    assert all(port in RANGE and is_free(port) for port in chosen.values())


def test_ports_of_other_stacks_are_left_to_them_even_while_those_are_down() -> None:
    left = set(choose(["a", "b", "c"]).values())
    assert set(choose(["a", "b"], set(RANGE) - left).values()) <= left
    with pytest.raises(OSError, match="no free port"):
        choose(["a"], set(RANGE))


def test_a_port_on_which_somebody_listens_is_not_free() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not is_free(server.getsockname()[1])


def test_a_port_is_asked_for_on_the_address_where_a_part_listens() -> None:
    """A kubelet listens on its node's address: who listens on loopback by the same port is not in its way."""
    with socket.socket() as server:
        server.bind(("127.0.0.2", 0))
        server.listen()
        port = server.getsockname()[1]
        assert is_free(port)
        assert not is_free(port, "127.0.0.2")


def test_a_stack_is_remembered_as_it_was(tmp_path: Path) -> None:
    state = StackState("dev", nodes=3, ports={"etcd": 1}, parts={"etcd": PartState(["etcd"], Process(1, "b"), True)})
    state.save(tmp_path)
    assert StackState.load(tmp_path) == state


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "x"}', '{"name": "x", "parts": {"a": {}}}'])
def test_a_broken_memory_is_no_memory(tmp_path: Path, text: str) -> None:
    (tmp_path / "stack.json").write_text(text)
    assert StackState.load(tmp_path) is None


def test_loading_a_stack_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "holdfast" / "stacks" / "other"
    folder.mkdir(parents=True)
    StackState("other").save(folder)
    assert list(known_stacks()) == ["other"]
    with pytest.raises(NotRunningError, match="known: other"):
        Stack.load("dev")


def test_a_given_cluster_and_temporal_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "theirs"))
    monkeypatch.setenv("TEMPORAL_ADDRESS", "temporal.example.com:7233")
    assert given_by_environment() == ((tmp_path / "theirs").resolve(), "temporal.example.com:7233")


def test_what_dev_env_exported_does_not_count_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "somewhere"
    folder.mkdir()
    StackState("dev", ports={"temporal": 20_001}).save(folder)
    monkeypatch.setenv("KUBECONFIG", str(folder / "kubeconfig"))
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:20001")
    assert given_by_environment() == (None, None)


def test_a_part_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    ports = {name: 20_000 + number for number, name in enumerate((*CLUSTER_PORTS, *TEMPORAL_PORTS))}
    StackState("dev", ports=ports).save(tmp_path)
    stack = Stack.load("dev", tmp_path)
    with pytest.raises(StackError, match=r"no part 'apiserver'(.|\n)*kube-apiserver"):
        stack.start_part("apiserver")
    with pytest.raises(NotRunningError, match="'etcd' of stack 'dev' does not run"):
        stack.stop_part("etcd")


def test_two_stacks_that_choose_ports_at_once_choose_different_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slowly(names: Iterable[str], taken: Collection[int] = ()) -> dict[str, int]:
        free = iter(sorted(set(range(20_000, 20_100)) - set(taken)))
        time.sleep(0.2)  # Time enough for the other to choose, too.
        return {name: next(free) for name in names}

    monkeypatch.setattr(runner, "choose", slowly)

    def ports(name: str) -> set[int]:
        layout = Layout(stacks_dir() / name)
        layout.directory.mkdir(parents=True)
        state = StackState(name)
        Runner(layout, state).settle_ports(("etcd", "temporal"), {"etcd": "etcd", "temporal": "temporal"})
        return set(state.ports.values())

    with ThreadPoolExecutor() as together:
        first, second = together.map(ports, ("one", "two"))
    assert len(first | second) == 4
