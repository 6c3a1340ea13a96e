"""Runs recorded elsewhere, read as the rows that collapse is judged by: TRL, verl, W&B, TensorBoard, MLflow.

Text is parsed, never evaluated. What a log calls its metrics is mapped to our names through `ALIASES`; keys
without an alias are kept aside and listed. The page docs/diagnose.md shows the table.
"""

from __future__ import annotations

import ast
import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.early_warning import number
from analysis.tensorboard import EventsError, read_events

MOST_BYTES = 2_000_000_000
_SQLITE = b"SQLite format 3\0"

ALIASES: Mapping[str, tuple[str, ...]] = {
    "rollout/success": (
        "success", "success_rate", "rollout/success",
        "episode/success_rate", "rewards/accuracy_reward/mean", "rewards/accuracy_reward", "accuracy",
        "critic/acc/mean", "critic/success_rate", "env/success_rate",
    ),
    "rollout/return": (
        "reward", "rewards", "mean_reward", "rollout/return",
        "critic/score/mean", "critic/rewards/mean", "rollout/ep_rew_mean", "objective/scores", "env/reward",
        "return", "episode_reward", "reward/mean",
    ),
    "rollout/group_reward_std": (
        "reward_std", "rollout/group_reward_std", "critic/score/std", "rewards/std",
        "reward/std",
    ),
    "rollout/uniform_groups_return": (
        "frac_reward_zero_std", "rollout/uniform_groups_return",
        "zero_std_share", "critic/zero_std_share",
    ),
    "rollout/valid_format": (
        "format_reward", "rewards/format_reward/mean", "rewards/format_reward",
        "format_rate", "valid_format", "rollout/valid_format", "critic/format_reward/mean",
        "rewards/soft_format_reward_func/mean", "rewards/strict_format_reward_func/mean",
    ),
    "rollout/response_tokens": (
        "completion_length", "completions/mean_length",
        "response_length/mean", "rollout/response_tokens", "response_length",
        "mean_length",
    ),
    "train/kl_ref": (
        "kl", "actor/kl_loss", "train/kl_ref", "kl_ref", "objective/kl",
        "actor/reward_kl_penalty", "mean_kl",
    ),
    "train/kl_old": (
        "actor/ppo_kl", "approx_kl", "train/kl_old", "kl_old", "policy/approxkl_avg",
        "ppo_kl",
    ),
    "train/gradient_norm": (
        "grad_norm", "actor/grad_norm", "gradient_norm", "train/gradient_norm",
        "train/gradient_norm_global", "grad_norm/global",
    ),
    "train/entropy": (
        "entropy", "train/entropy", "actor/entropy", "actor/entropy_loss", "policy/entropy_avg",
    ),
    "train/loss": (
        "loss", "train/loss", "actor/pg_loss", "policy_loss", "loss/policy_avg",
    ),
    "train/clip_low": ("clip_ratio/low_mean", "train/clip_low"),
    "train/clip_high": ("clip_ratio/high_mean", "train/clip_high"),
    "train/clip": (
        "clip_ratio", "clip_ratio/region_mean",
        "actor/pg_clipfrac", "clip_fraction", "policy/clipfrac_avg",
    ),
    "train/learning_rate": ("learning_rate", "train/learning_rate", "actor/lr", "lr"),
    "eval/success": (
        "eval/success", "eval_success", "eval/success_rate", "eval_success_rate", "val/success_rate",
        "eval_rewards/accuracy_reward/mean", "eval/accuracy", "val-core/success",
    ),
    "eval/return": ("eval/return", "eval_reward", "eval/reward", "val/reward", "val/test_score"),
    "eval/episodes": ("eval/episodes", "eval_episodes"),
    "train/neg_low_depth": ("train/neg_low_depth",),
    "train/min_sequence_ratio": ("train/min_sequence_ratio",),
}  # fmt: skip
"""Our name of a metric -> the keys under which other tools record it, the first that is there counts."""

STEP_KEYS = ("step", "global_step", "_step", "training/global_step", "train/global_step")
_VAL_CORE = re.compile(r"^val-core/.*/(?:acc|reward|score|success)/mean@\d+$")
_OURS = {alias: name for name, aliases in ALIASES.items() for alias in aliases}


class UnreadableError(ValueError):
    """A source holds no run that can be read; the message says what was tried."""


