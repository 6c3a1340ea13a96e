"""The examples of docs/grids.md: every grid on the page plans, into as many trials as it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import get_args

import pytest
import yaml

from arena.grid import DesignName, Grid
from arena.options import AXES, Catalogue
from arena.plan import Study
from arena.plan_view import design_lines
from arena.planning import plan_study

PAGE = (Path(__file__).parents[2] / "docs" / "grids.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


GRIDS = {yaml.safe_load(text)["name"]: text for text in blocks("yaml")}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the page's modules in it."""
    for text in blocks("python"):
        name = re.match(r"# (\w+\.py)", text)
        assert name
        (tmp_path / name[1]).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def plan(text: str, folder: Path, *assignments: str) -> Study:
    (folder / "grid.yaml").write_text(text)
    return plan_study(folder / "grid.yaml", assignments, studies=folder / "studies")


@pytest.mark.parametrize("text", GRIDS.values(), ids=GRIDS.keys())
def test_every_grid_of_the_page_plans_into_what_it_says(text: str, folder: Path) -> None:
    said = re.match(r"# (\d+) trials?(?:, at most (\d+) more)?\n", text)
    assert said
    study = plan(text, folder)
    assert len(study.trials) + study.estimate.later == int(said[1])
    assert study.estimate.most_added == int(said[2] or 0)
    assert not study.over_budget


def test_every_command_of_the_page_plans(folder: Path) -> None:
    commands = [shlex.split(line[2:]) for text in blocks("console") for line in text.splitlines()]
    assert commands
    for program, command, file, *assignments in commands:
        assert (program, command) == ("arena", "plan")
        assert plan(GRIDS[Path(file).stem], folder, *assignments).trials


def test_what_the_page_shows_of_a_plan_is_what_a_plan_says(folder: Path) -> None:
    study = plan(GRIDS["half"], folder)
    said = design_lines(study.design, study.estimable)
    (shown,) = [text.splitlines() for text in blocks("text") if text.startswith("Design")]
    for line, whole in zip(shown, said, strict=True):
        assert whole.startswith(line.removesuffix("..."))


def test_the_page_has_every_design() -> None:
    listed = set(re.findall(r"^\| `\{?(\w+)", PAGE[PAGE.index("## Designs") :], re.MULTILINE))
    assert listed == set(get_args(DesignName))


def test_the_page_has_every_key_of_a_grid_and_the_defaults_of_the_axes() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", PAGE[: PAGE.index("## Settings")], re.MULTILINE)
    described = set(re.findall(r"`(\w+)`", " ".join(rows)))
    assert described == set(Grid.model_fields)
    defaults = Catalogue().defaults
    assert ", ".join(f"`{defaults[axis]}`" for axis in AXES) in PAGE


def test_the_grid_of_a_name_alone_is_what_the_page_says(folder: Path) -> None:
    (trial,) = plan("name: alone\n", folder).trials
    assert (trial.label, trial.env) == ("GRPO", "sokoban")
