"""Every word that observations, commands and thoughts can be made of."""

from __future__ import annotations

import re

from envs.alfworld.config import MOST_OBJECTS, MOST_RECEPTACLES, AlfworldConfig
from envs.alfworld.expert import BRING, LINK, SEARCH
from envs.alfworld.games import source
from envs.alfworld.notes import WORDS
from envs.alfworld.notes import words as separated
from envs.alfworld.package import constants, goals, grammar

_COMMANDS = [
    "go",
    "to",
    "open",
    "close",
    "take",
    "from",
    "move",
    "use",
    "heat",
    "clean",
    "cool",
    "with",
    "examine",
    "look",
    "inventory",
    "help",
    "slice",
    "put",
    "in/on",
]
_RHS = re.compile(r'"rhs"\s*:\s*"((?:[^"\\]|\\.)*)"')
_DERIVED = re.compile(r"\[[^\]]*\]|\{[^}]*\}|#[^#]*#")


def vocabulary(config: AlfworldConfig) -> tuple[str, ...]:
    """The words of a configuration's games, each once."""
    tables = constants()
    names = [str(name).lower() for name in (*tables.OBJECTS, *tables.VAL_RECEPTACLE_OBJECTS)]
    numbers = [str(number) for number in range(1, _most(config) + 1)]
    found = [*_COMMANDS, LINK, SEARCH, BRING, *_goal_words(config), *names, *numbers]
    if config.observation == "compact":
        found += WORDS
    else:
        ends = [f"{word}{mark}" for word in (*names, *numbers, "nothing") for mark in (",", ".")]
        found += [*_sentence_words(), *ends]
    return tuple(dict.fromkeys(found))


def _most(config: AlfworldConfig) -> int:
    """The highest number that a thing or receptacle can have."""
    if source(config) == "official":
        return max(MOST_RECEPTACLES, MOST_OBJECTS)
    return max(config.generated.receptacles or MOST_RECEPTACLES, 3)


def _goal_words(config: AlfworldConfig) -> list[str]:
    templates = [template for kind in config.task_types for template in goals().gdict[kind]["templates"]]
    return separated(" ".join(_DERIVED.sub(" ", template) for template in templates)).split()


def _sentence_words() -> list[str]:
    """The words of the grammar's own sentences, with the punctuation they carry."""
    sentences = " ".join(_RHS.findall(grammar())).replace("\\n", " ")
    return [word for word in _DERIVED.sub(" ", sentences).split() if word]
