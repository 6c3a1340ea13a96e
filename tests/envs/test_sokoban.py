"""Sokoban against a slow and simple second implementation (conftest.SlowSokoban)."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from envs.registry import load_environment
from envs.sokoban.board import ACTIONS, BOX, STAY, TARGET, WALL, BoardText, boards_from, move
from envs.sokoban.config import SokobanConfig
from envs.sokoban.levels import levels
from envs.sokoban.search import UNSOLVABLE, StateSpace


@pytest.fixture(scope="module")
def make_config(configuration):
    return lambda **changes: SokobanConfig(**{**configuration("sokoban"), **changes})


@st.composite
def rooms(draw, max_size=5, max_boxes=3):
    """Size, walls, targets, boxes and player: any arrangement that the rules allow, solved ones too."""
    size = draw(st.integers(2, max_size))
    order = draw(st.permutations(range(size * size)))
    walls = draw(st.integers(0, size * size - 2))
    free = order[walls:]
    boxes = draw(st.integers(1, min(max_boxes, len(free) - 1)))
    targets = draw(st.permutations(free))[:boxes]
    return size, order[:walls], targets, free[:boxes], free[-1]


def batch(rooms_of_one_size):
    """The rooms as `Boards`."""
    size = rooms_of_one_size[0][0]
    cells = np.zeros((len(rooms_of_one_size), size * size + 1), np.uint8)
    cells[:, -1] = WALL
    for row, (_, walls, targets, boxes, _) in zip(cells, rooms_of_one_size, strict=True):
        row[list(walls)] |= WALL
        row[list(targets)] |= TARGET
        row[list(boxes)] |= BOX
    return boards_from(cells, np.array([room[-1] for room in rooms_of_one_size]))


def state_of(slow, room):
    size, *places = room
    walls, targets, boxes = (frozenset(divmod(cell, size) for cell in cells) for cells in places[:3])
    return slow(size, walls, targets, boxes, divmod(room[-1], size))


@given(room=rooms(), actions=st.lists(st.integers(0, STAY), min_size=1, max_size=30))
@settings(max_examples=200, deadline=None)
def test_moves_are_those_of_the_slow_simulator(slow, room, actions):
    size, write = room[0], BoardText(room[0], border=False)
    boards, state = batch([room]), state_of(slow, room)
    assert write(boards) == [state.write()]
    for action in actions:
        after, _ = state.move((*ACTIONS, "")[action])
        change = move(boards, np.array([0]), np.array([action]), size)
        assert write(boards) == [after.write()]
        assert change == [after.placed - state.placed]
        assert boards.on_target == [after.placed]
        state = after


@given(st.lists(rooms(max_size=3), min_size=2, max_size=6), st.randoms())
@settings(max_examples=50, deadline=None)
def test_boards_of_a_batch_do_not_touch_each_other(slow, drawn, random):
    alike = [room for room in drawn if room[0] == drawn[0][0]]
    boards, states = batch(alike), [state_of(slow, room) for room in alike]
    write = BoardText(alike[0][0], border=False)
    for _ in range(8):
        chosen = random.sample(range(len(alike)), random.randint(1, len(alike)))
        actions = [random.randrange(4) for _ in chosen]
        move(boards, np.array(chosen), np.array(actions), alike[0][0])
        for index, action in zip(chosen, actions, strict=True):
            states[index] = states[index].move(ACTIONS[action])[0]
        assert write(boards) == [state.write() for state in states]


@given(rooms(max_size=3, max_boxes=2))
@settings(max_examples=60, deadline=None)
def test_distances_are_those_of_breadth_first_search(slow, room):
    boards, state = batch([room]), state_of(slow, room)
    space = StateSpace(room[0], len(room[3]))
    distance = space.distances(boards.cells)[space.index(boards.cells, boards.player), 0]
    shortest = state.shortest()
    assert distance == (UNSOLVABLE if shortest is None else shortest)


def test_text_with_a_border_is_the_usual_picture(slow):
    room = (2, [1], [2], [2], 0)
    assert BoardText(2, border=False)(batch([room])) == ["P # / √ _"]
    assert BoardText(2, border=True)(batch([room])) == ["# # # # / # P # # / # √ _ # / # # # #"]


@pytest.mark.parametrize(
    "changes", [{}, {"boxes": 2, "max_turns": 14, "max_optimal": 14, "train_levels": 60, "eval_levels": 40}]
)
def test_levels_have_shortest_solutions_in_the_range(slow, make_config, changes):
    config = make_config(**changes)
    for split in ("train", "eval"):
        found = levels(config, split)
        texts = BoardText(config.size, border=False)(found.boards)
        lengths = [slow.read(text).shortest() for text in texts[:40]]
        assert found.optimal[:40].tolist() == lengths
        assert config.min_optimal <= found.optimal.min()
        assert found.optimal.max() <= config.max_optimal


def test_every_level_is_another_board_in_both_splits(make_config):
    config = make_config()
    write = BoardText(config.size, border=False)
    train, evaluation = (write(levels(config, split).boards) for split in ("train", "eval"))
    assert len(set(train)) == len(train) == config.train_levels
    assert len(set(evaluation)) == len(evaluation) == config.eval_levels
    assert not set(train) & set(evaluation)


def test_levels_of_a_seed_never_change(make_config):
    # other numbers here mean that old results cannot be reproduced: raise GENERATOR
    write = BoardText(4, border=False)
    config = make_config(train_levels=500, eval_levels=200)
    prints = [
        zlib.crc32("\n".join(write(levels(config, split).boards)).encode()) for split in ("train", "eval")
    ]
    assert prints == [1569975206, 2248848390]


def test_other_numbers_of_train_levels_leave_the_evaluation_alone(make_config):
    few, many = (levels(make_config(train_levels=count), "eval").boards for count in (50, 900))
    assert (few.cells == many.cells).all()
    other = levels(make_config(level_seed=1), "eval").boards
    assert (few.cells != other.cells).any()


def test_asking_for_more_levels_than_there_are_says_how_many_were_found(make_config):
    config = make_config(size=2, walls=0, max_optimal=3, min_optimal=1, eval_levels=500)
    with pytest.raises(ValueError, match=r"only \d+ of 500 different levels .* fewer levels"):
        levels(config, "eval")
    environment, checked = load_environment(config.model_dump())
    assert "fewer levels" in environment.problems(checked)[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"walls": 14}, "need 17 cells"),
        ({"min_optimal": 8}, "exceeds max_optimal"),
        ({"max_turns": 6}, "exceeds max_turns"),
        ({"size": 15}, "size"),
        ({"speed": 3}, "speed"),
        ({"rewards": {"step": 0}}, r"rewards\.box_on"),
    ],
)
def test_impossible_parameters_are_refused(make_config, changes, message):
    with pytest.raises(ValidationError, match=message):
        make_config(**changes)


def test_rewards_follow_the_boxes(slow, make_config):
    config = make_config(
        boxes=2,
        max_turns=60,
        max_optimal=14,
        train_levels=60,
        eval_levels=40,
        rewards={"step": -0.25, "box_on": 2.0, "box_off": -3.0, "solved": 20.0},
    )
    environment, _ = load_environment(config.model_dump())
    env, random = environment.make(config), np.random.default_rng(0)
    seen = set()
    for seed in range(60):
        state = slow.read(env.reset(seed)[0])
        over = False
        while not over:
            action = ACTIONS[random.integers(4)]
            after, _ = state.move(action)
            text, reward, terminated, truncated, info = env.step(action)
            assert text == info["anchor"] == after.write()
            change = after.placed - state.placed
            assert reward == -0.25 + {1: 2.0, 0: 0.0, -1: -3.0}[change] + 20.0 * after.solved
            assert terminated == info["success"] == after.solved
            seen.add((change, after.solved))
            state, over = after, terminated or truncated
    assert {(0, False), (1, False), (-1, False), (1, True)} == seen
