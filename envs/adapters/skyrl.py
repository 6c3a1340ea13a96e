"""SkyRL's environments (skyrl-gym): an episode is a row of a data set, and ends when they say so."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from envs.adapters.config import SkyRLConfig
from envs.adapters.engine import AdapterError, Engine, Reply, Start, make_inner
from envs.adapters.environment import AdapterEnvironment
from envs.data_files import read_rows
from envs.text_env import Split

Row = Mapping[str, Any]


class SkyRLEngine(Engine):
    """Makes an environment per episode: its row's `prompt` starts it, all else in the row is its `extras`."""

    def __init__(self, config: SkyRLConfig, rows: Sequence[Row]) -> None:
        self._config, self._rows = config, rows
        self.inner = None

    def start(self, seed: int, split: Split) -> Start:
        """See `Engine.start`."""
        import skyrl_gym

        row = self._rows[seed]
        extras = {key: value for key, value in row.items() if key != "prompt"}
        parameters = {"env_config": {}, "extras": extras}
        self.inner, _ = make_inner(self._config, skyrl_gym.make, parameters)
        prompt, _ = self.inner.init(_messages(row["prompt"]))
        return Start(_joined(prompt), None)

    def act(self, action: str) -> Reply:
        """See `Engine.act`."""
        done = self.inner.step(action)
        text = _joined(done["observations"])
        return Reply(text, None, float(done["reward"]), terminated=bool(done["done"]), truncated=False)

    def close(self) -> None:
        """See `Engine.close`."""
        if self.inner is not None:
            self.inner.close()


def _messages(prompt: Any) -> list[dict[str, str]]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [dict(message) for message in prompt]


def _joined(messages: Sequence[Mapping[str, str]]) -> str:
    return "\n\n".join(str(message["content"]) for message in messages).strip()


@lru_cache(maxsize=4)
def _rows(train_path: str, eval_path: str) -> tuple[tuple[Row, ...], int]:
    """Train rows, then eval rows, and how many of them are train's. Raises AdapterError."""
    read: dict[str, list[Row]] = {}
    for path in (train_path, eval_path):
        try:
            read[path] = list(read_rows(Path(path)))
        except (OSError, ValueError) as error:
            raise AdapterError(f"{path}: {error}") from error
        for number, row in enumerate(read[path], 1):
            if "prompt" not in row:
                raise AdapterError(f"{path}: row {number} has no `prompt`, only {', '.join(map(str, row))}")
    evaluated = {_joined(_messages(row["prompt"])) for row in read[eval_path]}
    train = [row for row in read[train_path] if _joined(_messages(row["prompt"])) not in evaluated]
    for path, left in ((train_path, train), (eval_path, read[eval_path])):
        if not left:
            raise AdapterError(f"{path}: no row is left")
    return (*train, *read[eval_path]), len(train)


def _sizes(config: SkyRLConfig) -> tuple[int, int]:
    rows, train = _rows(config.train_path, config.eval_path)
    return min(train, config.train_seeds), min(len(rows) - train, config.eval_seeds)


def open_skyrl(config: SkyRLConfig) -> SkyRLEngine:
    """The engine of a configuration. Raises AdapterError."""
    rows, train = _rows(config.train_path, config.eval_path)
    return SkyRLEngine(config, (*rows[: _sizes(config)[0]], *rows[train:]))


def _fingerprint(config: SkyRLConfig) -> str:
    found = hashlib.sha256()
    for path in (config.train_path, config.eval_path):
        try:
            found.update(hashlib.sha256(Path(path).read_bytes()).digest())
        except OSError:
            return "missing"  # `problems` says so
    return found.hexdigest()[:16]


SKYRL_GYM = AdapterEnvironment(
    SkyRLConfig,
    open_skyrl,
    module="skyrl_gym",
    distribution="skyrl-gym",
    remedy="pip install 'arlarena[adapters]'",
    sizes=_sizes,
    source=_fingerprint,
)
