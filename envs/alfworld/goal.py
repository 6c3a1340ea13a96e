"""What a game asks for, as its `traj_data.json` says it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

from envs.alfworld.config import TASK_TYPES, TaskType


@dataclass(frozen=True, slots=True)
class Goal:
    """The task type, and the classes of the object and of the receptacle or lamp, in lower case."""

    type: TaskType
    thing: str
    destination: str


@lru_cache(maxsize=10_000)
def read_goal(trajectory: Path) -> Goal:
    """The goal in a `traj_data.json`. Raises ValueError, with the path, for a task of no known type."""
    data = json.loads(trajectory.read_text(encoding="utf-8"))
    kind, parameters = data.get("task_type"), data.get("pddl_params", {})
    if kind not in TASK_TYPES:
        raise ValueError(f"{trajectory}: task_type {kind!r} is none of {', '.join(TASK_TYPES)}")
    target = parameters["toggle_target" if kind == "look_at_obj_in_light" else "parent_target"]
    return Goal(cast(TaskType, kind), parameters["object_target"].lower(), target.lower())
