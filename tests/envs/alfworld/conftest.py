"""What the tests of ALFWorld share: configurations, games of every task type, and the stock engine."""

from __future__ import annotations

import json

import pytest

from envs.alfworld import package

if package.missing():
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def make_config(configuration):
    """The platform's configuration with changes; those of `generated` are given as a dictionary."""
    from envs.registry import load_environment

    def make(generated=None, **changes):
        base = configuration("alfworld")
        base["generated"] = {**base["generated"], **(generated or {})}
        return load_environment({**base, "data": "generated", **changes})[1]

    return make


@pytest.fixture(scope="session")
def six_games(make_config):
    """The file of a small game of each task type."""
    from envs.alfworld.games import games

    every = games(make_config(), "train")
    return [every.path(number) for number in range(6)]


@pytest.fixture(scope="session")
def stock_engine():
    """The engine as alfworld puts it together, with nothing changed."""
    with package.importing():
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
        from textworld.envs import PddlEnv

    def start(path):
        infos = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
        engine = AlfredInfos(AlfredDemangler(PddlEnv(infos), shuffle=False))
        engine.load(str(path))
        return engine, engine.reset()

    return start


@pytest.fixture
def read_goal_of():
    """The task type in a game's trajectory file."""
    return lambda path: json.loads((path.parent / "traj_data.json").read_text())["task_type"]
