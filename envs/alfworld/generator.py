"""New household games in the official file layout.

A game is a room, a task and where things lie, drawn from a seed; it is kept when its shortest way to win is
within bounds, and that way is played in the engine before the game is written. A game of `valid_seen` is
the task of a training game with everything put elsewhere; those of `valid_unseen` are in rooms that
training never enters.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from envs.alfworld.config import GeneratorConfig, TaskType
from envs.alfworld.engine import Game
from envs.alfworld.goal import Goal
from envs.alfworld.household import (
    LAMP,
    LAMP_STANDS,
    OPENABLE,
    Receptacle,
    Room,
    Target,
    contents,
    identifier,
    middle,
    random_key,
    rooms,
    targets,
)
from envs.alfworld.package import constants, domain, goals, grammar
from envs.alfworld.planning import Situation, Step, shortest_way

GENERATOR = "household-1"
"""Names the algorithm below; to be raised whenever the same seed would give another game."""

Folder = Literal["train", "valid_seen", "valid_unseen"]
"""The official names of the splits."""

_TRIES = 300
_MOST_OF_A_CLASS = 3
_CONSTANT_THINGS = ("ButterKnife", "Knife")
_CONSTANT_RECEPTACLES = ("Fridge", "Microwave", "SinkBasin")
"""Classes that the rules of the world name."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be done, and where."""

    type: TaskType
    room: Room
    target: Target

    @property
    def name(self) -> str:
        """As official folders are called: type, object, movable receptacle, receptacle, floor plan."""
        return f"{self.type}-{self.target.thing}-None-{self.target.destination}-{self.room.number}"

    @property
    def goal(self) -> Goal:
        """The same for the planner."""
        return Goal(self.type, self.target.thing.lower(), self.target.destination.lower())


@dataclass(frozen=True, slots=True)
class _Thing:
    """Something that can be carried (or a lamp), and what it lies in."""

    key: str
    kind: str
    place: Receptacle


@dataclass(frozen=True, slots=True)
class MadeGame:
    """A game as files: `folder` under that of the split, and the contents of the files in it."""

    task: Task
    folder: str
    files: dict[str, bytes]
    walkthrough: tuple[str, ...]


def generate(
    config: GeneratorConfig, task_types: tuple[TaskType, ...], split: Folder, index: int
) -> MadeGame:
    """Game `index` of a split, the same whenever it is asked for.

    Raises ValueError when no game of the kind was found within the bounds.
    """
    task_type = task_types[index % len(task_types)]
    known = None
    if split == "valid_seen":
        known = generate(config, task_types, "train", index % config.train_games).task
        task_type = known.type
    possible = rooms(
        task_type,
        unseen=split == "valid_unseen",
        receptacles=config.receptacles,
        seed=config.seed,
        furnishings=config.furnishings,
    )
    if not possible:
        raise ValueError(f"no room has place for {task_type}: raise generated.receptacles")
    for attempt in range(_TRIES):
        chance = random.Random(f"game {config.seed} {split} {index} {attempt}")
        task = known or _draw_task(task_type, possible, chance)
        things = _place(task, config, chance)
        if things is None:
            continue
        way = shortest_way(task.goal, _situation(task, things, config))
        if way is None or not config.shortest <= len(way) <= config.longest:
            continue
        data, description = _write_game(task, things, config, chance)
        walkthrough = _play(data, way)
        data = {**data, "solvable": True, "walkthrough": list(walkthrough)}
        files = {
            "game.tw-pddl": json.dumps(data).encode(),
            "traj_data.json": json.dumps(_trajectory(task, description, split, index), indent=1).encode(),
            "initial_state.pddl": data["pddl_problem"].encode(),
        }
        return MadeGame(task, f"{task.name}/{_trial(split, index)}", files, walkthrough)
    raise ValueError(
        f"no game of {task_type} with {config.shortest} to {config.longest} turns was found in {_TRIES} "
        "tries: widen generated.shortest and generated.longest"
    )


def _draw_task(task_type: TaskType, possible: tuple[Room, ...], chance: random.Random) -> Task:
    room = chance.choice(possible)
    return Task(task_type, room, chance.choice(targets(room, task_type)))


def _place(task: Task, config: GeneratorConfig, chance: random.Random) -> list[_Thing] | None:
    """Where things lie; None when the room has no place for as many as there should be.

    What the task is about is never at its destination, so that nothing is done at the start.
    """
    room, target = task.room, task.target
    things: list[_Thing] = []
    count: Counter[str] = Counter()

    def put(kind: str) -> None:
        places = [
            place for place in room.places(kind) if kind != target.thing or place.kind != target.destination
        ]
        if places and count[kind] < _MOST_OF_A_CLASS:
            things.append(_Thing(random_key(kind, chance), kind, chance.choice(places)))
            count[kind] += 1

    for _ in range(2 if task.type == "pick_two_obj_and_place" else 1):
        put(target.thing)
    wanted = max(len(things), chance.randint(*config.objects))
    kinds = [kind for kind in room.objects if room.places(kind)]
    for _ in range(20 * wanted):
        if len(things) == wanted:
            break
        put(chance.choice(kinds))
    if len(things) < wanted:
        return None
    if task.type == "look_at_obj_in_light":
        stands = [place for place in room.receptacles if place.kind in LAMP_STANDS]
        things.append(_Thing(random_key(LAMP, chance), LAMP, chance.choice(stands)))
    return things


