"""No page leads nowhere: each relative link has a file, each anchor a heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast import names

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def text_of(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    found: list[str] = []
    for link in LINK.findall(text_of(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title\n[here](#a-title) [there](#nowhere) [gone](other.md) [out](https://example.com)\n")
    assert broken(page) == ["#nowhere", "other.md"]


def test_each_page_of_the_site_is_in_its_navigation_or_left_out_by_name() -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page not in settings and not page.startswith("decisions/0")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_page_upgrades_the_chart_without_its_new_defaults(page: Path) -> None:
    """With `--reuse-values` the templates read sections that the last release's values do not have, and fail."""
    upgrades = re.findall(r"helm upgrade[^`]*", page.read_text(encoding="utf-8"))
    assert [one for one in upgrades if "--reset-then-reuse-values" not in one] == []


def test_the_page_on_encryption_names_each_kind_of_workflow_as_its_ids_begin() -> None:
    ids = {
        names.watch_workflow_id("c"),
        names.node_monitor_id("c"),
        names.provisioner_id("c"),
        names.rendezvous_id("c", "n", "w"),
        names.broker_id("c"),
        names.queue_id("c", "q"),
        names.graph_id("c", "n", "g"),
    }
    page = (ROOT / "docs" / "how-to" / "encryption.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`([a-z-]+)/…`", page)) == {one.partition("/")[0] for one in ids}
