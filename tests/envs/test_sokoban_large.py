"""Rooms too large to search all their states, and levels from files, against the slow simulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from envs.baselines import ExpertPolicy, evaluate
from envs.prompts import parse
from envs.registry import load_environment
from envs.sokoban.board import ACTIONS, BoardText
from envs.sokoban.level_files import LevelFileError, parse_levels
from envs.sokoban.levels import levels
from envs.sokoban.search import is_small
from envs.sokoban.search_planner import SearchPlanner
from envs.sokoban.solver import solve

BOXOBAN = """; 0
######
#@ $.#
#    #
# $. #
#    #
######

; 1
######
#.$  #
# ## #
#  *@#
#    #
######
"""
SYMBOLS = {"#": "#", "_": " ", "X": "$", "O": ".", "√": "*", "P": "@", "S": "+", "/": "\n"}
LARGE = {
    "size": 6,
    "boxes": 3,
    "walls": 8,
    "max_turns": 40,
    "max_optimal": 30,
    "min_optimal": 8,
    "train_levels": 6,
    "eval_levels": 4,
    "thought_words": 120,
}


@pytest.fixture(scope="module")
def make(configuration):
    return lambda **changes: load_environment({**configuration("sokoban"), **changes})


@st.composite
def boards(draw):
    """The text of a room of 2 to 4 cells a side, with up to two boxes."""
    size = draw(st.integers(2, 4))
    order = draw(st.permutations(range(size * size)))
    count = draw(st.integers(1, 2))
    walls = draw(st.integers(0, size * size - 2 * count - 1)) if size > 2 else 0
    assume(size * size >= 2 * count + 1)
    symbols = ["_"] * (size * size)
    marks = "P" + "X" * count + "O" * count + "#" * walls
    for place, symbol in zip(order, marks, strict=False):
        symbols[place] = symbol
    return " / ".join(" ".join(symbols[row * size : (row + 1) * size]) for row in range(size))


def as_boxoban(text):
    """A board's text without a border as a level of a file."""
    rows = ["".join(SYMBOLS[symbol] for symbol in row.split()) for row in text.split(" / ")]
    side = len(rows) + 2
    return "\n".join(["; 7", "#" * side, *(f"#{row}#" for row in rows), "#" * side]) + "\n"


def arrays(text):
    """Cells and player of a board's text."""
    size = text.count("/") + 1
    ((cells, player),) = parse_levels(as_boxoban(text), "made up", size=size, boxes=text.count("X"))
    return cells, player, size


@given(boards())
@settings(max_examples=150, deadline=None)
def test_solutions_are_as_short_as_those_of_breadth_first_search(slow, text):
    state = slow.read(text)
    assume(not state.solved)
    solution, shortest = solve(*arrays(text)), state.shortest()
    assert (solution is None) == (shortest is None)
    if solution is None:
        return
    assert len(solution) == shortest
    for action in solution:
        assert not state.solved
        state, _ = state.move(ACTIONS[action])
    assert state.solved
    assert solve(*arrays(text), longest=shortest) == solution
    assert solve(*arrays(text), longest=shortest - 1) is None


def test_single_states_are_planned_as_whole_rooms_are(slow, make):
    changes = {"boxes": 2, "max_turns": 14, "max_optimal": 14, "train_levels": 30, "eval_levels": 20}
    environment, config = make(**changes, thought_words=99)
    env, expert = environment.make(config), environment.expert(config)
    every = levels(config, "eval")
    single = SearchPlanner(every, config.size, 99)
    states = single.states(every.boards)
    numbers = np.arange(len(every))
    for first in range(len(ACTIONS)):
        thoughts = single.thoughts(numbers, states, np.full(len(every), first))
        for seed, thought in enumerate(thoughts):
            env.reset(seed, {"split": "eval"})
            expected = expert.thought(env, ACTIONS[first])
            moves, known = (text.replace("push ", "").split() for text in (thought, expected))
            assert len(moves) == len(known)
            assert moves[0] == known[0] == ACTIONS[first]
            assert (moves[-1] == "stuck") == (known[-1] == "stuck")
    assert single.best(numbers, states).shape == (len(every),)


def test_large_rooms_are_generated_solved_and_demonstrated(slow, make):
    environment, config = make(**LARGE)
    assert not is_small(config.size, config.boxes)
    for split in ("train", "eval"):
        found = levels(config, split)
        assert config.min_optimal <= found.optimal.min() <= found.optimal.max() <= config.max_optimal
    score = evaluate(environment, config, ExpertPolicy(environment.expert(config)), episodes=4, split="eval")
    assert score.success == 1.0
    assert score.turns == levels(config, "eval").optimal.mean()
    demonstrations = environment.demonstrations(config, episodes=3, seed=0, explore=0.2, error=0.2, history=1)
    for turn in demonstrations:
        parsed = parse(turn.response, turn.observation.admissible)
        assert parsed.rejection is None
        state = slow.read(turn.observation.text)
        words = parsed.thought.split()
        while words and words[0] != "stuck":
            announced = words.pop(0) == "push" if words[0] == "push" else False
            state, pushed = state.move(words.pop(0))
            assert pushed == announced
        assert words == ["stuck"] or state.solved


