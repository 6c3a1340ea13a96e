"""A trial's files: the recorder that writes them, and readers that survive what a crash leaves behind.

Everything a trainer reports is one line of JSON in an append-only file, on its way to the disk when `report`
returns. Readers import nothing heavy and take a file as it is: a half-written last line is not there yet, a
corrupt line is named and skipped.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from trainers.monitor import Histogram, Kind, Transcript

METRICS = "metrics.jsonl"
HISTOGRAMS = "histograms.jsonl"
EPISODES = "episodes.jsonl"
RECORDS = (HISTOGRAMS, EPISODES, METRICS)
"""The record files in the order a report reaches them: who sees a row of metrics sees what belongs to it."""

TRIAL = "trial.yaml"
OUTCOME = "outcome.json"
LOG = "stdout.log"
LOCK = "lock"
"""Held while a trial runs; in it who runs it, and how often it was started."""
STOP = "stop"
"""Asks a trial to end: written by the driver, noticed before the next step. `KILL` in it asks for more."""
KILL = "kill"

Result = Literal["stable", "unstable", "undecided", "collapsed", "diverged"]
Cause = Literal["", "out_of_memory", "unavailable"]
"""Of a failure: memory ran out, or something that the trial depends on failed (a file system, a node)."""
OutcomeName = Literal[Result, "failed", "interrupted"]
RESULTS: frozenset[str] = frozenset(get_args(Result))

_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class CorruptRecordError(ValueError):
    """A file of a trial does not hold what it should; the message names the file and what is wrong."""


class Watch(Protocol):
    """What decides, row by row, that training has collapsed."""

    def update(self, row: Mapping[str, Any]) -> bool:
        """Take the next row; whether training should end now."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a trial: the content of `outcome.json`, its last file.

    learned: None when it cannot be said. onset: the step of the first sign of a collapse. step: the last one
    trained, of `steps`. exit: the child's exit code, negative for a signal, None when it is not known.
    attempts: how often the trial was started; retries: how many of these starts nobody asked for, after a
    failure of the machine or for lack of memory. micro_rows: rows in memory at once, where memory ran out
    with as many as configured. cause: the kind of a failure, "" when it is the trial's own. warnings:
    `{"name", "step"}` each.
    """

    outcome: OutcomeName
    learned: bool | None = None
    reason: str = ""
    onset: int | None = None
    step: int = 0
    steps: int = 0
    exit: int | None = 0
    attempts: int = 1
    warnings: tuple[Mapping[str, Any], ...] = ()
    retries: int = 0
    micro_rows: int | None = None
    cause: Cause = ""

    @property
    def is_result(self) -> bool:
        """Whether the trial is done; collapse is a result, failure is none."""
        return self.outcome in RESULTS


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Write `outcome.json` atomically."""
    write_json(folder / OUTCOME, asdict(outcome))


def read_outcome(folder: Path) -> Outcome | None:
    """The outcome of a trial, None when it has none yet. Raises CorruptRecordError."""
    path = folder / OUTCOME
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CorruptRecordError(f"{path}: not JSON: {error}") from None
    known = {field.name for field in fields(Outcome)}
    names = RESULTS | {"failed", "interrupted"}
    if not isinstance(value, dict) or value.get("outcome") not in names:
        raise CorruptRecordError(f"{path}: holds no outcome")
    value["warnings"] = tuple(value.get("warnings", ()))
    return Outcome(**{key: inner for key, inner in value.items() if key in known})


