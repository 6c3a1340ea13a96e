"""Grouped multi-turn rollouts: a policy plays many episodes side by side, and what it wrote becomes rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from envs.prompts import Parsed, parse, render, render_next
from envs.text_env import EnvPool, Observation, Outcome, Split
from trainers.config import PenaltyConfig, PromptConfig
from trainers.monitor import Kind, Transcript
from trainers.policy import Policy, Sampling
from trainers.row_building import Turn, transcript_rows, turn_rows
from trainers.rows import Rows

_LOG = logging.getLogger(__name__)


class EnvironmentsFailedError(RuntimeError):
    """Not one episode of a rollout was played to its end: the environment does not work here."""


@dataclass(frozen=True)
class Episodes:
    """What a rollout did, one entry per episode unless said otherwise.

    returns, turns, success  (episodes,)
    valid_format, valid_action, void  (episodes,) share of the episode's turns, None: not known
    response_tokens  (rows,) long
    failed  (episodes,) bool, episodes whose environment failed: they have no rows and belong to no statistic
    context_full  (episodes,) bool, episodes that ended because their transcript had no room for a response
    """

    returns: Tensor
    turns: Tensor
    success: Tensor
    valid_format: Tensor
    valid_action: Tensor
    response_tokens: Tensor
    void: Tensor | None = None
    failed: Tensor | None = None
    context_full: Tensor | None = None

    @property
    def played(self) -> Tensor:
        """(episodes,) bool: those that count."""
        return torch.ones_like(self.success) if self.failed is None else ~self.failed

    def share(self, of_turns: Tensor | None) -> float:
        """The rate over turns, from every episode's (episodes,) share of them; 0 where it is not known."""
        if of_turns is None:
            return 0.0
        turns = torch.where(self.played, self.turns, 0).double()
        return float((of_turns.double() * turns).sum() / turns.sum())


@dataclass(frozen=True)
class Rollout:
    """Rows of a rollout (trajectory i belongs to episode i), its episodes and some transcripts."""

    rows: Rows
    episodes: Episodes
    transcripts: tuple[Transcript, ...]


