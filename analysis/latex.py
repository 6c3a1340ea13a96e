"""Tables of a report in LaTeX (booktabs), to be put into a paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analysis.conclusions import Conclusions
from analysis.resampling import Interval
from analysis.results import Cell, environments

_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}",
}  # fmt: skip


def latex_tables(cells: Sequence[Cell], found: Conclusions) -> str:
    """The methods with their outcomes, the pairs of options, and the claims, each a table of its own."""
    parts = ["% needs \\usepackage{booktabs}"]
    for env in environments(cells):
        rows = [
            [
                escape(cell.label),
                _interval(cell.final),
                f"{cell.count('collapsed', 'diverged')}/{len(cell.results)}",
            ]
            for cell in cells
            if cell.env == env and cell.results
        ]
        caption = (
            f"Final success on {escape(env)}: mean over seeds with its 95\\% interval, or (fewer than five"
        )
        caption += " seeds) their range; runs that collapsed or diverged."
        if rows:
            parts.append(_table(("method", "final success", "collapsed"), rows, caption))
    pairs = [
        [
            escape(pair.setting),
            escape(pair.first),
            escape(pair.second),
            _interval(pair.contrasts["final"].effect, sign=True),
            f"{pair.improvement.estimate:.2f}",
            "--" if pair.p_holm is None else f"{pair.p_holm:.3f}",
        ]
        for pair in found.pairs
    ]
    if pairs:
        caption = (
            "Change in final success from one option to another, all else equal; probability of improvement;"
        )
        caption += " p-value corrected for all rows (Holm)."
        parts.append(_table(("axis", "from", "to", "change", "improves", "$p$"), pairs, caption))
    claims = [
        [
            escape(claim.text.replace("`", "")),
            claim.verdict,
            _interval(claim.effect, sign=True) if claim.effect else "--",
        ]
        for claim in (*found.declared, *found.findings)
        if claim.verdict != "not testable"
    ]
    if claims:
        parts.append(_table(("claim", "verdict", "effect"), claims, "Claims and what the runs say of them."))
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Text as itself, whatever LaTeX would make of it; control characters become spaces."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return "".join(_ESCAPES.get(letter, letter) for letter in plain)


def _interval(interval: Interval, *, sign: bool = False) -> str:
    if not interval.blocks:
        return "--"
    shape = "+.2f" if sign else ".2f"
    text = f"${interval.estimate:{shape}}$"
    if interval.blocks == 1 or interval.low != interval.low:
        return text
    left, right = ("[", "]") if interval.kind == "interval" else ("(", ")")
    return f"{text} ${left}{interval.low:{shape}}, {interval.high:{shape}}{right}$"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{caption}}}",
        rf"  \begin{{tabular}}{{{'l' * len(header)}}}",
        r"    \toprule",
        f"    {' & '.join(header)} \\\\",
        r"    \midrule",
        *(f"    {' & '.join(row)} \\\\" for row in rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines)
