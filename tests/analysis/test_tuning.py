"""The section and figure of tuning, from a `tuning.json` written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analysis.plot_tuning import draw_tuning
from analysis.searches import read_searches
from analysis.study import Study, load_study
from analysis.tuning import tuning_section


def candidate(number: int, rate: float, score: float | None, outcome: str = "stable") -> dict[str, Any]:
    return {
        "number": number,
        "values": {"trainer.learning_rate": rate, "trainer.epochs": 1 + number % 2},
        "trials": [f"x{number}-s1000000"],
        "state": "failed" if score is None else "done",
        "score": score,
        "success": score,
        "outcomes": [] if score is None else [outcome],
        "stable": outcome == "stable" and score is not None,
    }


def search(label: str, *candidates: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "id": label,
        "label": label,
        "envs": ["sokoban"],
        "cells": 1,
        "budget": 3,
        "seeds": [1000000],
        "sampler": "tpe",
        "until_stable": False,
        "keys": {"trainer.learning_rate": "0.0001 to 0.01 (log)", "trainer.epochs": "1, 2"},
        "log": ["trainer.learning_rate"],
        "penalties": {"unstable": 0.1, "collapsed": 0.5},
        "finished": True,
        "chosen": 1,
        "importance": {"trainer.learning_rate": 0.7, "trainer.epochs": 0.3},
        "candidates": list(candidates),
        **changes,
    }


def study(folder: Path, *searches: dict[str, Any]) -> Study:
    plan = {"study": "s", "tuning": {"keys": ["trainer.learning_rate", "trainer.epochs"]}, "trials": []}
    folder.mkdir(exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "tuning.json").write_text(json.dumps({"searches": list(searches)}))
    return load_study(folder)


GOOD = (candidate(0, 1e-4, 0.4, "unstable"), candidate(1, 1e-3, 0.8), candidate(2, 1e-2, None))


def test_the_section_names_budget_choice_and_importance(tmp_path: Path) -> None:
    text = "\n".join(tuning_section(study(tmp_path, search("GRPO", *GOOD), search("<b>", *GOOD)), ""))
    assert "2 searches of at most 3 candidates each (tpe)" in text
    assert "All of them had the same budget" in text
    assert "`trainer.learning_rate` `0.001`" in text
    assert "0.1 where unstable" in text
    assert "0.70" in text
    assert "<b>" not in text


def test_unequal_budgets_are_said_to_be_unequal(tmp_path: Path) -> None:
    text = "\n".join(tuning_section(study(tmp_path, search("GRPO", *GOOD), search("CISPO", GOOD[0])), None))
    assert "not compared on equal terms" in text


def test_a_best_value_at_the_end_of_those_tried_is_pointed_out(tmp_path: Path) -> None:
    rising = (candidate(0, 1e-4, 0.1), candidate(1, 1e-2, 0.8), candidate(2, 1e-3, 0.5))
    row = tuning_section(study(tmp_path, search("GRPO", *rising)), None)[1]
    assert row.splitlines()[-1].rstrip(" |").endswith("`trainer.learning_rate`")


def test_a_search_without_a_choice_says_why(tmp_path: Path) -> None:
    running = search("GRPO", *GOOD, finished=False, chosen=None, importance=None)
    nothing = search("CISPO", candidate(0, 1e-3, None), chosen=None, importance=None)
    text = "\n".join(tuning_section(study(tmp_path, running, nothing), None))
    assert "not finished" in text
    assert "no candidate has a result" in text


def test_the_figure_shows_every_search_and_nothing_where_there_is_nothing(tmp_path: Path) -> None:
    loaded = study(tmp_path / "s", search("GRPO", *GOOD), search("CISPO", *GOOD, importance=None))
    assert draw_tuning(loaded.searches, tmp_path / "a.png") == ""
    assert (tmp_path / "a.png").stat().st_size > 10_000
    assert draw_tuning((), tmp_path / "b.png") is None
    assert not (tmp_path / "b.png").exists()


def test_what_cannot_be_read_is_no_search(tmp_path: Path) -> None:
    (tmp_path / "tuning.json").write_text('{"searches": [{"label": 1}]}')
    assert read_searches(tmp_path / "tuning.json") == ()
    assert read_searches(tmp_path / "none.json") == ()
