"""What is attached to a trial's run: its files, its histograms as table and picture, some of its episodes."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arena.tail import Tail

EPISODES_SHOWN = 6
SMALLEST_SHARE = 1e-4
"""The darkest colour of a heat map; bins that never hold more than this are left out."""
SPLIT_TITLES = {"positive": "advantage > 0", "negative": "advantage < 0", "all": "all rows"}


def write_trial_artifacts(trial: Path, target: Path) -> None:
    """Write the artifacts of the trial in folder `trial` into the existing folder `target`.

    `trial.yaml`, `outcome.json` as they are; `histograms/histograms.parquet`, one row a bin, and a heat map
    per quantity over the steps; `episodes.txt`, the first and last sampled episodes.
    """
    for name in ("trial.yaml", "outcome.json"):
        if (trial / name).exists():
            shutil.copy(trial / name, target / name)
    histograms = Tail(trial / "histograms.jsonl").read().rows
    if histograms:
        folder = target / "histograms"
        folder.mkdir()
        write_histogram_table(histograms, folder / "histograms.parquet")
        for quantity, splits in by_quantity(histograms).items():
            draw_heat_map(quantity, splits, folder / f"{quantity}.png")
    episodes = Tail(trial / "episodes.jsonl").read().rows
    if episodes:
        half = EPISODES_SHOWN // 2
        shown = episodes if len(episodes) <= EPISODES_SHOWN else episodes[:half] + episodes[-half:]
        (target / "episodes.txt").write_text("\n\n".join(map(episode_text, shown)) + "\n", encoding="utf-8")


def by_quantity(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[Mapping[str, Any]]]]:
    """Histogram records by quantity and split: `log_ratio_token/negative` is one of both."""
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        quantity, _, split = str(row["name"]).partition("/")
        found[quantity][split or "all"].append(row)
    return {quantity: dict(splits) for quantity, splits in found.items()}


def write_histogram_table(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """One row a bin: step, name, left and right edge, count; `exact` is a bin with left = right."""
    import pandas as pd

    frames = []
    for row in rows:
        edges, counts = list(row["edges"]), list(row["counts"])
        # A value with a bin of its own: log-ratios of exactly zero before the first update.
        left, right = [*edges[:-1], 0.0], [*edges[1:], 0.0]
        count = [*counts, row.get("exact", 0)]
        frame = {"step": row["step"], "name": row["name"], "left": left, "right": right, "count": count}
        frames.append(pd.DataFrame(frame))
    pd.concat(frames, ignore_index=True).to_parquet(path, index=False)


def draw_heat_map(quantity: str, splits: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Steps across, the quantity upwards, colour the share of values in a bin (log); one panel a split."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    # No pyplot: this runs in a thread beside whatever the process draws. No layout engine either: it would
    # draw everything twice, and the driver shares its cores with trials.
    count = len(splits)
    figure = Figure(figsize=(1.75 + 4.4 * count, 3.6), dpi=100)
    FigureCanvasAgg(figure)
    left, right = 0.85 / figure.get_figwidth(), 1 - 1.1 / figure.get_figwidth()
    grid = {"left": left, "right": right, "bottom": 0.14, "top": 0.9, "wspace": 0.06}
    axes = figure.subplots(1, count, sharey=True, squeeze=False, gridspec_kw=grid)[0]
    reach: list[float] = []
    for axis, (split, rows) in zip(axes, sorted(splits.items(), reverse=True), strict=True):
        # The bins are fixed per study; a record with other bins has no place in this picture.
        edges = np.asarray(rows[-1]["edges"], dtype=float)
        drawn = [row for row in rows if len(row["counts"]) == len(edges) - 1]
        steps = np.asarray([row["step"] for row in drawn], dtype=float)
        counts = np.asarray([row["counts"] for row in drawn], dtype=float)
        totals = counts.sum(1) + np.asarray([row.get("exact", 0) for row in drawn], dtype=float)
        shares = np.divide(counts, totals[:, None], out=np.zeros_like(counts), where=totals[:, None] > 0)
        with np.errstate(divide="ignore"):
            shown = np.ma.masked_invalid(np.log10(shares))
        mesh = axis.pcolormesh(_borders(steps), edges, shown.T, vmin=-4, vmax=0, cmap="viridis")
        # Bins reach far beyond what a healthy run fills.
        filled = np.flatnonzero((shares > SMALLEST_SHARE).any(0))
        reach += [edges[filled[0]], edges[filled[-1] + 1]] if len(filled) else []
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_title(SPLIT_TITLES.get(split, split), fontsize=10)
        axis.set_xlabel("step")
    if reach:
        axes[0].set_ylim(min(reach), max(reach))
    axes[0].set_ylabel(quantity.replace("_", " "))
    bar = figure.add_axes((right + 0.2 / figure.get_figwidth(), 0.14, 0.15 / figure.get_figwidth(), 0.76))
    shares_shown = {-4: "0.01%", -3: "0.1%", -2: "1%", -1: "10%", 0: "100%"}
    figure.colorbar(mesh, cax=bar, ticks=list(shares_shown)).ax.set_yticklabels(list(shares_shown.values()))
    bar.set_title("share", fontsize=9)
    figure.savefig(path)


def episode_text(episode: Mapping[str, Any]) -> str:
    """A transcript to be read by people."""
    success = "success" if episode.get("success") else "no success"
    reward = f"reward {float(episode.get('total_reward') or 0):.4g}"
    head = f"step {episode.get('step')} ({episode.get('kind')}): {success}, {reward}"
    lines = [f"{'=' * 8} {head} {'=' * 8}"]
    for number, turn in enumerate(episode.get("turns") or (), start=1):
        lines.append(f"--- turn {number}")
        lines.append(str(turn.get("observation", "")))
        lines.append(f"> {turn.get('response', '')}")
        rejection = f"  ({turn['rejection']})" if turn.get("rejection") else ""
        lines.append(f"  action {json.dumps(turn.get('action'))}, reward {turn.get('reward')}{rejection}")
    return "\n".join(lines)


def _borders(steps: Any) -> Any:
    """The edges of cells around increasing steps."""
    import numpy as np

    if len(steps) == 1:
        return np.asarray([steps[0] - 0.5, steps[0] + 0.5])
    middles = (steps[1:] + steps[:-1]) / 2
    return np.concatenate([[2 * steps[0] - middles[0]], middles, [2 * steps[-1] - middles[-1]]])
