"""Label selectors, as kubectl reads them with -l: equality, inequality, sets, and presence of a key. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.model.labels import check_label

_BETWEEN = re.compile(r",(?![^()]*\))")
"""A comma outside of parentheses."""
_SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")


@dataclass(frozen=True, slots=True)
class Selector:
    """A condition on labels; all of its requirements must hold."""

    required: tuple[tuple[str, tuple[str, ...] | None], ...]
    """Keys with the values of which they must have one; None: any value."""
    refused: tuple[tuple[str, tuple[str, ...] | None], ...] = ()
    """Keys with the values of which they must have none; None: the key must be absent."""

    @classmethod
    def of(cls, text: str) -> Selector:
        """Read `team=x,tier!=test,env in (a,b),zone notin (c),gpu,!spot`.

        Raises:
            ValueError: if a requirement is not of this form; the message says what is expected.
        """
        required: list[tuple[str, tuple[str, ...] | None]] = []
        refused: list[tuple[str, tuple[str, ...] | None]] = []
        for part in (one.strip() for one in _BETWEEN.split(text)):
            key, values, negated = _requirement(part)
            try:
                for value in values or ("",):
                    check_label(key, value)
            except ValueError as error:
                raise ValueError(
                    f"selector {text!r}: {part!r}: expected key=value, key!=value, key in (a,b), key notin (a,b), key "
                    f"or !key, with commas between them ({error})"
                ) from None
            (refused if negated else required).append((key, values))
        return cls(tuple(required), tuple(refused))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet every requirement."""
        return all(_has(labels, *one) for one in self.required) and not any(_has(labels, *one) for one in self.refused)


def _requirement(part: str) -> tuple[str, tuple[str, ...] | None, bool]:
    """Return the key, the values (None: any), and whether the requirement is negated."""
    if found := _SET.fullmatch(part):
        values = tuple(one.strip() for one in found["values"].split(","))
        return found["key"], values, found["operator"] == "notin"
    key, operator, value = re.split(r"\s*(!=|==?|$)\s*", part, maxsplit=1)
    if operator:
        return key, (value,), operator == "!="
    return key.removeprefix("!"), None, key.startswith("!")


def _has(labels: Mapping[str, str], key: str, values: tuple[str, ...] | None) -> bool:
    return key in labels and (values is None or labels[key] in values)
