"""Any `Engine` as a `TextEnv`: splits, seeds, turn limit, void turns, success, copies of running episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from envs.adapters.config import AdapterConfig
from envs.adapters.engine import AdapterError, Engine, Reply, Start
from envs.adapters.randomness import OwnRandomness
from envs.text_env import Info, Split, TextEnv

Sizes = Callable[[Any], tuple[int, int]]
Open = Callable[[Any], Engine]


class AdaptedEnv(TextEnv):
    """One episode of another library.

    open_engine, sizes: of the library: its engine, and how many episodes train and eval have. Both are
    functions of a module, and an episode is copied (pickled) by its seed and actions, which are played again:
    libraries' own objects need not be picklable.
    """

    def __init__(self, config: AdapterConfig, open_engine: Open, sizes: Sizes) -> None:
        self.config = config
        self._open, self._sizes = open_engine, sizes
        self._engine: Engine | None = None
        self._random = OwnRandomness()
        self._begun: tuple[int, Split] | None = None
        self._actions: list[str] = []
        self._over = True

    def __getstate__(self) -> dict[str, Any]:
        parts = ("config", "_open", "_sizes", "_begun", "_actions")
        return {name: self.__dict__[name] for name in parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["config"], state["_open"], state["_sizes"])  # type: ignore[misc]
        if state["_begun"] is not None:
            seed, split = state["_begun"]
            self.reset(seed, {"split": split})
            for action in state["_actions"]:
                self.step(action)

    @property
    def engine(self) -> Engine:
        """What plays, made at its first use; `engine.inner` is the library's environment."""
        if self._engine is None:
            self._engine = self._open(self.config)
        return self._engine

    def reset(self, seed: int, options: Mapping[str, Any] | None = None) -> tuple[str, Info]:
        """See `TextEnv.reset`. Raises AdapterError when no train episode differs from those of eval."""
        split = (options or {}).get("split", "train")
        number = _number(self.config, self._open, self._sizes, seed, split)
        start = self._start(number, split)
        self._begun, self._actions, self._over = (seed, split), [], False
        self._turns, self._text, self._admissible = 0, start.text, start.admissible
        return self._text, self._info(success=False, void=False)

    def step(self, text: str) -> tuple[str, float, bool, bool, Info]:
        """See `TextEnv.step`. Raises ValueError when no episode is running.

        A turn without an action, or with an inadmissible one, is void: it costs `void_reward` and nothing
        else happens.
        """
        if self._over:
            raise ValueError("the episode is over: reset first")
        self._actions.append(text)
        self._turns += 1
        void = not text or (self._admissible is not None and text not in self._admissible)
        reply = self._void() if void else self._act(text)
        truncated = not reply.terminated and (reply.truncated or self._turns >= self.config.max_turns)
        self._over = reply.terminated or truncated
        success = reply.success
        if success is None:
            success = reply.terminated and reply.reward >= self.config.success_reward
        success = bool(success) and not void
        return self._text, reply.reward, reply.terminated, truncated, self._info(success=success, void=void)

    def close(self) -> None:
        """See `TextEnv.close`."""
        self._over = True
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _start(self, number: int, split: Split) -> Start:
        self._random.seed(number)
        with self._random:
            return self.engine.start(number, split)

    def _act(self, text: str) -> Reply:
        with self._random:
            reply = self.engine.act(text)
        if self.config.shows == "all":
            self._text = "\n".join(filter(None, [self._text, f"> {text}", reply.text]))
        elif reply.text:
            self._text = reply.text
        self._admissible = reply.admissible
        return reply

    def _void(self) -> Reply:
        return Reply(self._text, self._admissible, self.config.void_reward, terminated=False, truncated=False)

    def _info(self, *, success: bool, void: bool) -> Info:
        return {
            "anchor": self._text if self.config.anchors else None,
            "admissible": None if self._admissible is None else list(self._admissible),
            "success": success,
            "void": void,
        }


@lru_cache(maxsize=100_000)
def _number(config: AdapterConfig, open_engine: Open, sizes: Sizes, seed: int, split: Split) -> int:
    """The library's seed of an episode: eval's follow those of train.

    With `splits: observations`, a train seed whose first text is one of eval's gives way to the next.
    """
    if split not in ("train", "eval"):
        raise ValueError(f"unknown split {split!r}: expected 'train' or 'eval'")
    train, evaluation = sizes(config)
    if split == "eval":
        return train + seed % evaluation
    if config.splits == "seeds":
        return seed % train
    first = _first_texts(config, open_engine, sizes)
    for shift in range(train):
        number = (seed + shift) % train
        if first(number, "train") not in first.evaluated:
            return number
    raise AdapterError(
        f"{config.name}: each of {train} train seeds starts as an eval episode does; "
        "set `splits: seeds` when the first observation hides what differs, or lower `eval_seeds`"
    )


class _FirstTexts:
    """How episodes start, and how those of eval do."""

    def __init__(self, config: AdapterConfig, open_engine: Open, sizes: Sizes) -> None:
        self._engine, self._random = open_engine(config), OwnRandomness()
        self._known: dict[int, str] = {}
        train, evaluation = sizes(config)
        self.evaluated = {self(number, "eval") for number in range(train, train + evaluation)}

    def __call__(self, number: int, split: Split) -> str:
        if number not in self._known:
            self._random.seed(number)
            with self._random:
                self._known[number] = self._engine.start(number, split).text
        return self._known[number]


@lru_cache(maxsize=8)
def _first_texts(config: AdapterConfig, open_engine: Open, sizes: Sizes) -> _FirstTexts:
    return _FirstTexts(config, open_engine, sizes)
