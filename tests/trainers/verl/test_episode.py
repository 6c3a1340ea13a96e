"""Episodes as verl's agent loops play them, against the native trainer's rollout of the same responses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from pydantic import BaseModel
from unruly_environment import Unruly

from envs.process_pool import ProcessPool
from envs.prompts import FORMAT_WORDS
from envs.registry import load_environment
from envs.text_env import EnvPool, Observation, Outcome, Split
from trainers.config import TrainingConfig
from trainers.diagnostics import evaluation_metrics
from trainers.native.policies import new_policy
from trainers.native.policy import TinyPolicy
from trainers.native.tokenizer import WordTokenizer
from trainers.native.word_codec import WordCodec
from trainers.policy import Generated, Sampling
from trainers.rollout import Prompter, Rollout, rollout
from trainers.verl.batches import EpisodeError, Stored, as_rollout, failures_of
from trainers.verl.episode import Made, episode_rows
from trainers.verl.stage import Reader, Stage, stage_of
from trainers.verl.written import Row

CONF = Path(__file__).parents[3] / "arena" / "conf"
Make = Callable[..., TrainingConfig]

SAID = [
    "<think> push Up </think> <action> up </action>",
    "push",
    "<think> push Left </think> <action> left </action>",
    "<think> on </think> <action> right </action>",
    "<think> push Down </think> <action> nowhere </action>",
    "<think> push Down </think> <action> down </action>",
]


def say(episode: int, turn: int) -> str:
    return SAID[(3 * episode + turn) % len(SAID)]


class Speaker(TinyPolicy):
    """Says what `say` says: the tokens of an episode of the native rollout, turn by turn."""

    turn = 0
    pool: Watched

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        row_prompt: Sequence[int],
        sampling: Sampling,
        generator: torch.Generator,
    ) -> Generated:
        tokens = [self.encode_response(say(episode, self.turn)) for episode in self.pool.alive]
        assert len(tokens) == len(row_prompt)
        self.turn += 1
        lengths = torch.tensor([len(row) for row in tokens])
        padded = torch.zeros(len(tokens), int(lengths.max()), dtype=torch.long)
        for place, row in enumerate(tokens):
            padded[place, : len(row)] = torch.tensor(row)
        mask = torch.arange(padded.shape[1]) < lengths[:, None]
        return Generated(padded, lengths, -0.01 * padded * mask, 0.25 * mask)


class Watched(EnvPool):
    """A pool that says which episodes are running, and calls every third turn of an episode void."""

    def __init__(self, pool: EnvPool) -> None:
        self.pool, self.alive, self.turns = pool, [], 0

    def reset(self, seeds: Sequence[int], split: Split) -> list[Observation]:
        self.alive, self.turns = list(range(len(seeds))), 0
        return self.pool.reset(seeds, split)

    def step(self, episodes: Sequence[int], actions: Sequence[str]) -> list[Outcome]:
        self.turns += 1
        outcomes = [
            replace(outcome, void=self.turns % 3 == 0) for outcome in self.pool.step(episodes, actions)
        ]
        self.alive = [
            episode for episode, one in zip(episodes, outcomes, strict=True) if one.observation is not None
        ]
        return outcomes


@pytest.fixture
def configured(make_config: Make) -> Make:
    """configured(rows=..., trainer={...}): a trial on small rooms of Sokoban."""

    def make(**sections: Any) -> TrainingConfig:
        env = yaml.safe_load((CONF / "env" / "sokoban.yaml").read_text())
        sizes = {"train_levels": 8, "eval_levels": 8, "max_optimal": 4, "max_turns": 6}
        return make_config(env={**env, **sizes}, model={"max_positions": 400}, **sections)

    return make


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[TrainingConfig], Path]:
    """A tiny policy in a folder, as a clone is; what it would write does not matter here."""

    def save(config: TrainingConfig) -> Path:
        environment, env_config = load_environment(config.env)
        policy = new_policy(config, environment, env_config)
        folder = tmp_path / "model"
        folder.mkdir()
        policy.export(folder)
        return folder

    return save


def stored(rows: Sequence[Sequence[Row]]) -> list[Stored]:
    """As verl's queue gives the rows of episodes back."""
    return [
        Stored(
            key=f"g_{episode}_{number}",
            episode=episode,
            prompt=torch.tensor(row["prompt_ids"]),
            response=torch.tensor(row["response_ids"]),
            mask=torch.tensor(row["response_mask"]).bool(),
            log_probs=torch.tensor(row["response_logprobs"]),
            told=row["extra_fields"],
        )
        for episode, of in enumerate(rows)
        for number, row in enumerate(of)
    ]


