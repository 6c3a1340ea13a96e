"""What the platform asks of an environment, for adapted ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from envs.adapters.adapted import AdaptedEnv, Open, Sizes
from envs.adapters.config import AdapterConfig
from envs.adapters.engine import AdapterError, named
from envs.demonstrations import demonstrate
from envs.pool import SerialPool
from envs.process_pool import ProcessPool
from envs.text_env import Demonstration, EnvPool, Expert, Inventory, Need, Split, TextEnv

_VOCABULARY_EPISODES = 300
_TASK = "Act in the environment below, one action a turn. You have {turns} turns."


def seeds_of(config: AdapterConfig) -> tuple[int, int]:
    """How many seeds train and eval have."""
    return config.train_seeds, config.eval_seeds


class Chance:
    """Stands in for an expert: knows no action, and has a thought for any."""

    def action(self, env: TextEnv) -> None:
        """None: random admissible actions are demonstrated."""

    def thought(self, env: TextEnv, action: str) -> str:
        """That it is tried."""
        return f"try {action}"


class AdapterEnvironment:
    """See `envs.text_env.Environment`; one per library.

    module, distribution, extra: of the library: what is imported, what it comes in and which extra of ours
    installs it. open_engine: a function of a module, from a configuration to an `Engine`. sizes: how many
    episodes train and eval have. source: what else the episodes are made of, for a trial's identity.
    """

    def __init__(
        self,
        config_type: type[AdapterConfig],
        open_engine: Open,
        *,
        module: str,
        distribution: str,
        remedy: str,
        sizes: Sizes = seeds_of,
        source: Callable[[Any], str] | None = None,
    ) -> None:
        self.config_type = config_type
        self._open, self._sizes, self._source = open_engine, sizes, source
        self._module, self._distribution, self._remedy = module, distribution, remedy

    def data_id(self, config: AdapterConfig) -> str:
        """The library and its version: environments change with them."""
        told = "" if self._source is None else f" {self._source(config)}"
        return f"{self._distribution}-{self._version or 'missing'}{told}"

    def inventory(self, config: AdapterConfig) -> Inventory:
        """What is played, and the library."""
        played = getattr(config, "id", None) or getattr(config, "factory", None) or config.name
        need = Need(self._distribution, self._version, self._remedy)
        return Inventory(f"{played}: {config.train_seeds:,} + {config.eval_seeds:,} seeds", (need,))

    @property
    def _version(self) -> str | None:
        try:
            return metadata.version(self._distribution)
        except metadata.PackageNotFoundError:
            return None if find_spec(self._module) is None else "unknown"

    def problems(self, config: AdapterConfig) -> list[str]:
        """The library is missing, or the environment cannot be made and started."""
        if find_spec(self._module) is None:
            return [f"{config.name} needs {self._distribution}: {self._remedy}"]
        return list(_tried(config, self._open, self._sizes))

    def task(self, config: AdapterConfig) -> str:
        """The configured one."""
        return config.task or _TASK.format(turns=config.max_turns)

    def vocabulary(self, config: AdapterConfig) -> tuple[str, ...]:
        """The configured one, or the words of some episodes of random and expert play."""
        if config.vocabulary is not None:
            return config.vocabulary
        return tuple(dict.fromkeys(self._words(config)))

    def has_anchors(self, config: AdapterConfig) -> bool:
        """As configured."""
        return config.anchors

    def make(self, config: AdapterConfig) -> AdaptedEnv:
        """One environment."""
        return AdaptedEnv(config, self._open, self._sizes)

    def make_pool(self, config: AdapterConfig) -> EnvPool:
        """Side by side here, or in processes of their own."""
        make = partial(AdaptedEnv, config, self._open, self._sizes)
        if config.workers:
            return ProcessPool(make, workers=config.workers, step_seconds=config.step_seconds)
        return SerialPool(make)

    def expert(self, config: AdapterConfig) -> Expert:
        """The configured one. Raises AdapterError where it cannot be imported."""
        if config.expert is None:
            return Chance()
        found: Any = named(config.expert, "expert")
        return found() if isinstance(found, type) else found  # type: ignore[no-any-return]

    def demonstrations(
        self, config: AdapterConfig, *, episodes: int, seed: int, explore: float, error: float, history: int
    ) -> list[Demonstration]:
        """As `envs.demonstrations.demonstrate` gives them; without expert and admissible actions, none."""
        return demonstrate(
            lambda: self.make(config),
            self.expert(config),
            max_turns=config.max_turns,
            episodes=episodes,
            seed=seed,
            explore=explore,
            error=error,
            history=history,
        )

    def _words(self, config: AdapterConfig) -> Iterator[str]:
        """The words that train episodes show, half of whose actions are the expert's."""
        expert, chance = self.expert(config), random.Random(0)
        yield from self.task(config).split()
        env = self.make(config)
        try:
            for seed in range(_VOCABULARY_EPISODES):
                text, info = env.reset(seed, {"split": "train"})
                over = False
                while not over:
                    admissible = info["admissible"] or []
                    best = expert.action(env)
                    for action in (*admissible, *filter(None, [best])):
                        yield from f"{text} {action} {expert.thought(env, action)}".split()
                    chosen = chance.choice(admissible) if admissible else ""
                    if best is not None and chance.random() < 0.5:
                        chosen = best
                    text, _, terminated, truncated, info = env.step(chosen)
                    over = terminated or truncated
                yield from text.split()
        finally:
            env.close()


@lru_cache(maxsize=64)
def _tried(config: AdapterConfig, open_engine: Open, sizes: Sizes) -> tuple[str, ...]:
    """Why no episode can be started; tried out once."""
    env = AdaptedEnv(config, open_engine, sizes)
    splits: tuple[Split, ...] = ("eval", "train")
    try:
        for split in splits:
            env.reset(0, {"split": split})
        if config.expert is not None:
            named(config.expert, "expert")
    except AdapterError as error:
        return (str(error),)
    except Exception as error:  # noqa: BLE001 - whatever a library raises, it is why nothing can run
        return (f"{config.name} does not start: {type(error).__name__}: {error}",)
    finally:
        env.close()
    return ()
