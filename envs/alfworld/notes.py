"""What an episode has shown so far, in a line of words: the compact observation, for tiny policies.

    put a clean mug in cabinet | at drawer 1 | hold mug 1 clean | desk 1 pen 1 | drawer 1 nothing | bed 1 ?

That is the goal, where one stands, what one holds, and every receptacle with what was last seen there: `?`
before one has been there, `closed` when it is. It holds nothing that the engine has not said, and all that
matters of it, so that a policy can do without a history.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

UNSEEN, CLOSED, NOTHING, MIDDLE = "?", "closed", "nothing", "middle"
SEPARATOR, AT, HOLD = "|", "at", "hold"
QUALITIES = ("clean", "hot", "cool", "on")
WORDS = (SEPARATOR, AT, HOLD, UNSEEN, CLOSED, NOTHING, MIDDLE, *QUALITIES)
"""The words of a line that are not in the game's own texts."""

_NAME = r"[a-z]+ \d+"
_LISTED = re.compile(rf"\ba ({_NAME})")
_TASK = re.compile(r"Your task is to: (.*)", re.DOTALL)
_AROUND = re.compile(r"you see (.*?)\.", re.DOTALL)
_ARRIVES = re.compile(rf"You arrive at ({_NAME})\.")
_SHOWS = re.compile(rf"(?:On the ({_NAME})|The ({_NAME}) is open\. In it), you see ([^.]*)\.")
_CLOSED = re.compile(rf"The ({_NAME}) is closed\.|You close the ({_NAME})\.")
_TAKES = re.compile(rf"You pick up the ({_NAME}) from the ({_NAME})\.")
_PUTS = re.compile(rf"You (?:move|put) the ({_NAME}) (?:to|in/on) the ({_NAME})\.")
_TREATS = re.compile(rf"You (clean|heat|cool) the ({_NAME}) using the {_NAME}\.")
_SWITCHES = re.compile(rf"You turn (on|off) the ({_NAME})\.")
_TREATED = {"clean": "clean", "heat": "hot", "cool": "cool"}


def goal_of(introduction: str) -> str:
    """The goal in the game's words; raises ValueError when the introduction names none."""
    match = _TASK.search(introduction)
    if match is None:
        raise ValueError(f"the game names no task: {introduction!r}")
    return match[1].strip()


class Notes:
    """Kept from the introduction on; `hear` what the engine says after every command."""

    def __init__(self, introduction: str) -> None:
        around = _AROUND.search(introduction)
        names = _LISTED.findall(around[1]) if around else []
        self._goal = words(goal_of(introduction).rstrip("."))
        self._at, self._held = MIDDLE, NOTHING
        self._things: dict[str, list[str] | None] = dict.fromkeys(names)
        self._closed: set[str] = set()
        self._qualities: dict[str, str] = {}

    def hear(self, feedback: str) -> None:
        """Note what the engine says."""
        if match := _ARRIVES.search(feedback):
            self._at = match[1]
        if match := _SHOWS.search(feedback):
            receptacle = match[1] or match[2]
            self._things[receptacle] = _LISTED.findall(match[3])
            self._closed.discard(receptacle)
        if match := _CLOSED.search(feedback):
            self._closed.add(match[1] or match[2])
        if match := _TAKES.search(feedback):
            self._held = match[1]
            self._remove(match[1])
        if match := _PUTS.search(feedback):
            self._held = NOTHING
            self._things[match[2]] = [*(self._things.get(match[2]) or ()), match[1]]
        if match := _TREATS.search(feedback):
            quality = _TREATED[match[1]]
            kept = [
                each
                for each in self._qualities.get(match[2], "").split()
                if {each, quality} != {"hot", "cool"}
            ]
            self._qualities[match[2]] = " ".join(dict.fromkeys([*kept, quality]))
        if match := _SWITCHES.search(feedback):
            self._qualities[match[2]] = "on" if match[1] == "on" else ""

    def line(self) -> str:
        """All of it."""
        parts = [self._goal, f"{AT} {self._at}", f"{HOLD} {self._described([self._held])}"]
        for receptacle, things in self._things.items():
            closed = [CLOSED] if receptacle in self._closed else []
            known = None if things is None else self._described(things) or NOTHING
            inside = closed or [UNSEEN] if known is None else [*closed, known]
            parts.append(" ".join([receptacle, *inside]))
        return f" {SEPARATOR} ".join(parts)

    def _described(self, things: Iterable[str]) -> str:
        return " ".join(f"{thing} {self._qualities.get(thing, '')}".strip() for thing in things)

    def _remove(self, thing: str) -> None:
        for things in self._things.values():
            if things is not None and thing in things:
                things.remove(thing)


def words(text: str) -> str:
    """Lower case, with punctuation set apart."""
    return " ".join(re.findall(r"[a-z0-9/'-]+|[^\sa-z0-9]", text.lower()))