@dataclass
class ForeignRun:
    """One run as read.

    rows: one per step and kind, under our names; mapped: our name -> the key it was read from; unknown: keys
    without a name here, with how often; format: what the source was taken for; damaged: parts that could not
    be read.
    """

    name: str
    source: Path
    format: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    mapped: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    damaged: int = 0

    @property
    def steps(self) -> int:
        """The last step."""
        return max((int(row["step"]) for row in self.rows), default=0)


def read_source(source: Path) -> list[ForeignRun]:
    """The runs of a file or folder, whatever tool wrote it. Raises UnreadableError with the reason."""
    if not source.exists():
        raise UnreadableError(f"{source}: there is no such file or folder")
    try:
        runs = _folder(source) if source.is_dir() else _file(source)
    except OSError as error:
        raise UnreadableError(f"{source}: {error.strerror or error}") from None
    runs = [run for run in runs if run.rows]
    if not runs:
        raise UnreadableError(
            f"{source}: no run found; expected TRL's printed dicts or trainer_state.json, verl's console or"
            " JSON lines, a CSV export of W&B, TensorBoard event files, an MLflow run folder or database"
        )
    return runs


def _folder(folder: Path) -> list[ForeignRun]:
    if (folder / "metrics").is_dir():
        return [_mlflow_folder(folder)]
    if (folder / "metrics.jsonl").is_file():
        return [_json_lines(folder / "metrics.jsonl", name=folder.name)]
    events = sorted(folder.rglob("*tfevents*"))
    if events:
        groups: dict[Path, list[Path]] = {}
        for path in events:
            groups.setdefault(path.parent, []).append(path)
        return [_tensorboard(place, paths, folder) for place, paths in groups.items()]
    states = sorted(folder.rglob("trainer_state.json"), key=_checkpoint)
    if states:
        return [_trainer_state(states[-1])]
    nested = sorted(path.parent for path in folder.rglob("metrics") if path.is_dir())
    if nested:
        return [_mlflow_folder(place) for place in nested]
    names = ("*.jsonl", "*.json", "*.csv", "*.log", "*.txt", "*.out")
    found = []
    for path in sorted(path for pattern in names for path in folder.glob(pattern)):
        try:
            found += _file(path)
        except UnreadableError:
            continue
    return found


def _file(path: Path) -> list[ForeignRun]:
    if path.stat().st_size > MOST_BYTES:
        raise UnreadableError(f"{path}: larger than {MOST_BYTES / 1e9:.0f} GB")
    with path.open("rb") as file:
        head = file.read(len(_SQLITE))
    if head == _SQLITE or path.suffix in (".db", ".sqlite", ".sqlite3"):
        return _mlflow_database(path)
    if "tfevents" in path.name:
        return [_tensorboard(path.parent, [path], path)]
    # A log is what it holds, whatever it is called: its ending only says what to try first.
    expected = _READERS.get(path.suffix, _text_runs)
    refusals = []
    for read in dict.fromkeys((expected, *_READERS.values(), _text_runs)):
        try:
            if runs := [run for run in read(path) if run.rows]:
                return runs
        except UnreadableError as error:
            refusals.append(error)
    if b"\0" in head and (events := _tensorboard(path.parent, [path], path)).rows:
        return [events]
    if refusals and expected is not _text_runs:
        raise refusals[0]
    return []


def _checkpoint(path: Path) -> tuple[int, str]:
    found = re.search(r"checkpoint-(\d+)", str(path))
    return (int(found[1]) if found else 10**12, str(path))


def _state_runs(path: Path) -> list[ForeignRun]:
    return [_trainer_state(path)]


def _line_runs(path: Path) -> list[ForeignRun]:
    return [_json_lines(path)]


def _text_runs(path: Path) -> list[ForeignRun]:
    return [_text(path)]


def _trainer_state(path: Path) -> ForeignRun:
    """transformers' and TRL's `trainer_state.json`: a list of log entries under `log_history`."""
    run = ForeignRun(_name(path), path, "trainer_state.json")
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path}: not JSON ({error})") from None
    history = document.get("log_history") if isinstance(document, dict) else document
    if not isinstance(history, list):
        raise UnreadableError(f"{path}: has no `log_history`")
    _collect(run, (entry for entry in history if isinstance(entry, dict)))
    return run