def test_files_are_read_as_they_are_drawn(slow, make, tmp_path):
    (tmp_path / "levels.txt").write_text(BOXOBAN)
    environment, config = make(levels_path=str(tmp_path / "levels.txt"), boxes=2)
    assert environment.problems(config) == []
    write = BoardText(4, border=False)
    texts = {text for split in ("train", "eval") for text in write(levels(config, split).boards)}
    assert texts == {"P _ X O / _ _ _ _ / _ X O _ / _ _ _ _", "O X _ _ / _ # # _ / _ _ √ P / _ _ _ _"}
    score = evaluate(environment, config, ExpertPolicy(environment.expert(config)), episodes=1, split="eval")
    assert score.success == 1.0


def drawn(make, count, seed):
    """Different levels with one box in the format of files."""
    _, config = make(train_levels=count, eval_levels=10, level_seed=seed)
    return [as_boxoban(text) for text in BoardText(4, border=False)(levels(config, "train").boards)]


def test_a_file_is_split_into_levels_to_train_on_and_others(make, tmp_path):
    made = drawn(make, 60, 0)
    (tmp_path / "a.txt").write_text("".join(made))
    (tmp_path / "b.txt").write_text("".join(made[:30]))  # the same once more
    _, config = make(levels_path=str(tmp_path), train_levels=40, eval_levels=15)
    write = BoardText(4, border=False)
    train, evaluation = (write(levels(config, split).boards) for split in ("train", "eval"))
    assert (len(train), len(evaluation)) == (40, 15)
    assert not set(train) & set(evaluation)
    assert {as_boxoban(text) for text in (*train, *evaluation)} <= set(made)
    # more to train on leaves the evaluation alone, and asking for half of all is the most
    _, more = make(levels_path=str(tmp_path), train_levels=45, eval_levels=15)
    assert write(levels(more, "eval").boards) == evaluation
    _, most = make(levels_path=str(tmp_path), train_levels=99, eval_levels=99)
    assert [len(levels(most, split)) for split in ("train", "eval")] == [30, 30]


def test_folders_for_training_and_evaluation_are_kept_apart(make, tmp_path):
    made = drawn(make, 30, 0)
    for folder, part in (("train", made[:20]), ("valid", made[15:])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "000.txt").write_text("".join(part))
    _, config = make(levels_path=str(tmp_path), train_levels=99, eval_levels=99)
    write = BoardText(4, border=False)
    train, evaluation = (write(levels(config, split).boards) for split in ("train", "eval"))
    assert [as_boxoban(text) for text in evaluation] == made[15:]
    assert [as_boxoban(text) for text in train] == made[:15]


def test_other_files_are_other_data(make, tmp_path):
    path = tmp_path / "levels.txt"
    path.write_text(BOXOBAN)
    environment, _ = make(levels_path=str(path), boxes=2)
    copy = tmp_path / "copy" / "levels.txt"
    copy.parent.mkdir()
    copy.write_text(BOXOBAN)
    other = tmp_path / "other.txt"
    other.write_text(BOXOBAN + BOXOBAN)
    ids = {
        name: environment.data_id(make(levels_path=str(name), boxes=2)[1])
        for name in (path, copy, other, tmp_path / "none")
    }
    assert ids[path] == ids[copy]
    assert len({*ids.values(), environment.data_id(make()[1])}) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOXOBAN.replace("#@ $.#", "#@ $.##"), "levels.txt:2: a board of 6 rows and up to 7 columns"),
        (BOXOBAN.replace("######\n\n", "\n"), "levels.txt:2: a board of 5 rows"),
        (BOXOBAN.replace("*@#", "*@ "), "levels.txt:10: "),
        (BOXOBAN.replace("#@ $.#", "#@ $?#"), r"levels.txt:2: unknown symbol '\?'"),
        (BOXOBAN.replace("#@ $.#", "#  $.#"), "0 players, 2 boxes and 2 targets"),
        (BOXOBAN.replace("#@ $.#", "#@  .#"), "1 players, 1 boxes and 2 targets; expected one player and 2"),
        (BOXOBAN.replace("#.$  #", "#.$$ #"), "levels.txt:10: 1 players, 3 boxes"),
        (BOXOBAN.replace("$.", "* "), "every box is on a target already"),
        ("", "has 0 levels"),
    ],
)
def test_files_that_hold_something_else_are_refused_with_the_place(make, tmp_path, text, message):
    path = tmp_path / "levels.txt"
    path.write_text(text)
    environment, config = make(levels_path=str(path), boxes=2)
    with pytest.raises(LevelFileError, match=message):
        levels(config, "train")
    assert environment.problems(config)


def test_no_files_are_a_problem_with_a_name(make, tmp_path):
    environment, config = make(levels_path=str(tmp_path), boxes=2)
    assert environment.problems(config) == [f"levels_path: no level files (*.txt) in {Path(tmp_path)}"]
