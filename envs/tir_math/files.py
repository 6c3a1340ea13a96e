"""Problems from Parquet, JSON Lines and CSV files, with the columns that data sets of maths usually have."""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from envs.data_files import Row, read_rows
from envs.tir_math.actions import last_boxed
from envs.tir_math.config import FilesConfig
from envs.tir_math.problem import Problem, Problems, content, distinct

_log = logging.getLogger(__name__)

PROMPT_COLUMNS = ("prompt", "question", "problem", "Problem", "Question")
ANSWER_COLUMNS = ("reward_model.ground_truth", "ground_truth", "answer", "Answer", "final_answer", "solution")
_GSM8K_MARK = "####"


class ProblemFileError(ValueError):
    """A file of problems cannot be used; the message names it and says why."""


def problems(config: FilesConfig, *, train: int, evaluation: int, seed: int) -> Problems:
    """The first problems of each file, at most so many; a train problem that is also for eval is left out.

    Without an eval file, a random share of the train file (by `seed`) is held out. Raises ProblemFileError.
    """
    if config.train is None:
        raise ProblemFileError("files.train: no path given")
    trained = _read(config, config.train)
    if config.eval is None:
        generator = random.Random(f"held out {seed}")
        evaluated = [problem for problem in trained if generator.random() < config.eval_share]
    else:
        evaluated = _read(config, config.eval)
        unwanted = {content(problem.text) for problem in evaluated}
        if shared := sum(content(problem.text) in unwanted for problem in trained):
            _log.warning("%s: %d problems left out, they are in %s too", config.train, shared, config.eval)
    # all that could be evaluated is kept out of training, also beyond `evaluation`
    taken: set[str] = set()
    found = Problems(eval=tuple(distinct(evaluated, taken)), train=tuple(distinct(trained, taken)))
    for split, held in (("train", found.train), ("eval", found.eval)):
        if not held:
            raise ProblemFileError(f"{config.train}: no problem is left for {split}")
    return Problems(eval=found.eval[:evaluation], train=found.train[:train])


def data_id(config: FilesConfig) -> str:
    """A fingerprint of the files' content. Raises OSError for one that cannot be read."""
    named = [Path(path) for path in (config.train, config.eval) if path is not None]
    return "files-" + "-".join(_fingerprint(path, path.stat().st_mtime_ns) for path in named)


@lru_cache(maxsize=16)
def _fingerprint(path: Path, modified: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _read(config: FilesConfig, path: str) -> list[Problem]:
    try:
        rows = list(read_rows(Path(path)))
    except (OSError, ValueError) as error:
        raise ProblemFileError(f"{path}: {error}") from error
    if not rows:
        raise ProblemFileError(f"{path}: no rows")
    prompt = _column(path, rows[0], "prompt_column", config.prompt_column, PROMPT_COLUMNS)
    answer = _column(path, rows[0], "answer_column", config.answer_column, ANSWER_COLUMNS)
    read = []
    for number, row in enumerate(rows, 1):
        text, truth = _prompt(_look_up(row, prompt)), _truth(_look_up(row, answer))
        if not text or not truth:
            raise ProblemFileError(f"{path}: row {number} has no {'prompt' if not text else 'answer'}")
        read.append(Problem(text, truth))
    return read


def _column(path: str, row: Row, key: str, named: str | None, usual: tuple[str, ...]) -> str:
    """The column to take: the named one, or the first of the usual that is there."""
    for column in (named,) if named is not None else usual:
        if _look_up(row, column) is not None:
            return column
    wanted = repr(named) if named is not None else f"one of {', '.join(usual)}"
    raise ProblemFileError(
        f"{path}: no column {wanted} among {', '.join(map(str, row))}; name it in files.{key}"
    )


def _look_up(row: Row, column: str) -> Any:
    value: Any = row
    for part in column.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def _prompt(value: Any) -> str:
    """A text, or the last message of the user in a conversation."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return "" if value is None else str(value).strip()
    asked = [message["content"] for message in _messages(value) if message.get("role") == "user"]
    return str(asked[-1]).strip() if asked else ""


def _messages(value: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    return (message for message in value if isinstance(message, Mapping))


def _truth(value: Any) -> str:
    """The final answer: after GSM8K's mark, else in the last box, else the whole text."""
    text = "" if value is None else str(value).strip()
    if _GSM8K_MARK in text:
        return text.rpartition(_GSM8K_MARK)[2].strip().replace(",", "")
    boxed = last_boxed(text)
    return text if boxed is None else boxed
