"""The rendezvous handler: answers the calls of torchrun's agent from the gang's rendezvous."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import replace
from importlib import import_module
from types import FrameType
from typing import Any, Final

from holdfast.agent.messages import Assignment, Directive, Failure, Kind, Report, State
from holdfast.agent.settings import Settings
from holdfast.progress import forget
from holdfast.torchrun import launcher
from holdfast.torchrun.member import Member, ran
from holdfast.torchrun.store import Entry, Server, is_prefixed

_log = logging.getLogger(__name__)

ENTRY_LIMIT: Final = 300.0
"""Seconds in which the members of a formed round must find its store; the same as in PyTorch."""
LAST_WORD_LIMIT: Final = 5.0
"""Seconds for which a member that ends tries to announce its final state."""
JUDGED_LIMIT: Final = 30.0
"""Seconds for which a member whose torchrun gives up waits for the directive that follows its failure."""
EXIT_AGAIN: Final = 75
"""torchrun's exit code if its workers succeeded in a round that others had ended: they must run again."""
_PAUSE_FIRST: Final = 0.02
_PAUSE_LONGEST: Final = 0.25
_UNSHARED: Final = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"


class Handler:
    """PyTorch's `RendezvousHandler` for one pod of a gang; `create` adds PyTorch's own class to its bases."""

    def __init__(self, backend: str, settings: Settings) -> None:
        """Prepare the handler; it announces nothing before the first `next_rendezvous`.

        Args:
            backend: The name under which it is registered.
            settings: The settings that Holdfast gives the pod.
        """
        self._backend = backend
        self._settings = settings
        self._member = Member(settings)
        self._server: Server | None = None
        self._place: Assignment | None = None
        self._seen_running = time.time()
        self._failed: tuple[Failure, ...] = ()
        """The failures of workers in the last round, once they are reported."""
        self._closed = self._over = False
        atexit.register(self._leave)

    def get_backend(self) -> str:
        """See PyTorch's class."""
        return self._backend

    def get_run_id(self) -> str:
        """Return the run id of the gang: the workload's uid and attempt, regardless of `--rdzv-id`."""
        return self._place.run_id if self._place else f"{self._settings.workload_uid}-{self._settings.attempt}"

    @property
    def use_agent_store(self) -> bool:
        """Return whether workers use the store of their round, which listens before they start.

        They do not if PyTorch prefixes it with each agent's own restart count: members with different numbers of
        failures would never meet again (row D41).
        """
        base = _rendezvous().RendezvousHandler
        return hasattr(base, "use_agent_store") and os.environ.get(_UNSHARED, "0") != "1" and not is_prefixed()

    def is_closed(self) -> bool:
        """Return whether no other round follows."""
        return self._closed or bool(self._member.refused) or self._member.directive.kind in {Kind.FINISH, Kind.LEAVE}

    def set_closed(self) -> None:
        """Begin no other round here. Only the rendezvous can close the gang, which continues without this member."""
        self._closed = True

    def num_nodes_waiting(self) -> int:
        """Return 1 if the workers must stop: torchrun's agent then stops them and asks for the next round."""
        self._seen_running = time.time()
        stops = self._closed or bool(self._member.refused) or not _goes_on(self._member.directive, self._place)
        return int(stops)

    def next_rendezvous(self) -> Any:
        """Wait until this member has a place in a round that all other members have joined.

        Raises:
            RendezvousClosedError: if the gang has failed, or this handler was closed.
            RendezvousConnectionError: if the rendezvous refuses this pod.
            RendezvousTimeoutError: if the store of a formed round cannot be reached.
            SystemExit: with 0, if the member must leave or the gang has succeeded without it.
        """
        with _ended_by_signals():
            spec = launcher.worker_spec(self)
            self._tell_failure()
            if self.is_closed():
                raise self._end()
            self._server = Server(self._settings.address)
            role = str(spec.role) if spec else self._settings.role
            settings = replace(self._settings, workers=int(spec.local_world_size)) if spec else self._settings
            if spec is None:
                _log.warning("torchrun does not say how many workers it starts here: 1 is told")
            self._member.say(Report(State.INIT, self._number), settings, self._server.port)
            entry = self._enter(self._server, role)
            place = self._place = entry.place
            self._failed = ()
            self._seen_running = time.time()
            answer = self._answer(entry, place)
            forget()
            healthy = Report(State.HEALTHY, place.round)
            self._member.say(healthy)
            self._watch(healthy)
            return answer

    def shutdown(self) -> bool:
        """Report the workers' result, and wait for the directive on it; torchrun's launcher calls this at its end.

        Raises:
            SystemExit: with the directive's exit code; or if the workers must run again, which this process cannot do.
        """
        if not self._over:
            try:
                if ran(self._member.report):
                    self._tell_outcome(sys.exc_info()[1])
            finally:
                self._leave()
        return True

    @property
    def _number(self) -> int:
        return self._place.round if self._place else 0

    def _answer(self, entry: Entry, place: Assignment) -> Any:
        api, store = _rendezvous(), entry.store()
        if not hasattr(api, "RendezvousInfo"):  # before PyTorch 2.4, the agent chooses the workers' port itself
            return store, place.group_rank, place.group_world_size
        address, port = entry.master()
        where = api.RendezvousStoreInfo(master_addr=address, master_port=port)
        return api.RendezvousInfo(store, place.group_rank, place.group_world_size, where)

    def _watch(self, healthy: Report) -> None:
        """Report a failure as soon as it occurs: torchrun reports it only once all other workers are stopped."""
        agent, thread, seen = launcher.agent(self), threading.get_ident(), time.time()

        def look() -> tuple[Failure, ...]:
            nonlocal seen
            if not _goes_on(self._member.directive, self._place):
                return ()
            at = time.time()
            found = launcher.died(agent, seen, thread)
            seen = at
            return found

        if agent is not None:
            self._member.watch(healthy, look)

    def _enter(self, server: Server, role: str) -> Entry:
        """Return the entry into a round that has begun and includes this member."""
        entry: Entry | None = None
        while True:
            self._member.wait(lambda told: _ends(told) or self._is_next(told))
            place = self._member.directive.assignment
            if self.is_closed() or place is None:
                raise self._end()
            if entry is None or entry.place.round != place.round:
                entry = Entry(place, server, role, shared=self.use_agent_store)
            if self._begins(entry):
                return entry

    def _begins(self, entry: Entry) -> bool:
        """Wait until the round begins; return False if another directive arrives first."""
        number, pause = entry.place.round, _PAUSE_FIRST
        limit = time.monotonic() + ENTRY_LIMIT
        while not entry.tried():
            if self._member.wait(lambda told: not _is_of(told, number), pause):
                return False
            if time.monotonic() > limit:
                where = f"{entry.place.master_address}:{entry.place.master_port}"
                raise _rendezvous().RendezvousTimeoutError(
                    f"round {number}: not all members have come to its store at {where} within {ENTRY_LIMIT:.0f} s; "
                    "expected each pod of the gang to run torchrun with this backend, and to reach the others' ports"
                )
            pause = min(_PAUSE_LONGEST, pause * 2)
        return True

    def _is_next(self, told: Directive) -> bool:
        return told.assignment is not None and told.assignment.round > self._number

    def _tell_failure(self) -> None:
        """Report that the workers failed, if torchrun asks for another round for that reason, and wait for a directive.

        If the round is over already, it reports nothing: its end caused the failure, or no budget is charged for it.
        """
        if not ran(self._member.report) or not _is_of(self._member.directive, self._number):
            return
        if (report := self._member.report) is not None and report.stopping:
            self._failed = report.failures  # It was reported when it was observed.
        else:
            result = launcher.round_result(self)
            failed = launcher.failures(result.failures.values(), self._seen_running) if result else ()
            self._say_failed(failed or launcher.unexplained(time.time()))
        self._member.wait(lambda told: not _is_of(told, self._number))

    def _tell_outcome(self, error: BaseException | None) -> None:
        result = launcher.final_result(self)
        told: Any = result or (error if hasattr(error, "failures") else None)
        report = self._member.report
        if told is None and error is None and report is not None and report.stopping:
            self._say_failed(report.failures)  # Torchrun does not report this failure here, but it was observed.
        elif (told is None and error is None) or (result and not result.is_failed()):
            self._tell_success()
            return
        elif told is not None:
            failed = launcher.failures(told.failures.values(), self._seen_running)
            self._say_failed(failed or launcher.unexplained(time.time()))
        elif error and (failure := launcher.not_started(error)):
            self._say_failed((failure,))
        else:
            return
        number = self._number
        self._member.wait(lambda told: not _is_of(told, number), JUDGED_LIMIT)

    def _tell_success(self) -> None:
        """Report success and wait at the finalization barrier (row T2): the rendezvous sets its end and exit code."""
        number = self._number
        self._member.say(Report(State.SUCCEEDED, number))
        self._member.wait(lambda told: told.kind is not Kind.WAIT and not _is_of(told, number))
        told = self._member.directive
        if told.kind in {Kind.REJOIN, Kind.RUN}:
            _log.warning("the workers succeeded in a round that had ended; they are to run again: exit %d", EXIT_AGAIN)
            raise SystemExit(EXIT_AGAIN)
        if told.exit_code:
            raise SystemExit(told.exit_code)

    def _say_failed(self, failed: tuple[Failure, ...]) -> None:
        self._failed = failed
        self._member.say(Report(State.FAILED, self._number, failed))

    def _end(self) -> BaseException:
        """Return the exception that ends torchrun's agent if no other round follows for it."""
        api, told = _rendezvous(), self._member.directive
        if self._closed:
            return api.RendezvousClosedError("this process has closed its handler")
        if refused := self._member.refused:
            return api.RendezvousConnectionError(f"refused by the rendezvous: {refused}")
        _log.warning("no other round for this member: %s", told.why)
        own = f"; here: {self._failed[0].error}" if self._failed else ""
        if told.exit_code or own:
            return api.RendezvousClosedError(f"{told.why}{own}")
        # PyTorch's own exception for this makes its launcher fail; SystemExit does not.
        return SystemExit(0)

    def _leave(self) -> None:
        """Announce that this member leaves, unless its final state is another one, and close it; at exit at the latest.

        A torchrun that a signal ends does not shut its handler down: only this call announces its end.
        """
        if self._over:
            return
        self._over = True
        atexit.unregister(self._leave)
        report = self._member.report
        if report is not None and not self._member.refused:
            told = self._member.directive
            if report.state is not State.SUCCEEDED and not _ends(told):
                if report.state is State.FAILED:
                    self._member.wait_until_heard(LAST_WORD_LIMIT)
                self._member.say(Report(State.STOPPED, report.round))
            if not self._member.wait_until_heard(LAST_WORD_LIMIT):
                _log.warning(
                    "the rendezvous did not acknowledge the final state of this member: %s", report.state.value
                )
        self._member.close()


def _goes_on(told: Directive, place: Assignment | None) -> bool:
    """Return whether running workers keep running."""
    return told.kind is Kind.WAIT or (place is not None and _is_of(told, place.round))


def _is_of(told: Directive, number: int) -> bool:
    return told.assignment is not None and told.assignment.round == number


def _ends(told: Directive) -> bool:
    return told.kind in {Kind.LEAVE, Kind.FINISH}


@contextlib.contextmanager
def _ended_by_signals() -> Generator[None]:
    """Let SIGTERM end the wait for a first round: PyTorch handles it once workers run, and process 1 ignores it."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    api = import_module("torch.distributed.elastic.multiprocessing.api")

    def told(number: int, frame: FrameType | None) -> None:
        raise api.SignalException(f"process {os.getpid()} got signal {number}", signal.Signals(number))

    signal.signal(signal.SIGTERM, told)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _rendezvous() -> Any:
    return import_module("torch.distributed.elastic.rendezvous.api")
