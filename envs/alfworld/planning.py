"""The shortest way to a goal for one who knows where everything is, worked out task by task.

The planner library finds such ways in any domain, in 0.1 to 3 s from a full room; here the six tasks are
known, and a few hundred candidates are compared in milliseconds. (A test compares lengths with the
library's.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

from envs.alfworld.facts import Facts
from envs.alfworld.goal import Goal

Step = tuple[str, ...]
"""An action of the domain and the things it is done to, in the order in which a player would name them."""

GO, OPEN, TAKE, PUT, USE = "gotolocation", "openobject", "pickupobject", "putobject", "toggleobject"

_TREATMENTS = {
    "pick_clean_then_place_in_recep": ("cleanobject", "isclean", "sinkbasin"),
    "pick_heat_then_place_in_recep": ("heatobject", "ishot", "microwave"),
    "pick_cool_then_place_in_recep": ("coolobject", "iscool", "fridge"),
}
"""By task type: the action, the fact it makes true, and the class of receptacle where it is done."""

_PREDICATES = frozenset(
    {
        "atlocation", "receptacleatlocation", "inreceptacle", "openable", "opened", "holds", "isclean",
        "ishot", "iscool", "istoggled", "objecttype", "receptacletype", "cancontain",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Situation:
    """What matters of a state, by the identifiers of things.

    at: where the agent is; place: the location of receptacles; inside: the receptacle a thing is in; kinds:
    the
    class of things and receptacles; closed: receptacles to be opened first; held: what the agent carries.
    """

    at: str
    place: Mapping[str, str]
    inside: Mapping[str, str]
    kinds: Mapping[str, str]
    closed: frozenset[str]
    held: str | None
    true: frozenset[tuple[str, str]]
    fits: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, facts: Facts) -> Situation:
        """The situation in a state of the engine."""
        filed: dict[str, list[tuple[str, ...]]] = {name: [] for name in _PREDICATES}
        for fact in facts.of(_PREDICATES):
            filed[fact.name].append(tuple(thing for thing, _ in fact.arguments))
        opened = {receptacle for (receptacle,) in filed["opened"]}
        return cls(
            at=next((location for _, location in filed["atlocation"]), ""),
            place=dict(sorted(filed["receptacleatlocation"])),  # type: ignore[arg-type]
            inside=dict(sorted(filed["inreceptacle"])),  # type: ignore[arg-type]
            kinds={
                thing: kind.removesuffix("type")
                for name in ("objecttype", "receptacletype")
                for thing, kind in filed[name]
            },
            closed=frozenset(receptacle for (receptacle,) in filed["openable"]) - opened,
            held=next((thing for _, thing in filed["holds"]), None),
            true=frozenset(
                (name, thing)
                for name in ("isclean", "ishot", "iscool", "istoggled")
                for (thing,) in filed[name]
            ),
            fits=frozenset(
                (receptacle.removesuffix("type"), thing.removesuffix("type"))
                for receptacle, thing in filed["cancontain"]
            ),
        )

    def of_kind(self, kind: str) -> list[str]:
        """The things and receptacles of a class, in order."""
        return sorted(thing for thing, each in self.kinds.items() if each == kind)

    def can_hold(self, receptacle: str, thing: str) -> bool:
        """Whether a thing may be put there."""
        return (self.kinds[receptacle], self.kinds[thing]) in self.fits


def shortest_way(goal: Goal, situation: Situation) -> list[Step] | None:
    """The steps of a shortest way to the goal: none when it is reached, None when there is no way."""
    return min(
        (walk.steps for walk in _ways(goal, situation)), key=lambda steps: (len(steps), steps), default=None
    )


class _Walk:
    """Steps, and where they lead."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._at, self._closed = situation.at, set(situation.closed)
        self.steps: list[Step] = []

    def go(self, receptacle: str) -> None:
        place = self._situation.place[receptacle]
        if self._at != place:
            self.steps.append((GO, receptacle))
            self._at = place

    def reach(self, receptacle: str) -> None:
        self.go(receptacle)
        if receptacle in self._closed:
            self.steps.append((OPEN, receptacle))
            self._closed.remove(receptacle)

    def take(self, thing: str) -> None:
        receptacle = self._situation.inside[thing]
        self.reach(receptacle)
        self.steps.append((TAKE, thing, receptacle))

    def put(self, thing: str, receptacle: str) -> None:
        self.reach(receptacle)
        self.steps.append((PUT, thing, receptacle))


