"""A hook of mkdocs: what a page links to outside of docs/ is named by its path, since the site does not have it."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)\s]*)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page's text with each such link as its words and the path from the project's root."""
    folder = posixpath.dirname(page.file.src_uri)

    def named(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[2]))
        return f"{link[1]} (`{path[3:]}`)" if path.startswith("../") else link[0]

    return _LINK.sub(named, markdown)
