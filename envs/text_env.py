"""The one interface of every environment: text in, text out, as in Gymnasium 1.x."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict

Split = Literal["train", "eval"]
Info = dict[str, Any]


class EnvConfig(BaseModel):
    """Base of every environment's schema: frozen, unknown keys refused.

    `environment` is the import path of the `Environment` (`package.module.Name`), so that an environment of
    another package is just a path.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    environment: str
    max_turns: int


class TextEnv(ABC):
    """One episode at a time.

    The text given to `step` is an *action*, already taken out of the policy's response. A malformed response
    is stepped as the empty action, which no environment admits: it changes nothing but the turn counter.
    """

    @abstractmethod
    def reset(self, seed: int, options: Mapping[str, Any] | None = None) -> tuple[str, Info]:
        """Start the episode of `seed` (the same seed gives the same initial state).

        options: `{"split": "train" | "eval"}`; the splits share no initial state. Info carries `anchor` (a
        hashable state for step groups, None when there is none), `admissible` (the admissible actions or
        None when they are not listed) and `success`.
        """

    @abstractmethod
    def step(self, text: str) -> tuple[str, float, bool, bool, Info]:
        """Take one action: observation, reward, terminated, truncated (the turn limit), info."""

    def render(self, *, colors: bool = False) -> str | None:
        """The state of the running episode as people draw it, in lines of text; None: as the observation is.

        colors: with the colours of a terminal (ANSI escapes).
        """
        return None

    def render_png(self) -> bytes | None:
        """The state as a picture, for models that see and for reports; None where there is none."""
        return None

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what the environment holds; safe to call twice."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What the policy is shown at one turn."""

    text: str
    anchor: str | None
    admissible: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one action led to. `observation` is None when the episode is over.

    void: the action did nothing that the environment knows (`void` in info, where it says so); trainers may
    mask such turns.
    failure: why the pool ended the episode, no doing of the policy's (a worker died); None otherwise.
    """

    observation: Observation | None
    reward: float
    terminated: bool
    truncated: bool
    success: bool
    void: bool = False
    failure: str | None = None


class EnvPool(ABC):
    """Many episodes side by side; episodes reset with the same seed share their initial state."""

    @abstractmethod
    def reset(self, seeds: Sequence[int], split: Split) -> list[Observation]:
        """Start one episode per seed, dropping whatever ran before; any number of episodes."""

    @abstractmethod
    def step(self, episodes: Sequence[int], actions: Sequence[str]) -> list[Outcome]:
        """Act in the named running episodes (indices into `reset`'s seeds), one action each."""

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what the pool holds; safe to call twice."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One turn of an expert: what it was shown (with the turns before) and the response it wrote.

    history: (observation, executed action) of the last turns, oldest first.
    """

    history: tuple[tuple[str, str], ...]
    observation: Observation
    response: str


class Expert(Protocol):
    """Acts well in a `TextEnv` of its environment, and says why in the words of a policy."""

    def action(self, env: Any) -> str | None:
        """The best action in the running episode; None when success is out of reach."""

    def thought(self, env: Any, action: str) -> str:
        """What a policy that goes on with `action`, good or bad, could think before it."""


@dataclass(frozen=True, slots=True)
class Need:
    """Something that an environment uses: `found` is its version or place, None when it is not there.

    remedy: how to get it; optional: the environment runs without it.
    """

    name: str
    found: str | None
    remedy: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Inventory:
    """What an environment is made of here: its data in a phrase, and what it needs."""

    data: str
    needs: tuple[Need, ...] = ()


Progress = Callable[[int, int], None]
"""Told how much is done, and of how much."""


class Environment(Protocol):
    """What an environment's folder offers; `EnvConfig.environment` names an instance of it.

    Importing the module is light (no torch): planning asks `data_id` and `problems` of it. It may also have
    `inventory(config) -> Inventory` (for `arena envs`) and `prepare(config, progress) -> str`, which makes in
    advance what would else be made when it is first needed, and says where it is (for `arena data`).
    """

    config_type: type[EnvConfig]

    def data_id(self, config: Any) -> str:
        """What the episodes are made of, for a trial's identity: generator version or data fingerprint."""

    def problems(self, config: Any) -> list[str]:
        """Why it cannot run on this machine, each with its remedy; empty when it can."""

    def task(self, config: Any) -> str:
        """The instruction that heads every prompt."""

    def vocabulary(self, config: Any) -> tuple[str, ...]:
        """Every word that observations, actions and the expert's thoughts are made of (tiny policies)."""

    def has_anchors(self, config: Any) -> bool:
        """Whether states recur under an anchor (step-level advantages need it)."""

    def make(self, config: Any) -> TextEnv:
        """One environment."""

    def make_pool(self, config: Any) -> EnvPool:
        """Many of them."""

    def expert(self, config: Any) -> Expert:
        """An upper bound, and what `demonstrations` imitate."""

    def demonstrations(
        self, config: Any, *, episodes: int, seed: int, explore: float, error: float, history: int
    ) -> list[Demonstration]:
        """Turns of an expert on the train split, for behaviour cloning.

        explore: probability that the *executed* action is random (states off the expert's path);
        error: probability that the *written* action is random (a mediocre expert).
        """
