"""Two studies side by side, and tables in LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from click.testing import CliRunner

from analysis.comparison import compare
from analysis.conclusions import conclude
from analysis.latex import escape, latex_tables
from analysis.results import summarise
from analysis.study import load_study
from arena.cli import cli

New = Callable[..., Any]
Methods = tuple[Any, ...]


def test_methods_of_both_are_compared_block_by_block(new_study: New, methods: Methods) -> None:
    first, second = new_study("old"), new_study("new")
    for seed in range(3):
        first.trial(methods[0], seed, commit="aaaaaaa")
        first.trial(methods[1], seed, commit="aaaaaaa")
    for seed in (1, 2, 3):
        trainer = {"steps": 30, "learning_rate": 3e-4}
        second.trial(methods[0], seed, commit="bbbbbbb", trainer=trainer)
        second.trial(methods[3], seed, commit="bbbbbbb", trainer=trainer)
    studies = [load_study(builder.plan()) for builder in (first, second)]
    text = compare(*studies)
    finals = [{t.seed: t.verdict.final for t in study.trials if t.label == "GRPO"} for study in studies]
    change = sum(finals[1][seed] - finals[0][seed] for seed in (1, 2)) / 2
    (row,) = [line for line in text.splitlines() if line.startswith("| GRPO |")]
    assert f"**{change:+.2f}" in row
    assert "| 2 |" in row
    assert "| `trainer.learning_rate` | 0.0006 | 0.0003 |" in text
    assert "| code | aaaaaaa | bbbbbbb |" in text
    assert "Only in old: CISPO." in text
    assert "Only in new: SAMPO." in text
    shown = CliRunner().invoke(cli, ["compare", str(first.folder), str(second.folder)], standalone_mode=False)
    assert shown.output == text


def test_studies_without_a_common_method_say_so(new_study: New, methods: Methods) -> None:
    first, second = new_study("old"), new_study("new")
    first.trial(methods[0], 0)
    second.trial(methods[3], 0)
    text = compare(load_study(first.plan()), load_study(second.plan()))
    assert "no method in common" in text


def test_latex_tables_are_balanced_and_escaped(new_study: New, methods: Methods) -> None:
    builder = new_study()
    for seed in range(2):
        builder.trial(methods[0], seed)
        builder.trial(methods[1], seed)
    study = load_study(builder.plan())
    text = latex_tables(summarise(study), conclude(study))
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    assert r"is\_clipping" in text
    assert not re.search(r"(?<!\\)_", text)
    for line in text.splitlines():
        if line.endswith(r"\\"):
            assert line.count("&") in (2, 5)


def test_nothing_is_a_command_in_latex() -> None:
    assert escape(r"a_b \input{x} 5% $y$ #~^&") == (
        r"a\_b \textbackslash{}input\{x\} 5\% \$y\$ \#\textasciitilde{}\textasciicircum{}\&"
    )
