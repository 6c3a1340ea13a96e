"""How often the collapse rule errs: simulated evaluations with a known course of success.

`python -m analysis.detection` prints the table of docs/collapse.md.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.collapse import CollapseRule, CollapseWatch

Course = Callable[[float], float]
"""True success as a function of the share of training done, from 0 (the clone) to 1."""


def flat(level: float) -> Course:
    """Success stays where the clone was."""
    return lambda _: level


def line(start: float, end: float) -> Course:
    """Success changes steadily."""
    return lambda done: start + (end - start) * done


def rise(start: float, end: float) -> Course:
    """Success rises fast, then levels off."""
    return lambda done: start + (end - start) * (1 - math.exp(-5 * done))


def fall(start: float, end: float, at: float) -> Course:
    """Success drops from one level to another within a tenth of training."""
    return lambda done: start + (end - start) * min(1.0, max(0.0, (done - at) / 0.1))


def rise_then_fall(start: float, top: float, end: float, at: float) -> Course:
    """Success rises linearly to a top, then drops within a tenth of training."""
    drop = fall(top, end, at)
    return lambda done: start + (top - start) * done / at if done < at else drop(done)


def rows(
    course: Course, *, evaluations: int, episodes: int, random: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """Evaluation rows of one run: the clone's on 4E episodes, then `evaluations` of E, binomial."""
    for step in range(evaluations + 1):
        n = 4 * episodes if step == 0 else episodes
        success = random.binomial(n, course(step / evaluations)) / n
        yield {"step": step, "kind": "eval", "eval/success": success, "eval/episodes": n}


def collapse_share(
    course: Course,
    *,
    evaluations: int,
    episodes: int,
    runs: int,
    rule: CollapseRule | None = None,
    seed: int = 0,
) -> float:
    """The share of simulated runs in which the rule establishes a collapse."""
    random = np.random.default_rng(seed)
    found = 0
    for _ in range(runs):
        watch = CollapseWatch(rule or CollapseRule())
        for row in rows(course, evaluations=evaluations, episodes=episodes, random=random):
            if watch.update(row):
                found += 1
                break
    return found / runs


@dataclass(frozen=True)
class Scenario:
    """A course of success and whether it is a collapse."""

    name: str
    course: Course
    collapses: bool


SCENARIOS = (
    Scenario("flat at .30", flat(0.30), collapses=False),
    Scenario("flat at .50", flat(0.50), collapses=False),
    Scenario("flat at .05 (hardly anything to lose)", flat(0.05), collapses=False),
    Scenario("rises .30 to .80", rise(0.30, 0.80), collapses=False),
    Scenario("slips .31 to .28", line(0.31, 0.28), collapses=False),
    Scenario("falls .31 to .21", fall(0.31, 0.21, 0.2), collapses=True),
    Scenario("falls .31 to .10", fall(0.31, 0.10, 0.2), collapses=True),
    Scenario("rises .30 to .70, falls to .50", rise_then_fall(0.30, 0.70, 0.50, 0.5), collapses=False),
    Scenario("rises .30 to .70, falls to .30", rise_then_fall(0.30, 0.70, 0.30, 0.5), collapses=True),
)


def table(*, runs: int, episodes: tuple[int, ...] = (64, 128, 256), evaluations: int = 30) -> str:
    """A markdown table: share of runs called collapsed, per scenario and episodes an evaluation."""
    header = ["true success", "a collapse?", *(f"E = {n}" for n in episodes)]
    lines = ["| " + " | ".join(header) + " |", "|---|---|" + "---|" * len(episodes)]
    for scenario in SCENARIOS:
        shares = (
            collapse_share(scenario.course, evaluations=evaluations, episodes=n, runs=runs) for n in episodes
        )
        cells = [scenario.name, "yes" if scenario.collapses else "no", *(f"{share:.1%}" for share in shares)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    for count in (15, 30, 100):
        sys.stdout.write(f"{count} evaluations a run, 4,000 runs a cell\n\n")
        sys.stdout.write(table(runs=4000, evaluations=count) + "\n\n")
