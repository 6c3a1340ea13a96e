"""What a policy is shown: the problem, and what its code did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envs.tir_math.actions import CODE_WORD
from envs.tir_math.config import TirMathConfig
from envs.tir_math.problem import Problem
from envs.tir_math.sandbox.limits import Ending, Finished, Limits

OUTPUT_WORD, ERROR_WORD, NOTHING_WORD, CUT_WORD = "output:", "error", "nothing", "..."
SPELLED = "0123456789-."
"""Signs of an output that are shown one by one, in words."""
OBSERVATION_WORDS = (*SPELLED, CODE_WORD, OUTPUT_WORD, ERROR_WORD, NOTHING_WORD, CUT_WORD)


@dataclass(frozen=True, slots=True)
class Computation:
    """Code that was run in an episode, and what became of it."""

    code: str
    finished: Finished


def observe(config: TirMathConfig, problem: Problem, done: Sequence[Computation]) -> str:
    """The observation after some computations; the first one is the problem alone."""
    shown = done if config.shows == "all" else done[-1:]
    if config.shows == "new" and done:
        if config.spelling == "words":
            return f"{OUTPUT_WORD} {spell_output(done[-1].finished, config.output_limit)}"
        return f"Its output:\n```\n{_told(done[-1], config)}\n```"
    if config.spelling == "words":
        return " ".join(
            [problem.text, *(_in_words(computation, config.output_limit) for computation in shown)]
        )
    return "\n\n".join([problem.text, *(_in_text(computation, config) for computation in shown)])


def _in_words(computation: Computation, limit: int) -> str:
    code, output = " ".join(computation.code), spell_output(computation.finished, limit)
    return f"{CODE_WORD} {code} {OUTPUT_WORD} {output}"


def spell_output(finished: Finished, limit: int) -> str:
    """An output as words: its signs, or that there was an error, or nothing (or no number)."""
    text = finished.output.strip()
    if finished.ending != "done" or not all(sign in SPELLED for sign in text):
        return ERROR_WORD
    signs = list(text)
    if len(signs) > limit:
        signs = [*signs[: limit - 1], CUT_WORD]
    return " ".join(signs) or NOTHING_WORD


def _in_text(computation: Computation, config: TirMathConfig) -> str:
    code = shorten(computation.code, config.output_limit)
    return f"Your code:\n```python\n{code}\n```\nIts output:\n```\n{_told(computation, config)}\n```"


def _told(computation: Computation, config: TirMathConfig) -> str:
    """What a policy is told of what its code printed, and of what ended it."""
    finished = computation.finished
    output = shorten(_printable(finished.output.rstrip("\n")), config.output_limit)
    return "\n".join(filter(None, [output, _note(finished.ending, config.limits)])) or "[It printed nothing.]"


def _note(ending: Ending, limits: Limits) -> str:
    """What a policy has to know beside the output."""
    return {
        "done": "",
        "raised": "",
        "died": "[Python crashed.]",
        "cpu": f"[Stopped: it took more than {limits.cpu_seconds:g} seconds of CPU time.]",
        "wall": f"[Stopped: it took more than {limits.wall_seconds:g} seconds.]",
        "memory": f"[Stopped: it took more than {limits.memory_mb} MB of memory.]",
        "output": "[Stopped: it printed too much.]",
        "lost": "[The sandbox failed; the code may not have run.]",
    }[ending]


def shorten(text: str, limit: int) -> str:
    """The text, or its beginning and end with a note in between: results and errors stand at the end."""
    if len(text) <= limit:
        return text
    head = limit // 2
    tail = limit - head
    return f"{text[:head]}\n[... {len(text) - limit:,} characters ...]\n{text[-tail:]}"


def _printable(text: str) -> str:
    """Without control characters, which mean something to a terminal."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "�" for sign in text)