def _write_game(
    task: Task, things: list[_Thing], config: GeneratorConfig, chance: random.Random
) -> tuple[dict[str, Any], str]:
    """What the game file holds, and the goal in words."""
    goal = goals().gdict[task.type]
    light = task.type == "look_at_obj_in_light"
    parts = {
        "obj": task.target.thing,
        "recep": "" if light else task.target.destination,
        "toggle": LAMP if light else "",
        "mrecep": "",
    }
    description = chance.choice(goal["templates"]).format(
        **{key: part.lower() for key, part in parts.items()}
    )
    lines = [
        "(define (problem household)",
        "(:domain alfred)",
        "(:objects",
        *_objects(task.room, things),
        ")",
    ]
    lines += ["(:init", *_facts(task.room, things, config), ")"]
    problem = "\n".join(lines) + goal["pddl"].replace("#", "-").format(**parts)
    return {
        "pddl_domain": domain(),
        "grammar": grammar().replace("UNKNOWN GOAL", description),
        "pddl_problem": problem,
    }, description


def _objects(room: Room, things: list[_Thing]) -> Iterator[str]:
    yield "agent1 - agent"
    for kind in sorted({thing.kind for thing in things} | set(_CONSTANT_THINGS)):
        yield f"{kind}Type - otype"
    for kind in sorted(set(room.kinds) | set(_CONSTANT_RECEPTACLES)):
        yield f"{kind}Type - rtype"
    for thing in things:
        yield f"{identifier(thing.key)} - object"
    for receptacle in room.receptacles:
        yield f"{receptacle.identifier} - receptacle"
    for location in sorted({middle(room), *(receptacle.location for receptacle in room.receptacles)}):
        yield f"{location} - location"


def _facts(room: Room, things: list[_Thing], config: GeneratorConfig) -> Iterator[str]:
    affordances = {
        fact: constants().VAL_ACTION_OBJECTS[table]
        for fact, table in (
            ("cleanable", "Cleanable"),
            ("heatable", "Heatable"),
            ("coolable", "Coolable"),
            ("toggleable", "Toggleable"),
            ("sliceable", "Sliceable"),
        )
    }
    movable = set(constants().MOVABLE_RECEPTACLES)
    yield "(= (total-cost) 0)"
    yield f"(atLocation agent1 {middle(room)})"
    for receptacle in room.receptacles:
        yield f"(receptacleType {receptacle.identifier} {receptacle.kind}Type)"
        yield f"(receptacleAtLocation {receptacle.identifier} {receptacle.location})"
        if config.closed and receptacle.kind in OPENABLE:
            yield f"(openable {receptacle.identifier})"
    for kind in room.kinds:
        for inside in sorted(contents(kind) & {thing.kind for thing in things}):
            yield f"(canContain {kind}Type {inside}Type)"
    for thing in things:
        name, place = identifier(thing.key), thing.place
        yield f"(objectType {name} {thing.kind}Type)"
        if thing.kind != LAMP:
            yield f"(pickupable {name})"
        if thing.kind in movable:
            yield f"(isReceptacleObject {name})"
        for fact, kinds in affordances.items():
            if thing.kind in kinds:
                yield f"({fact} {name})"
        yield f"(inReceptacle {name} {place.identifier})"
        yield f"(wasInReceptacle {name} {place.identifier})"
        yield f"(objectAtLocation {name} {place.location})"


def _situation(task: Task, things: list[_Thing], config: GeneratorConfig) -> Situation:
    """The game's start, for looking for a way before anything is translated; the engine has no capitals."""
    room = task.room
    fixed = {receptacle.identifier.lower(): receptacle for receptacle in room.receptacles}
    loose = {identifier(thing.key).lower(): thing for thing in things}
    return Situation(
        at=middle(room),
        place={name: receptacle.location for name, receptacle in fixed.items()},
        inside={name: thing.place.identifier.lower() for name, thing in loose.items()},
        kinds={name: each.kind.lower() for name, each in fixed.items()}
        | {name: thing.kind.lower() for name, thing in loose.items()},
        closed=frozenset(name for name, each in fixed.items() if config.closed and each.kind in OPENABLE),
        held=None,
        true=frozenset(),
        fits=frozenset((kind.lower(), thing.lower()) for kind in room.kinds for thing in contents(kind)),
    )


def _play(data: dict[str, Any], way: list[Step]) -> tuple[str, ...]:
    """The commands of a way, which the engine must find to win."""
    game = Game(data)
    node, _ = game.start()
    commands: list[str] = []
    for step in way:
        command = game.command(node, *step)
        if command is None:
            raise ValueError(f"the engine does not admit {step} after {commands} in {data['pddl_problem']}")
        commands.append(command)
        node, _ = game.step(node, command)
    if not node.won:
        raise ValueError(f"the game is not won by {commands}: {data['pddl_problem']}")
    return tuple(commands)


def _trial(split: Folder, index: int) -> str:
    return f"trial_G{split.removeprefix('valid_')}_{index:06d}"


def _trajectory(task: Task, description: str, split: Folder, index: int) -> dict[str, Any]:
    """The part of `traj_data.json` that says what the task is (there are no pictures to go with it)."""
    light = task.type == "look_at_obj_in_light"
    return {
        "task_id": _trial(split, index),
        "task_type": task.type,
        "pddl_params": {
            "object_target": task.target.thing,
            "parent_target": "" if light else task.target.destination,
            "toggle_target": LAMP if light else "",
            "mrecep_target": "",
            "object_sliced": False,
        },
        "scene": {"floor_plan": f"FloorPlan{task.room.number}", "scene_num": task.room.number},
        "turk_annotations": {"anns": [{"task_desc": description, "high_descs": []}]},
    }
