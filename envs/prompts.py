"""What a policy reads and what it must write: prompts from templates, the strict response format."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from string import Template
from typing import Literal, get_args

from envs.text_env import Observation

OBSERVATION_OPEN, OBSERVATION_CLOSE = "<obs>", "</obs>"
THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
ACTION_OPEN, ACTION_CLOSE = "<action>", "</action>"
FENCE = "```"
"""Opens an action whose lines and indentation mean something."""
FORMAT_WORDS = (OBSERVATION_OPEN, OBSERVATION_CLOSE, THINK_OPEN, THINK_CLOSE, ACTION_OPEN, ACTION_CLOSE)
"""The words of the compact prompts and of responses that belong to no environment."""

Rejection = Literal[
    "repeated_tags",
    "no_think",
    "no_action",
    "truncated",
    "unpaired_tag",
    "wrong_order",
    "text_outside",
    "empty_action",
    "inadmissible",
]
"""Why a response is rejected; the first that applies, in this order:

repeated_tags   one of the four tags occurs more than once
no_think        neither `<think>` nor `</think>` occurs
no_action       neither `<action>` nor `</action>` occurs, and the thought is closed
truncated       the last block is opened and never closed (the response hit its length limit)
unpaired_tag    another tag lacks its partner
wrong_order     the action before the thought, the blocks entangled, or a block closed before it is opened
text_outside    something but white space before, between or after the blocks
empty_action    nothing but white space in the action
inadmissible    the action is none of the admissible ones
"""
REJECTIONS: tuple[Rejection, ...] = get_args(Rejection)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A response taken apart.

    action     what to step the environment with: "" for a malformed response, the written one otherwise, also
               when it is inadmissible; its white space collapsed, unless it opens with a fence (code)
    thought    what was thought, "" for a malformed response
    rejection  why the response is penalised, None when it is not
    """

    action: str
    thought: str
    rejection: Rejection | None

    @property
    def well_formed(self) -> bool:
        """Whether the format is right, whatever the action."""
        return self.rejection is None or self.rejection == "inadmissible"


def parse(response: str, admissible: Sequence[str] | None) -> Parsed:
    """Take a response apart: one `<think>..</think>`, then one `<action>..</action>`, nothing outside.

    Tags are case-sensitive; a thought may be empty. admissible: the actions to choose from, compared exactly,
    or None when any action will do. Time is linear in the length of the response.
    """
    counts = [response.count(tag) for tag in (THINK_OPEN, THINK_CLOSE, ACTION_OPEN, ACTION_CLOSE)]
    if counts != [1, 1, 1, 1]:
        return Parsed("", "", _incomplete(*counts))
    think_open, think_close = response.index(THINK_OPEN), response.index(THINK_CLOSE)
    action_open, action_close = response.index(ACTION_OPEN), response.index(ACTION_CLOSE)
    if not think_open < think_close < action_open < action_close:
        return Parsed("", "", "wrong_order")
    before = response[:think_open]
    between = response[think_close + len(THINK_CLOSE) : action_open]
    after = response[action_close + len(ACTION_CLOSE) :]
    if before.strip() or between.strip() or after.strip():
        return Parsed("", "", "text_outside")
    action = response[action_open + len(ACTION_OPEN) : action_close].strip()
    if not action.startswith(FENCE):
        action = " ".join(action.split())
    if not action:
        return Parsed("", "", "empty_action")
    thought = response[think_open + len(THINK_OPEN) : think_close].strip()
    return Parsed(action, thought, None if admissible is None or action in admissible else "inadmissible")


def _incomplete(think_open: int, think_close: int, action_open: int, action_close: int) -> Rejection:
    """Why a response with these numbers of tags, not one of each, is rejected."""
    if max(think_open, think_close, action_open, action_close) > 1:
        return "repeated_tags"
    if not think_open and not think_close:
        return "no_think"
    if not action_open and not action_close:
        if think_open and think_close:
            return "no_action"
        return "truncated" if think_open else "unpaired_tag"
    return "truncated" if think_open and think_close and action_open else "unpaired_tag"


def write_response(thought: str, action: str) -> str:
    """The well-formed response with this thought and action."""
    return f"{THINK_OPEN} {thought} {THINK_CLOSE} {ACTION_OPEN} {action} {ACTION_CLOSE}"


TEMPLATES = Path(__file__).parent / "templates"
"""Where the styles that come with the platform are; each is a folder with `prompt.txt` and `turn.txt`."""

_MARK = re.compile(r"#[0-9a-f]{12}$")
_PROMPT_NAMES = frozenset({"task", "history", "turns", "observation", "admissible"})
_TURN_NAMES = frozenset({"observation", "action"})


