"""Rooms as the package's floor plans furnish them, and what may be where in them.

The 120 floor plans name the objects of a room and the receptacles that have a place to stand before;
receptacles without one (stove burners, coffee machine, holders) get a place of our own. Which rooms are
trained in is the package's own division: those of the unseen split are never in the others.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from envs.alfworld.config import TaskType
from envs.alfworld.package import constants, folder

_SIGNS = {"|": "_bar_", "-": "_minus_", "+": "_plus_", ".": "_dot_"}

_NO_PLACE = {
    "CoffeeMachine": 1, "Toaster": 1, "StoveBurner": 4, "GarbageCan": 1, "Toilet": 1, "SinkBasin": 1,
    "TowelHolder": 1, "HandTowelHolder": 1, "ToiletPaperHanger": 1, "LaundryHamper": 1, "Ottoman": 1,
    "Safe": 1, "Shelf": 1, "Drawer": 2, "Cabinet": 2,
}  # fmt: skip
"""How many of a receptacle there are when the floor plan names it without a place."""

APPLIANCES = {
    "pick_clean_then_place_in_recep": "SinkBasin",
    "pick_heat_then_place_in_recep": "Microwave",
    "pick_cool_then_place_in_recep": "Fridge",
}
"""Where an object is treated; its affordance is in `AFFORDANCES`."""
AFFORDANCES = {
    "pick_clean_then_place_in_recep": "Cleanable",
    "pick_heat_then_place_in_recep": "Heatable",
    "pick_cool_then_place_in_recep": "Coolable",
}
LAMP = "DeskLamp"
LAMP_STANDS = ("Desk", "SideTable", "Dresser", "CoffeeTable", "Shelf", "DiningTable")
"""Where a lamp can stand: the tables name no place for one, but a lamp on nothing cannot be used."""

OPENABLE = ("Cabinet", "Drawer", "Fridge", "Microwave", "Safe")


@dataclass(frozen=True, slots=True)
class Receptacle:
    """Something fixed that things are put in or on. location: the place to stand before it."""

    identifier: str
    kind: str
    location: str


@dataclass(frozen=True, slots=True)
class Room:
    """A room: its floor plan, its receptacles, and the classes of things that belong there."""

    number: int
    kind: str
    receptacles: tuple[Receptacle, ...]
    objects: tuple[str, ...]
    lamp: bool

    @property
    def kinds(self) -> tuple[str, ...]:
        """The classes of receptacles, each once."""
        return tuple(sorted({receptacle.kind for receptacle in self.receptacles}))

    def look(self) -> tuple[tuple[str, int], ...]:
        """How the room looks from its middle: the receptacles of each class."""
        return tuple(sorted(Counter(receptacle.kind for receptacle in self.receptacles).items()))

    def places(self, thing: str) -> list[Receptacle]:
        """Where a thing of this class may be."""
        return [each for each in self.receptacles if thing in contents(each.kind)]


@dataclass(frozen=True, slots=True)
class Target:
    """What a task is about: the class of the object, and of the receptacle or lamp it is brought to."""

    thing: str
    destination: str


@lru_cache(maxsize=64)
def contents(kind: str) -> frozenset[str]:
    """The classes of things that fit a receptacle, slices left out: nothing is sliced at the start."""
    allowed = constants().VAL_RECEPTACLE_OBJECTS.get(kind, ())
    return frozenset(thing for thing in allowed if not thing.endswith("Sliced"))


def rooms(
    task: TaskType, *, unseen: bool, receptacles: int | None, seed: int, furnishings: int = 1
) -> tuple[Room, ...]:
    """The rooms in which a task is possible, of the unseen part or of the other.

    receptacles: at most so many in a room; furnishings: in how many ways they are chosen from its floor plan.
    Of unseen rooms, none looks from its middle like one of the others.
    """
    return tuple(room for room in _part(unseen, receptacles, seed, furnishings) if targets(room, task))


@lru_cache(maxsize=4096)
def targets(room: Room, task: TaskType) -> tuple[Target, ...]:
    """What a task can be about in a room."""
    if room.kind not in constants().GOALS_VALID[task]:
        return ()
    if task == "look_at_obj_in_light":
        stands = any(kind in LAMP_STANDS for kind in room.kinds)
        things = [thing for thing in room.objects if room.places(thing)]
        return tuple(Target(thing, LAMP) for thing in things) if room.lamp and stands else ()
    appliance = APPLIANCES.get(task)
    if appliance is not None and appliance not in room.kinds:
        return ()
    able = constants().VAL_ACTION_OBJECTS[AFFORDANCES[task]] if appliance is not None else None
    return tuple(
        Target(thing, kind)
        for thing in room.objects
        for kind in room.kinds
        if thing in contents(kind)
        and kind != appliance
        and (able is None or thing in able)
        and any(place.kind != kind for place in room.places(thing))
    )


@lru_cache(maxsize=16)
def _part(unseen: bool, limit: int | None, seed: int, furnishings: int) -> tuple[Room, ...]:
    """The rooms of a part, as different in looks as their floor plans and furnishings make them."""
    tables = constants()
    ways = range(furnishings)
    if not unseen:
        return tuple(
            _room(number, limit, seed, way, 0) for way in ways for number in tables.TRAIN_SCENE_NUMBERS
        )
    looks = {room.look() for room in _part(False, limit, seed, furnishings)}
    candidates = (
        next(
            (
                room
                for attempt in range(200)
                if (room := _room(number, limit, seed, way, attempt)).look() not in looks
            ),
            None,
        )
        for way in ways
        for number in tables.TEST_SCENE_NUMBERS
    )
    return tuple(room for room in candidates if room is not None)


@lru_cache(maxsize=256)
def _floor_plan(number: int) -> tuple[frozenset[str], dict[str, Any]]:
    """The classes of things named in a floor plan, and the receptacles placed in it."""
    layouts = folder() / "gen" / "layouts"
    named = frozenset(json.loads((layouts / f"FloorPlan{number}-objects.json").read_text(encoding="utf-8")))
    return named, json.loads((layouts / f"FloorPlan{number}-openable.json").read_text(encoding="utf-8"))


def _room(number: int, limit: int | None, seed: int, way: int, attempt: int) -> Room:
    """A room as its floor plan says, down to `limit` receptacles. way, attempt: others, other choices."""
    tables = constants()
    named, placed = _floor_plan(number)
    chance = random.Random(f"room {number} {seed} {attempt}" + (f" {way}" if way else ""))
    fixed = set(tables.VAL_RECEPTACLE_OBJECTS) - set(tables.MOVABLE_RECEPTACLES)
    standing = [
        _Standing(key, _class(key), tuple(at)) for key, at in sorted(placed.items()) if _class(key) in fixed
    ]
    for kind in sorted(named & fixed - {each.kind for each in standing}):
        for _ in range(_NO_PLACE.get(kind, 0)):
            at = (chance.randint(-8, 8) / 4, chance.randint(-8, 8) / 4, 90 * chance.randint(0, 3), 30)
            standing.append(_Standing(random_key(kind, chance), kind, at))
    most = len(standing) if limit is None else min(limit, len(standing))
    chosen = _choose(standing, most - (attempt > 0 and limit is None), chance)
    taken: set[str] = set()
    return Room(
        number=number,
        kind=next(kind for kind, numbers in tables.SCENE_TYPE.items() if number in numbers),
        receptacles=tuple(
            Receptacle(identifier(each.key), each.kind, _location(each.at, taken)) for each in chosen
        ),
        objects=tuple(sorted({thing for each in standing for thing in contents(each.kind)} & named)),
        lamp=LAMP in named,
    )


@dataclass(frozen=True, slots=True)
class _Standing:
    """A receptacle in the floor plan's terms. at: x, z, rotation and horizon of one who stands before it."""

    key: str
    kind: str
    at: tuple[float, ...]