def _json_lines(path: Path, *, name: str = "") -> ForeignRun:
    """JSON, an object a line: verl's file logger (`{"step": 3, "data": {...}}`), our own records, others."""
    run = ForeignRun(name or _name(path), path, "JSON lines")

    def entries() -> Iterator[dict[str, Any]]:
        for line in _lines(path):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                run.damaged += 1
                continue
            if isinstance(entry, dict):
                data = entry.get("data")
                yield {**data, "step": entry.get("step")} if isinstance(data, dict) else entry

    _collect(run, entries())
    return run


_CONSOLE = re.compile(r"\bstep:(\d+)((?:\s+-\s+[^\s:]+:\S+)+)")
_PAIR = re.compile(r"\s+-\s+([^\s:]+):(\S+)")


def _text(path: Path) -> ForeignRun:
    """A log of other output with TRL's dicts, or verl's `step:N - key:value` lines, among it."""
    run = ForeignRun(_name(path), path, "text")

    def entries() -> Iterator[dict[str, Any]]:
        for line in _lines(path):
            if found := _CONSOLE.search(line):
                run.format = "verl console"
                pairs = {key: _value(value) for key, value in _PAIR.findall(found[2])}
                yield {**pairs, "step": int(found[1])}
            elif "{" in line and "}" in line:
                entry = _printed(line[line.index("{") : line.rindex("}") + 1])
                if entry is not None and _known(entry):
                    run.format = "printed dicts"
                    yield entry

    _collect(run, entries())
    return run


def _printed(text: str) -> dict[str, Any] | None:
    """A printed dict or a JSON object, as literals; `nan` and `inf` are numbers."""
    for parse in (json.loads, _literal):
        try:
            entry = parse(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(entry, dict):
            return {str(key): value for key, value in entry.items()}
    return None


def _literal(text: str) -> Any:
    return ast.literal_eval(re.sub(r"(?<![\w'\"])(-?)(nan|inf)(?![\w'\"])", r"'\1\2'", text))


def _csv(path: Path) -> list[ForeignRun]:
    """A CSV export: W&B's charts (`run - metric` columns, `__MIN`/`__MAX` beside) or a table of one run."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        try:
            table = list(csv.DictReader(lines))
        except csv.Error as error:
            raise UnreadableError(f"{path}: not a CSV ({error})") from None
    if not table:
        raise UnreadableError(f"{path}: an empty CSV")
    columns = [name for name in table[0] if name and not name.endswith(("__MIN", "__MAX"))]
    step = next((name for name in columns if name.lower() in ("step", "_step", "global_step")), None)
    step = step or next((name for name in columns if name in STEP_KEYS), None)
    prefixed = {name: name.split(" - ", 1) for name in columns if " - " in name}
    runs: dict[str, ForeignRun] = {}
    names = dict.fromkeys(parts[0] for parts in prefixed.values()) or {"": None}
    for name in names:
        chosen = {c: parts[1] for c, parts in prefixed.items() if parts[0] == name} or {c: c for c in columns}
        own_step = next((c for c, key in chosen.items() if key in STEP_KEYS), step)
        entries = []
        for index, line in enumerate(table):
            entry = {key: value for column, key in chosen.items() if (value := line.get(column))}
            if entry:
                at = line.get(own_step) if own_step else index
                entries.append({**entry, "step": at if at not in (None, "") else index})
        run = ForeignRun(name or _name(path), path, "CSV")
        _collect(run, entries)
        runs[name] = run
    return list(runs.values())


def _tensorboard(place: Path, paths: Iterable[Path], root: Path) -> ForeignRun:
    name = place.name if place == root else str(place.relative_to(root)) if root.is_dir() else _name(place)
    run = ForeignRun(name, place, "TensorBoard")
    entries: dict[int, dict[str, Any]] = {}
    for path in paths:
        try:
            for step, tag, value in read_events(path):
                entries.setdefault(step, {"step": step})[tag] = value
        except EventsError:
            run.damaged += 1
    _collect(run, (entries[step] for step in sorted(entries)))
    return run


def _mlflow_folder(folder: Path) -> ForeignRun:
    """A run of MLflow's file store: `metrics/<key>`, a line `timestamp value step` each."""
    run = ForeignRun(folder.name, folder, "MLflow")
    entries: dict[int, dict[str, Any]] = {}
    for path in sorted((folder / "metrics").rglob("*")):
        if path.is_file():
            key = str(path.relative_to(folder / "metrics"))
            for line in _lines(path):
                parts = line.split()
                if len(parts) >= 3:
                    step = int(number(parts[2]) or 0)
                    entries.setdefault(step, {"step": step})[key] = _value(parts[1])
    _collect(run, (entries[step] for step in sorted(entries)))
    return run


def _mlflow_database(path: Path) -> list[ForeignRun]:
    """The runs of MLflow's SQLite store, read without MLflow and without writing."""
    import sqlite3

    runs: dict[str, ForeignRun] = {}
    entries: dict[str, dict[int, dict[str, Any]]] = {}
    query = (
        "select r.run_uuid, r.name, m.key, m.value, m.is_nan, m.step from metrics m"
        " join runs r on r.run_uuid = m.run_uuid order by r.start_time, m.step, m.timestamp"
    )
    try:
        with sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True) as store:
            for uuid, name, key, value, is_nan, step in store.execute(query):
                runs.setdefault(uuid, ForeignRun(str(name or uuid), path, "MLflow"))
                at = entries.setdefault(uuid, {}).setdefault(int(step), {"step": int(step)})
                at[str(key)] = math.nan if is_nan else value
    except sqlite3.Error as error:
        raise UnreadableError(f"{path}: not a store of MLflow ({error})") from None
    for uuid, run in runs.items():
        _collect(run, (entries[uuid][step] for step in sorted(entries[uuid])))
    return list(runs.values())


