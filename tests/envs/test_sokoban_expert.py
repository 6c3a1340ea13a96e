"""The expert's actions and thoughts, replayed in the slow simulator."""

from __future__ import annotations

import pytest

from envs.demonstrations import demonstrate
from envs.prompts import parse
from envs.registry import load_environment
from envs.sokoban.board import ACTIONS


@pytest.fixture(scope="module")
def make(configuration):
    return lambda **changes: load_environment({**configuration("sokoban"), **changes})


TWO_BOXES = {"boxes": 2, "max_turns": 14, "max_optimal": 14, "train_levels": 60, "eval_levels": 40}


def follow(state, thought):
    """The state after the moves of a thought, checking that `push` stands exactly before pushes."""
    words = thought.split()
    while words:
        announced = words[0] == "push"
        del words[: int(announced)]
        state, pushed = state.move(words.pop(0))
        assert pushed == announced
    return state


@pytest.mark.parametrize("changes", [{}, TWO_BOXES])
def test_plays_a_shortest_solution_and_thinks_all_of_it(slow, make, changes):
    environment, config = make(**changes, thought_words=40)
    env, expert = environment.make(config), environment.expert(config)
    for seed in range(30):
        state = slow.read(env.reset(seed, {"split": "eval"})[0])
        left = state.shortest()
        terminated = False
        while not terminated:
            action = expert.action(env)
            thought = expert.thought(env, action)
            assert follow(state, thought).solved
            assert len(thought.replace("push ", "").split()) == left
            assert action in thought.split()[:2]
            text, _, terminated, _, _ = env.step(action)
            state, left = slow.read(text), left - 1
        assert left == 0


def test_after_a_wrong_action_the_plan_goes_on_from_where_it_leads(slow, make):
    environment, config = make(thought_words=60)
    env, expert = environment.make(config), environment.expert(config)
    lost = 0
    for seed in range(40):
        state = slow.read(env.reset(seed)[0])
        for action in ACTIONS:
            after, pushed = state.move(action)
            words = expert.thought(env, action).split()
            opening = ["push", action] if pushed else [action]
            assert words[: len(opening)] == opening
            rest = words[len(opening) :]
            shortest = after.shortest()
            if shortest is None:
                lost += 1
                assert rest == ["stuck"]
            else:
                assert len([word for word in rest if word != "push"]) == shortest
                assert follow(after, " ".join(rest)).solved
    assert lost


def test_a_box_that_a_wall_holds_is_not_pushed_even_in_thought(slow, make):
    environment, config = make(thought_words=2, walls=6)
    env, expert = environment.make(config), environment.expert(config)
    held = 0
    for seed in range(400):
        state = slow.read(env.reset(seed)[0])
        for action, (dy, dx) in {"up": (-1, 0), "left": (0, -1)}.items():
            y, x = state.player
            if (y + dy, x + dx) in state.boxes and (y + 2 * dy, x + 2 * dx) in state.walls:
                held += 1
                assert expert.thought(env, action).split()[0] == action
    assert held


def test_where_nothing_helps_it_says_so(slow, make):
    environment, config = make()
    env, expert = environment.make(config), environment.expert(config)
    for seed in range(200):
        text, _ = env.reset(seed)
        for action in ACTIONS:
            if slow.read(text).move(action)[0].shortest() is None:
                env.step(action)
                assert expert.action(env) is None
                assert expert.thought(env, "up") == "stuck"
                return
    pytest.fail("no level could be lost in one move")


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_thoughts_end_before_the_limit_and_never_with_a_bare_push(make, limit):
    environment, config = make(thought_words=limit)
    _, unlimited = make(thought_words=60)
    arguments = {"episodes": 30, "seed": 1, "explore": 0.3, "error": 0.3, "history": 0}
    short, full = (environment.demonstrations(c, **arguments) for c in (config, unlimited))
    for cut, whole in zip(short, full, strict=True):
        thought, complete = (parse(turn.response, None).thought.split() for turn in (cut, whole))
        assert len(thought) <= limit
        assert complete[: len(thought)] == thought
        assert thought[-1:] != ["push"]
        if len(complete) > len(thought):
            assert len(thought) == limit or complete[len(thought)] == "push"


@pytest.mark.parametrize("changes", [{}, TWO_BOXES])
def test_side_by_side_play_gives_the_same_demonstrations(make, changes):
    environment, config = make(**changes)
    arguments = {"episodes": 40, "seed": 11, "explore": 0.35, "error": 0.55, "history": 2}
    one_by_one = demonstrate(
        lambda: environment.make(config), environment.expert(config), max_turns=config.max_turns, **arguments
    )
    assert environment.demonstrations(config, **arguments) == one_by_one


def test_replies_vary_in_length(make):
    environment, config = make()
    turns = environment.demonstrations(config, episodes=400, seed=0, explore=0.35, error=0.0, history=0)
    lengths = [len(parse(turn.response, None).thought.split()) for turn in turns]
    assert min(lengths) == 1
    assert 12 <= max(lengths) <= config.thought_words
    mean = sum(lengths) / len(lengths)
    deviation = (sum((length - mean) ** 2 for length in lengths) / len(lengths)) ** 0.5
    assert deviation / mean > 0.3


def test_errors_and_exploration_happen_as_often_as_asked(slow, make):
    environment, config = make()
    turns = environment.demonstrations(config, episodes=600, seed=0, explore=0.4, error=0.8, history=1)
    optimal = []
    for turn in turns:
        state = slow.read(turn.observation.text)
        best = state.shortest()
        if best is not None and not turn.history:
            after = state.move(parse(turn.response, None).action)[0].shortest()
            optimal.append(after == best - 1)
    # a random action is an optimal one in a quarter of the cases or a bit more
    assert 0.2 + 0.8 * 0.2 < sum(optimal) / len(optimal) < 0.2 + 0.8 * 0.5
