"""How often the statistics err: simulated studies with a known truth.

`python -m analysis.simulation` prints the tables of docs/statistics.md.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.arms import collapse_contrast, difference
from analysis.factorial import fit_factorial
from analysis.improvement import probability_of_improvement
from analysis.measures import RunTable
from analysis.resampling import Interval, seed_interval
from analysis.significance import block_p_value

Floats = NDArray[np.float64]
Drawn = Callable[[np.random.Generator], tuple[Interval, float]]
"""Draws a study and gives an interval, and the truth it should hold."""
Tested = Callable[[np.random.Generator], float | None]
"""Draws a study and gives the p-value of a test on it."""

AXES: Mapping[str, tuple[str, ...]] = {
    "loss_aggregation": ("token_mean", "seq_mean_token_mean"),
    "is_clipping": ("token", "soft", "cispo", "sequence"),
    "dynamic_filtering": ("none", "group_variance"),
    "advantage": ("grpo", "gigpo"),
}
STEPS = 100


@dataclass(frozen=True)
class World:
    """What is true of a simulated study.

    gain: per option what it adds to final success; hazard: per option its rate of collapse a step; block,
    noise: standard deviations of success between blocks and between runs of a block; slope: how much the
    effect of an option varies from block to block (standard deviation); skew: runs fall short by an
    exponential amount instead of scattering evenly.
    """

    gain: Mapping[str, float] = field(default_factory=dict)
    hazard: Mapping[str, float] = field(default_factory=dict)
    block: float = 0.08
    noise: float = 0.05
    slope: float = 0.02
    skew: bool = False


def simulate(
    world: World,
    blocks: int,
    random: np.random.Generator,
    *,
    axes: Mapping[str, Sequence[str]] = AXES,
) -> RunTable:
    """A full factorial study: every combination of options in every block."""
    cells = list(itertools.product(*axes.values()))
    options = [option for listed in axes.values() for option in listed]
    member = np.array([[option in cell for option in options] for cell in cells], dtype=float)
    gain = np.array([world.gain.get(option, 0.0) for option in options])
    rates = member @ np.array([world.hazard.get(option, 0.0) for option in options])
    shape = (blocks, len(cells))
    slopes = random.normal(0, world.slope, (blocks, len(options))) @ member.T
    scatter = 1 - random.exponential(size=shape) if world.skew else random.normal(size=shape)
    level = random.normal(0, world.block, (blocks, 1))
    final = (0.5 + level + member @ gain + slopes + world.noise * scatter).ravel()
    with np.errstate(divide="ignore"):
        time = np.ceil(random.exponential(size=shape) / rates).ravel()
    event = time <= STEPS
    columns = {
        axis: np.tile(column, blocks) for axis, column in zip(axes, zip(*cells, strict=True), strict=True)
    }
    names = [" / ".join(cell) for cell in cells]
    table = pd.DataFrame(
        {
            **columns,
            "env": "sokoban",
            "cell": names * blocks,
            "label": names * blocks,
            "methods": [()] * len(final),
            "block": np.repeat([f"b{block}" for block in range(blocks)], len(cells)),
            "status": np.where(event, "collapsed", "stable"),
            "result": True,
            "collapsed": event,
            "final": final,
            "area": final,
            "healthy": 1.0 - event,
            "good": 1.0 - event,
            "time": np.minimum(time, STEPS),
            "event": event,
        }
    )
    table.index = pd.Index([f"t{k}" for k in range(len(table))])
    for unit in ("step", "episode", "update", "token"):
        table[f"final_{unit}"], table[f"area_{unit}"] = table["final"], table["area"]
    settings = tuple(name for name, listed in axes.items() if len(listed) > 1)
    return RunTable(table, settings, {name: tuple(listed) for name, listed in axes.items()}, {}, {})


def coverage(draw: Drawn, runs: int, *, seed: int = 0) -> float:
    """How often an interval held the truth."""
    random = np.random.default_rng(seed)
    held = [interval.low <= truth <= interval.high for interval, truth in (draw(random) for _ in range(runs))]
    return float(np.mean(held))


def rejections(draw: Tested, runs: int, *, seed: int = 0) -> float:
    """How often a p-value was below 0.05."""
    random = np.random.default_rng(seed)
    return float(np.mean([p is not None and p < 0.05 for p in (draw(random) for _ in range(runs))]))


TWO: Mapping[str, tuple[str, ...]] = {"is_clipping": ("token", "cispo"), "advantage": ("grpo", "gigpo")}
CLIPS = {"first": ("token",), "second": ("cispo",)}


def difference_interval(blocks: int, *, skew: bool = False) -> Drawn:
    """Of a difference in final success whose truth is 0.05."""
    world = World(gain={"cispo": 0.05}, skew=skew)
    return lambda random: (
        difference(simulate(world, blocks, random, axes=TWO), "is_clipping", CLIPS, "final").effect,
        0.05,
    )


def deviation_interval(blocks: int) -> Drawn:
    """Of an option's deviation from the grand mean, among four options; the truth is 0.075."""
    axes = {"is_clipping": AXES["is_clipping"], "advantage": AXES["advantage"]}
    world = World(gain={"cispo": 0.1})

    def draw(random: np.random.Generator) -> tuple[Interval, float]:
        fit = fit_factorial(simulate(world, blocks, random, axes=axes).table, list(axes), "final")
        effect = next(e for e in fit.effects if e.name == "is_clipping")
        return effect.deviations[effect.levels.index(("cispo",))], 0.075

    return draw


