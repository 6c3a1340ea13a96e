"""Episodes of tool-integrated maths: many at a time, with one round trip to the sandbox for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from envs.tir_math.actions import Action, read_action
from envs.tir_math.config import TirMathConfig
from envs.tir_math.grading import grade, same_integer
from envs.tir_math.observation import Computation, observe
from envs.tir_math.problem import Problem
from envs.tir_math.sandbox.limits import Ending, Finished, Snippet


@dataclass(slots=True)
class Episode:
    """One attempt at a problem: what was computed, turns taken, and whether it takes no more."""

    problem: Problem
    done: list[Computation] = field(default_factory=list)
    turns: int = 0
    over: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What an action led to.

    kind: what the action was; ending: how its code ended, None when it was none
    """

    reward: float
    terminated: bool
    truncated: bool
    success: bool
    kind: Literal["code", "answer", "void"]
    ending: Ending | None


def step_all(config: TirMathConfig, episodes: Sequence[Episode], texts: Sequence[str]) -> list[Step]:
    """Act in different running episodes, one text each; code and answers of all run side by side.

    Equal code in equal sessions runs once: snippets see no clock, no chance and no network that differs.
    """
    actions = [read_action(text, joined=config.spelling == "words") for text in texts]
    snippets = [
        Snippet(action.text, _session(config, episode)) if action.kind == "code" else None
        for episode, action in zip(episodes, actions, strict=True)
    ]
    finished = _run(config, [snippet for snippet in snippets if snippet is not None])
    answered = [
        (episode.problem.truth, action.text)
        for episode, action in zip(episodes, actions, strict=True)
        if action.kind == "answer"
    ]
    verdicts = iter(_grade(config, answered))
    steps = []
    for episode, action, snippet in zip(episodes, actions, snippets, strict=True):
        right = action.kind == "answer" and next(verdicts)
        result = None if snippet is None else finished[snippet]
        if result is not None:
            episode.done.append(Computation(action.text, result))
        episode.turns += 1
        truncated = action.kind != "answer" and episode.turns >= config.max_turns
        episode.over = action.kind == "answer" or truncated
        ending = None if result is None else result.ending
        reward = _reward(config, action, right=right, ending=ending)
        steps.append(Step(reward, action.kind == "answer", truncated, right, action.kind, ending))
    return steps


def observe_episode(config: TirMathConfig, episode: Episode) -> str:
    """What the policy is shown now."""
    return observe(config, episode.problem, episode.done)


def _session(config: TirMathConfig, episode: Episode) -> tuple[str, ...]:
    """The code to run before an episode's next: what raised counts up to there, what was stopped does not."""
    if not config.session:
        return ()
    return tuple(earlier.code for earlier in episode.done if earlier.finished.ending in ("done", "raised"))


def _run(config: TirMathConfig, snippets: Sequence[Snippet]) -> dict[Snippet, Finished]:
    different = list(dict.fromkeys(snippets))
    if not different:
        return {}
    from envs.tir_math.sandbox.pool import shared_pool

    pool = shared_pool(config.limits, config.packages, config.warm_up)
    return dict(zip(different, pool.run(different), strict=True))


def _grade(config: TirMathConfig, answered: Sequence[tuple[str, str]]) -> list[bool]:
    if config.spelling == "words":  # integers, and nothing else is an answer there
        return [same_integer(truth, answer) for truth, answer in answered]
    return grade(answered, plain_numbers=config.plain_numbers)


def _reward(config: TirMathConfig, action: Action, *, right: bool, ending: Ending | None) -> float:
    rewards = config.rewards
    if action.kind == "answer":
        return rewards.correct if right else rewards.wrong
    if action.kind == "void":
        return rewards.void
    return rewards.code if ending == "done" else rewards.failed_code
