"""Figures are drawn whole, and what they compute is right; how they look is for eyes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
import torch

from analysis.collapse import CollapseRule
from analysis.plot_data import legend_of, median_curve, pooled_histograms, success_curves
from analysis.plot_gradients import gradient_weight
from analysis.plot_histograms import _quantiles, draw_histograms
from analysis.plot_outcomes import draw_outcomes
from analysis.plot_style import _spread
from analysis.plots import Panel, draw_learning_curves, draw_overview, draw_panels
from analysis.results import summarise
from analysis.study import load_study
from arena.options import Catalogue
from trainers.config import OptionConfig
from trainers.policy_gradient.options import bind

KL = Panel("train/kl_old", "KL", "nats", scale="log")
RATIOS = {"quantity": "log_ratio_token", "title": "t", "unit": "log ratio", "counted": "tokens"}


def draw_everything(cells: Any, folder: Path) -> dict[str, str | None]:
    return {
        "overview": draw_overview(cells, folder / "overview.png"),
        "curves": draw_learning_curves(cells, folder / "curves.png"),
        "panels": draw_panels(cells, [KL], folder / "panels.png", title="t"),
        "histograms": draw_histograms(cells, folder / "histograms.png", **RATIOS),
        "outcomes": draw_outcomes(cells, folder / "outcomes.png"),
    }


def test_every_figure_is_drawn_at_the_common_width(drawn_study: Path, tmp_path: Path) -> None:
    notes = draw_everything(summarise(load_study(drawn_study)), tmp_path)
    assert set(notes.values()) == {""}
    for name in notes:
        image = matplotlib.image.imread(tmp_path / f"{name}.png")
        assert image.shape[1] == 1440
        assert image[..., :3].min() < 0.5, "something dark was drawn"
        np.testing.assert_allclose(image[8, 8, :3], 1, err_msg="the ground is white, also on dark pages")


def test_a_figure_drawn_twice_is_the_same_file(drawn_study: Path, tmp_path: Path) -> None:
    cells = summarise(load_study(drawn_study))
    draw_overview(cells, tmp_path / "a.png")
    draw_overview(cells, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_nothing_to_draw_draws_nothing(
    new_study: Callable[..., Any], methods: tuple[Any, ...], tmp_path: Path
) -> None:
    builder = new_study()
    builder.entry(methods[0], 0)
    notes = draw_everything(summarise(load_study(builder.plan())), tmp_path)
    assert notes.pop("outcomes") == ""
    assert set(notes.values()) == {None}


def test_partial_trials_draw(new_study: Callable[..., Any], methods: tuple[Any, ...], tmp_path: Path) -> None:
    builder = new_study()
    builder.trial(
        methods[0], 0, rows=[{"step": 1, "kind": "train", "train/kl_old": "NaN", "train/loss": "NaN"}]
    )
    builder.trial(methods[0], 1, until=1)
    builder.trial(methods[1], 0, finish=False, until=9)
    builder.trial(methods[2], 0, rule=CollapseRule(stop=True), until=3)
    (builder.trial(methods[3], 0) / "histograms.jsonl").unlink()
    notes = draw_everything(summarise(load_study(builder.plan())), tmp_path)
    assert None not in notes.values()


def test_many_cells_are_coloured_by_an_axis_and_the_figure_says_so(
    new_study: Callable[..., Any], methods: tuple[Any, ...], tmp_path: Path
) -> None:
    builder = new_study()
    for number in range(10):
        kind = methods[number % 2]
        clone = type(kind)(**{**kind.__dict__, "label": f"method {number} {'with a long name' * 3}"})
        builder.trial(clone, 0)
    cells = summarise(load_study(builder.plan()))
    legend = legend_of(cells)
    assert legend.by == "is_clipping"
    assert {series.name: len(series.trials) for series in legend.series} == {"token": 5, "cispo": 5}
    notes = draw_everything(cells, tmp_path)
    assert "`is_clipping`" in (notes["overview"] or "")
    assert notes["histograms"] == "Of 10 methods, the 4 best and 4 worst are shown."


def test_many_trials_are_counted_in_bars(
    new_study: Callable[..., Any], methods: tuple[Any, ...], tmp_path: Path
) -> None:
    builder = new_study()
    for seed in range(80):
        builder.entry(methods[0], seed)
    note = draw_outcomes(summarise(load_study(builder.plan())), tmp_path / "a.png")
    assert note == "Too many trials for a bar each: the bars count them."


def test_hostile_labels_are_drawn_as_text(
    new_study: Callable[..., Any], methods: tuple[Any, ...], tmp_path: Path
) -> None:
    builder = new_study()
    hostile = "$\\frac{$ <b> \x07 ^_{"
    builder.trial(methods[0], 0, facts={"label": hostile})
    assert None not in draw_everything(summarise(load_study(builder.plan())), tmp_path).values()


def test_the_median_ends_where_the_first_trial_ends() -> None:
    curves = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [3.0, np.nan, np.nan]}, index=[0, 2, 4])
    assert median_curve(curves).to_dict() == {0: 2.0}
    assert median_curve(pd.DataFrame()).empty


def test_a_stopped_trial_is_carried_on_in_the_success_curves(
    new_study: Callable[..., Any], methods: tuple[Any, ...]
) -> None:
    builder = new_study()
    builder.trial(methods[0], 0)
    builder.trial(methods[1], 0, rule=CollapseRule(stop=True))
    trials = load_study(builder.plan()).trials
    curves = success_curves(trials)
    stopped = trials[1]
    assert stopped.verdict.carried
    last = stopped.evaluations.index.max()
    assert last < 30
    assert set(curves.loc[last + 1 :, stopped.id]) == {stopped.verdict.final}


def test_histograms_of_seeds_add_up(drawn_study: Path) -> None:
    trials = load_study(drawn_study).trials[:3]
    pooled = pooled_histograms(trials, "log_ratio_token/negative")
    assert pooled is not None
    parts = [trial.histograms("log_ratio_token/negative") for trial in trials]
    np.testing.assert_array_equal(pooled.counts, sum(part.counts for part in parts if part is not None))
    np.testing.assert_array_equal(pooled.exact, np.full(30, 2700))


def test_quantiles_of_a_histogram_are_those_of_its_values() -> None:
    values = np.random.default_rng(0).normal(size=20000)
    edges = np.linspace(-5, 5, 201)
    counts = np.histogram(values, edges)[0][None]
    for quantile in (0.05, 0.5, 0.95):
        assert _quantiles(counts, edges, quantile)[0] == pytest.approx(
            np.quantile(values, quantile), abs=0.03
        )
    assert np.isnan(_quantiles(np.zeros((1, 200)), edges, 0.5)[0])


def test_labels_are_pushed_apart_but_not_further() -> None:
    assert _spread([0.1, 0.5, 0.9], 0.1) == pytest.approx([0.1, 0.5, 0.9])
    spread = _spread([0.5, 0.5, 0.51, 0.9], 0.1)
    assert np.diff(spread).min() == pytest.approx(0.1)
    assert np.mean(spread[:3]) == pytest.approx(np.mean([0.5, 0.5, 0.51]))
    assert spread[3] == 0.9


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("option", "parameters"),
    [
        ("none", {}),
        ("token", {}),
        ("token", {"lo": 0.1, "hi": 0.4, "dual_clip": 2.0}),
        ("token_higher", {}),
        ("sequence", {}),
        ("sequence", {"lo": 0.3, "hi": 0.5}),
        ("soft", {}),
        ("soft", {"tau_pos": 2.0, "tau_neg": 0.5}),
        ("cispo", {}),
        ("cispo", {"lo": 0.4, "hi": 0.9}),
    ],
)
def test_the_weights_drawn_are_those_that_training_multiplies_with(
    option: str, parameters: dict[str, float], sign: int
) -> None:
    known = Catalogue().option("is_clipping", option)
    entry = {"option": option, "function": known.function, **known.defaults, **parameters}
    function = bind("is_clipping", OptionConfig.model_validate(entry))
    ratio = np.array([0.3, 0.65, 0.79, 0.95, 0.996, 0.998, 1.0, 1.003, 1.005, 1.19, 1.25, 1.45, 1.95, 2.5])
    old = torch.full((len(ratio), 1), -3.0, dtype=torch.float64)
    log_probs = (old + torch.tensor(ratio).log()[:, None]).requires_grad_()
    advantages = torch.full((len(ratio),), float(sign), dtype=torch.float64)
    every = torch.ones_like(old, dtype=torch.bool)
    function(log_probs, old, advantages, every, torch.arange(len(ratio))).sum().backward()
    assert log_probs.grad is not None
    drawn = gradient_weight(option, parameters, ratio, sign)
    np.testing.assert_allclose(drawn, log_probs.grad[:, 0].numpy() * sign, atol=1e-12)
