"""The planner library that moves the world: one copy per process, shared by all games.

The stock engine copies the library (34 MB) to the temporary folder for every environment, because a loaded
library holds one task. The task's states have numbers, though, and can be returned to: so one copy, loaded
from where it is installed, serves any number of episodes (`envs.alfworld.engine`), and nothing is left on
disk.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import RLock
from typing import Any

LOCK = RLock()
"""Held by whoever uses the library: it has one current state for the whole process."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A ground action: `name` is that of the action and its arguments, `effects` how many facts it sets."""

    index: int
    name: str
    effects: int


class Downward:
    """The library's task and current state. Every call expects `LOCK` to be held."""

    def __init__(self) -> None:
        from fast_downward import interface

        self._interface = interface
        library = ctypes.CDLL(str(interface.DOWNWARD_LIB_PATH))
        for name, arguments, result in (
            ("load_sas", [ctypes.c_char_p], None),
            ("load_sas_replan", [ctypes.c_char_p], None),
            ("get_applicable_operators_count", [], ctypes.c_int),
            ("get_applicable_operators", [ctypes.c_void_p], None),
            ("get_state_size", [], ctypes.c_int),
            ("get_state", [ctypes.c_void_p], None),
            ("get_state_id", [], ctypes.c_int),
            ("set_state_id", [ctypes.c_int], None),
            ("apply_operator", [ctypes.c_int, ctypes.c_void_p], ctypes.c_int),
            ("check_goal", [], ctypes.c_bool),
            ("replan", [ctypes.c_bool], ctypes.c_bool),
            ("get_last_plan_length", [], ctypes.c_int),
            ("get_last_plan", [ctypes.c_void_p], None),
        ):
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, result
        self._library = library

    def load(self, task: str) -> None:
        """Make this SAS task the current one, in its initial state."""
        self._library.load_sas(task.encode())

    def applicable(self) -> list[Operator]:
        """The operators that can be applied now, in the library's order."""
        count = self._library.get_applicable_operators_count()
        return self._operators(count, self._library.get_applicable_operators)

    def apply(self, index: int) -> None:
        """Apply an operator to the current state."""
        self._library.apply_operator(index, None)

    def effects(self, operator: Operator) -> list[str]:
        """Apply an operator, and list the atoms it sets, those of conditional effects included."""
        atoms = (self._interface.Atom * operator.effects)()
        self._library.apply_operator(operator.index, atoms)
        return [atom.name for atom in atoms]

    def atoms(self) -> list[str]:
        """The current state: every variable's atom, negated where it is false."""
        atoms = (self._interface.Atom * self._library.get_state_size())()
        self._library.get_state(atoms)
        return [atom.name for atom in atoms]

    @property
    def state(self) -> int:
        """The number of the current state; good until the next `load`."""
        return int(self._library.get_state_id())

    @state.setter
    def state(self, number: int) -> None:
        self._library.set_state_id(number)

    def goal_reached(self) -> bool:
        """Whether the current state is a goal."""
        return bool(self._library.check_goal())

    def plan(self, task: str) -> list[str] | None:
        """A cheapest plan from the current state, for an optimised form of the task; None: there is none."""
        self._library.load_sas_replan(task.encode())
        if not self._library.replan(False):
            return None
        operators = self._operators(self._library.get_last_plan_length(), self._library.get_last_plan)
        return [operator.name for operator in operators]

    def _operators(self, count: int, fill: Any) -> list[Operator]:
        operators = (self._interface.Operator * count)()
        fill(operators)
        return [Operator(found.id, found.name, found.nb_effect_atoms) for found in operators]


@lru_cache(maxsize=1)
def downward() -> Downward:
    """This process's copy. Raises ModuleNotFoundError when the planner is not installed."""
    return Downward()


def translate(domain: str, problem: str, *, optimised: bool = False) -> tuple[Any, str]:
    """The planner's own translation from PDDL: its task object, and the SAS text.

    optimised: without what cannot matter for a plan. Then states cannot be told apart as the game does.
    """
    import fast_downward

    arguments: Sequence[str] = sys.argv
    try:  # the translator takes its options from sys.argv, and replaces it
        task, sas = fast_downward.pddl2sas(domain, problem, optimize=optimised)
    finally:
        sys.argv = list(arguments)
    return task, sas
