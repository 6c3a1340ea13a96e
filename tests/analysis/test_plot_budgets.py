"""Success over steps, episodes, updates and tokens."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from analysis.plot_budgets import draw_budgets, median_by


def trial(success: list[float], episodes: int, *, carried: float | None = None, updates: int = 4) -> Any:
    """Evaluated every 10 steps, with as many episodes and updates in every step."""
    steps = [10 * k for k in range(len(success))]
    train = {"rollout/episodes": float(episodes), "train/updates": float(updates)}
    return SimpleNamespace(
        evaluations=pd.DataFrame({"eval/success": success}, index=pd.Index(steps, name="step")),
        train=pd.DataFrame(train, index=pd.Index(range(1, steps[-1] + 1), name="step")),
        verdict=SimpleNamespace(carried=carried is not None, final=carried),
    )


def test_a_method_that_rolls_out_twice_as_much_is_compared_at_as_many_episodes() -> None:
    trials = [trial([0.2, 0.4, 0.6], 8), trial([0.2, 0.5, 0.9], 16)]
    amounts, success = median_by(trials, "step") or ([], [])
    assert (amounts[-1], success[-1]) == (20, pytest.approx(0.75))
    amounts, success = median_by(trials, "episode") or ([], [])
    assert (amounts[-1], success[-1]) == (160, pytest.approx((0.6 + 0.5) / 2))
    assert success[0] == pytest.approx(0.2)


def test_a_trial_stopped_at_its_collapse_limits_no_other() -> None:
    trials = [trial([0.2, 0.4, 0.6], 8), trial([0.2, 0.1], 8, carried=0.05)]
    amounts, success = median_by(trials, "step") or ([], [])
    assert (amounts[-1], success[-1]) == (20, pytest.approx((0.6 + 0.05) / 2))


def test_what_was_not_counted_has_no_line() -> None:
    assert median_by([trial([0.2, 0.4], 8)], "token") is None


def test_units_that_were_counted_are_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counted = trial([0.2, 0.4, 0.6], 8)
    series = SimpleNamespace(name="a", colour="#0072B2", dash="-", trials=(counted,))
    monkeypatch.setattr("analysis.plot_budgets.legend_of", lambda _: SimpleNamespace(series=(series,), by=""))
    note = draw_budgets([], tmp_path / "a.png")
    assert note == "Not counted by these trials: tokens."
    assert (tmp_path / "a.png").stat().st_size > 10_000
    counted.train = pd.DataFrame(index=counted.train.index)
    assert draw_budgets([], tmp_path / "b.png") is None
    assert not (tmp_path / "b.png").exists()
