"""Where the games of a split are: official ones in a folder of the user's, generated ones in the cache."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from envs.alfworld.config import AlfworldConfig, GeneratorConfig, TaskType
from envs.alfworld.generator import GENERATOR, Folder, generate
from envs.alfworld.package import DATA_VARIABLE, official_data
from envs.alfworld.storage import cache_folder, publish, write_atomically
from envs.text_env import Progress, Split

GAME_FILE = "game.tw-pddl"
TRAJECTORY_FILE = "traj_data.json"


class Games(ABC):
    """The games of one split, numbered."""

    @abstractmethod
    def __len__(self) -> int:
        """How many."""

    @abstractmethod
    def path(self, number: int) -> Path:
        """The file of a game."""

    @abstractmethod
    def ready(self) -> int:
        """How many are on file."""


def games(config: AlfworldConfig, split: Split) -> Games:
    """The games that a configuration names. Raises ValueError when there are none, and for unknown splits."""
    folder = _folder(config, split)
    if source(config) == "official":
        found = _OfficialGames(_official_folder(), folder, config.task_types)
        if not len(found):
            raise ValueError("; ".join(official_problems(config)))
        return found
    count = config.generated.train_games if split == "train" else config.generated.eval_games
    return _GeneratedGames(config.generated, config.task_types, folder, count)


def source(config: AlfworldConfig) -> Literal["official", "generated"]:
    """Which games are played."""
    if config.data == "auto":
        return "official" if official_data() is not None else "generated"
    return config.data


def data_id(config: AlfworldConfig) -> str:
    """Names the games beyond what the configuration says: a fingerprint, or the generator's version."""
    if source(config) == "official":
        if official_data() is None:
            return "official-missing"
        listings = [_listing(_official_folder() / _folder(config, split)) for split in ("train", "eval")]
        return f"official-{_fingerprint(listings)}"
    return f"{GENERATOR}-alfworld-{_version()}"


def official_problems(config: AlfworldConfig) -> list[str]:
    """Why official games cannot be played."""
    if official_data() is None:
        return [f"data: official needs {DATA_VARIABLE}, the folder that alfworld-download filled"]
    root = _official_folder()
    empty = [
        str(root / folder)
        for folder in (_folder(config, "train"), _folder(config, "eval"))
        if not len(_OfficialGames(root, folder, config.task_types))
    ]
    if empty:
        return [
            f"{DATA_VARIABLE} is set, but there are no games of the asked types in {' or '.join(empty)}: run "
            f"alfworld-download, unset {DATA_VARIABLE}, or set data: generated"
        ]
    return []


def place(config: AlfworldConfig) -> Path:
    """The folder, as ALFWORLD_DATA may name it, whose `json_2.1.1` holds the games of a configuration."""
    if source(config) == "official":
        return _official_folder().parent
    return _GeneratedGames(config.generated, config.task_types, "train", 1).root


def ready(config: AlfworldConfig) -> tuple[int, int]:
    """How many games of a configuration are on file, and how many it has."""
    splits = [games(config, "train"), games(config, "eval")]
    return sum(each.ready() for each in splits), sum(map(len, splits))


def prepare(config: AlfworldConfig, progress: Progress) -> None:
    """Make every game of a configuration that is not there yet; each is kept as soon as it is made."""
    splits = [games(config, "train"), games(config, "eval")]
    total, done = sum(map(len, splits)), 0
    progress(done, total)
    for each in splits:
        for number in range(len(each)):
            each.path(number)
            done += 1
            progress(done, total)


class _OfficialGames(Games):
    def __init__(self, root: Path, folder: str, task_types: tuple[TaskType, ...]) -> None:
        self._root = root / folder
        self._files = [
            path for path, task_type, solvable in _index(self._root) if solvable and task_type in task_types
        ]

    def __len__(self) -> int:
        return len(self._files)

    def path(self, number: int) -> Path:
        return self._root / self._files[number]

    def ready(self) -> int:
        return len(self._files)


