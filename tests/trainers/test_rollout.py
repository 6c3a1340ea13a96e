"""Rollouts with a scripted policy: what becomes of responses, rewards, penalties and anchors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from envs.text_env import EnvPool, Observation, Outcome, Split
from trainers.collection import collect, group_signals
from trainers.config import PenaltyConfig, PromptConfig
from trainers.diagnostics import rollout_metrics
from trainers.policy import Generated, Sampling
from trainers.policy_gradient.dynamic_filtering import group_variance
from trainers.policy_gradient.objective import Objective
from trainers.policy_gradient.parameters import FilteringSettings
from trainers.rollout import EnvironmentsFailedError, Episodes, Prompter, Rollout, rollout
from trainers.rows import Rows, concatenate


class Corridor(EnvPool):
    """The episode of seed s starts s steps from the goal; `go` brings it nearer, arriving earns 1."""

    def reset(self, seeds: Sequence[int], split: Split) -> list[Observation]:
        self.left = list(seeds)
        return [self._see(episode) for episode in range(len(seeds))]

    def _see(self, episode: int) -> Observation:
        text = f"left {self.left[episode]}"
        return Observation(text, text, ("go", "stay"))

    def step(self, episodes: Sequence[int], actions: Sequence[str]) -> list[Outcome]:
        outcomes = []
        for episode, action in zip(episodes, actions, strict=True):
            self.left[episode] -= action == "go"
            won = self.left[episode] == 0
            seen = None if won else self._see(episode)
            outcomes.append(Outcome(seen, float(won), won, False, won))
        return outcomes


GOOD = "<think> on </think> <action> go </action>"


class Scripted:
    """Writes the given responses in turn, whatever it is shown; tokens are indices into its word list."""

    def __init__(self, script: Sequence[Sequence[str]]) -> None:
        self.script = [list(turn) for turn in script]
        self.words = ["<pad>", "<eos>"]
        self.prompts: list[list[str]] = []
        self.texts: list[str] = []

    @property
    def module(self) -> nn.Module:
        raise NotImplementedError

    def encode(self, prompt: str) -> list[int]:
        self.texts.append(prompt)
        return [self._id(word) for word in prompt.split()]

    def _id(self, word: str) -> int:
        if word not in self.words:
            self.words.append(word)
        return self.words.index(word)

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(self.words[token] for token in tokens if token > 1)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        row_prompt: Sequence[int],
        sampling: Sampling,
        generator: torch.Generator,
    ) -> Generated:
        self.prompts.append([self.decode(prompt) for prompt in prompts])
        tokens = [[*(self._id(word) for word in text.split()), 1] for text in self.script.pop(0)]
        assert len(tokens) == len(row_prompt)
        lengths = torch.tensor([len(row) for row in tokens])
        padded = torch.zeros(len(tokens), int(lengths.max()), dtype=torch.long)
        for place, row in enumerate(tokens):
            padded[place, : len(row)] = torch.tensor(row)
        mask = torch.arange(padded.shape[1]) < lengths[:, None]
        return Generated(padded, lengths, -0.5 * mask, 0.25 * mask)

    def score(
        self, rows: Rows, temperature: float, *, entropy_gradient: bool = False
    ) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        raise NotImplementedError


def play(
    script: Sequence[Sequence[str]], seeds: Sequence[int], group_size: int = 1, **prompt: object
) -> Rollout:
    policy = Scripted(script)
    result = rollout(
        policy,
        Corridor(),
        Prompter(policy, PromptConfig.model_validate(prompt), "task"),
        seeds,
        split="train",
        group_size=group_size,
        sampling=Sampling(),
        penalty=PenaltyConfig(format=0.1, inadmissible=0.05),
        generator=torch.Generator(),
        transcripts=1,
    )
    play.policy = policy  # type: ignore[attr-defined]
    return result


def test_rows_carry_turns_rewards_and_the_penalty_that_applies() -> None:
    script = [
        [GOOD, "nonsense"],
        [GOOD, "<think> x </think> <action> fly </action>"],
        [GOOD],
        [GOOD],
    ]
    result = play(script, seeds=[2, 2])
    rows = result.rows
    order = sorted(range(len(rows)), key=lambda row: (int(rows.trajectory[row]), int(rows.turn[row])))
    table = [
        (
            int(rows.trajectory[row]),
            int(rows.turn[row]),
            float(rows.rewards[row]),
            round(float(rows.penalties[row]), 3),
        )
        for row in order
    ]
    assert table == [
        (0, 0, 0.0, 0.0),
        (0, 1, 1.0, 0.0),
        (1, 0, 0.0, 0.1),
        (1, 1, 0.0, 0.05),
        (1, 2, 0.0, 0.0),
        (1, 3, 1.0, 0.0),
    ]
    assert result.episodes.turns.tolist() == [2, 4]
    assert result.episodes.returns.tolist() == [1.0, 1.0]
    assert result.episodes.valid_format.tolist() == [1.0, 0.75]
    assert result.episodes.valid_action.tolist() == [1.0, 0.5]
    assert rows.success.all()
    assert rows.entropies.eq(0.25).all()
    assert rows.tokens.tolist() == rows.mask.sum(1).tolist()
    assert rows.old_log_probs[rows.mask].eq(-0.5).all()
    assert not rows.old_log_probs[~rows.mask].any()


def test_identical_prompts_are_given_once_and_share_an_id() -> None:
    result = play([[GOOD, GOOD, GOOD], [GOOD, GOOD]], seeds=[1, 2, 2])
    policy = play.policy  # type: ignore[attr-defined]
    assert [len(prompts) for prompts in policy.prompts] == [2, 1]
    ids = result.rows.prompt_id.tolist()
    assert ids[1] == ids[2] != ids[0]
    assert ids[3] == ids[4] == ids[0]  # "left 1" again, a turn later
    assert result.rows.anchor.tolist() == ids
    assert [result.rows.anchor_texts[anchor] for anchor in result.rows.anchor] == [
        "left 1",
        "left 2",
        "left 2",
        "left 1",
        "left 1",
    ]


def test_neighbours_form_groups() -> None:
    result = play([[GOOD] * 4], seeds=[1, 1, 1, 1], group_size=2)
    assert result.rows.group.tolist() == [0, 0, 1, 1]


def test_history_shows_the_last_turns_only() -> None:
    play([[GOOD], [GOOD], [GOOD], [GOOD]], seeds=[4], history=2)
    last = play.policy.texts[-1]  # type: ignore[attr-defined]
    assert "left 3" in last
    assert "left 2" in last
    assert "left 4" not in last


def test_transcripts_show_what_was_seen_and_written() -> None:
    (transcript,) = play([["nonsense"], [GOOD]], seeds=[1]).transcripts
    assert transcript.success
    assert [turn["rejection"] for turn in transcript.turns] == ["no_think", None]
    assert transcript.turns[0]["response"] == "nonsense"
    assert transcript.turns[0]["action"] == ""


def test_concatenated_rollouts_keep_groups_prompts_and_anchors_apart() -> None:
    first = play([[GOOD, GOOD]], seeds=[1, 1], group_size=2).rows
    second = play([["junk and more junk", GOOD], [GOOD]], seeds=[1, 1], group_size=2).rows
    both = concatenate([first, second])
    assert both.group.tolist() == [0, 0, 1, 1, 1]
    assert both.trajectory.tolist() == [0, 1, 2, 3, 2]
    assert len(set(both.prompt_id[:2].tolist()) & set(both.prompt_id[2:].tolist())) == 0
    assert [both.anchor_texts[anchor] for anchor in both.anchor] == ["left 1"] * 5
    assert both.mask.shape == both.responses.shape == both.old_log_probs.shape
    assert both.tokens.tolist() == [*first.tokens.tolist(), *second.tokens.tolist()]


@pytest.mark.parametrize(
    ("fill", "used"),
    [("shrink", [[True, True, False, False], []]), ("uniform", None)],
    ids=["shrink", "uniform"],
)
def test_collection_tries_again_while_groups_are_missing(fill: str, used: list[list[bool]] | None) -> None:
    mixed = [[GOOD, "junk", GOOD, GOOD], ["junk"], ["junk"], ["junk"], ["junk"]]

    class Limited(Corridor):
        """Ends after two turns, so that junk twice is a failure."""

        def step(self, episodes: Sequence[int], actions: Sequence[str]) -> list[Outcome]:
            self.turn = getattr(self, "turn", 0) + 1
            return [
                outcome if outcome.success or self.turn < 2 else Outcome(None, 0.0, False, True, False)
                for outcome in super().step(episodes, actions)
            ]

    def attempt(number: int) -> Rollout:
        policy = Scripted(mixed if number == 0 else [[GOOD] * 4])
        return rollout(
            policy,
            Limited(),
            Prompter(policy, PromptConfig(), "task"),
            [1, 1, 1, 1],
            split="train",
            group_size=2,
            sampling=Sampling(),
            penalty=PenaltyConfig(),
            generator=torch.Generator(),
        )

    settings = FilteringSettings.model_validate({"max_tries": 2, "fill": fill})
    result = collect(attempt, group_variance, settings, step=1, groups=2, group_size=2)
    assert len(result.rollouts) == 2
    assert result.rows is not None
    groups = len(result.rows.group.unique())
    assert groups == (1 if fill == "shrink" else 2)
    cold = FilteringSettings.model_validate({"max_tries": 2, "fill": fill, "cold_start_steps": 1})
    assert len(collect(attempt, group_variance, cold, step=1, groups=2, group_size=2).rollouts) == 1


class Failing(Corridor):
    """The environments of the named episodes fail at their second turn."""

    def __init__(self, *failing: int, resets: int = 9) -> None:
        self.failing, self.turn, self.resets = failing, 0, resets

    def reset(self, seeds: Sequence[int], split: Split) -> list[Observation]:
        self.turn, self.resets = 0, self.resets - 1
        return super().reset(seeds, split)

    def step(self, episodes: Sequence[int], actions: Sequence[str]) -> list[Outcome]:
        self.turn += 1
        lost = Outcome(None, 0.0, False, True, False, failure="its worker died")
        return [
            lost if self.turn == 2 and episode in self.failing and self.resets >= 0 else outcome
            for episode, outcome in zip(episodes, super().step(episodes, actions), strict=True)
        ]


def play_in(
    pool: EnvPool, script: Sequence[Sequence[str]], seeds: Sequence[int], group_size: int = 1
) -> Rollout:
    policy = Scripted(script)
    return rollout(
        policy,
        pool,
        Prompter(policy, PromptConfig(), "task"),
        seeds,
        split="train",
        group_size=group_size,
        sampling=Sampling(),
        penalty=PenaltyConfig(),
        generator=torch.Generator(),
        transcripts=2,
    )


def test_an_episode_whose_environment_failed_leaves_no_rows_and_no_statistic(
    make_config: Callable[..., Any],
) -> None:
    script = [[GOOD, GOOD, GOOD, "junk"], [GOOD, GOOD, GOOD], [GOOD]]
    played = play_in(Failing(1), script, [1, 2, 2, 2], group_size=2)
    assert played.episodes.played.tolist() == [True, False, True, True]
    assert sorted(played.rows.trajectory.tolist()) == [0, 2, 2, 3, 3, 3]
    assert [len(transcript.turns) for transcript in played.transcripts] == [1]
    keep, settings = group_variance, FilteringSettings(max_tries=1)
    collected = collect(lambda number: played, keep, settings, step=1, groups=2, group_size=2)
    metrics = rollout_metrics(collected, Objective(make_config()), 2)
    assert metrics["rollout/failed_episodes"] == 1
    assert metrics["rollout/episodes"] == 3
    assert metrics["rollout/success"] == 1.0
    assert metrics["rollout/turns"] == 2.0
    assert metrics["rollout/valid_format"] == pytest.approx(5 / 6)
    assert metrics["rollout/uniform_groups_return"] == 1.0


def test_a_failed_episode_makes_no_group_more_or_less_uniform() -> None:
    episodes = Episodes(
        returns=torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0, 3.0]),
        success=torch.tensor([True, False, True, False, False, True]),
        failed=torch.tensor([False, True, False, False, True, False]),
        **{name: torch.ones(6) for name in ("turns", "valid_format", "valid_action", "response_tokens")},
    )
    returns, success = group_signals(episodes, 3)
    assert returns.tolist() == [[1.0, 1.0, 1.0], [0.0, 1.5, 3.0]]
    assert success.tolist() == [[True, True, True], [False, False, True]]


def test_when_every_environment_fails_the_episodes_are_played_once_more() -> None:
    script = [[GOOD, GOOD], [GOOD, GOOD]]
    again = play_in(Failing(0, 1, resets=1), script * 2, [2, 2])
    assert again.episodes.success.all()
    with pytest.raises(EnvironmentsFailedError, match=r"all 2 episodes .* twice; .* its worker died"):
        play_in(Failing(0, 1), script * 2, [2, 2])


def test_tokens_of_turns_that_did_nothing_are_marked() -> None:
    class Idle(Corridor):
        def step(self, episodes: Sequence[int], actions: Sequence[str]) -> list[Outcome]:
            outcomes = super().step(episodes, actions)
            return [replace(out, void=not action) for out, action in zip(outcomes, actions, strict=True)]

    played = play_in(Idle(), [[GOOD, "junk"], [GOOD]], [1, 1])
    assert played.rows.void is not None
    idle = played.rows.void.any(1)
    assert idle.tolist() == [False, True, False]
    assert torch.equal(played.rows.void, played.rows.mask & idle[:, None])
    assert played.episodes.void is not None
    assert played.episodes.void.tolist() == [0.0, 0.5]
