"""The report of a study: what it asked, the answer, and everything the answer rests on.

Markdown and HTML with figures and tables beside them, rebuilt from a study's files at any time. Everything in
them comes from those files: the same files give the same report.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from analysis import evidence, sections
from analysis.answer import answer
from analysis.conclusions import Conclusions, conclude
from analysis.design_limits import refusals
from analysis.figures import Drawn, begin_drawing, draw_all
from analysis.latex import latex_tables
from analysis.markdown import escape
from analysis.page import html_page
from analysis.plot_tuning import draw_tuning
from analysis.provenance import what_ran
from analysis.publication import check_target, publish
from analysis.results import Cell, summarise
from analysis.study import Study, load_study
from analysis.tables import links, write_tables
from analysis.tuning import FIGURE, tuning_section

STABILITY = (
    "gradient_weights",
    "negative_low_ratio",
    "kl",
    "gradient_norm",
    "clip_fractions",
    "split",
    "log_ratio_tokens",
    "log_ratio_rows",
    "ridges",
    "rollouts",
)


def write_report(
    study: Path,
    progress: Callable[[str], None] | None = None,
    *,
    latex: bool = False,
    publication: Path | None = None,
) -> Path:
    """Write `report.md`, `report.html`, figures and tables into a study's folder `report`; returns the first.

    Works on whatever there is: unfinished, failed and missing trials are named and never averaged in. Raises
    FileNotFoundError where there is no study. progress: told what is being done; latex: tables of the report
    as `tables.tex` too; publication: a folder for a small copy of it (`analysis.publication`), whose page is
    returned then. Raises FileExistsError, before anything is written, where that folder holds something else.
    """
    if publication:
        check_target(publication)
    tell = progress or (lambda _: None)
    tell("reading the study")
    loaded = load_study(Path(study))
    for done, trial in enumerate(loaded.trials, start=1):
        trial.read()
        if done % 20 == 0:
            tell(f"reading trial {done} of {len(loaded.trials)}")
    cells = summarise(loaded)
    folder = loaded.folder / "report"
    folder.mkdir(exist_ok=True)
    with begin_drawing(cells, folder / "figures") as begun:
        found = conclude(loaded, progress)
        write_tables(loaded, cells, found, folder, tell)
        drawn = draw_all(begun, cells, found, folder / "figures", progress)
    note = draw_tuning(loaded.searches, folder / "figures" / FIGURE)
    text = render(loaded, cells, drawn, found, tuning_note=note)
    tell("writing the page")
    path = folder / "report.md"
    _replace(path, text)
    _replace(folder / "report.html", html_page(text, folder))
    if latex:
        _replace(folder / "tables.tex", latex_tables(cells, found))
    if publication:
        alone = render(loaded, cells, drawn, found, tuning_note=note, curves=False)
        return publish(folder, alone, publication)
    return path


def render(
    study: Study,
    cells: Sequence[Cell],
    drawn: Sequence[Drawn],
    found: Conclusions | None = None,
    *,
    tuning_note: str | None = None,
    curves: bool = True,
) -> str:
    """The report as markdown; figures are linked relative to the report's folder.

    tuning_note: what goes below the figure of tuning; None where there is none. curves: whether it links to
    the numbers of all steps.
    """
    found = found or conclude(study)
    parts = [
        [f"# {escape(study.name)}", *([f"> {escape(study.question)}"] if study.question else [])],
        [
            "## Answer",
            *answer(study, cells),
            *evidence.verdicts(found),
            *sections.method_tables(cells),
            *_show(drawn, "overview"),
        ],
        [
            "## What happened",
            *sections.what_happened(study, cells),
            *_show(drawn, "learning_curves", "outcomes"),
        ],
        [
            "## What changed when only one axis changed",
            *sections.single_changes(study),
        ],
        [
            "## What each choice does",
            *evidence.budgets(found),
            *_show(drawn, "budgets"),
            *evidence.effects(found),
            *refusals(study.design, study.estimable),
            *_show(drawn, "interactions", "cell_map"),
        ],
        ["## When runs collapsed", *evidence.times_to_collapse(found), *_show(drawn, "survival")],
        [
            "## What came first",
            *evidence.what_came_first(found),
            *_show(drawn, "warning_timelines"),
            *evidence.separations(found),
            *_show(drawn, "roc"),
            *evidence.episodes(cells),
        ],
        ["## How stable training was", *_show(drawn, *STABILITY)],
        ["## Tuning", *tuning_section(study, tuning_note)],
        ["## Tight band or sequence level", *evidence.gates(found), *_show(drawn, "gates", "gate_distance")],
        ["## The findings of the paper", *evidence.findings(found)],
        ["## What ran", *what_ran(study)],
        ["## Trials that do not count", *sections.not_counted(study, cells)],
        ["## Beside the paper", *sections.beside_the_paper(cells)],
        ["## Thresholds", *sections.thresholds(study)],
        ["## Numbers", links(study, found, curves=curves)],
    ]
    blocks = [block for part in parts if len(part) > 1 or part is parts[0] for block in part]
    return "\n\n".join(blocks) + "\n"


def _show(drawn: Sequence[Drawn], *names: str) -> list[str]:
    several = len({figure.env for figure in drawn if figure.env}) > 1
    blocks = []
    for name in names:
        for figure in drawn:
            if figure.name == name:
                where = f", {escape(figure.env)}" if several and figure.env else ""
                if name != "overview":
                    blocks.append(f"### {figure.title}{where}")
                blocks.append(f"![{figure.title}{where}](figures/{figure.path.name})")
                blocks.append(f"*How to read it.* {figure.reading} {figure.note}".strip())
    return blocks


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
