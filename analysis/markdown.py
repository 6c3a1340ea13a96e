"""Writing markdown around text that nobody vouches for: questions, labels, reasons, a policy's own words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from analysis.resampling import Interval

_SPECIAL = re.compile(r"([\\`*\[\]|~$])|(?<![A-Za-z0-9])(_)|(_)(?![A-Za-z0-9])")
_BLOCK_START = re.compile(r"^([#+=>~-]|\d+(?=[.)](?:\s|$)))")
_LINKS = re.compile(r"(:)(?=//)|(?<=www)(\.)", re.IGNORECASE)


def escape(text: object, limit: int = 400) -> str:
    """Text as itself, on one line: nothing in it is read as markdown, HTML, a link or a formula.

    Control and invisible characters (bidirectional overrides among them) become spaces; what is longer than
    `limit` is cut, visibly.
    """
    plain = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    if len(plain) > limit:
        plain = plain[: limit - 1] + "…"
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    plain = _SPECIAL.sub(lambda match: "\\" + match.group(0), plain)
    plain = _LINKS.sub(lambda match: "\\" + match.group(0), plain)
    return _BLOCK_START.sub(_escape_start, plain)


def _escape_start(match: re.Match[str]) -> str:
    start = match.group(1)
    return f"{start}\\" if start.isdigit() else f"\\{start}"


def code(text: object, limit: int = 120) -> str:
    """Text in a code span, fit for a table cell."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())[:limit]
    plain = plain.replace("`", "'").replace("|", "\\|")
    return f"`{plain}`" if plain else ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()) -> str:
    """A table of cells that are markdown already; `right` names the columns aligned right."""
    aligned = set(right)
    rule = ["---:" if column in aligned else "---" for column in range(len(header))]
    lines = [header, rule, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def listing(names: Sequence[str], most: int = 8) -> str:
    """`a`, `a and b`, `a, b and c`; beyond `most`, the rest as a number."""
    shown = list(names[:most])
    if len(names) > most:
        shown.append(f"{len(names) - most} more")
    if len(shown) < 2:
        return "".join(shown)
    return ", ".join(shown[:-1]) + " and " + shown[-1]


def interval(effect: Interval, *, digits: int = 2, sign: bool = True) -> str:
    """`+0.12 [+0.05, +0.19]` with an interval, `+0.12 (+0.05 to +0.19)` with a range, `-` without a block."""
    if not effect.blocks or effect.estimate != effect.estimate:
        return "-"
    shape = f"{'+' if sign else ''}.{digits}f"
    text = f"{effect.estimate:{shape}}"
    if effect.low != effect.low or effect.blocks == 1:
        return text
    if effect.kind == "interval":
        return f"{text} [{effect.low:{shape}}, {effect.high:{shape}}]"
    return f"{text} ({effect.low:{shape}} to {effect.high:{shape}})"
