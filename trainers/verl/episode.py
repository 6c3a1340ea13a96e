"""One episode, played by asking an engine for tokens turn by turn. Imports no verl."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.prompts import parse
from envs.text_env import EnvPool, Observation, Split
from trainers.rollout import penalty_of
from trainers.verl.stage import Stage
from trainers.verl.written import Row, Written, WrittenTurn, failed_row, transcript_row, turn_rows


@dataclass(frozen=True)
class Made:
    """What an engine wrote: token ids and their log-probs; told: what else it says of them."""

    tokens: Sequence[int]
    log_probs: Sequence[float]
    told: dict[str, Any] = field(default_factory=dict)


Generate = Callable[[list[int]], Awaitable[Made]]
"""From the token ids of a prompt to a response."""


async def episode_rows(
    stage: Stage, generate: Generate, *, seed: int, split: Split, keep: bool, prompt_limit: int
) -> list[Row]:
    """Play an episode: its rows, one per turn or with `rows: transcript` one in all.

    keep: its transcript, for people; prompt_limit: tokens of a turn's prompt, cut on the left. An episode
    whose environment failed leaves one row that says so, and so does one that broke off because of an error:
    verl itself would tell that to its log alone.
    """
    end = stage.codec.ends[0]
    pool: EnvPool | None = None
    try:
        pool, observation = await stage.reset(seed, split)
        episode = await _play(stage, generate, pool, observation, keep=keep, prompt_limit=prompt_limit)
    except Exception as error:  # noqa: BLE001 - the trainer raises it, with what it says
        if pool is not None:
            await stage.give_back(pool, usable=False)
        return [failed_row({"error": f"{type(error).__name__}: {error}"}, end=end)]
    await stage.give_back(pool, usable=episode.failure is None)
    if episode.failure is not None:
        return [failed_row({"failure": episode.failure}, end=end)]
    if stage.config.rows == "transcript":
        return [transcript_row(episode, end=end)]
    return turn_rows(episode, end=end)


async def _play(
    stage: Stage,
    generate: Generate,
    pool: EnvPool,
    observation: Observation,
    *,
    keep: bool,
    prompt_limit: int,
) -> Written:
    prompter, prompt = stage.prompter, stage.config.prompt
    whole = stage.config.rows == "transcript"
    context = prompter.open(observation) if whole else ()
    history: list[tuple[str, str]] = []
    written = Written()
    shown: Observation | None = observation
    while shown is not None:
        tokens = list(context)
        if not whole:
            tokens = prompter.encode(prompter.text(history, shown))[-prompt_limit:]
        made = await generate(tokens)
        response = list(made.tokens)[: prompt.max_response_tokens]
        text = stage.codec.decode(response)
        result = parse(text, shown.admissible)
        outcome = await stage.step(pool, result.action)
        written.turns.append(
            WrittenTurn(
                prompt=tokens,
                response=response,
                log_probs=list(made.log_probs)[: len(response)],
                reward=outcome.reward,
                penalty=penalty_of(result, stage.config.trainer.penalty),
                anchor=shown.anchor,
                well_formed=result.well_formed,
                admissible=result.rejection is None,
                void=outcome.void,
                engine=made.told,
            )
        )
        if keep:
            written.transcript.append(
                {
                    "observation": shown.text,
                    "response": text,
                    "action": result.action,
                    "reward": outcome.reward,
                    "rejection": result.rejection,
                }
            )
        if prompt.history:
            history.append((shown.text, result.action))
        written.success, written.failure, shown = outcome.success, outcome.failure, outcome.observation
        if whole and shown is not None:
            context = prompter.go_on(context, response or [stage.codec.ends[0]], shown)
            if not prompter.fits(context):
                written.context_full, shown = True, None
    return written
