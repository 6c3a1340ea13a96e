"""The shortest ways of the six tasks against the planner library's, from wherever chance leads."""

from __future__ import annotations

import random

import pytest

from envs.alfworld.engine import open_game
from envs.alfworld.goal import read_goal
from envs.alfworld.planning import Situation, shortest_way


def ways_from(path, chance, turns):
    """Ours and the library's way from states along a random walk that ends where the game is won."""
    game, goal = open_game(path), read_goal(path.parent / "traj_data.json")
    node, _ = game.start()
    for _ in range(turns):
        if node.won:
            return
        yield game, node, shortest_way(goal, Situation.of(game.facts(node))), game.plan(node)
        useful = [command for command in node.choices.commands if command.split()[0] not in ("look", "help")]
        node, _ = game.step(node, chance.choice(useful))


def follow(game, node, steps):
    for step in steps:
        command = game.command(node, *step)
        assert command is not None, step
        node, _ = game.step(node, command)
    return node


@pytest.mark.parametrize("number", range(6))
def test_no_way_is_shorter_and_each_leads_to_the_goal(six_games, number):
    seen = 0
    for seed in range(3):
        for game, node, ours, library in ways_from(six_games[number], random.Random(seed), 40):
            assert len(ours) == len(library), (ours, library)
            assert follow(game, node, ours).won
            seen += 1
    assert seen > 40


@pytest.mark.parametrize("number", range(6))
def test_where_the_goal_is_reached_nothing_is_left_to_do(six_games, number):
    path = six_games[number]
    game, goal = open_game(path), read_goal(path.parent / "traj_data.json")
    node, _ = game.start()
    while not node.won:
        node, _ = game.step(node, game.noted(node))
    assert shortest_way(goal, Situation.of(game.facts(node))) == []