def played(config: TrainingConfig, model: Path, seeds: Sequence[int], *, keep: int = 0) -> list[list[Row]]:
    """Episodes through the agent loop's code, all at once; every third turn is void as in `Watched`."""
    stage: Stage = stage_of(config.model_dump_json(), str(model))
    original = stage.step

    async def whole() -> list[list[Row]]:
        return await asyncio.gather(*(one(number, seed) for number, seed in enumerate(seeds)))

    turns: Counter[Any] = Counter()

    async def step(pool: EnvPool, action: str) -> Outcome:
        episode = asyncio.current_task()
        turns[episode] += 1
        return replace(await original(pool, action), void=turns[episode] % 3 == 0)

    stage.step = step  # type: ignore[method-assign]

    async def one(number: int, seed: int) -> list[Row]:
        turn = -1

        async def generate(prompt: list[int]) -> Made:
            nonlocal turn
            turn += 1
            await asyncio.sleep(0)  # others go on meanwhile
            tokens = stage.codec.encode_response(say(number, turn))
            return Made(tokens, [-0.01 * token for token in tokens])

        return await episode_rows(
            stage, generate, seed=seed, split="train", keep=number < keep, prompt_limit=300
        )

    try:
        return asyncio.run(whole())
    finally:
        stage.step = original  # type: ignore[method-assign]


def natively(config: TrainingConfig, policy: TinyPolicy, seeds: Sequence[int], *, keep: int) -> Rollout:
    environment, env_config = load_environment(config.env)
    speaker = Speaker(policy.model, policy.tokenizer)
    pool = speaker.pool = Watched(environment.make_pool(env_config))
    return rollout(
        speaker,
        pool,
        Prompter(speaker, config.prompt, environment.task(env_config), config.rows),
        seeds,
        split="train",
        group_size=2,
        sampling=Sampling(max_tokens=config.prompt.max_response_tokens),
        penalty=config.trainer.penalty,
        generator=torch.Generator(),
        transcripts=keep,
    )


SEEDS = (3, 3, 5, 5)


@pytest.mark.parametrize("rows", ["turn", "transcript"])
@pytest.mark.parametrize("history", [0, 2])
def test_an_episode_leaves_the_rows_of_the_native_rollout(
    rows: str, history: int, configured: Make, saved: Callable[[TrainingConfig], Path]
) -> None:
    config = configured(rows=rows, prompt={"history": history, "max_response_tokens": 16})
    model = saved(config)
    expected = natively(config, TinyPolicy.load(model, config.model), SEEDS, keep=1)
    found = as_rollout(stored(played(config, model, SEEDS, keep=1)), episodes=4, group_size=2, kind="train")
    ours, theirs = found.rollout.rows, expected.rows
    assert int(theirs.mask.sum()) > 100
    for name in ("prompts", "prompt_lengths", "responses", "mask", "group", "trajectory", "turn", "success"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    for name in ("rewards", "penalties", "old_log_probs"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name))
    assert theirs.void is not None
    assert ours.void is not None
    assert torch.equal(ours.void, theirs.void)
    assert bool(ours.void.any())
    assert [ours.anchor_texts[anchor] if anchor >= 0 else None for anchor in ours.anchor.tolist()] == [
        theirs.anchor_texts[anchor] if anchor >= 0 else None for anchor in theirs.anchor.tolist()
    ]
    assert found.rollout.transcripts == expected.transcripts
    for name in ("returns", "turns", "success", "valid_format", "valid_action", "void", "response_tokens"):
        torch.testing.assert_close(
            getattr(found.rollout.episodes, name), getattr(expected.episodes, name), msg=name
        )


def test_a_transcript_ends_where_no_whole_response_fits(
    configured: Make, saved: Callable[[TrainingConfig], Path]
) -> None:
    prompt = {"max_response_tokens": 16, "max_context_tokens": 90}
    config = configured(rows="transcript", prompt=prompt)
    model = saved(config)
    expected = natively(config, TinyPolicy.load(model, config.model), SEEDS, keep=0)
    found = as_rollout(stored(played(config, model, SEEDS)), episodes=4, group_size=2, kind="train").rollout
    assert expected.episodes.context_full is not None
    assert found.episodes.context_full is not None
    assert found.episodes.context_full.tolist() == expected.episodes.context_full.tolist()
    assert bool(expected.episodes.context_full.any())
    assert torch.equal(found.rows.responses, expected.rows.responses)
    assert int(found.rows.prompt_lengths.max()) + found.rows.responses.shape[1] <= 90


