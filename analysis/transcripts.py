"""Sampled episodes of before and after a collapse, side by side, as text that nothing can be read into."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from analysis.precursors import collapses
from analysis.results import Cell
from analysis.study import Trial, read_rows

WIDTH = 52
MOST_LINES = 60
MOST_TRIALS = 3
MOST_LETTERS = 600


@dataclass(frozen=True)
class BeforeAndAfter:
    """One episode of before a collapse and one of after it, from the same kind of episode."""

    trial: Trial
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def before_and_after(cells: Sequence[Cell]) -> list[BeforeAndAfter]:
    """Of the first collapsed trial of each method, at most three: an early episode and the last one.

    The two are from the same initial state where both were sampled from it.
    """
    found = []
    for cell in cells:
        for trial in collapses(cell.results):
            pair = _episodes(trial)
            if pair is not None:
                found.append(pair)
                break
        if len(found) == MOST_TRIALS:
            break
    return found


def side_by_side(pair: BeforeAndAfter) -> str:
    """Two columns of plain text in a fence of markdown that nothing inside can close."""
    columns = [_lines(episode) for episode in (pair.before, pair.after)]
    rows = list(zip_longest(*columns, fillvalue=""))[:MOST_LINES]
    text = "\n".join(f"{left:<{WIDTH}} | {right}".rstrip() for left, right in rows)
    if max(map(len, columns)) > MOST_LINES:
        text += "\n..."
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}text\n{text}\n{fence}"


def _episodes(trial: Trial) -> BeforeAndAfter | None:
    episodes = [row for row in read_rows(trial.folder / "episodes.jsonl") if _readable(row)]
    onset = trial.verdict.onset or 0
    before = [row for row in episodes if row["step"] < onset]
    after = [row for row in episodes if row["step"] >= onset]
    if not before or not after:
        return None
    last = after[-1]
    kind = [row for row in before if row.get("kind") == last.get("kind")] or before
    start = _start(last)
    alike = [row for row in kind if _start(row) == start]
    solved = [row for row in alike or kind if row.get("success")]
    return BeforeAndAfter(trial, (solved or alike or kind)[0], last)


def _readable(row: Mapping[str, Any]) -> bool:
    turns = row.get("turns")
    return isinstance(turns, list) and bool(turns) and all(isinstance(turn, Mapping) for turn in turns)


def _start(row: Mapping[str, Any]) -> str:
    return str(row["turns"][0].get("observation", ""))


def _lines(episode: Mapping[str, Any]) -> list[str]:
    ended = "success" if episode.get("success") else "no success"
    lines = _wrapped(f"STEP {episode['step']} ({episode.get('kind', '')}): {ended}")
    for number, turn in enumerate(episode["turns"], start=1):
        lines += ["", f"-- turn {number}"]
        lines += _wrapped(turn.get("observation", ""))
        lines += _wrapped(f"> {turn.get('response', '')}")
        rejection = turn.get("rejection")
        lines += _wrapped(f"  action {turn.get('action')!s}, reward {turn.get('reward')!s}"
                          + (f", refused: {rejection}" if rejection else ""))  # fmt: skip
    return lines


def _wrapped(text: object) -> list[str]:
    """Lines of printable characters, none longer than a column; control characters become spaces."""
    shown = str(text)[:MOST_LETTERS]
    lines = []
    for line in shown.replace("\r", "\n").split("\n"):
        plain = "".join(c if c.isprintable() else " " for c in line)
        lines += textwrap.wrap(plain, WIDTH, break_long_words=True, drop_whitespace=True) or [""]
    return lines + (["..."] if len(str(text)) > MOST_LETTERS else [])


def _longest_run(text: str) -> int:
    longest = run = 0
    for letter in text:
        run = run + 1 if letter == "`" else 0
        longest = max(longest, run)
    return longest