def write_json(path: Path, value: Any) -> None:
    """Replace a file by `value` as JSON: readers see the old content or the new, even after a crash."""
    write_text(path, json.dumps(_encoded(value), ensure_ascii=False, allow_nan=False, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a file's content atomically (a temporary file beside it, fsync, rename)."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows of a record file. `end` is the byte after the last complete line, from where reading can go on."""

    rows: list[dict[str, Any]]
    end: int
    problems: tuple[str, ...] = ()


def read_lines(path: Path, start: int = 0) -> Lines:
    """The complete lines of a record file from byte `start`; a missing file has none.

    "NaN", "Infinity" and "-Infinity" come back as numbers. Lines that are no JSON object are left out and
    named in `problems` by their byte.
    """
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read()
    except FileNotFoundError:
        return Lines([], 0)
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    position, end = start, start + data.rfind(b"\n") + 1
    for line in data[: end - start].split(b"\n"):
        if line.strip():
            try:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError("not an object")
                rows.append(_decoded(row))
            except ValueError as error:
                problems.append(
                    f"{path.name}, byte {position}: a line that cannot be read ({error}) was skipped"
                )
        position += len(line) + 1
    return Lines(rows, end, tuple(problems))


def read_last_rows(path: Path, *, at_least_bytes: int = 1 << 15) -> list[dict[str, Any]]:
    """The last rows of a record file without reading all of it: for a status of thousands of trials."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return []
    start = max(0, size - at_least_bytes)
    if start:
        with path.open("rb") as file:
            file.seek(start)
            skipped = file.read().find(b"\n")
        start += skipped + 1
    return read_lines(path, start).rows


class Recorder:
    """Writes a trial's record files; the Monitor that a trainer reports to.

    make_watch: makes the collapse rule's watch, anew whenever the records are rewound.
    stop_on_collapse: whether `should_stop` follows it; the user's stop file is always followed.

    The rule is evaluated inside `report`, so a collapse ends a trial at the same step every time.
    """

    def __init__(self, folder: Path, make_watch: Callable[[], Watch], *, stop_on_collapse: bool) -> None:
        self._stop_file = folder / STOP
        self._make_watch = make_watch
        self._stop_on_collapse = stop_on_collapse
        self._asked_to_stop = False
        self._files = {name: _RecordFile(folder / name) for name in RECORDS}
        self.problems: tuple[str, ...] = ()
        self._replay()

    def report(
        self,
        step: int,
        kind: Kind,
        metrics: Mapping[str, float],
        *,
        histograms: Sequence[Histogram] = (),
        episodes: Sequence[Transcript] = (),
    ) -> None:
        """Append a row of metrics and what belongs to it. Raises OSError (disk full), leaving whole lines."""
        row: dict[str, Any] = {"step": step, "kind": kind, **metrics}
        self._files[HISTOGRAMS].append({"step": step, **asdict(histogram)} for histogram in histograms)
        self._files[EPISODES].append({"step": step, **asdict(episode)} for episode in episodes)
        self._files[METRICS].append([row])
        self._take(row)

    def should_stop(self) -> bool:
        """Whether the collapse rule or the user ends training before the next step."""
        return (self.collapsed and self._stop_on_collapse) or self.user_stop

    @property
    def user_stop(self) -> bool:
        """Whether the user asked for a stop."""
        return self._asked_to_stop or self._stop_file.exists()

    def ask_to_stop(self) -> None:
        """Ask for a stop from inside the process (a signal handler)."""
        self._asked_to_stop = True

    def position(self) -> dict[str, int]:
        """Byte length of every record file, by then on the disk: no checkpoint points past its records."""
        return {name: self._files[name].sync() for name in RECORDS}

    def rewind(self, position: Mapping[str, int]) -> None:
        """Drop everything after `position`; an empty mapping drops everything.

        Raises CorruptRecordError, before touching any file, when one is shorter or has no line ending there.
        """
        for name, file in self._files.items():
            file.check(position.get(name, 0))
        for name, file in self._files.items():
            file.truncate(position.get(name, 0))
        self._replay()

    def close(self) -> None:
        """Close the files; safe to call twice."""
        for file in self._files.values():
            file.close()

    def _replay(self) -> None:
        """Show a new watch the rows that are kept."""
        self._watch = self._make_watch()
        self.collapsed = False
        self.train_step = 0
        lines = read_lines(self._files[METRICS].path)
        self.problems = lines.problems
        for row in lines.rows:
            self._take(row)

    def _take(self, row: Mapping[str, Any]) -> None:
        if row.get("kind") == "train":
            self.train_step = row["step"]
        self.collapsed = self._watch.update(row) or self.collapsed


class _RecordFile:
    """An append-only file of whole lines. Opening drops a half-written last line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._handle).st_size
        self.truncate(self._whole_lines())

    def append(self, objects: Sequence[Mapping[str, Any]] | Iterator[Mapping[str, Any]]) -> None:
        data = "".join(_line(value) for value in objects).encode("utf-8", "surrogatepass")
        written = 0
        try:
            while written < len(data):
                written += os.write(self._handle, data[written:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
            raise
        self._size += len(data)

    def sync(self) -> int:
        os.fsync(self._handle)
        return self._size

    def check(self, length: int) -> None:
        if length > self._size:
            raise CorruptRecordError(
                f"{self.path}: has {self._size} bytes where a checkpoint expects at least {length}"
            )
        if length and os.pread(self._handle, 1, length - 1) != b"\n":
            raise CorruptRecordError(
                f"{self.path}: no line ends at byte {length}, where a checkpoint expects it"
            )

    def truncate(self, length: int) -> None:
        if length != self._size:
            os.ftruncate(self._handle, length)
            self._size = length

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _whole_lines(self) -> int:
        end = self._size
        while end:
            start = max(0, end - (1 << 16))
            block = os.pread(self._handle, end - start, start)
            if (found := block.rfind(b"\n")) >= 0:
                return start + found + 1
            end = start
        return 0


def _line(value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=float) + "\n"
    except ValueError:
        return json.dumps(_encoded(value), ensure_ascii=False, allow_nan=False) + "\n"


def _encoded(value: Any) -> Any:
    """The same value with non-finite numbers as words, and whatever acts like a number as a float."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): _encoded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_encoded(inner) for inner in value]
    number = float(value)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")


def _decoded(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _NUMBERS.get(value, value) if isinstance(value, str) else value for key, value in row.items()
    }
