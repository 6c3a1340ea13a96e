"""The cached engine against the stock one, and what its caches may not change."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from envs.alfworld import engine
from envs.alfworld.downward import translate
from envs.alfworld.engine import NOTHING_HAPPENS, Game, open_game
from envs.alfworld.games import games
from envs.alfworld.storage import cache_folder, publish, write_atomically
from envs.alfworld.translation import read_game

ROOT = Path(__file__).parents[3]


def choose(chance, admissible):
    """An admissible command, with white space around it, or nonsense."""
    if chance.random() < 0.1:
        return chance.choice(["dance", "", "go to nowhere 1", "Look"])
    command = chance.choice(admissible)
    return f" {command} " if chance.random() < 0.1 else command


def compare(stock_engine, path, commands, chance):
    """Play the same in both engines: first some commands, then by chance; every word must agree."""
    stock, state = stock_engine(path)
    game = open_game(path)
    node, text = game.start()
    assert text == state.feedback
    for command in commands:
        assert list(node.choices.commands) == state.admissible_commands
        assert node.won == state["won"] is False
        state, score, done = stock.step(command or choose(chance, state.admissible_commands))
        node, text = game.step(node, state.last_command)
        assert text == state.feedback
        assert node.won == done == bool(score)
        if done:  # chance may win
            break
    assert list(node.choices.commands) == state.admissible_commands
    return node


@pytest.mark.parametrize("number", range(6))
def test_every_task_type_is_played_as_by_the_stock_engine(stock_engine, six_games, number):
    path = six_games[number]
    walkthrough = read_game(path)["walkthrough"]
    assert compare(stock_engine, path, walkthrough, None).won
    compare(stock_engine, path, [None] * 30, random.Random(number))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(6))
def test_full_rooms_are_played_as_by_the_stock_engine(stock_engine, make_config, number):
    config = make_config(
        {"receptacles": None, "objects": (12, 30), "shortest": 2, "longest": 40}, max_turns=50
    )
    path = games(config, "eval").path(number)
    assert compare(stock_engine, path, read_game(path)["walkthrough"], None).won
    compare(stock_engine, path, [None] * 25, random.Random(number))


def wander(game, chance, turns):
    """A random episode as a generator of everything it says, one turn at a time."""
    node, text = game.start()
    yield text, node.choices.commands, node.won
    for _ in range(turns):
        node, text = game.step(node, choose(chance, node.choices.commands))
        yield text, node.choices.commands, node.won


def fresh(paths):
    """The games with nothing remembered."""
    return [Game(read_game(path), path) for path in paths]


def test_episodes_played_in_turns_do_not_disturb_each_other(six_games):
    alone = [list(wander(game, random.Random(7), 25)) for game in fresh(six_games)]
    together = [[wander(game, random.Random(7), 25) for game in fresh(six_games)] for _ in range(2)]
    seen = zip(*(episode for episodes in together for episode in episodes), strict=True)
    assert [list(episode) for episode in zip(*seen, strict=True)] == alone * 2


def test_a_second_episode_asks_the_library_nothing(six_games, monkeypatch):
    (game,) = fresh(six_games[2:3])
    first = list(wander(game, random.Random(3), 40))
    monkeypatch.setattr(engine, "downward", None)
    assert list(wander(game, random.Random(3), 40)) == first


def test_what_cannot_matter_leads_back_to_the_same_state(six_games):
    game = open_game(six_games[0])
    node, _ = game.start()
    for command in ("look", "inventory", "help", "dance"):
        assert game.step(node, command)[0] is node
    assert game.step(node, "dance")[1] == NOTHING_HAPPENS
    here, _ = game.step(node, node.choices.commands[0])
    back = [command for command in node.choices.commands if command.startswith("go to")]
    there, _ = game.step(game.step(here, back[-1])[0], back[0])
    assert there is game.step(node, back[0])[0]


def test_a_game_forgotten_in_the_middle_of_an_episode_goes_on(six_games):
    (kept, forgetful) = fresh([six_games[3]] * 2)
    expected = list(wander(kept, random.Random(5), 30))
    seen = []
    for turn in wander(forgetful, random.Random(5), 30):
        seen.append(turn)
        if len(seen) % 4 == 0:
            forgetful.forget()
    assert seen == expected


def test_memory_is_bounded(six_games, monkeypatch):
    library = engine._Library()
    monkeypatch.setattr(engine, "_library", library)
    monkeypatch.setattr(engine, "MAX_GAMES", 3)
    monkeypatch.setattr(engine, "MAX_NODES", 40)
    for path in six_games * 2:
        game = open_game(path)
        assert len(library._games) <= 3
        assert library.nodes <= 40 or list(library._games.values()) == [game]
        list(wander(game, random.Random(1), 30))
        assert library.nodes == sum(len(each._nodes) for each in library._games.values())


def test_the_planner_s_arguments_are_not_this_process_s(six_games):
    before = list(sys.argv)
    game = read_game(six_games[0])
    translate(game["pddl_domain"], game["pddl_problem"])
    assert sys.argv == before


def test_a_file_that_is_no_game_says_so(tmp_path):
    for text, message in (("{", "is no game file"), ('{"grammar": ""}', "it needs pddl_domain")):
        (tmp_path / "game.tw-pddl").write_text(text)
        with pytest.raises(ValueError, match=message):
            open_game(tmp_path / "game.tw-pddl")


def test_a_damaged_cache_is_made_again(six_games, tmp_path, monkeypatch):
    expected = list(wander(open_game(six_games[1]), random.Random(2), 10))
    monkeypatch.setenv("ARENA_CACHE", str(tmp_path))
    assert list(wander(*fresh([six_games[1]]), random.Random(2), 10)) == expected
    kept = list(tmp_path.rglob("*.z"))
    assert kept
    for path in kept:
        path.write_bytes(b"damaged")
    assert list(wander(*fresh([six_games[1]]), random.Random(2), 10)) == expected


def test_nothing_is_left_on_disk_even_by_a_killed_process(tmp_path, make_config):
    script = (
        "import os, signal, sys\n"
        "from envs.alfworld.config import AlfworldConfig\n"
        "from envs.alfworld.environment import ALFWORLD\n"
        "config = AlfworldConfig.model_validate_json(sys.stdin.read())\n"
        "pool = ALFWORLD.make_pool(config)\n"
        "for observation in pool.reset(range(64), 'train'): assert observation.text\n"
        "assert 'ALFWORLD_DATA' not in os.environ\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    temporary, home = tmp_path / "temporary", tmp_path / "home"
    temporary.mkdir()
    home.mkdir()
    environment = {key: value for key, value in os.environ.items() if key != "ALFWORLD_DATA"}
    environment |= {"TMPDIR": str(temporary), "HOME": str(home), "ARENA_CACHE": str(cache_folder())}
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=make_config().model_dump_json(),
        text=True,
        env=environment,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert list(temporary.iterdir()) == []
    assert list(home.iterdir()) == []


@pytest.mark.slow
def test_64_environments_of_full_rooms_need_less_than_300_megabytes(make_config):
    script = (
        "import random, resource, sys\n"
        "from envs.alfworld.config import AlfworldConfig\n"
        "from envs.alfworld.environment import ALFWORLD\n"
        "config = AlfworldConfig.model_validate_json(sys.stdin.read())\n"
        "def used(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
        "before, chance, pool = used(), random.Random(0), ALFWORLD.make_pool(config)\n"
        "seen = dict(enumerate(pool.reset(range(64), 'train')))\n"
        "while seen:\n"
        "    acts = [chance.choice(each.admissible) for each in seen.values()]\n"
        "    after = zip(seen, pool.step(list(seen), acts))\n"
        "    seen = {number: outcome.observation for number, outcome in after if outcome.observation}\n"
        "print(used() - before)\n"
    )
    full = {"receptacles": None, "objects": [15, 40], "shortest": 2, "longest": 40}
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=make_config(full, max_turns=50).model_dump_json(),
        text=True,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    assert float(done.stdout) < 300


def test_what_a_killed_process_left_unfinished_is_swept(tmp_path, monkeypatch):
    monkeypatch.setenv("ARENA_CACHE", str(tmp_path))
    unfinished = tmp_path / "unfinished"
    (unfinished / "old").mkdir(parents=True)
    (unfinished / "old" / "half").write_text("x")
    (unfinished / "new").write_text("x")
    os.utime(unfinished / "old", (0, 0))
    write_atomically(tmp_path / "here" / "file", b"whole")
    assert [path.name for path in unfinished.iterdir()] == ["new"]
    assert (tmp_path / "here" / "file").read_bytes() == b"whole"


def test_a_folder_is_published_whole_and_only_once(tmp_path, monkeypatch):
    monkeypatch.setenv("ARENA_CACHE", str(tmp_path / "cache"))
    for content in (b"first", b"second"):
        publish(tmp_path / "games" / "one", {"a": content, "b": content})
    assert {path.name: path.read_bytes() for path in (tmp_path / "games" / "one").iterdir()} == {
        "a": b"first",
        "b": b"first",
    }
    assert list((tmp_path / "cache" / "unfinished").iterdir()) == []
    shutil.rmtree(tmp_path / "games")
    publish(tmp_path / "games" / "one", {"a": b"third"})
    assert (tmp_path / "games" / "one" / "a").read_bytes() == b"third"
