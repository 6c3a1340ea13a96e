"""Text that nobody vouches for stays text."""

from __future__ import annotations

import pytest

from analysis.markdown import code, escape, listing, table


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("a | b", "a \\| b"),
        ("**bold** `code` [x](y)", "\\*\\*bold\\*\\* \\`code\\` \\[x\\](y)"),
        ("![](http://evil.example/p.png)", "!\\[\\](http\\://evil.example/p.png)"),
        ("www.evil.example", "www\\.evil.example"),
        ("two\nlines\r\n# heading", "two lines # heading"),
        ("# heading", "\\# heading"),
        ("1. item", "1\\. item"),
        ("- item", "\\- item"),
        ("$\\frac{1}{0}$", "\\$\\\\frac{1}{0}\\$"),
        ("&lt;b&gt;", "&amp;lt;b&amp;gt;"),
        ("_emphasis_", "\\_emphasis\\_"),
        ("\x1b[31mred\x07 \u202eback", "\\[31mred back"),
    ],
)
def test_hostile_text_is_escaped(hostile: str, harmless: str) -> None:
    assert escape(hostile) == harmless


def test_names_stay_readable() -> None:
    assert (
        escape("seq_mean_token_mean / cispo(hi=0.2) + gigpo") == "seq_mean_token_mean / cispo(hi=0.2) + gigpo"
    )
    assert escape("0.0006") == "0.0006"


def test_long_text_is_cut_visibly() -> None:
    assert escape("x" * 1000, limit=10) == "x" * 9 + "…"


def test_code_spans_cannot_be_left() -> None:
    assert code("a`b|c\nd") == "`a'b\\|c d`"
    assert code("") == ""


def test_tables_and_lists() -> None:
    assert table(("a", "b"), [("1", "2")], right=(1,)) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"
    assert listing(["a"]) == "a"
    assert listing(["a", "b", "c"]) == "a, b and c"
    assert listing(["a", "b", "c", "d"], most=2) == "a, b and 2 more"