class _GeneratedGames(Games):
    def __init__(
        self, config: GeneratorConfig, task_types: tuple[TaskType, ...], folder: Folder, count: int
    ) -> None:
        self._config, self._task_types, self._folder, self._count = config, task_types, folder, count
        settings = config.model_dump(mode="json", exclude={"train_games", "eval_games"})
        parts = json.dumps([GENERATOR, _version(), settings, task_types], sort_keys=True)
        self.root = cache_folder() / "alfworld" / "games" / hashlib.sha256(parts.encode()).hexdigest()[:16]
        of = f"-of-{config.train_games}" if folder == "valid_seen" else ""
        self._numbers = self.root / "numbers" / f"{folder}{of}"
        self._found = _found(self._numbers)

    def __len__(self) -> int:
        return self._count

    def path(self, number: int) -> Path:
        known = self._found.get(number)
        if known is None or not known.is_file():  # the cache may be deleted at any time
            known = self._found[number] = self._find(number)
        return known

    def ready(self) -> int:
        return sum((self._numbers / f"{number}.txt").is_file() for number in range(self._count))

    def _find(self, number: int) -> Path:
        split = self.root / "json_2.1.1" / self._folder
        known = self._numbers / f"{number}.txt"
        try:
            path = split / known.read_text(encoding="utf-8") / GAME_FILE
            if path.is_file():
                return path
        except FileNotFoundError:
            pass
        made = generate(self._config, self._task_types, self._folder, number)
        publish(split / made.folder, made.files)
        write_atomically(known, made.folder.encode())
        return split / made.folder / GAME_FILE


@lru_cache(maxsize=64)
def _found(numbers: Path) -> dict[int, Path]:
    """The games of a split that this process has asked for: all its environments look them up here."""
    return {}


def _folder(config: AlfworldConfig, split: Split) -> Folder:
    if split == "train":
        return "train"
    if split == "eval":
        return "valid_seen" if config.eval_split == "seen" else "valid_unseen"
    raise ValueError(f"unknown split {split!r}: expected 'train' or 'eval'")


def _official_folder() -> Path:
    folder = official_data()
    if folder is None:
        raise ValueError(f"data: official needs {DATA_VARIABLE}, the folder that alfworld-download filled")
    return folder


@lru_cache(maxsize=16)
def _listing(folder: Path) -> tuple[tuple[str, int], ...]:
    """The trials with both files, sorted, each with the size of its game file."""
    found = []
    for place, _, files in os.walk(folder):
        if GAME_FILE in files and TRAJECTORY_FILE in files:
            path = Path(place)
            found.append((str((path / GAME_FILE).relative_to(folder)), (path / GAME_FILE).stat().st_size))
    return tuple(sorted(found))


def _fingerprint(listings: Any) -> str:
    return hashlib.sha256(json.dumps(listings).encode()).hexdigest()[:16]


@lru_cache(maxsize=16)
def _index(folder: Path) -> tuple[tuple[str, str, bool], ...]:
    """Path, task type and solvability of every game that alfworld itself would play; read once, then kept."""
    listing = _listing(folder)
    kept = cache_folder() / "alfworld" / "official" / f"{_fingerprint([str(folder.resolve()), listing])}.json"
    try:
        return tuple((str(path), str(kind), bool(good)) for path, kind, good in json.loads(kept.read_bytes()))
    except (FileNotFoundError, ValueError):
        pass
    found = tuple(
        (path, *_describe(folder / path))
        for path, _ in listing
        if "movable" not in path and "Sliced" not in path
    )
    if found:
        write_atomically(kept, json.dumps(found).encode())
    return found


def _describe(path: Path) -> tuple[str, bool]:
    game = json.loads(path.read_text(encoding="utf-8"))
    trajectory = json.loads((path.parent / TRAJECTORY_FILE).read_text(encoding="utf-8"))
    return str(trajectory["task_type"]), bool(game.get("solvable"))


@lru_cache(maxsize=1)
def _version() -> str:
    try:
        return version("alfworld")
    except PackageNotFoundError:
        return "missing"
