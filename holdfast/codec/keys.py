"""The keys of this process: read from a key file, and read again when it changes (row X6)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast.codec.keyfile import KeyFileError, read

CHECK_PERIOD: Final = 5.0
"""Seconds between two looks at the file."""
CHECK_PERIOD_MISSING: Final = 1.0
"""The same while a key is missing."""
Log: Final = logging.getLogger("holdfast.codec")


class Keys:
    """The keys of a file. They are read again on use, at most every few seconds; no task waits for that."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file.

        Args:
            path: the key file.
            clock: a monotonic clock, in seconds.

        Raises:
            KeyFileError: if it cannot be used.
        """
        self.path = path
        self._clock = clock
        self._now = read(path)
        self._looked = clock()
        self.problem = ""
        """Why the file cannot be used as it is now; the keys read before are in use then. Empty: it can."""

    def current(self) -> tuple[str, bytes]:
        """Return the id of the key that encrypts, and the key."""
        self._look(CHECK_PERIOD)
        return self._now.use, self._now.keys[self._now.use]

    def find(self, name: str) -> bytes | None:
        """Return the key of an id; None if the file has none."""
        self._look(CHECK_PERIOD)
        if name not in self._now.keys:
            self._look(CHECK_PERIOD_MISSING)
        return self._now.keys.get(name)

    def _look(self, period: float) -> None:
        now = self._clock()
        if now - self._looked < period:
            return
        self._looked = now
        try:
            found = read(self.path)
        except KeyFileError as error:
            if str(error) != self.problem:
                self.problem = str(error)
                Log.warning("%s; the keys read before are in use", error)
            return
        self.problem = ""
        if found != self._now:
            self._now = found
            Log.warning("%s was read again: keys %s; %r encrypts", self.path, ", ".join(sorted(found.keys)), found.use)
