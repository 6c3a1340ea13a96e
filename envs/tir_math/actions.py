"""What a policy can do in a turn: run code, or answer.

An action is one of

    ```python        a fenced block: code of any length (the response format keeps it as it is written)
    ...
    ```
    python: CODE     code on one line
    answer: ANSWER   the answer, which ends the episode; with or without \\boxed{}
    \\boxed{ANSWER}   the same

Everything else, the empty action of a malformed response too, is a void turn.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

CODE_WORD, ANSWER_WORD = "python:", "answer:"
_FENCED = re.compile(r"```(?:python|py)?[ \t]*\n(.*)```\s*", re.DOTALL)
_BOXED = "\\boxed{"
_BRACE = re.compile(r"(?<!\\)[{}]")


@dataclass(frozen=True, slots=True)
class Action:
    """text: the code or the answer, "" for a void turn."""

    kind: Literal["code", "answer", "void"]
    text: str


VOID = Action("void", "")


def read_action(text: str, *, joined: bool) -> Action:
    """Read an action. joined: leave all white space out (words that spell numbers digit by digit)."""
    text = text.strip()
    if match := _FENCED.fullmatch(text):
        return _of("code", match[1].strip("\n"))
    for kind, word in (("code", CODE_WORD), ("answer", ANSWER_WORD)):
        if text.startswith(word):
            content = text[len(word) :].strip()
            if joined:
                content = "".join(content.split())
            if kind == "code":
                return _of("code", content)
            boxed = last_boxed(content)
            return _of("answer", content if boxed is None else boxed)
    boxed = last_boxed(text) if text.startswith(_BOXED) else None
    return VOID if boxed is None else _of("answer", boxed)


def _of(kind: Literal["code", "answer"], text: str) -> Action:
    return Action(kind, text) if text.strip() else VOID


def last_boxed(text: str) -> str | None:
    """The content of the last complete `\\boxed{...}`, braces matched; None when there is none.

    Takes time linear in the length of the text.
    """
    opened: list[int] = []  # where the contents of open braces begin
    best: tuple[int, int] | None = None
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            opened.append(brace.end())
        elif opened:
            start = opened.pop()
            if text.endswith(_BOXED, 0, start) and (best is None or start > best[0]):
                best = start, brace.start()
    return None if best is None else text[best[0] : best[1]].strip()


def write_code(code: str) -> str:
    """The action that runs this code."""
    return f"```python\n{code}\n```"


def write_answer(answer: str) -> str:
    """The action that gives this answer."""
    return f"{ANSWER_WORD} \\boxed{{{answer}}}"