@pytest.mark.parametrize(("rows", "masks"), [("turn", [[0]] * 6), ("transcript", [[0]])])
def test_a_response_of_no_token_is_a_row_that_nobody_wrote(
    rows: str, masks: list[list[int]], configured: Make, saved: Callable[[TrainingConfig], Path]
) -> None:
    config = configured(rows=rows, prompt={"max_response_tokens": 16})
    stage = stage_of(config.model_dump_json(), str(saved(config)))

    async def silent(prompt: list[int]) -> Made:
        return Made([], [])

    played = episode_rows(stage, silent, seed=3, split="train", keep=False, prompt_limit=300)
    written = asyncio.run(played)
    assert [row["response_mask"] for row in written] == masks


@dataclass(frozen=True)
class UnrulyWorld:
    """The environment that dies on demand (tests/faults), in a process where its configuration says so."""

    config_type: Any = None

    def task(self, config: Any) -> str:
        return "task"

    def make(self, config: Any) -> Any:
        return Unruly(limit=3)

    def make_pool(self, config: Any) -> ProcessPool:
        return ProcessPool(partial(Unruly, limit=3), workers=config.workers, step_seconds=60)


class UnrulyConfig(BaseModel):
    workers: int


def unruly(config: TrainingConfig, said: Sequence[str], *, workers: int) -> list[list[Row]]:
    """One episode per action, which is taken in its second turn."""
    stage = Stage.__new__(Stage)
    codec = WordCodec(WordTokenizer.from_vocabulary([*FORMAT_WORDS, *said, "go"]))
    reader: Any = Reader(codec, 300)
    stage.config, stage.codec, stage.environment = config, codec, UnrulyWorld()  # type: ignore[assignment]
    stage.env_config = UnrulyConfig(workers=workers)  # type: ignore[assignment]
    stage.prompter = Prompter(reader, config.prompt, "task", config.rows)
    stage.threads, stage._free = ThreadPoolExecutor(4), []

    async def one(action: str) -> list[Row]:
        turn = 0

        async def generate(prompt: list[int]) -> Made:
            nonlocal turn
            turn += 1
            written = f"<think> go </think> <action> {action if turn == 2 else 'go'} </action>"
            tokens = codec.encode_response(written)
            return Made(tokens, [0.0] * len(tokens))

        return await episode_rows(stage, generate, seed=1, split="train", keep=False, prompt_limit=300)

    async def whole() -> list[list[Row]]:
        return await asyncio.gather(*map(one, said))

    try:
        return asyncio.run(whole())
    finally:
        stage.threads.shutdown()
        for pool in stage._free:
            pool.close()


def test_an_episode_whose_environment_dies_is_left_out_and_counted(make_config: Make) -> None:
    rows = unruly(make_config(), ["go", "die", "win", "go"], workers=2)
    assert [len(of) for of in rows] == [3, 1, 2, 3]
    found = as_rollout(stored(rows), episodes=4, group_size=2, kind="train")
    assert found.rollout.episodes.played.tolist() == [True, False, True, True]
    assert found.rollout.rows.trajectory.unique().tolist() == [0, 2, 3]
    assert found.left_out == ("g_1_0",)
    assert "g_1_0" not in found.keys
    metrics = evaluation_metrics(found.rollout.episodes)
    assert metrics["eval/failed_episodes"] == 1
    assert metrics["eval/episodes"] == 3
    assert metrics["eval/turns"] == pytest.approx(8 / 3)
    assert metrics["eval/success"] == pytest.approx(1 / 3)


def test_an_exception_of_an_environment_is_told_and_costs_the_trial(make_config: Make) -> None:
    rows = unruly(make_config(), ["go", "raise"], workers=0)
    with pytest.raises(EpisodeError, match=r"1 of 2 episodes .* ValueError: turn 1 of seed 1"):
        as_rollout(stored(rows), episodes=2, group_size=2, kind="train")


def test_that_all_environments_failed_is_no_rollout(make_config: Make) -> None:
    rows = unruly(make_config(), ["die", "die"], workers=1)
    assert list(failures_of(stored(rows), episodes=2)) == [0, 1]
    with pytest.raises(ValueError, match="all 2 episodes failed"):
        as_rollout(stored(rows), episodes=2, group_size=2, kind="train")
