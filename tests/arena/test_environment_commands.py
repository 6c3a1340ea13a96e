"""`arena envs` and `arena data`: what is there, what is missing, and making data in advance."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena import cli
from arena.environment_list import list_environments
from arena.options import CONF, Catalogue
from envs.alfworld import package

Run = Callable[..., tuple[int, str, str]]

needs_alfworld = pytest.mark.skipif(bool(package.missing()), reason="alfworld is not installed")


@pytest.fixture
def arena(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARENA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def by_name(out: str) -> dict[str, Any]:
    return {each["name"]: each for each in json.loads(out)["environments"]}


def test_every_environment_is_listed_with_what_it_is_and_needs(arena: Run) -> None:
    code, out, _ = arena("envs", "--format", "json")
    assert code == 0
    listed = by_name(out)
    assert sorted(listed) == sorted(path.stem for path in (CONF / "env").glob("*.yaml"))
    assert listed["sokoban"]["about"] == "Sokoban: push every box onto a target"
    assert listed["sokoban"]["ready"]
    assert listed["sokoban"]["needs"] == []
    assert {need["name"] for need in listed["tir_math"]["needs"]} >= {"bubblewrap", "math-verify"}
    code, out, _ = arena("envs")
    assert code == 0
    assert all(name in out for name in listed)


@needs_alfworld
def test_versions_are_those_installed(arena: Run) -> None:
    needs = by_name(arena("envs", "--format", "json")[1])["alfworld"]["needs"]
    found = {need["name"]: need["found"] for need in needs}
    assert found["alfworld"] == version("alfworld")
    assert found["textworld"] == version("textworld")


def test_what_cannot_run_says_why(arena: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    listed = by_name(arena("envs", "--format", "json")[1])
    assert not listed["alfworld"]["ready"]
    assert "pip install 'arlarena[alfworld]'" in listed["alfworld"]["problems"][0]
    assert [need["found"] for need in listed["alfworld"]["needs"]] == [None] * 3
    _, out, _ = arena("envs")
    assert "alfworld cannot run here: ALFWorld needs alfworld and textworld" in out
    code, out, err = arena("data", "alfworld")
    assert (code, out) == (2, "")
    assert "alfworld cannot run here" in err


def test_official_games_are_recognised(arena: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "nothing"))
    alfworld = by_name(arena("envs", "--format", "json")[1])["alfworld"]
    assert not alfworld["ready"]
    assert "ALFWORLD_DATA is set, but there are no games" in alfworld["data"]


def test_an_environment_without_an_inventory_is_listed_too(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    (conf / "env").mkdir(parents=True)
    for group in CONF.iterdir():
        if group.name != "env":
            (conf / group.name).symlink_to(group)
    plain = yaml.safe_load((CONF / "env" / "sokoban.yaml").read_text())
    wrong = {**plain, "environment": "envs.sokoban.environment.NOTHING"}
    (conf / "env" / "wrong.yaml").write_text(yaml.safe_dump(wrong))
    (conf / "env" / "sokoban.yaml").write_text("# A room. More.\n" + yaml.safe_dump(plain))
    sokoban, broken = list_environments(Catalogue(conf))
    assert (sokoban.about, sokoban.problems) == ("A room", ())
    assert "has no 'NOTHING'" in broken.problems[0]


@needs_alfworld
def test_games_are_made_in_advance_once_and_kept(arena: Run, tmp_path: Path) -> None:
    arguments = (
        "data",
        "alfworld",
        "--games",
        "5",
        "generated.eval_games=3",
        "task_types=[look_at_obj_in_light]",
    )
    code, out, err = arena(*arguments)
    assert code == 0
    files = sorted(tmp_path.glob("cache/**/game.tw-pddl"))
    splits = [path.parts[-4] for path in files]
    assert (splits.count("train"), splits.count("valid_unseen")) == (5, 3)
    assert out.startswith("alfworld: 8 games; ALFWORLD_DATA=")
    assert str(files[0]).startswith(out.split("ALFWORLD_DATA=")[1].split()[0])
    assert "alfworld: 8 of 8 games" in err
    times = [path.stat().st_mtime_ns for path in files]
    assert arena(*arguments)[0] == 0
    assert [path.stat().st_mtime_ns for path in sorted(tmp_path.glob("cache/**/game.tw-pddl"))] == times


def test_where_there_is_nothing_to_make_it_is_said(arena: Run) -> None:
    code, out, _ = arena("data", "sokoban", "--format", "json")
    assert code == 0
    assert json.loads(out)["where"] == "nothing to make in advance"
    code, _, err = arena("data", "sokoban", "--games", "3")
    assert code == 2
    assert "unknown key 'generated'" in err
