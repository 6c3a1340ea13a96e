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


def fall_and_recover(start: float, bottom: float, at: float, back: float) -> Course:
    """Success drops within a tenth of training, and from `back` on returns within a tenth."""
    drop, return_ = fall(start, bottom, at), fall(bottom, start, back)
    return lambda done: drop(done) if done < back else return_(done)


def established(
    course: Course,
    *,
    evaluations: int,
    episodes: int,
    runs: int,
    rule: CollapseRule | None = None,
    seed: int = 0,
) -> list[int | None]:
    """Of every simulated run the evaluation at which the rule establishes a collapse; None: it does not."""
    random = np.random.default_rng(seed)
    found: list[int | None] = []
    for _ in range(runs):
        watch = CollapseWatch(rule or CollapseRule())
        course_of_run = rows(course, evaluations=evaluations, episodes=episodes, random=random)
        found.append(next((row["step"] for row in course_of_run if watch.update(row)), None))
    return found


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
    found = established(course, evaluations=evaluations, episodes=episodes, runs=runs, rule=rule, seed=seed)
    return sum(step is not None for step in found) / runs


@dataclass(frozen=True)
class Scenario:
    """A course of success, whether it is a collapse, and the share of training done when the fall begins."""

    name: str
    course: Course
    collapses: bool
    begins: float = 0.0


SCENARIOS = (
    Scenario("flat at .30", flat(0.30), collapses=False),
    Scenario("flat at .50", flat(0.50), collapses=False),
    Scenario("flat at .05 (hardly anything to lose)", flat(0.05), collapses=False),
    Scenario("rises .30 to .80", rise(0.30, 0.80), collapses=False),
    Scenario("slips .31 to .28", line(0.31, 0.28), collapses=False),
    Scenario("falls .31 to .21", fall(0.31, 0.21, 0.2), collapses=True, begins=0.2),
    Scenario("falls .31 to .10", fall(0.31, 0.10, 0.2), collapses=True, begins=0.2),
    Scenario(
        "falls .31 to .10, recovers",
        fall_and_recover(0.31, 0.10, 0.2, 0.6),
        collapses=True,
        begins=0.2,
    ),
    Scenario("rises .30 to .70, falls to .50", rise_then_fall(0.30, 0.70, 0.50, 0.5), collapses=False),
    Scenario(
        "rises .30 to .70, falls to .30",
        rise_then_fall(0.30, 0.70, 0.30, 0.5),
        collapses=True,
        begins=0.5,
    ),
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


def delays(scenario: Scenario, *, evaluations: int, episodes: int, runs: int) -> tuple[float, float]:
    """Median and 90th percentile of the evaluations from a fall's beginning to the collapse established.

    A collapse that is missed is established never: infinity.
    """
    found = established(scenario.course, evaluations=evaluations, episodes=episodes, runs=runs)
    begins = scenario.begins * evaluations
    waited = [math.inf if step is None else max(step - begins, 0.0) for step in found]
    median, late = np.quantile(waited, [0.5, 0.9], method="higher")
    return float(median), float(late)


def delay_table(*, runs: int, episodes: tuple[int, ...] = (64, 128, 256), evaluations: int = 30) -> str:
    """A markdown table: how late collapses are established, per scenario and episodes an evaluation."""
    lines = [
        "| " + " | ".join(["true success", *(f"E = {n}" for n in episodes)]) + " |",
        "|---|" + "---|" * len(episodes),
    ]
    for scenario in SCENARIOS:
        if scenario.collapses:
            pairs = (delays(scenario, evaluations=evaluations, episodes=n, runs=runs) for n in episodes)
            told = (
                ", ".join("never" if math.isinf(part) else f"{part:g}" for part in pair) for pair in pairs
            )
            lines.append(f"| {scenario.name} | " + " | ".join(told) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(f"evaluations to a collapse (median, 90%)\n\n{delay_table(runs=2000)}\n\n")
    for count in (15, 30, 100):
        sys.stdout.write(f"{count} evaluations a run, 4,000 runs a cell\n\n")
        sys.stdout.write(table(runs=4000, evaluations=count) + "\n\n")