def _ways(goal: Goal, situation: Situation) -> Iterator[_Walk]:
    """Candidates, the shortest ways among them."""
    if goal.type == "look_at_obj_in_light":
        yield from _lighted(goal, situation)
    elif goal.type == "pick_two_obj_and_place":
        yield from _two_brought(goal, situation)
    else:
        yield from _brought(goal, situation)


def _brought(goal: Goal, situation: Situation) -> Iterator[_Walk]:
    treatment = _TREATMENTS.get(goal.type)
    for thing in situation.of_kind(goal.thing):
        ready = treatment is None or (treatment[1], thing) in situation.true
        appliances = [None] if ready or treatment is None else situation.of_kind(treatment[2])
        for appliance in appliances:
            stops = [situation.inside.get(thing), appliance]
            for receptacle in _destinations(goal, situation, stops):
                if ready and situation.inside.get(thing) == receptacle:
                    yield _Walk(situation)
                    continue
                for walk in _with_hands_free(situation, thing, [*stops, receptacle]):
                    if situation.held != thing:
                        walk.take(thing)
                    if appliance is not None and treatment is not None:
                        walk.go(appliance)
                        walk.steps.append((treatment[0], thing, appliance))
                    walk.put(thing, receptacle)
                    yield walk


def _two_brought(goal: Goal, situation: Situation) -> Iterator[_Walk]:
    things = situation.of_kind(goal.thing)
    for receptacle in _destinations(goal, situation, [situation.inside.get(thing) for thing in things]):
        there = [thing for thing in things if situation.inside.get(thing) == receptacle]
        elsewhere = [thing for thing in things if thing not in there]
        for chosen in permutations(elsewhere, max(0, 2 - len(there))):
            if situation.held in chosen[1:]:
                continue  # what is carried is brought first
            first = chosen[0] if chosen else None
            stops = [receptacle, *(situation.inside.get(thing) for thing in chosen)]
            for walk in _with_hands_free(situation, first, stops) if chosen else [_Walk(situation)]:
                for thing in chosen:
                    if thing != situation.held:
                        walk.take(thing)
                    walk.put(thing, receptacle)
                yield walk


def _lighted(goal: Goal, situation: Situation) -> Iterator[_Walk]:
    for lamp in situation.of_kind(goal.destination):
        stand = situation.inside.get(lamp)
        if stand is None:
            continue
        for thing in situation.of_kind(goal.thing):
            for walk in _with_hands_free(situation, thing, [situation.inside.get(thing), stand]):
                if situation.held != thing:
                    walk.take(thing)
                walk.go(stand)
                if ("istoggled", lamp) not in situation.true:
                    walk.steps.append((USE, lamp))
                yield walk


def _destinations(goal: Goal, situation: Situation, stops: list[str | None]) -> list[str]:
    """Receptacles of the goal's class: those on the way, and of the others one open and one closed."""
    passed = {situation.at, *(situation.place[stop] for stop in stops if stop is not None)}
    found: dict[object, str] = {}
    for receptacle in situation.of_kind(goal.destination):
        place, closed = situation.place[receptacle], receptacle in situation.closed
        found.setdefault(receptacle if place in passed else closed, receptacle)
    return list(found.values())


def _with_hands_free(situation: Situation, thing: str | None, stops: list[str | None]) -> Iterator[_Walk]:
    """Walks at whose end the hands are free for `thing`, or hold it: what else is held is put down first.

    Good places to put it down are here and the stops of the way; else one that is open or, failing that,
    closed.
    """
    held = situation.held
    if held is None or held == thing:
        yield _Walk(situation)
        return
    tried: set[object] = set()
    wanted = {stop for stop in stops if stop is not None}
    for receptacle in sorted(situation.place):
        if not situation.can_hold(receptacle, held):
            continue
        special = receptacle in wanted or situation.place[receptacle] == situation.at
        sort = receptacle if special else receptacle in situation.closed
        if sort not in tried:
            tried.add(sort)
            walk = _Walk(situation)
            walk.put(held, receptacle)
            yield walk
