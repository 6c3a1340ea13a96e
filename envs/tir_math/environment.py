"""Tool-integrated maths as a text environment: a problem, Python to compute with, an answer.

A response's action is code or an answer (`actions`). Code runs in the sandbox and its output is the next
observation; an answer ends the episode. There are no anchors: no state comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from shutil import which
from typing import Any

from envs.demonstrations import demonstrate, draw
from envs.pool import EpisodeBook
from envs.text_env import (
    Demonstration,
    EnvPool,
    Info,
    Inventory,
    Need,
    Observation,
    Outcome,
    Split,
    TextEnv,
)
from envs.tir_math import arithmetic, files, reasoning
from envs.tir_math.actions import ANSWER_WORD, CODE_WORD
from envs.tir_math.arithmetic import CODE_WORDS, PROBLEM_WORDS, Expression
from envs.tir_math.config import TirMathConfig
from envs.tir_math.demonstrations import demonstrate_arithmetic
from envs.tir_math.episode import Episode, observe_episode, step_all
from envs.tir_math.expert import THOUGHT_WORDS, TirMathExpert
from envs.tir_math.grading import PACKAGE as GRADER
from envs.tir_math.observation import OBSERVATION_WORDS
from envs.tir_math.problem import Problems
from envs.tir_math.sandbox.launch import INSTALL
from envs.tir_math.sandbox.readiness import sandbox_problems

_TASK_IN_WORDS = "Compute the number asked for: run code, then answer with its output."
_TASK = """Solve the problem. You have {turns} turns; in each you either run Python code or give your answer.
To run code, write it as your action in a fenced block that starts with ```python; you will see what it \
prints (a last expression is printed too). {session} Available: the standard library{packages}.
To answer, write as your action: answer: \\boxed{{your answer}}. That ends the episode."""
_EXTRA = "install it: `pip install 'arlarena[tir]'`"
_SESSIONS = {
    True: "Variables are kept from turn to turn.",
    False: "Every block starts afresh: nothing is kept from earlier ones.",
}


class TirMathEnv(TextEnv):
    """One episode; `episode` is there for the expert.

    Info has `void` (whether the turn was neither code nor an answer, None after reset), `kind` and `ending`
    (`episode.Step`) besides the usual.
    """

    def __init__(self, config: TirMathConfig) -> None:
        self.config = config
        self._episode: Episode | None = None

    @property
    def episode(self) -> Episode:
        """The running episode. Raises ValueError before the first reset."""
        if self._episode is None:
            raise ValueError("no episode is running: reset first")
        return self._episode

    def reset(self, seed: int, options: Mapping[str, Any] | None = None) -> tuple[str, Info]:
        """Start problem `seed` modulo the number of problems; see `TextEnv.reset`."""
        every = problems(self.config).of((options or {}).get("split", "train"))
        self._episode = Episode(every[seed % len(every)])
        return observe_episode(self.config, self._episode), _info(success=False, void=False)

    def step(self, text: str) -> tuple[str, float, bool, bool, Info]:
        """Run code or answer; see `TextEnv.step`. Raises ValueError when no episode is running."""
        if self._episode is None or self._episode.over:
            raise ValueError("the episode is over: reset first")
        (step,) = step_all(self.config, [self._episode], [text])
        info = _info(success=step.success, void=step.kind == "void")
        info |= {"kind": step.kind, "ending": step.ending}
        observation = observe_episode(self.config, self._episode)
        return observation, step.reward, step.terminated, step.truncated, info


def _info(*, success: bool, void: bool) -> Info:
    return {"anchor": None, "admissible": None, "success": success, "void": void}


class TirMathPool(EnvPool):
    """Episodes side by side: one round trip to the sandbox per step."""

    def __init__(self, config: TirMathConfig) -> None:
        self._config = config
        self._book = EpisodeBook()
        self._episodes: list[Episode] = []

    def reset(self, seeds: Sequence[int], split: Split) -> list[Observation]:
        """See `EnvPool.reset`."""
        every = problems(self._config).of(split)
        self._episodes = [Episode(every[seed % len(every)]) for seed in seeds]
        self._book.start(len(seeds))
        return [self._observe(episode) for episode in self._episodes]

    def step(self, episodes: Sequence[int], actions: Sequence[str]) -> list[Outcome]:
        """See `EnvPool.step`."""
        self._book.check(episodes, actions)
        running = [self._episodes[number] for number in episodes]
        outcomes = []
        for episode, step in zip(running, step_all(self._config, running, actions), strict=True):
            observation = None if episode.over else self._observe(episode)
            outcomes.append(
                Outcome(
                    observation,
                    step.reward,
                    step.terminated,
                    step.truncated,
                    step.success,
                    void=step.kind == "void",
                )
            )
        self._book.finish(number for number in episodes if self._episodes[number].over)
        return outcomes

    def _observe(self, episode: Episode) -> Observation:
        return Observation(observe_episode(self._config, episode), None, None)


class TirMathEnvironment:
    """See `envs.text_env.Environment`."""

    config_type = TirMathConfig

    def data_id(self, config: TirMathConfig) -> str:
        """The generator and its version, or a fingerprint of the files."""
        if config.problems == "arithmetic":
            return arithmetic.GENERATOR
        return reasoning.data_id() if config.problems == "reasoning_gym" else files.data_id(config.files)

    def problems(self, config: TirMathConfig) -> list[str]:
        """No sandbox, missing packages, unreadable files, or fewer problems than asked for."""
        found = sandbox_problems(config.packages)
        if config.spelling == "text" and find_spec("math_verify") is None:
            found.append(f"{GRADER}, which grades answers, is not installed; {_EXTRA}")
        if config.problems == "reasoning_gym" and find_spec("reasoning_gym") is None:
            found.append(f"{reasoning.DISTRIBUTION} is not installed; {_EXTRA}")
        if found:
            return found
        try:
            if config.problems == "reasoning_gym":
                reasoning.first(config.reasoning_gym, config.problem_seed)
            else:
                problems(config)
        except ValueError as error:
            found.append(str(error))
        return found

    def inventory(self, config: TirMathConfig) -> Inventory:
        """The sandbox, and what makes and grades problems of language models."""
        words = config.spelling == "words"
        needs = (
            Need("bubblewrap", which("bwrap"), INSTALL),
            Need("math-verify", _version(GRADER), _EXTRA, optional=words),
            Need(
                "reasoning-gym",
                _version(reasoning.DISTRIBUTION),
                _EXTRA,
                optional=config.problems != "reasoning_gym",
            ),
        )
        source = f"{config.files.train}" if config.problems == "files" else f"{config.problems}, from a seed"
        return Inventory(f"{config.train_problems:,} + {config.eval_problems:,} problems: {source}", needs)

    def task(self, config: TirMathConfig) -> str:
        """How to run code and how to answer."""
        if config.spelling == "words":
            return _TASK_IN_WORDS
        packages = "".join(f", {package}" for package in config.packages)
        return _TASK.format(turns=config.max_turns, session=_SESSIONS[config.session], packages=packages)

    def vocabulary(self, config: TirMathConfig) -> tuple[str, ...]:
        """The words of problems, code, outputs and thoughts; none with `spelling: text`: it has no end."""
        if config.spelling == "text":
            return ()
        words = (*PROBLEM_WORDS, *CODE_WORDS, CODE_WORD, ANSWER_WORD, *OBSERVATION_WORDS, *THOUGHT_WORDS)
        return tuple(dict.fromkeys(words))

    def has_anchors(self, config: TirMathConfig) -> bool:
        """No state comes back."""
        return False

    def make(self, config: TirMathConfig) -> TirMathEnv:
        """One environment."""
        return TirMathEnv(config)

    def make_pool(self, config: TirMathConfig) -> TirMathPool:
        """Many, with a sandbox that all of a process share."""
        return TirMathPool(config)

    def expert(self, config: TirMathConfig) -> TirMathExpert:
        """The right code, then the right answer."""
        return TirMathExpert(config)

    def demonstrations(
        self, config: TirMathConfig, *, episodes: int, seed: int, explore: float, error: float, history: int
    ) -> list[Demonstration]:
        """Of arithmetic in words with mistakes; of other problems without, as no wrong actions are listed."""
        draws = draw(episodes, config.max_turns, seed=seed, explore=explore, error=error)
        if config.spelling == "words":
            return demonstrate_arithmetic(config, _train_expressions(config), draws, history)
        return demonstrate(
            lambda: TirMathEnv(config),
            TirMathExpert(config),
            max_turns=config.max_turns,
            episodes=episodes,
            seed=seed,
            explore=explore,
            error=error,
            history=history,
        )


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


@lru_cache(maxsize=8)
def problems(config: TirMathConfig) -> Problems:
    """The problems of both splits, made or read at the first call; none of the one is in the other.

    Raises ValueError, with what to change, when there are none or not enough.
    """
    wanted = {"train": config.train_problems, "evaluation": config.eval_problems, "seed": config.problem_seed}
    if config.problems == "arithmetic":
        return arithmetic.problems(config.arithmetic, spelled=config.spelling == "words", **wanted)
    if config.problems == "reasoning_gym":
        return reasoning.problems(config.reasoning_gym, **wanted)
    return files.problems(config.files, **wanted)


@lru_cache(maxsize=4)
def _train_expressions(config: TirMathConfig) -> tuple[Expression, ...]:
    return arithmetic.expressions(
        config.arithmetic,
        train=config.train_problems,
        evaluation=config.eval_problems,
        seed=config.problem_seed,
    )["train"]


TIR_MATH = TirMathEnvironment()
