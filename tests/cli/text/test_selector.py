"""Label selectors, as people give them (row E3)."""

from __future__ import annotations

import pytest

from holdfast.model.selector import Selector

pytestmark = pytest.mark.row("E3", level="pure")
LABELS = {"team": "x", "example.com/gpu": "", "tier": "prod"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("team=x", True),
        ("team==x", True),
        (" team = x , tier=prod", True),
        ("team=y", False),
        ("team=x,tier=test", False),
        ("team!=y", True),
        ("team!=x", False),
        ("owner!=y", True),
        ("example.com/gpu", True),
        ("example.com/gpu=", True),
        ("team=", False),
        ("owner", False),
        ("!owner", True),
        ("!team", False),
        ("team in (y, x)", True),
        ("team in (y)", False),
        ("team notin (y)", True),
        ("team notin (x,y),tier=prod", False),
        ("owner in (x)", False),
        ("owner notin (x)", True),
        ("tier in (prod,test),team notin (y),!spot", True),
    ],
)
def test_E3_a_selector_matches_as_kubectls_does(text: str, matches: bool) -> None:
    assert Selector.of(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    "text",
    [
        "",
        "team=x,",
        "team in x",
        "team in (x",
        "team in (x=y)",
        "team in ((x))",
        "in (x)",
        "=x",
        "team=x=y",
        "!team=x",
        "a b",
        "team!=!x",
    ],
)
def test_E3_another_form_is_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected key=value, key!=value, key in \(a,b\)") as caught:
        Selector.of(text)
    assert repr(text) in str(caught.value)
