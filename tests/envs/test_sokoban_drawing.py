"""Boards as lines, coloured tiles and pictures."""

from __future__ import annotations

import re
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from envs.registry import load_environment
from envs.sokoban.drawing import TILE
from envs.sokoban.environment import SOKOBAN


@pytest.fixture
def env(configuration):
    environment, config = load_environment(configuration("sokoban"))
    env = environment.make(config)
    yield env
    env.close()


def test_lines_are_the_observation_with_its_border(env):
    for seed in range(20):
        text, _ = env.reset(seed)
        rows = [row.split() for row in env.render().splitlines()]
        assert [row[1:-1] for row in rows[1:-1]] == [row.split() for row in text.split(" / ")]
        border = [*rows[0], *rows[-1], *(row[0] for row in rows), *(row[-1] for row in rows)]
        assert set(border) == {"#"}


def test_colours_draw_the_same_board_in_two_columns_a_cell(env):
    tiles = {"#": "  ", "_": "  ", "O": "()", "X": "[]", "√": "[]", "P": "@@", "S": "@@"}
    for seed in range(20):
        env.reset(seed)
        plain = [row.split() for row in env.render().splitlines()]
        colored = env.render(colors=True).splitlines()
        assert all(line.endswith("\x1b[0m") for line in colored)
        bare = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in colored]
        assert bare == ["".join(tiles[symbol] for symbol in row) for row in plain]


def tiles_of(env):
    """The pixels of every cell of the picture, by its place."""
    image = Image.open(BytesIO(env.render_png()))
    assert image.format == "PNG"
    pixels = np.asarray(image.convert("RGB"))
    side = pixels.shape[0] // TILE
    assert pixels.shape == (side * TILE, side * TILE, 3)
    return {
        (y, x): pixels[y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE].tobytes()
        for y in range(side)
        for x in range(side)
    }


def test_pictures_show_every_symbol_in_one_way_and_no_two_alike(env):
    looks, expert = {}, SOKOBAN.expert(env.config)
    for seed in range(24):
        env.reset(seed)
        over = False
        for turn in range(env.config.max_turns + 1):
            rows = [row.split() for row in env.render().splitlines()]
            for (y, x), tile in tiles_of(env).items():
                looks.setdefault(rows[y][x], set()).add(tile)
            if over:
                break
            wander = ("up", "left", "down", "right")[(seed // 2 + turn) % 4]
            over = any(env.step(expert.action(env) or wander if seed % 2 else wander)[2:4])
    assert set(looks) == set("#_OX√PS")
    assert all(len(tiles) == 1 for tiles in looks.values())
    assert len(set.union(*looks.values())) == 7


def test_before_an_episode_there_is_nothing_to_draw(env):
    assert env.render() is None
    assert env.render_png() is None


def test_environments_that_draw_nothing_say_so(configuration):
    environment, config = load_environment(configuration("webshop"))
    env = environment.make(config)
    env.reset(0)
    assert env.render() is env.render(colors=True) is env.render_png() is None
