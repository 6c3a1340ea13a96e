"""Which figures a report holds, and how each is to be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from analysis.conclusions import Conclusions
from analysis.gates import Arm
from analysis.measures import RunTable
from analysis.plot_budgets import draw_budgets
from analysis.plot_effects import draw_cell_map, draw_interactions, draw_survival
from analysis.plot_gates import draw_distance, draw_gates
from analysis.plot_gradients import draw_gradient_weights
from analysis.plot_histograms import draw_histograms
from analysis.plot_outcomes import draw_outcomes
from analysis.plot_stability import draw_ridges, draw_roc, draw_split, draw_warning_timelines
from analysis.plots import Panel, draw_learning_curves, draw_overview, draw_panels
from analysis.precursors import Separation
from analysis.results import Cell, environments
from analysis.shared_work import SharedWork, useful_helpers

Shown = TypeVar("Shown")

WORTH_HELPERS = 32
"""With fewer results than this, other processes are not asked to help with drawing."""


@dataclass(frozen=True)
class Drawn:
    """A figure on disk: its heading, its environment, how to read it and what it leaves out."""

    name: str
    env: str
    title: str
    path: Path
    reading: str
    note: str


@dataclass(frozen=True)
class _Figure(Generic[Shown]):
    name: str
    title: str
    reading: str
    draw: Callable[[Shown, Path], str | None]

    def drawn(self, shown: Shown, folder: Path, env: str = "", suffix: str = "") -> list[Drawn]:
        """The figure, if it has something to show."""
        path = folder / f"{self.name}{suffix}.png"
        note = self.draw(shown, path)
        return [] if note is None else [Drawn(self.name, env, self.title, path, self.reading, note)]


def _panels(title: str, panels: Sequence[Panel]) -> Callable[[Sequence[Cell], Path], str | None]:
    columns = 2 if len(panels) == 4 else 3
    return lambda cells, path: draw_panels(cells, panels, path, title=title, columns=columns)


def _ratios(
    quantity: str, title: str, unit: str, counted: str
) -> Callable[[Sequence[Cell], Path], str | None]:
    return lambda cells, path: draw_histograms(
        cells, path, quantity=quantity, title=title, unit=unit, counted=counted
    )


FIGURES: tuple[_Figure[Sequence[Cell]], ...] = (
    _Figure(
        "overview",
        "Success during training",
        "A method is good when its line rises above the dashed clone and stays there. A band is the range of"
        " the seeds, not an interval.",
        draw_overview,
    ),
    _Figure(
        "learning_curves",
        "Success, seed by seed",
        "Thin lines that part from the thick one are seeds that went their own way. A cross marks the first"
        " evaluation of a collapse; the collapse lies between it and the evaluation before.",
        draw_learning_curves,
    ),
    _Figure(
        "budgets",
        "Success over what it cost",
        "A method that leads over steps and not over episodes or tokens buys its lead with longer steps.",
        draw_budgets,
    ),
    _Figure(
        "outcomes",
        "Outcomes",
        "One bar per seed. Pale: before the collapse. Marks left of a cross are warnings that preceded it.",
        draw_outcomes,
    ),
    _Figure(
        "negative_low_ratio",
        "Rows with negative advantage that became less likely",
        "Rows with advantage A < 0 and sequence ratio s < 1. Their share rises by construction, as an update"
        " makes such rows less likely; the depth says how far it pushed them. Look whether it rises before a"
        " cross, and whether runs without a cross stay clear of it.",
        _panels(
            "Rows with negative advantage that became less likely",
            (
                Panel("train/neg_low_share", "share of all rows", "share", low=0, high=1),
                Panel("train/neg_low_given_negative", "share of rows with A < 0", "share", low=0, high=1),
                Panel("train/neg_low_depth", "depth", "mean of -log s (nats)", scale="log"),
            ),
        ),
    ),
    _Figure(
        "kl",
        "Distance from the old and from the reference policy",
        "KL to the policy that wrote the responses says how far a step's updates went; its last update is the"
        " stalest. KL to the reference (the clone) accumulates over training.",
        _panels(
            "How far the policy moved (KL divergence)",
            (
                Panel("train/kl_old", "to the old policy, mean", "nats per token", scale="log"),
                Panel("train/kl_old_last", "to the old policy, last update", "nats per token", scale="log"),
                Panel("train/kl_ref", "to the reference", "nats per token", scale="log"),
            ),
        ),
    ),
    _Figure(
        "gradient_norm",
        "Gradient norm",
        "The norm before clipping, and how often clipping cut it. Entropy beside it: a policy that loses it"
        " stops exploring.",
        _panels(
            "Gradient norm and entropy",
            (
                Panel("train/gradient_norm", "gradient norm before clipping", "norm", scale="log"),
                Panel("train/gradient_clipped", "updates that were clipped", "share", low=0, high=1),
                Panel("train/entropy", "entropy of the policy", "nats per token", low=0),
            ),
        ),
    ),
    _Figure(
        "clip_fractions",
        "Clip fractions",
        "Low: A < 0 and the ratio below the band; high: A > 0 and above it. The option's own band shows what"
        " it held back; the common bands (tokens within 0.2, rows within 3e-3 and 4e-3) measure all options"
        " alike, whatever they hold back.",
        _panels(
            "What lay outside the trust band",
            (
                Panel("train/clip_low", "own band, low side", "share of tokens", low=0),
                Panel("train/clip_token_low", "token band 0.2, low side", "share of tokens", low=0),
                Panel("train/clip_row_low", "row band 3e-3, low side", "share of rows", low=0, high=1),
                Panel("train/clip_high", "own band, high side", "share of tokens", low=0),
                Panel("train/clip_token_high", "token band 0.2, high side", "share of tokens", low=0),
                Panel("train/clip_row_high", "row band 4e-3, high side", "share of rows", low=0, high=1),
            ),
        ),
    ),
    _Figure(
        "log_ratio_tokens",
        "Log-ratios of tokens",
        "How far tokens' probabilities moved from those they were written with, over all updates of a step."
        " Tokens of the first update, which have not moved, are left out. A spread that grows is a policy"
        " that runs away from its own samples.",
        _ratios("log_ratio_token", "How far token probabilities moved within a step", "log ratio", "tokens"),
    ),
    _Figure(
        "log_ratio_rows",
        "Log-ratios of rows",
        "The same for whole responses: the mean over a response's tokens, log s.",
        _ratios("log_ratio_row", "How far response probabilities moved within a step", "log s", "rows"),
    ),
    _Figure(
        "ridges",
        "Ratios of rows, step by step",
        "Ridges that spread, or whose left side grows a hump, are rows that the updates push far from the"
        " policy that wrote them.",
        draw_ridges,
    ),
    _Figure(
        "split",
        "Tokens by advantage, ratio and entropy",
        "Left: how many tokens of each kind there are; middle and right: how much of the policy's movement"
        " they carry. Few tokens that carry most of the KL are where probability runs away.",
        draw_split,
    ),
    _Figure(
        "gradient_weights",
        "What clipping lets through",
        "What an option does with a token whose probability has moved since it was written.",
        draw_gradient_weights,
    ),
    _Figure(
        "warning_timelines",
        "Warnings before each collapse",
        "Dots of one colour at the same distance in every row would be a dependable warning.",
        draw_warning_timelines,
    ),
    _Figure(
        "rollouts",
        "Rollouts",
        "Of all episodes, before any filtering. A group of equal return has no signal for a group-relative"
        " advantage. Look whether responses lose their form, or groups their spread, before a cross.",
        _panels(
            "What the rollouts were like",
            (
                Panel("rollout/valid_format", "well-formed responses", "share", low=0, high=1),
                Panel("rollout/uniform_groups_return", "groups of equal return", "share", low=0, high=1),
                Panel("rollout/group_reward_std", "spread within a group", "std of return", low=0),
                Panel("rollout/response_tokens", "response length", "tokens", low=0),
            ),
        ),
    ),
)


GATE_FIGURES: tuple[_Figure[Sequence[Arm]], ...] = (
    _Figure(
        "gates",
        "Gates of two levels",
        "Lines that lie on one another: tightness decides. Lines that part: the level does.",
        draw_gates,
    ),
    _Figure(
        "gate_distance",
        "Gates and how far the policy moved",
        "Points of all colours on one falling line: what a gate is matters less than how far it lets the"
        " policy go. This describes; nothing is tested by it.",
        draw_distance,
    ),
)

RUNS_FIGURES: tuple[_Figure[RunTable], ...] = (
    _Figure(
        "interactions",
        "What depends on what",
        "Where lines cross or part, what one choice does depends on the other.",
        draw_interactions,
    ),
    _Figure(
        "cell_map",
        "All cells",
        "A row or a column of one colour is a choice that decides alone; a single field is an interaction.",
        draw_cell_map,
    ),
    _Figure(
        "survival",
        "How long runs lasted",
        "A curve that falls early collapses early; curves whose bands part differ.",
        draw_survival,
    ),
)

ROC: _Figure[Sequence[Separation]] = _Figure(
    "roc",
    "Which statistics saw collapses coming",
    "A curve in the upper left corner sees collapses coming; one on the diagonal sees nothing.",
    draw_roc,
)


def begin_drawing(cells: Sequence[Cell], folder: Path) -> SharedWork[list[Drawn]]:
    """Begin to draw the figures of cells, for each environment: on other cores, where trials are many."""
    folder.mkdir(parents=True, exist_ok=True)
    trials = sum(len(cell.results) for cell in cells)
    pieces = [
        partial(figure.drawn, [cell for cell in cells if cell.env == env], folder, env, suffix)
        for env, suffix in _suffixes(cells).items()
        for figure in FIGURES
    ]
    return SharedWork(pieces, helpers=useful_helpers() if trials >= WORTH_HELPERS else 0)


def draw_all(
    begun: SharedWork[list[Drawn]],
    cells: Sequence[Cell],
    found: Conclusions,
    folder: Path,
    progress: Callable[[str], None] | None = None,
) -> list[Drawn]:
    """Draw every figure that has something to show, those begun included; drop those of an earlier report."""
    tell = progress or (lambda _: None)
    drawn: list[Drawn] = []
    for env, suffix in _suffixes(cells).items():
        runs = replace(found.runs, table=found.runs.table[found.runs.table["env"] == env])
        for summary in RUNS_FIGURES if len(runs.table) else ():
            tell(f"drawing {summary.title.lower()}{f' ({env})' if suffix else ''}")
            drawn += summary.drawn(runs, folder, env, suffix)
    if found.gates:
        for of_gates in GATE_FIGURES:
            drawn += of_gates.drawn(found.gates.arms, folder)
    drawn += ROC.drawn(found.levels, folder)
    for figures in begun.finish(lambda done, count: tell(f"drawing figures: {done} of {count}")):
        drawn += figures
    for old in set(folder.glob("*.png")) - {figure.path for figure in drawn}:
        old.unlink()
    return drawn


def _suffixes(cells: Sequence[Cell]) -> dict[str, str]:
    """How the files of each environment's figures end: with its name, where there are several."""
    envs = environments(cells)
    slugs = [re.sub(r"[^a-z0-9]+", "-", env.lower()).strip("-") or str(n) for n, env in enumerate(envs)]
    return {env: f"-{slug}" if len(envs) > 1 else "" for env, slug in zip(envs, slugs, strict=True)}
