"""Where the programs of the stack come from: order of the sources, checks of downloads, builds, and refusals."""

import dataclasses
import hashlib
import io
import re
import tarfile
import threading
import time
from pathlib import Path

import pytest

from holdfast.local import BinaryError
from holdfast.local.programs import gobuild, release
from holdfast.local.programs.release import NotOfferedError, published_sum
from holdfast.local.programs.resolve import batches, cache_path, on_path, resolve, version_fits
from holdfast.local.programs.tools import CLUSTER_TOOLS, HA_TOOLS, TOOLS, Release, Tool
from holdfast.local.system.lock import file_lock
from holdfast.local.system.paths import PACKAGE

ETCD = TOOLS["etcd"]
KUBECTL = TOOLS["kubectl"]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "cache"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "reachable", lambda host: False)


@pytest.fixture
def local_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files on disk stand for the release host."""
    monkeypatch.setattr(release, "reachable", lambda host: True)


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def released(tool: Tool, url: Path, checksums: Path | None = None, member: str = "") -> Tool:
    sums = checksums.as_uri() if checksums else ""
    return dataclasses.replace(tool, release=Release(url.as_uri(), sums, member))


@pytest.mark.parametrize(
    ("tool", "says", "fits"),
    [
        (ETCD, "etcd Version: 3.6.8", True),
        (ETCD, "etcd Version: 3.6.9", True),
        (ETCD, "etcd Version: 3.7.0", True),
        (ETCD, "etcd Version: 3.6.7", False),
        (ETCD, "etcd Version: 3.5.21", False),
        (ETCD, "etcd Version: 4.0.0", False),
        (KUBECTL, "Client Version: v1.36.0", True),
        (KUBECTL, "Client Version: v1.32.4-dispatcher", False),
        (KUBECTL, "Client Version: v1.37.0", False),
        (KUBECTL, "no version at all", False),
    ],
)
def test_a_program_on_path_is_used_only_in_a_version_that_fits_the_others(tool: Tool, says: str, fits: bool) -> None:
    assert version_fits(tool, says) is fits


def test_path_comes_before_the_cache(tmp_path: Path) -> None:
    program(cache_path(ETCD), "cached")
    wanted = program(tmp_path / "bin" / "etcd", "etcd Version: 3.6.8")
    assert resolve(["etcd"], print) == {"etcd": wanted}


def test_the_cache_is_used_when_path_has_an_old_version(tmp_path: Path) -> None:
    wanted = program(cache_path(ETCD), "cached")
    program(tmp_path / "bin" / "etcd", "etcd Version: 3.4.1")
    assert resolve(["etcd"], print) == {"etcd": wanted}


def test_a_program_that_cannot_run_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "bin" / "etcd").write_text("not a program")
    (tmp_path / "bin" / "etcd").chmod(0o755)
    assert on_path(ETCD) is None


@pytest.mark.usefixtures("local_release")
def test_a_release_comes_before_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"the program"
    archive = tmp_path / "etcd.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        entry = tarfile.TarInfo("./folder/etcd")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    sums = tmp_path / "SHA256SUMS"
    sums.write_text(f"{'0' * 64}  other.tar.gz\n{hashlib.sha256(archive.read_bytes()).hexdigest()}  etcd.tar.gz\n")
    monkeypatch.setitem(TOOLS, "etcd", released(ETCD, archive, sums, "folder/etcd"))
    lines: list[str] = []
    found = resolve(["etcd"], lines.append)["etcd"]
    assert found == cache_path(ETCD)
    assert found.read_bytes() == content
    assert found.stat().st_mode & 0o111
    assert lines[-2] == "[1/1] etcd v3.6.8: downloaded its official release"
    assert lines[-1].startswith("downloaded 1 and built 0 in 0 s, into ")


@pytest.mark.usefixtures("local_release")
def test_a_download_that_is_not_what_was_published_is_refused(tmp_path: Path) -> None:
    binary, sums = tmp_path / "kubectl", tmp_path / "kubectl.sha256"
    binary.write_bytes(b"tampered with")
    sums.write_text("0" * 64)
    tool = released(KUBECTL, binary, sums)
    with pytest.raises(BinaryError, match="SHA-256"):
        release.download(tool, cache_path(tool))
    assert not cache_path(tool).exists()
    assert not list(cache_path(tool).parent.iterdir())


@pytest.mark.usefixtures("local_release")
def test_a_checksum_file_that_does_not_name_the_download_refuses_it(tmp_path: Path) -> None:
    binary, sums = tmp_path / "etcd", tmp_path / "sums"
    binary.write_bytes(b"x")
    sums.write_text(f"{'0' * 64}  something-else\n")
    with pytest.raises(BinaryError, match="nothing about it"):
        release.download(released(ETCD, binary, sums), cache_path(ETCD))


@pytest.mark.usefixtures("local_release")
def test_nothing_published_for_this_platform_means_build(tmp_path: Path) -> None:
    with pytest.raises(NotOfferedError, match=" has none for "):
        release.download(released(ETCD, tmp_path / "missing"), cache_path(ETCD))


def test_an_unreachable_host_is_noticed_within_its_time() -> None:
    release.reachable.cache_clear()
    started = time.monotonic()
    # A reserved name, which no resolver knows.
    assert release.reachable("release-host.invalid") is False
    assert time.monotonic() - started < 3 * release.PROBE_SECONDS


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a" * 64, "a" * 64),
        (f"{'a' * 64}  tool.tar.gz", "a" * 64),
        (f"{'b' * 64} other\n{'A' * 64}  ./tool.tar.gz\n", "a" * 64),
        (f"{'b' * 64} other\n{'A' * 64} tool.tar.gz.asc\n", ""),
        (f"{'b' * 64} other\n{'A' * 64} *tool.tar.gz\n", "a" * 64),
        ("", ""),
    ],
)
def test_checksum_files_come_in_several_forms(text: str, found: str) -> None:
    assert published_sum(text, "tool.tar.gz") == found


@pytest.mark.usefixtures("no_network")
def test_without_go_the_message_says_what_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gobuild, "find_go", lambda: None)
    with pytest.raises(BinaryError) as caught:
        resolve(["kwok"], print)
    message = str(caught.value)
    assert "kwok 0.8.0 is neither on PATH nor downloadable from github.com" in message
    assert "install Go" in message
    assert "put the tool on PATH" in message


@pytest.mark.usefixtures("no_network")
def test_a_failed_build_shows_the_end_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "bin" / "go"
    go.write_text("#!/bin/sh\nfor n in 1 2 3; do echo line $n; done\necho no such package >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(BinaryError) as caught:
        resolve(["etcd"], print)
    assert "building etcd 3.6.8 failed" in caught.value.what
    assert "no such package" in caught.value.log_tail
    assert "GOPROXY" in caught.value.remedy
    assert not cache_path(ETCD).exists()


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `go` that writes down how it was called, and one program for each package; the file it writes to."""
    go = tmp_path / "bin" / "go"
    go.write_text(
        '#!/bin/sh\necho "$PWD $GOFLAGS $GOWORK $@" >> "$HOLDFAST_CACHE/said"\n'
        'while [ "$1" != -o ]; do shift; done\nfolder=$2; shift 2\n'
        'for package in "$@"; do name=${package%/v3}; echo "$package" > "$folder/${name##*/}"; done\n'
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path / "cache" / "said"


@pytest.mark.usefixtures("no_network")
def test_a_build_is_from_pinned_modules_only_and_stamped(fake_go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOFLAGS", "-mod=mod")
    lines: list[str] = []
    resolve(["kubectl"], lines.append)
    said = fake_go.read_text()
    assert said.startswith(f"{PACKAGE / 'build' / 'kubernetes'} ")
    assert "-mod=readonly" in said
    assert "-mod=mod" not in said
    assert "version.gitVersion=v1.36.3" in said
    assert lines[:1] == ["programs to get, once: 1; about 10 s on two cores if nothing can be downloaded"]
    assert "[1/1] to build, since dl.k8s.io does not answer: kubectl v1.36.3" in lines
    assert "[1/1] building 1 (about 10 s on two cores) ..." in lines


@pytest.mark.row("E11", level="pure")
@pytest.mark.usefixtures("no_network")
def test_E11_the_programs_of_a_cluster_are_built_by_one_command(fake_go: Path) -> None:
    lines: list[str] = []
    found = resolve(CLUSTER_TOOLS, lines.append)
    (said,) = fake_go.read_text().splitlines()
    assert said.endswith(" ".join(tool.package for tool in TOOLS.values() if tool.name in CLUSTER_TOOLS))
    assert {name: path.read_text().strip() for name, path in found.items()} == {
        name: TOOLS[name].package for name in CLUSTER_TOOLS
    }
    assert lines[0] == "programs to get, once: 6; about 7 min on two cores if nothing can be downloaded"
    (why,) = [line for line in lines if "to build" in line]
    assert why.startswith("[6/6] to build, since github.com does not answer; dl.k8s.io does not answer: etcd v3.6.8,")
    assert lines[-1].startswith("downloaded 0 and built 6 in ")
    assert resolve(CLUSTER_TOOLS, lines.append) == found
    assert lines[-1].startswith("downloaded 0 and built 6 in "), "what is there says nothing"


@pytest.mark.row("E11", level="pure")
def test_E11_programs_that_one_command_would_give_one_name_are_built_apart() -> None:
    assert [[tool.name for tool in batch] for batch in batches([TOOLS[name] for name in HA_TOOLS])] == [
        ["temporal-server", "temporal-sql-tool"],
        ["temporal-ui-server"],
    ]
    suite, peer = TOOLS["appwrapper-suite"], dataclasses.replace(TOOLS["appwrapper-suite"], name="peer")
    assert batches([suite, peer]) == [[suite], [peer]]


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_every_tool_is_pinned_with_checksums(tool: Tool) -> None:
    folder = PACKAGE / "build" / tool.module
    module = (folder / "go.mod").read_text()
    sums = (folder / "go.sum").read_text()
    named = re.search(rf"^\s*(tool )?{re.escape(tool.package)}$", module, re.MULTILINE)
    assert named or tool.is_suite, "not a tool of its go.mod"
    pinned = re.search(rf"^(?:require )?\s*(\S+) v{re.escape(tool.version)}(?:\s|$)", module, re.MULTILINE)
    assert pinned, f"go.mod does not require {tool.version}"
    assert f"{pinned[1]} v{tool.version} h1:" in sums


def test_a_source_that_cannot_be_had_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = TOOLS["jobset-controller"]
    fake = tmp_path / "bin" / "go"
    fake.write_text('#!/bin/sh\necho "$@" in $PWD >&2\nexit 7\n')
    fake.chmod(0o755)
    monkeypatch.setattr(gobuild, "find_go", lambda: str(fake))
    with pytest.raises(BinaryError, match=r"exit code 7") as caught:
        gobuild.source_of(peer)
    assert f"mod download -json sigs.k8s.io/jobset in {PACKAGE / 'build' / 'jobset'}" in str(caught.value)
    monkeypatch.setattr(gobuild, "find_go", lambda: None)
    with pytest.raises(BinaryError, match="there is no Go"):
        gobuild.source_of(peer)
    with pytest.raises(BinaryError, match="neither on PATH nor published as a program"):
        resolve(["jobset-controller"], print)


def test_two_processes_do_not_build_the_same_thing(tmp_path: Path) -> None:
    path, order, waited = tmp_path / "lock", list[str](), list[bool]()

    def second() -> None:
        with file_lock(path, lambda: waited.append(True)):
            order.append("second")

    with file_lock(path):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]
    assert waited == [True]