def _choose(standing: list[_Standing], count: int, chance: random.Random) -> list[_Standing]:
    """`count` receptacles: first what tasks need, then one of each class, then more of them."""
    shuffled = chance.sample(standing, len(standing))
    needed = set(APPLIANCES.values())
    if not any(each.kind in needed for each in standing):
        needed = {next((each.kind for each in shuffled if each.kind in LAMP_STANDS), "")}
    seen: Counter[str] = Counter()
    ranks = {}
    for each in shuffled:
        ranks[each.key] = (seen[each.kind], each.kind not in needed)
        seen[each.kind] += 1
    return sorted(sorted(shuffled, key=lambda each: ranks[each.key])[:count], key=lambda each: each.key)


def _class(key: str) -> str:
    first, *_, last = key.split("|")
    return last if last.endswith("Basin") else first


def random_key(kind: str, chance: random.Random) -> str:
    """A name in the style of the floor plans: class and coordinates."""
    place = "|".join(f"{chance.uniform(-4, 4):+06.2f}" for _ in range(3))
    return f"{kind.removesuffix('Basin')}|{place}|{kind}" if kind.endswith("Basin") else f"{kind}|{place}"


def identifier(key: str) -> str:
    """A name of the floor plans as PDDL allows it, in the official way."""
    for sign, word in _SIGNS.items():
        key = key.replace(sign, word)
    return key


def _location(at: tuple[float, ...], taken: set[str]) -> str:
    """A place as official games write it, in steps of 0.25 m and quarter turns; each is given only once."""
    x, z, rotation, horizon = at
    step = round(x / 0.25)
    while (name := _place_name(step, round(z / 0.25), round(rotation / 90), round(horizon))) in taken:
        step += 1
    taken.add(name)
    return name


def middle(room: Room) -> str:
    """Where an episode starts: a place before no receptacle."""
    return _location((0.0, 0.0, 0.0, 30.0), {receptacle.location for receptacle in room.receptacles})


def _place_name(*numbers: int) -> str:
    return "loc" + "".join(f"_bar_{number}".replace("-", "_minus_") for number in numbers)