def _collect(run: ForeignRun, entries: Iterable[Mapping[str, Any]]) -> None:
    """Map entries to rows; entries without a step are numbered."""
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    last = 0
    for entry in entries:
        kind = entry.get("kind")
        step = next((int(found) for key in STEP_KEYS if (found := _whole(entry.get(key))) is not None), None)
        named: dict[str, Any] = {}
        for key, value in entry.items():
            if key in STEP_KEYS or key == "kind" or number(value) is None:
                continue
            name = ours(str(key))
            if name is None:
                run.unknown[str(key)] = run.unknown.get(str(key), 0) + 1
            elif name not in named or _rank(name, str(key)) < _rank(name, run.mapped[name]):
                named[name] = _recorded(value)
                run.mapped[name] = str(key)
        if not named:
            continue
        step = last + 1 if step is None else step
        last = step
        for name, value in named.items():
            part = "eval" if kind == "eval" or name.startswith("eval/") else "train"
            rows.setdefault((step, part), {"step": step, "kind": part})[name] = value
    run.rows = [rows[key] for key in sorted(rows, key=lambda key: (key[0], key[1] == "eval"))]


_READERS: Mapping[str, Callable[[Path], list[ForeignRun]]] = {
    ".jsonl": _line_runs,
    ".json": _state_runs,
    ".csv": _csv,
}


def ours(key: str) -> str | None:
    """Our name of a key of another tool, None for one without."""
    for known in (key, key.removeprefix("train/")):
        if known in _OURS:
            return _OURS[known]
    return "eval/success" if _VAL_CORE.match(key) else None


def _rank(name: str, key: str) -> int:
    """Where a key stands among the aliases of a name: the first that is there counts."""
    aliases = ALIASES[name]
    found = (aliases.index(known) for known in (key, key.removeprefix("train/")) if known in aliases)
    return next(found, len(aliases))


def _known(entry: Mapping[str, Any]) -> bool:
    return any(ours(key) is not None for key in entry)


def _recorded(value: Any) -> Any:
    found = number(value)
    return found if found is not None else value


def _value(text: str) -> float | None:
    """A number as other tools print it: `np.float64(0.5)`, `tensor(0.5)`, `0.5`."""
    inner = re.fullmatch(r"[\w.]+\(([^()]*)\)", text)
    return number(inner[1] if inner else text.rstrip(","))


def _whole(value: Any) -> int | None:
    found = number(value)
    return int(found) if found is not None and math.isfinite(found) else None


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        for line in lines:
            if line.strip():
                yield line


def _name(path: Path) -> str:
    generic = path.stem in ("trainer_state", "metrics", "train", "log", "output", "stdout")
    return path.parent.name if generic and path.parent.name else path.stem
