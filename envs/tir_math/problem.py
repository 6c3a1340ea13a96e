"""A problem, and two sets of them that have none in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from envs.text_env import Split

_WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Problem:
    """text: what is asked; truth: the right answer; code: Python that prints it, where we know it."""

    text: str
    truth: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Problems:
    """The problems of both splits."""

    train: tuple[Problem, ...]
    eval: tuple[Problem, ...]

    def of(self, split: Split) -> tuple[Problem, ...]:
        """The problems of a split. Raises ValueError for an unknown one."""
        if split == "train":
            return self.train
        if split == "eval":
            return self.eval
        raise ValueError(f"unknown split {split!r}: expected 'train' or 'eval'")


def content(text: str) -> str:
    """Equal for texts that differ in white space and capitals only."""
    return " ".join(_WORD_OR_SIGN.findall(text.casefold()))


def distinct(problems: Iterable[Problem], taken: set[str]) -> Iterator[Problem]:
    """The problems whose `content` is not in `taken`, where it is noted: each problem once."""
    for problem in problems:
        key = content(problem.text)
        if key not in taken:
            taken.add(key)
            yield problem