class TemplateError(ValueError):
    """A style that cannot be used; the message names the file and what is wrong."""


def render(style: str, task: str, history: Sequence[tuple[str, str]], observation: Observation) -> str:
    """The prompt of one turn.

    style: `compact` (word-level, for tiny policies), `full` (for instruction models), or the path of a folder
    of your own (`./mine`, see `named_style`) with `prompt.txt` ($task, $history, $turns, $observation,
    $admissible) and `turn.txt` for one turn of the history ($observation, $action). A paragraph of
    `prompt.txt` with $history or $admissible is left out when there is no history, or no list of admissible
    actions. history: (observation, action) of the last turns, oldest first. Raises TemplateError
    for an unusable style.
    """
    paragraphs, turn = _templates(style)
    values: dict[str, str] = {"task": task, "observation": observation.text, "turns": str(len(history))}
    if history:
        values["history"] = "\n".join(
            turn.substitute(observation=seen, action=done) for seen, done in history
        )
    if observation.admissible is not None:
        values["admissible"] = ", ".join(observation.admissible)
    return "\n\n".join(
        paragraph.substitute(values) for names, paragraph in paragraphs if _shown(names, values)
    )


def render_next(style: str, observation: Observation) -> str:
    """What follows a response where the policy is shown its whole transcript: the next observation.

    The paragraphs of the style's prompt that are about the observation; task and history stand before them
    already. Raises TemplateError for a style that says both in one paragraph.
    """
    paragraphs, _ = _templates(style)
    values = {"observation": observation.text}
    if observation.admissible is not None:
        values["admissible"] = ", ".join(observation.admissible)
    shown = [(names, text) for names, text in paragraphs if _shown(names, values)]
    if not any("observation" in names for names, _ in shown):
        raise TemplateError(
            f"{_folder(style) / 'prompt.txt'}: a transcript repeats no task and no history, so "
            "$observation must stand in a paragraph without $task, $history and $turns"
        )
    return "\n\n".join(text.substitute(values) for _, text in shown)


def named_style(style: str) -> str:
    """A style as configurations hold it: a name, or `FOLDER#FINGERPRINT` for the path of a folder.

    With the fingerprint other templates are another configuration, and a changed file is noticed. Raises
    TemplateError for an unusable style.
    """
    _templates(style)
    folder = _folder(style).resolve()
    own = folder.parent == TEMPLATES.resolve()
    return folder.name if own else f"{folder}#{_fingerprint(folder)}"


def _folder(style: str) -> Path:
    """The folder of a style: one of ours by its name, else a path (a name with a `/` in it is a path)."""
    plain = _MARK.sub("", style)
    return Path(plain).expanduser() if "/" in plain else TEMPLATES / plain


def _fingerprint(folder: Path) -> str:
    contents = [(folder / name).read_bytes() for name in ("prompt.txt", "turn.txt")]
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:12]


def _shown(names: frozenset[str], values: Mapping[str, str]) -> bool:
    return names <= values.keys()


@lru_cache(maxsize=16)
def _templates(style: str) -> tuple[tuple[tuple[frozenset[str], Template], ...], Template]:
    """The paragraphs of a style's prompt, each with the names in it, and the template of a past turn."""
    folder, mark = _folder(style), _MARK.search(style)
    if not folder.is_dir():
        known = ", ".join(sorted(path.name for path in TEMPLATES.iterdir() if path.is_dir()))
        raise TemplateError(
            f"unknown prompt style {style!r}: expected one of {known}, or the path of a folder like ./mine"
        )
    prompt = _read(folder / "prompt.txt", _PROMPT_NAMES)
    paragraphs = tuple(
        (frozenset(Template(paragraph).get_identifiers()), Template(paragraph))
        for paragraph in prompt.split("\n\n")
        if paragraph.strip()
    )
    if not any("observation" in names for names, _ in paragraphs):
        raise TemplateError(f"{folder / 'prompt.txt'}: $observation is missing")
    turn = Template(_read(folder / "turn.txt", _TURN_NAMES))
    if mark and mark[0] != f"#{_fingerprint(folder)}":
        raise TemplateError(f"{folder}: its templates are no longer those that were planned with")
    return paragraphs, turn


def _read(path: Path, names: frozenset[str]) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip("\n")
    except OSError as error:
        raise TemplateError(f"{path}: {error.strerror}") from error
    template = Template(text)
    if not template.is_valid():
        raise TemplateError(f"{path}: a lone $ (write $$ for a dollar sign)")
    unknown = sorted(set(template.get_identifiers()) - names)
    if unknown:
        raise TemplateError(
            f"{path}: unknown ${unknown[0]}, expected " + ", ".join(f"${n}" for n in sorted(names))
        )
    return text
