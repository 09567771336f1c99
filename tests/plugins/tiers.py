"""The pytest plugin behind `make test`: of the server tests it keeps the day's tier, and begins with the longest."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.times import SERVERS
from tests.tiers import DAYS, TIMES_FILE, Candidate, choose, has_servers, is_sampled, load_times, longest_first

SUMMARY = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers", "what `make test` runs")
    group.addoption("--tier", action="store_true", help="of the server tests, run those of the day's tier alone")
    group.addoption("--day", type=date.fromisoformat, help="run the share of this day, as 2026-11-24 (default: today)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "sample(days=1): a sample of crashes, chaos or random documents, all of which runs in so many days"
    )
    # Set before the processes of a run get their options: at midnight they would not choose the same tests.
    config.option.day = str(config.option.day or datetime.now(UTC).date())


def pytest_report_header(config: pytest.Config) -> str | None:
    if not config.option.tier:
        return None
    day = date.fromisoformat(config.option.day)
    return f"tier: share {day.toordinal() % DAYS + 1} of {DAYS} ({day}; --day=2026-11-24 runs another day's)"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without a server test: to import them all takes a process half a minute."""
    if not config.option.tier or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    return None if has_servers(collection_path.read_text(encoding="utf-8")) else True


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    servers = {item.nodeid: item for item in items if any(item.get_closest_marker(name) for name in SERVERS)}
    if not servers or len(servers) < len(items):
        return
    times = load_times(config.rootpath / TIMES_FILE)
    chosen = set(servers)
    if config.option.tier:
        day = date.fromisoformat(config.option.day)
        tier = choose([_candidate(item, times, day.toordinal()) for item in items], day.toordinal())
        chosen = tier.chosen
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
        _keep(config, f"{tier.sentence()}, of {len(servers)} server tests; `make test-all` runs all")
    items[:] = [servers[test] for test in longest_first(chosen, times)]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    summary = getattr(node, "workeroutput", {}).get("tier")
    if summary:
        node.config.stash[SUMMARY] = summary


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    summary = config.stash.get(SUMMARY, "")
    if summary:
        terminalreporter.write_line(summary)


def _keep(config: pytest.Config, summary: str) -> None:
    """Keep the summary for the end; a process of xdist hands it to the one that prints."""
    config.stash[SUMMARY] = summary
    if hasattr(config, "workeroutput"):
        config.workeroutput["tier"] = summary  # type: ignore[attr-defined]


def _candidate(item: pytest.Item, times: dict[str, float], day: int) -> Candidate:
    rows = tuple(f"{mark.args[0]}:{mark.kwargs['level']}" for mark in item.iter_markers("row"))
    mark = item.get_closest_marker("sample")
    sample = mark is not None and is_sampled(item.nodeid, int(mark.kwargs.get("days", 1)), day)
    return Candidate(item.nodeid, rows=rows, sample=sample, seconds=times.get(item.nodeid))