class Prompter:
    """Renders and encodes prompts, remembering both: at one turn most episodes of a group look alike.

    rows: what the policy is shown at a turn: a prompt made for it, or the transcript up to there.
    """

    def __init__(
        self, policy: Policy, prompt: PromptConfig, task: str, rows: Literal["turn", "transcript"] = "turn"
    ) -> None:
        self.policy, self.prompt, self.task, self.rows = policy, prompt, task, rows
        self._encoded: dict[str, list[int]] = {}

    def text(self, history: Sequence[tuple[str, str]], observation: Observation) -> str:
        """The prompt: the task, the last turns as the configuration says, and the observation."""
        kept = history[-self.prompt.history :] if self.prompt.history else ()
        return render(self.prompt.style, self.task, kept, observation)

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt."""
        tokens = self._encoded.get(text)
        if tokens is None:
            if len(self._encoded) > 200_000:
                self._encoded.clear()
            tokens = self._encoded[text] = self.policy.encode(text)
        return tokens

    def open(self, observation: Observation) -> tuple[int, ...]:
        """Token ids of what a transcript begins with. Raises ValueError when no response fits after it."""
        opening = tuple(self.encode(self.text((), observation)))
        if not self.fits(opening):
            raise ValueError(
                f"a transcript begins with {len(opening)} tokens, which leaves no room for a response of "
                f"prompt.max_response_tokens: {self.prompt.max_response_tokens} in {self.context} tokens "
                "(prompt.max_context_tokens, or the positions of the model); raise that, or shorten "
                "observations"
            )
        return opening

    def go_on(
        self, transcript: Sequence[int], response: Sequence[int], observation: Observation
    ) -> tuple[int, ...]:
        """Token ids of a transcript after a response to it and what that led to."""
        following = self.policy.encode_next(render_next(self.prompt.style, observation), response)
        return (*transcript, *response, *following)

    def fits(self, transcript: Sequence[int]) -> bool:
        """Whether there is room for one more whole response."""
        return self.context is None or len(transcript) + self.prompt.max_response_tokens <= self.context

    @property
    def context(self) -> int | None:
        """How many tokens a transcript may have; None: no limit."""
        limits = [self.prompt.max_context_tokens, self.policy.positions]
        return min((limit for limit in limits if limit is not None), default=None)


def rollout(
    policy: Policy,
    pool: EnvPool,
    prompter: Prompter,
    seeds: Sequence[int],
    *,
    split: Split,
    group_size: int,
    sampling: Sampling,
    penalty: PenaltyConfig,
    generator: torch.Generator,
    transcripts: int = 0,
) -> Rollout:
    """Play one episode per seed to its end; `group_size` neighbours form a group.

    The response opens right after the prompt; a malformed one is stepped as the empty action. Penalties are
    those of the configuration, the larger of the two that apply (a malformed response is also inadmissible).

    An episode whose environment failed leaves no rows. When all of them failed they are played once more;
    raises EnvironmentsFailedError when those failed too.
    """
    for _ in range(2):
        play = _Play(len(seeds), list(pool.reset(seeds, split)), min(transcripts, len(seeds)))
        while play.running:
            play.turn(policy, pool, prompter, sampling, penalty, generator)
        if not all(play.failures):
            return play.result(prompter, group_size, split)
        _LOG.warning("the environments of all %d episodes failed: %s", len(seeds), play.failures[0])
    raise EnvironmentsFailedError(
        f"the environments of all {len(seeds)} episodes of a rollout failed, twice; the first says: "
        f"{play.failures[0]}"
    )


class _Play:
    """Episodes being played side by side."""

    def __init__(self, count: int, observations: Sequence[Observation], transcripts: int) -> None:
        self.observations: list[Observation | None] = list(observations)
        self.running = list(range(count))
        self.history: list[list[tuple[str, str]]] = [[] for _ in range(count)]
        self.contexts: list[tuple[int, ...]] = [()] * count
        self.returns, self.success = [0.0] * count, [False] * count
        self.well_formed, self.admissible, self.void = [0] * count, [0] * count, [0] * count
        self.failures: list[str | None] = [None] * count
        self.context_full = [False] * count
        self.written: list[list[dict[str, object]]] = [[] for _ in range(transcripts)]
        self.prompt_ids: dict[str | tuple[int, ...], int] = {}
        self.anchor_ids: dict[str, int] = {}
        self.turns: list[Turn] = []

    def turn(
        self,
        policy: Policy,
        pool: EnvPool,
        prompter: Prompter,
        sampling: Sampling,
        penalty: PenaltyConfig,
        generator: torch.Generator,
    ) -> None:
        """One turn of all running episodes."""
        running = self.running
        shown = [seen for index in running if (seen := self.observations[index]) is not None]
        keys: list[str | tuple[int, ...]]
        if prompter.rows == "transcript":
            if not self.turns:
                self.contexts = [prompter.open(observation) for observation in shown]
            keys = [self.contexts[index] for index in running]
        else:
            keys = [
                prompter.text(self.history[index], observation)
                for index, observation in zip(running, shown, strict=True)
            ]
        distinct: dict[str | tuple[int, ...], int] = {}
        row_prompt = [distinct.setdefault(key, len(distinct)) for key in keys]
        encoded = [prompter.encode(key) if isinstance(key, str) else key for key in distinct]
        generated = policy.generate(encoded, row_prompt, sampling, generator)
        tokens = [
            row[:length]
            for row, length in zip(generated.tokens.tolist(), generated.lengths.tolist(), strict=True)
        ]
        responses = [policy.decode(row) for row in tokens]
        parsed = [
            parse(response, observation.admissible)
            for response, observation in zip(responses, shown, strict=True)
        ]
        outcomes = pool.step(running, [result.action for result in parsed])
        self.turns.append(
            Turn(
                episodes=running,
                prompts=[encoded[place] for place in row_prompt],
                prompt_ids=[self.prompt_ids.setdefault(key, len(self.prompt_ids)) for key in keys],
                anchors=[self._anchor_id(seen.anchor) for seen in shown],
                generated=generated,
                rewards=[outcome.reward for outcome in outcomes],
                penalties=[penalty_of(result, penalty) for result in parsed],
                void=[outcome.void for outcome in outcomes],
            )
        )
        self.running = []
        for place, index in enumerate(running):
            self._note(prompter, index, shown[place], responses[place], parsed[place], outcomes[place])
            following = outcomes[place].observation
            if following is not None and prompter.rows == "transcript":
                context = prompter.go_on(self.contexts[index], tokens[place], following)
                self.contexts[index] = context
                if not prompter.fits(context):
                    self.context_full[index], following = True, None
            self.observations[index] = following
            if following is not None:
                self.running.append(index)

    def _anchor_id(self, anchor: str | None) -> int:
        return -1 if anchor is None else self.anchor_ids.setdefault(anchor, len(self.anchor_ids))

    def _note(
        self,
        prompter: Prompter,
        index: int,
        seen: Observation,
        response: str,
        result: Parsed,
        outcome: Outcome,
    ) -> None:
        """Keep the books of one turn of one episode."""
        self.returns[index] += outcome.reward
        self.success[index] = outcome.success
        self.failures[index] = outcome.failure
        self.well_formed[index] += result.well_formed
        self.admissible[index] += result.rejection is None
        self.void[index] += outcome.void
        if prompter.prompt.history and prompter.rows == "turn":
            self.history[index].append((seen.text, result.action))
        if index < len(self.written):
            self.written[index].append(
                {
                    "observation": seen.text,
                    "response": response,
                    "action": result.action,
                    "reward": outcome.reward,
                    "rejection": result.rejection,
                }
            )

    def result(self, prompter: Prompter, group_size: int, split: Split) -> Rollout:
        """What was played."""
        if prompter.rows == "transcript":
            rows = transcript_rows(self.turns, group_size, self.success)
        else:
            rows = turn_rows(self.turns, group_size, self.success, tuple(self.anchor_ids))
        failed = torch.tensor([failure is not None for failure in self.failures])
        if bool(failed.any()):
            rows = rows.select(~failed[rows.trajectory])
        episodes = torch.tensor([index for turn in self.turns for index in turn.episodes])
        turns = torch.bincount(episodes, minlength=len(failed))
        return Rollout(
            rows=rows,
            episodes=Episodes(
                returns=torch.tensor(self.returns),
                turns=turns,
                success=torch.tensor(self.success),
                valid_format=torch.tensor(self.well_formed) / turns,
                valid_action=torch.tensor(self.admissible) / turns,
                response_tokens=rows.tokens,
                void=torch.tensor(self.void) / turns,
                failed=failed,
                context_full=torch.tensor(self.context_full),
            ),
            transcripts=tuple(
                Transcript(_kind(split), self.success[index], self.returns[index], tuple(turns_of))
                for index, turns_of in enumerate(self.written)
                if self.failures[index] is None
            ),
        )


def _kind(split: Split) -> Kind:
    return split


def penalty_of(result: Parsed, penalty: PenaltyConfig) -> float:
    """What a response costs its row: p_ik."""
    if result.rejection is None:
        return 0.0
    if result.well_formed:
        return penalty.inadmissible
    return max(penalty.format, penalty.inadmissible)
