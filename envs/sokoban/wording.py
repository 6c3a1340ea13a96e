"""The words of thoughts: a plan of moves."""

from envs.sokoban.board import ACTIONS

PUSH, STUCK = "push", "stuck"
"""The next move pushes a box; the solution is out of reach."""

THOUGHT_WORDS = (*ACTIONS, PUSH, STUCK)
