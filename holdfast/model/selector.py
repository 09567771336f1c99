"""Label selectors, as kubectl reads them with -l: equality, inequality, and presence of a key. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.model.labels import check_label


@dataclass(frozen=True, slots=True)
class Selector:
    """A condition on labels; all of its requirements must hold."""

    required: tuple[tuple[str, str | None], ...]
    """Keys with the values that they must have; None: any value."""
    refused: tuple[tuple[str, str | None], ...] = ()
    """Keys with the values that they must not have; None: the key must be absent."""

    @classmethod
    def of(cls, text: str) -> Selector:
        """Read `team=x,tier!=test,gpu,!spot`.

        Raises:
            ValueError: if a requirement is not of this form; the message says what is expected.
        """
        required: list[tuple[str, str | None]] = []
        refused: list[tuple[str, str | None]] = []
        for part in (one.strip() for one in text.split(",")):
            key, operator, value = re.split(r"\s*(!=|==?|$)\s*", part, maxsplit=1)
            negated = operator == "!=" or (not operator and key.startswith("!"))
            key = key.removeprefix("!") if not operator else key
            try:
                check_label(key, value)
            except ValueError as error:
                raise ValueError(
                    f"selector {text!r}: {part!r}: expected key=value, key!=value, key or !key, with commas between "
                    f"them ({error})"
                ) from None
            (refused if negated else required).append((key, value if operator else None))
        return cls(tuple(required), tuple(refused))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet every requirement."""
        return all(_has(labels, *one) for one in self.required) and not any(_has(labels, *one) for one in self.refused)


def _has(labels: Mapping[str, str], key: str, value: str | None) -> bool:
    return key in labels and value in {None, labels[key]}
