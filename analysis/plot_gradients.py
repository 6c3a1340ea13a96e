"""The figure of what a study's clipping options multiply the gradient with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from analysis.plot_style import FAINT, MUTED, PALETTE, figure_style, new_figure, save, wrap
from analysis.results import Cell

Floats = NDArray[np.float64]
MOST_OPTIONS = 12


def gradient_weight(option: str, parameters: Mapping[str, Any], ratio: Floats, sign: int) -> Floats | None:
    """(n,) what an option multiplies A grad log pi with at ratios (n,), for A of this sign.

    Of a row of one token, where the token's and the sequence's ratio are the same. None for an option that
    has no closed form here.
    """

    def number(name: str, default: float) -> float:
        value = parameters.get(name)
        return default if value is None else float(value)

    if option == "none":
        return ratio
    if option in ("token", "token_higher", "sequence"):
        low, high = {"token": (0.2, 0.2), "token_higher": (0.2, 0.28), "sequence": (3e-3, 4e-3)}[option]
        inside = ratio <= 1 + number("hi", high) if sign > 0 else ratio >= 1 - number("lo", low)
        dual = parameters.get("dual_clip")
        if dual is not None and sign < 0:
            inside &= ratio <= float(dual)
        return np.where(inside, ratio, 0.0)
    if option == "soft":
        tau = number("tau_pos", 1.0) if sign > 0 else number("tau_neg", 1.05)
        weight: Floats = ratio / np.cosh(tau * (ratio - 1) / 2) ** 2
        return weight
    if option == "cispo":
        return np.clip(ratio, 1 - number("lo", 1.0), 1 + number("hi", 0.2))
    return None


def draw_gradient_weights(cells: Sequence[Cell], path: Path) -> str | None:
    """A panel per clipping option of the study: the weight against the ratio, for A > 0 and A < 0."""
    options: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for cell in cells:
        chosen = cell.trials[0].config.get("is_clipping")
        if isinstance(chosen, Mapping) and "option" in chosen:
            label = cell.trials[0].options.get("is_clipping", str(chosen["option"]))
            options.setdefault(label, (str(chosen["option"]), chosen))
    ratio = np.geomspace(0.25, 4.0, 2001)
    shown = [
        (label, option, parameters)
        for label, (option, parameters) in options.items()
        if gradient_weight(option, parameters, ratio, 1) is not None
    ][:MOST_OPTIONS]
    if not shown:
        return None
    columns = min(4, len(shown))
    rows = -(-len(shown) // columns)
    lines: list[Any] = [
        Line2D([], [], color=PALETTE[0], lw=2.2, label="A > 0"),
        Line2D([], [], color=PALETTE[1], lw=2.2, linestyle=(0, (4, 1.6)), label="A < 0"),
        Line2D([], [], color=MUTED, lw=1, label="unclipped: the ratio itself"),
    ]
    with figure_style():
        figure = new_figure(
            2.4 * rows,
            "What each clipping option of this study multiplies the gradient with",
            "Weight on A grad log pi against the ratio pi / pi_old, in a row of one token. One at weight 0"
            " is silent. Masks, which drop whole rows, are not drawn.",
            lines,
        )
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes, (label, option, parameters) in zip(grid.flat, shown, strict=False):
            axes.plot(ratio, ratio, color=MUTED, lw=1, zorder=1)
            axes.axvline(1, color=FAINT, lw=1.2, zorder=0)
            for sign, line in ((1, lines[0]), (-1, lines[1])):
                weight = gradient_weight(option, parameters, ratio, sign)
                assert weight is not None
                style = {"color": line.get_color(), "linestyle": line.get_linestyle()}
                axes.plot(ratio, weight, lw=2.2, zorder=3, **style)
            axes.set_title(wrap(label, 26), fontsize=8.5 if len(label) > 20 else 9.5)
            axes.set_xscale("log")
            axes.set_xlim(0.25, 4)
            axes.set_ylim(-0.05, 2.5)
            axes.set_xticks([0.25, 0.5, 1, 2, 4], ["¼", "½", "1", "2", "4"])
            axes.minorticks_off()
        for axes in grid[-1]:
            axes.set_xlabel("ratio")
        for axes in grid[:, 0]:
            axes.set_ylabel("weight")
        for axes in list(grid.flat)[len(shown) :]:
            axes.set_visible(False)
        save(figure, path)
    left = len(options) - len(shown)
    return f"{left} options without a closed form, or beyond twelve, are left out." if left else ""
