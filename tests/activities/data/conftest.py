"""Files settle soon here: most tests are about what comes after that."""

import pytest

from holdfast.activities.data import record


@pytest.fixture(autouse=True)
def settles_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "SETTLED", 0.02)
