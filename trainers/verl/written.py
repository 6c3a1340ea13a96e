"""What an agent loop's episode leaves: rows as verl stores them, and what the trainer is told beside them.

Told of a row (`extra_fields`): `turn`, its number; `turns`, how many it has, and of these `well_formed`,
`admissible`, `void`; `reward`, `penalty`, `anchor`, `success`; `void_spans`, (first, last + 1) of tokens that
did nothing; `context_full`; `transcript`, where one is kept, as `trainers.rollout` keeps it. Of an episode
that cannot be counted only `failure` (of its environment) or `error`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
"""Fields of verl's `AgentLoopOutput`."""


@dataclass(frozen=True)
class WrittenTurn:
    """One turn: token ids of all that was shown and of what was written, the engine's log-probs of these.

    engine: what the engine told beside them.
    """

    prompt: list[int]
    response: list[int]
    log_probs: list[float]
    reward: float
    penalty: float
    anchor: str | None
    well_formed: bool
    admissible: bool
    void: bool
    engine: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Written:
    """An episode as far as it was played. failure: of its environment."""

    turns: list[WrittenTurn] = field(default_factory=list)
    transcript: list[dict[str, Any]] = field(default_factory=list)
    success: bool = False
    failure: str | None = None
    context_full: bool = False


def turn_rows(episode: Written, *, end: int) -> list[Row]:
    """A row per turn. end: a token; a response of no token becomes this one, which was not written."""
    rows = []
    for number, turn in enumerate(episode.turns):
        told = _told(episode, [turn]) | {
            "turn": number,
            "anchor": turn.anchor,
            "void_spans": [(0, len(turn.response))] if turn.void else [],
        }
        if episode.transcript:
            told["transcript"] = [episode.transcript[number]]
        log_probs = _log_probs(turn)
        rows.append(_row(turn.prompt, turn.response, [1] * len(turn.response), log_probs, told, end=end))
        rows[-1]["reward_score"] = sum(one.reward for one in episode.turns)
    return rows


def transcript_row(episode: Written, *, end: int) -> Row:
    """One row: the prompt is what was shown first; what was shown later is masked in the response."""
    opening = episode.turns[0].prompt
    said: list[int] = []
    mask: list[int] = []
    log_probs: list[float] = []
    spans: list[tuple[int, int]] = []
    for turn in episode.turns:
        between = turn.prompt[len(opening) + len(said) :]
        said += [*between, *turn.response]
        mask += [0] * len(between) + [1] * len(turn.response)
        log_probs += [0.0] * len(between) + _log_probs(turn)
        if turn.void:
            spans.append((len(said) - len(turn.response), len(said)))
    # nothing is learned after the last token that was written
    length = max((place + 1 for place, written in enumerate(mask) if written), default=0)
    told = _told(episode, episode.turns) | {"turn": 0, "anchor": None, "void_spans": spans}
    if episode.transcript:
        told["transcript"] = episode.transcript
    row = _row(opening, said[:length], mask[:length], log_probs[:length], told, end=end)
    row["reward_score"] = told["reward"]
    row["num_turns"] = len(episode.turns)
    return row


def failed_row(told: Mapping[str, str], *, end: int) -> Row:
    """The row of an episode that cannot be counted: two tokens that nobody wrote."""
    row = _row([end], [], [], [], {"turn": 0, **told}, end=end)
    row["reward_score"] = 0.0
    return row


def _told(episode: Written, turns: list[WrittenTurn]) -> dict[str, Any]:
    return {
        **turns[-1].engine,
        "turns": len(turns),
        "reward": sum(turn.reward for turn in turns),
        "penalty": sum(turn.penalty for turn in turns),
        "well_formed": sum(turn.well_formed for turn in turns),
        "admissible": sum(turn.admissible for turn in turns),
        "void": sum(turn.void for turn in turns),
        "success": episode.success,
        "context_full": episode.context_full,
    }


def _log_probs(turn: WrittenTurn) -> list[float]:
    """One per token of the response, 0 where the engine told none."""
    return [*turn.log_probs, *[0.0] * (len(turn.response) - len(turn.log_probs))]


def _row(
    prompt: list[int], response: list[int], mask: list[int], log_probs: list[float], told: Row, *, end: int
) -> Row:
    return {
        "prompt_ids": prompt,
        "response_ids": response or [end],
        "response_mask": mask or [0],
        "response_logprobs": log_probs or [0.0],
        "num_turns": int(told["turn"]) + 1,
        "extra_fields": {"reward_extra_info": {}, **told},
    }
