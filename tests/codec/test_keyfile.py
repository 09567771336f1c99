"""Key files: what is refused and with which words, how keys are added and used, and that none is shown (row X6)."""

from __future__ import annotations

import base64
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.codec.keyfile import KEY_BYTES, KeyFileError, KeySet, add, parsed, read, use

pytestmark = pytest.mark.row("X6", level="pure")

KEY = base64.b64encode(b"k" * KEY_BYTES).decode()


def document(**given: Any) -> bytes:
    return json.dumps({"use": "a", "keys": {"a": KEY}} | given).encode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "keys.json"
    file.write_bytes(document())
    file.chmod(0o600)
    return file


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no JSON"),
        (b"\xff", "is no JSON"),
        (b"[" * 50_000, "is no JSON"),
        (b"[]", 'expected {"use"'),
        (document(more=1), 'expected {"use"'),
        (json.dumps({"use": "a"}).encode(), 'expected {"use"'),
        (document(keys=[KEY]), 'expected {"use"'),
        (document(keys={}), r"use: expected the id of one of its keys \(none is there\)"),
        (document(use="b"), r"use: expected the id of one of its keys \(a\)"),
        (document(use=None), "use: expected the id"),
        (document(use=["a"]), "use: expected the id"),
        (document(keys={"a": KEY[:-4]}), r"keys\.a: expected 32 bytes in base64"),
        (document(keys={"a": KEY + KEY}), r"keys\.a: expected 32 bytes in base64"),
        (document(keys={"a": "!" * 44}), r"keys\.a: expected 32 bytes in base64"),
        (document(keys={"a": "é" * 44}), r"keys\.a: expected 32 bytes in base64"),
        (document(keys={"a": 7}), r"keys\.a: expected 32 bytes in base64"),
        (document(keys={"": KEY}), "'' is no id: expected at most 63 characters"),
        (document(keys={"a b": KEY}), "'a b' is no id"),
        (document(keys={"a\x00": KEY}), "is no id"),
        (document(keys={"a" * 64: KEY}), "is no id"),
        (f'{{"use": "a", "keys": {{"a": "{KEY}", "a": "{KEY}"}}}}'.encode(), "'a' stands there twice"),
        (b" " * 65_537, "expected at most 65536 bytes"),
    ],
)
def test_X6_a_key_file_that_is_none_is_refused_with_its_path_and_field(content: bytes, words: str) -> None:
    with pytest.raises(KeyFileError, match=rf"^key file /keys: .*{words}") as refused:
        parsed(content, "/keys")
    assert KEY not in str(refused.value)
    assert KEY[:-4] not in str(refused.value)


def test_X6_a_file_that_every_user_may_read_or_write_is_refused_and_a_groups_is_taken(file: Path) -> None:
    for mode in (0o644, 0o602, 0o601):
        file.chmod(mode)
        with pytest.raises(KeyFileError, match=f"mode {mode:04o} lets every user at it: expected 0600 or 0640"):
            read(file)
    file.chmod(0o640)
    assert read(file).use == "a"


def test_X6_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="No such file"):
        read(tmp_path / "none")
    with pytest.raises(KeyFileError, match="Is a directory"):
        read(tmp_path)


def test_X6_a_new_key_only_decrypts_until_it_is_used(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    first, found = add(file)
    assert (found.use, set(found.keys)) == (first, {first})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    second, found = add(file, "second")
    assert (found.use, set(found.keys)) == (first, {first, "second"})
    assert read(file) == found
    assert found.keys[first] != found.keys[second]
    assert use(file, "second") == read(file) == KeySet("second", found.keys)
    for name, words in (("second", "is there already"), ("a b", "is no id of a key")):
        with pytest.raises(KeyFileError, match=words):
            add(file, name)
    with pytest.raises(KeyFileError, match=r"is not there: expected .*, second"):
        use(file, "third")
    with pytest.raises(KeyFileError, match="`holdfast keys new` makes it"):
        use(tmp_path / "none", "a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keys.json"]


def test_X6_a_change_keeps_the_mode_and_goes_through_a_link(file: Path, tmp_path: Path) -> None:
    file.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(file)
    add(link, "b")
    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert set(read(file).keys) == {"a", "b"}


def test_X6_a_file_that_cannot_be_read_is_not_replaced(file: Path) -> None:
    file.write_bytes(b"{")
    with pytest.raises(KeyFileError, match="is no JSON"):
        add(file, "b")
    assert file.read_bytes() == b"{"


def test_X6_of_commands_at_the_same_time_none_loses_the_others_key(file: Path) -> None:
    made, refused = list[str](), list[str]()

    def one(name: str) -> None:
        for _ in range(20):
            try:
                made.append(add(file, f"{name}-{len(made)}-{os.urandom(4).hex()}")[0])
            except KeyFileError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=one, args=(f"t{number}",)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made
    assert not [one for one in refused if "another command changes the key file" not in one]
    assert set(read(file).keys) == {"a", *made}


def test_X6_no_key_is_shown_by_its_values_own_text(file: Path) -> None:
    assert "kkkk" not in repr(read(file))
    assert KEY not in repr(read(file))