def restricted_mean_interval(blocks: int) -> Drawn:
    """Of a difference of restricted mean times to collapse; times are geometric-like, rates .01 and .02."""
    world = World(hazard={"token": 0.01, "cispo": 0.02})
    # The sum of P(time > k) over steps 0 to 99, time being an exponential one rounded up.
    means = [sum(np.exp(-rate * step) for step in range(STEPS)) for rate in (0.01, 0.02)]
    return lambda random: (
        collapse_contrast(simulate(world, blocks, random, axes=TWO), "is_clipping", CLIPS).effect,
        float(means[1] - means[0]),
    )


def improvement_interval(blocks: int) -> Drawn:
    """Of the probability that one run beats another; the truth is that of two normals."""
    from scipy.special import ndtr

    truth = float(ndtr(0.05 / np.sqrt(2 * 0.1**2)))

    def draw(random: np.random.Generator) -> tuple[Interval, float]:
        first = random.normal(0.5, 0.1, (blocks, 4))
        return probability_of_improvement(first, random.normal(0.55, 0.1, (blocks, 4))), truth

    return draw


def binary_interval(blocks: int) -> Drawn:
    """Of a difference in the share that did not collapse, four surroundings: .8 against .5."""

    def draw(random: np.random.Generator) -> tuple[Interval, float]:
        gap = random.binomial(4, 0.8, blocks) / 4 - random.binomial(4, 0.5, blocks) / 4
        return seed_interval(gap), 0.3

    return draw


INTERVALS: Mapping[str, Callable[[int], Drawn]] = {
    "difference in final success": difference_interval,
    "the same, skewed runs": lambda blocks: difference_interval(blocks, skew=True),
    "deviation of an option among four": deviation_interval,
    "difference in restricted mean time to collapse": restricted_mean_interval,
    "probability of improvement": improvement_interval,
    "difference in the share that collapsed": binary_interval,
}


def success_test(blocks: int, gain: float) -> Tested:
    """The p-value of a difference in final success."""
    world = World(gain={"cispo": gain})
    return lambda random: (
        difference(simulate(world, blocks, random, axes=TWO), "is_clipping", CLIPS, "final").p
    )


def factorial_test(blocks: int, gain: float) -> Tested:
    """The p-value of a main effect of four options, one of which gains."""
    axes = {"is_clipping": AXES["is_clipping"], "advantage": AXES["advantage"]}
    world = World(gain={"cispo": gain})

    def draw(random: np.random.Generator) -> float | None:
        fit = fit_factorial(simulate(world, blocks, random, axes=axes).table, list(axes), "final")
        return next(e.p for e in fit.effects if e.name == "is_clipping")

    return draw


def collapse_test(blocks: int, risk: float) -> Tested:
    """The p-value of the exact log-rank test; risks of collapse .3 and .3 + `risk` by the last step."""
    rates = [-np.log(1 - share) / STEPS for share in (0.3, 0.3 + risk)]
    world = World(hazard={"token": rates[0], "cispo": rates[1]})
    return lambda random: collapse_contrast(simulate(world, blocks, random, axes=TWO), "is_clipping", CLIPS).p


def binary_test(blocks: int, risk: float) -> Tested:
    """The p-value of a difference in the share that collapsed, one surrounding: .3 against .3 + `risk`."""

    def draw(random: np.random.Generator) -> float | None:
        first = random.random(blocks) < 0.3
        second = random.random(blocks) < 0.3 + risk
        return block_p_value(second.astype(float) - first)

    return draw


TESTS: Mapping[
    str, tuple[Callable[[int, float], Callable[[np.random.Generator], float | None]], tuple[float, ...]]
] = {
    "final success, two options": (success_test, (0.0, 0.05, 0.10)),
    "final success, four options": (factorial_test, (0.0, 0.05, 0.10)),
    "time to collapse (exact log-rank)": (collapse_test, (0.0, 0.15, 0.40)),
    "share that collapsed": (binary_test, (0.0, 0.15, 0.40)),
}


def coverage_table(runs: int, blocks: Sequence[int] = (5, 8, 16)) -> str:
    """A markdown table: how often nominal 95% intervals hold the truth."""
    lines = [
        "| interval of | " + " | ".join(f"{n} blocks" for n in blocks) + " |",
        "|---|" + "---:|" * len(blocks),
    ]
    for name, draw in INTERVALS.items():
        shares = [f"{coverage(draw(n), runs):.1%}" for n in blocks]
        lines.append(f"| {name} | " + " | ".join(shares) + " |")
    return "\n".join(lines)


def rejection_table(runs: int, blocks: Sequence[int] = (5, 8, 16)) -> str:
    """A markdown table: how often p < 0.05, per true effect; at an effect of 0 this is the type I error."""
    lines = ["| test of | true effect | " + " | ".join(f"{n} blocks" for n in blocks) + " |"]
    lines.append("|---|---:|" + "---:|" * len(blocks))
    for name, (draw, effects) in TESTS.items():
        for effect in effects:
            shares = [f"{rejections(draw(n, effect), runs):.1%}" for n in blocks]
            lines.append(f"| {name} | {effect:g} | " + " | ".join(shares) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    sys.stdout.write(f"{count} simulated studies a cell\n\n{coverage_table(count)}\n\n")
    sys.stdout.write(rejection_table(count) + "\n")
