"""ALFWorld's speed beside the stock engine, measured in the same run on the same games.

CPU time of this process. Games are of full rooms, as official ones are; small rooms (laptop) follow. Every
reset and step is compared with the stock engine's: a figure counts only if the texts are the same. (The
file is not called alfworld.py, as it would then be imported instead of the package.)
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import mean
from time import process_time
from typing import Any

import yaml

from envs.alfworld import engine
from envs.alfworld.config import AlfworldConfig
from envs.alfworld.engine import Game, open_game
from envs.alfworld.environment import ALFWORLD
from envs.alfworld.games import games
from envs.alfworld.package import importing, missing
from envs.alfworld.translation import read_game
from envs.registry import load_environment

ROOT = Path(__file__).parents[1]
FULL = {"receptacles": None, "objects": [15, 40], "shortest": 2, "longest": 40}
TURNS = 15


def configuration(**generated: Any) -> AlfworldConfig:
    base = yaml.safe_load((ROOT / "arena/conf/env/alfworld.yaml").read_text(encoding="utf-8"))
    base |= {"data": "generated", "max_turns": 50, "generated": {**base["generated"], **generated}}
    config = load_environment(base)[1]
    assert isinstance(config, AlfworldConfig)
    return config


def stock(path: Path) -> Iterator[tuple[str, list[str], float]]:
    """A random episode of the stock engine: text, admissible commands and CPU time of every turn."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
    from textworld.envs import PddlEnv

    infos = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
    env = AlfredInfos(AlfredDemangler(PddlEnv(infos), shuffle=False))
    chance = Random(str(path))
    began = process_time()
    env.load(str(path))
    state = env.reset()
    yield state.feedback, state.admissible_commands, process_time() - began
    for _ in range(TURNS):
        command = chance.choice(state.admissible_commands)
        began = process_time()
        state, _, _ = env.step(command)
        yield state.feedback, state.admissible_commands, process_time() - began


def ours(path: Path, turns: int = TURNS) -> Iterator[tuple[str, list[str], float]]:
    """The same of ours."""
    chance = Random(str(path))
    began = process_time()
    game = open_game(path)
    node, text = game.start()
    yield text, list(node.choices.commands), process_time() - began
    for _ in range(turns):
        command = chance.choice(node.choices.commands)
        began = process_time()
        node, text = game.step(node, command)
        yield text, list(node.choices.commands), process_time() - began


def row(name: str, episodes: list[list[tuple[str, list[str], float]]]) -> None:
    resets = [episode[0][2] * 1e3 for episode in episodes]
    steps = [turn[2] * 1e3 for episode in episodes for turn in episode[1:]]
    print(f"  {name:34s} reset {mean(resets):7.2f} ms (most {max(resets):7.2f})   step {mean(steps):7.3f} ms")


def compare(title: str, paths: list[Path]) -> None:
    print(title)
    for path in paths:
        Game(read_game(path)).start()  # translated and in the cache, as it is from the second run on
    engine._library._games.clear()
    theirs = [list(stock(path)) for path in paths]
    first = [list(ours(path)) for path in paths]
    again = [list(ours(path)) for path in paths]
    for mine, yours in zip(first, theirs, strict=True):
        assert [turn[:2] for turn in mine] == [turn[:2] for turn in yours], "not what the stock engine says"
    row("stock engine", theirs)
    row("ours, every state for the first time", first)
    row("ours, an episode seen before", again)


def side_by_side(config: AlfworldConfig, group: int) -> None:
    """64 environments in this process, `group` to a game: time, memory, and what is left on disk."""
    before = set(temporary_copies())
    for seed in range(64 // group):
        games(config, "train").path(seed)
    pool, chance = ALFWORLD.make_pool(config), Random(0)
    for name in ("first", "second", "third"):
        began, turns = process_time(), 0
        observations = dict(enumerate(pool.reset([number // group for number in range(64)], "train")))
        resets = process_time() - began
        for _ in range(TURNS):
            actions = [chance.choice(seen.admissible or ("",)) for seen in observations.values()]
            outcomes = pool.step(list(observations), actions)
            turns += len(outcomes)
            following = zip(list(observations), outcomes, strict=True)
            observations = {e: outcome.observation for e, outcome in following if outcome.observation}
        seconds = process_time() - began
        print(f"  {name} time: {seconds / turns * 1e3:.3f} ms a turn ({resets / 64 * 1e3:.2f} ms a reset)")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    left = set(temporary_copies()) - before
    print(
        f"  memory of the process {memory:.0f} MB, planner libraries left in the temporary folder {len(left)}"
    )


def temporary_copies() -> Iterator[Path]:
    return Path(tempfile.gettempdir()).glob("*/libdownward.so")


def main() -> None:
    if packages := missing():
        print(f"ALFWorld is not installed ({', '.join(packages)}): nothing to measure")
        return
    with importing():
        import alfworld.agents.environment.alfred_tw_env  # noqa: F401 - outside what is timed
    full, small = configuration(**FULL), configuration()

    def files(config: AlfworldConfig, count: int) -> list[Path]:
        every = games(config, "eval")
        return [every.path(number) for number in range(count)]

    compare("full rooms, one game of each task type", files(full, 6))
    compare("small rooms (laptop), one game of each task type", files(small, 6))

    for rooms, group in (("full", 4), ("small", 1)):
        print(
            f"64 environments in a fresh process, {rooms} rooms, {group} to a game, random play", flush=True
        )
        subprocess.run([sys.executable, __file__, rooms, str(group)], check=True, cwd=ROOT)

    print("generator, this machine's one core")
    for name, config in (("full rooms", full), ("small rooms", small)):
        from envs.alfworld.generator import generate

        began = process_time()
        for number in range(6):
            generate(config.generated.model_copy(update={"seed": 10_000}), config.task_types, "train", number)
        print(f"  {name}: {(process_time() - began) / 6:.2f} s a game")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        side_by_side(configuration(**(FULL if sys.argv[1] == "full" else {})), int(sys.argv[2]))
    else:
        main()
