"""Folders and small files that pods may write to, too: no link is followed, and no read waits or grows (row X10).

A folder is opened from the root on, one name after the other, and what happens in it goes by its descriptor. So it
happens there, whatever the path leads to by then.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES: Final = 5
_NO_FILE: Final = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EACCES}
_COUNTED: Final = 64
"""Folders in one another, of those that are counted: each holds a descriptor, and a pod can nest them without end."""
SMALL: Final = 64 * 1024
"""Bytes that a mark, or a line of a journal, has at most."""


class Folder:
    """An open folder; it closes with its last reference, as a thread may outlive the fetch that was cancelled."""

    def __init__(self, number: int) -> None:
        """Take over a descriptor."""
        self.number = number

    def __del__(self) -> None:
        """Close it."""
        os.close(self.number)

    def inner(self, name: str) -> Folder:
        """Open a folder in it.

        Raises:
            FileNotFoundError: if there is none.
            NotADirectoryError: if there is something else, such as a link.
        """
        return Folder(os.open(name, _FOLDER, dir_fd=self.number))

    def entries(self) -> list[os.DirEntry[str]]:
        """Return what it has; to be asked while it is open, and without following."""
        with os.scandir(self.number) as found:
            return list(found)

    def remove(self, name: str) -> None:
        """Remove a file or a link, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.number)

    def put(self, name: str, away: Folder) -> list[str]:
        """Move a folder in it to another folder, and return its new name there; one that is empty is removed."""
        try:
            os.rmdir(name, dir_fd=self.number)
        except OSError:
            there = uuid.uuid4().hex
            os.rename(name, there, src_dir_fd=self.number, dst_dir_fd=away.number)
            return [there]
        return []

    def empty(self) -> None:
        """Remove all that is in it, as far as that can be removed.

        What is nested is moved to the top and emptied there: with two descriptors, however deep it is.
        """
        left = os.listdir(self.number)
        while left:
            name = left.pop()
            with suppress(OSError):
                try:
                    folder = self.inner(name)
                except NotADirectoryError:
                    self.remove(name)
                    continue
                for one in folder.entries():
                    with suppress(OSError):
                        if one.is_dir(follow_symlinks=False):
                            left += folder.put(one.name, self)
                        else:
                            folder.remove(one.name)
                os.rmdir(name, dir_fd=self.number)

    def size(self) -> int:
        """Return the bytes of its files, and of those in 64 folders in one another; what cannot be read has none."""
        found = 0
        left: list[tuple[Folder, str, int]] = [(self, ".", 0)]
        while left:
            outer, name, depth = left.pop()
            with suppress(OSError):
                folder = outer.inner(name)
                for one in folder.entries():
                    with suppress(FileNotFoundError):
                        if not one.is_dir(follow_symlinks=False):
                            found += one.stat(follow_symlinks=False).st_size
                        elif depth < _COUNTED:
                            left.append((folder, one.name, depth + 1))
        return found

    def file(self, name: str) -> int | None:
        """Open a regular file to read; None if there is none."""
        try:
            number = os.open(name, _FILE, dir_fd=self.number)
        except OSError as error:
            if error.errno in _NO_FILE:
                return None
            raise
        if stat.S_ISREG(os.fstat(number).st_mode):
            return number
        os.close(number)
        return None

    def read(self, name: str, most: int = SMALL) -> bytes | None:
        """Return what a file says; None if there is no regular file of at most so many bytes."""
        number = self.file(name)
        if number is None:
            return None
        with os.fdopen(number, "rb") as file:
            text = file.read(most + 1) if os.fstat(number).st_size <= most else None
        return text if text is not None and len(text) <= most else None

    def write(self, name: str, text: bytes) -> None:
        """Write a small file as a whole, so that it is there after a crash, or the one before.

        Raises:
            OSError: if it cannot be written; nothing of it is left then.
        """
        part = f".{name}.{uuid.uuid4().hex}"
        try:
            number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self.number)
            with os.fdopen(number, "wb") as file:
                os.fchmod(number, 0o600)
                file.write(text)
                file.flush()
                os.fsync(number)
            os.replace(part, name, src_dir_fd=self.number, dst_dir_fd=self.number)
        finally:
            with suppress(OSError):
                self.remove(part)


def at(root: Path, *names: str, mode: int | None = None) -> Folder:
    """Open a folder below the root.

    Args:
        root: where it begins; the operator's, and followed.
        names: of the folders below.
        mode: with which those that are missing are created; None: none is. What is no folder is removed then, except
            for the namespace's own: an operator may have put a link there.

    Raises:
        FileNotFoundError: if it is not there; a link is no folder.
        OSError: if it cannot be created.
    """
    folder = Folder(os.open(root, _FOLDER & ~os.O_NOFOLLOW))
    for index, name in enumerate(names):
        folder = _inner(folder, name, mode, removes=index > 0)
    return folder


def within(home: Path, *names: str, mode: int | None = None) -> Folder:
    """Open a folder of a data set, as `at` does."""
    return at(home.parent.parent, home.parent.name, home.name, *names, mode=mode)


def _inner(folder: Folder, name: str, mode: int | None, *, removes: bool) -> Folder:
    for _ in range(_TRIES):
        try:
            return folder.inner(name)
        except NotADirectoryError:
            if mode is None:
                raise FileNotFoundError(errno.ENOENT, f"{name} is not a folder") from None
            if not removes:
                raise OSError(errno.ELOOP, f"{name} is a symbolic link, or no folder") from None
            folder.remove(name)
        except FileNotFoundError:
            if mode is None:
                raise
            with suppress(FileExistsError):
                os.mkdir(name, mode, dir_fd=folder.number)
    raise OSError(errno.ELOOP, f"{name} does not stay a folder")
