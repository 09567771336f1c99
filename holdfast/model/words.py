"""Users' words as data: what pods, nodes, services and people say, made safe to store, log and show (row X14). Pure.

A pod may end with any message, and an annotation may hold any text. None of it may move a terminal's cursor, pass for a
line of its own, or become a link in a page.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator

TEXT_KEPT: Final = 1024
"""Maximum length, in characters, that is kept of a text from outside."""
_HIDDEN: Final = "\ufffd"
_BLANK: Final = re.compile("[\u115f\u1160\u2800\u3164\uffa0]")
"""Letters that show nothing."""
_MARKUP: Final = re.compile(r"([\\`\[\]<|@]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
"""What begins markup, and what makes a page link an address that merely stands there: `://`, `www.` and `@`."""


def printable(text: str) -> str:
    """Return a text, lines included, without characters that a terminal obeys or that hide or reorder others."""
    if not text.isprintable():
        text = "".join(one if one.isprintable() or one == "\n" else _HIDDEN for one in text.replace("\t", " "))
    return text if text.isascii() else _BLANK.sub(_HIDDEN, text)


def plain(text: str) -> str:
    """Return a text as one line of printable characters; white space becomes single spaces."""
    return printable(" ".join(text.split()))


def shortened(text: str, at_most: int = TEXT_KEPT) -> str:
    """Return a text from outside as one line, cut to its maximum length, so that memory stays bounded."""
    text = plain(text)
    return text if len(text) <= at_most else text[: at_most - 1] + "…"


def counted(number: int, one: str, many: str = "") -> str:
    """Return a count with its noun, and with its verb if it has one: `1 pod has`, `15,000 pods have`.

    Args:
        number: The count.
        one: The words after a count of 1.
        many: The words after any other count; empty: `one` with an s.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def amount_of(amount: str, resource: str) -> str:
    """Return an amount of a resource that a quota limits: `16 nvidia.com/gpu`, `1 pod`."""
    return f"{amount} {'pod' if resource == 'pods' and amount == '1' else resource}"


def with_note(what: str, note: str) -> str:
    """Return what happened, with the words of whoever asked for it, if there are any."""
    return f"{what}: {note}" if note else what


def escaped(text: str) -> str:
    """Return a text as one line in which Markdown finds no link, no HTML, no code and no cell of a table."""
    return _MARKUP.sub(r"\\\1", plain(text))


Outside = Annotated[str, AfterValidator(shortened)]
"""A text from outside: from a node, a service or a person; one line, cut if it is too long."""
