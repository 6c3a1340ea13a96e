"""What agent loops store, as rollouts: the same rows, episodes and transcripts as the native trainer's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trainers.verl.batches import EpisodeError, Stored, as_rollout, episodes_of, jagged, unjagged


def stored(episode: int, turn: int, *, tokens: int = 2, **told: Any) -> Stored:
    return Stored(
        key=f"g_{episode}_{turn}",
        episode=episode,
        prompt=torch.tensor([7, turn]),
        response=torch.arange(1, tokens + 1),
        mask=torch.ones(tokens).bool(),
        log_probs=-torch.arange(1.0, tokens + 1),
        told={
            "turn": turn,
            "turns": 1,
            "reward": 0.5,
            "penalty": 0.1,
            "anchor": f"state {turn}",
            "well_formed": int(turn == 0),
            "admissible": 1,
            "void": 0,
            "void_spans": [],
            "context_full": False,
            "success": episode == 1,
            **told,
        },
    )


def test_rows_come_turn_by_turn_with_their_group_and_anchor() -> None:
    # stored in the order in which episodes happened to end
    rows = [stored(1, 1), stored(1, 0), stored(3, 0, tokens=4), stored(0, 0), stored(2, 0)]
    played = as_rollout(rows, episodes=4, group_size=2, kind="train")
    found = played.rollout.rows
    assert played.keys == ("g_0_0", "g_1_0", "g_2_0", "g_3_0", "g_1_1")
    assert found.trajectory.tolist() == [0, 1, 2, 3, 1]
    assert found.group.tolist() == [0, 0, 1, 1, 0]
    assert found.turn.tolist() == [0, 0, 0, 0, 1]
    assert found.anchor.tolist() == [0, 0, 0, 0, 1]
    assert found.prompt_id.tolist() == [0, 0, 0, 0, 1]
    assert found.tokens.tolist() == [2, 2, 2, 4, 2]
    assert found.success.tolist() == [False, True, False, False, True]
    assert found.old_log_probs[3].tolist() == [-1, -2, -3, -4]
    assert found.old_log_probs[0].tolist() == [-1, -2, 0, 0]


def test_episodes_are_counted_over_their_rows() -> None:
    rows = [stored(0, 0), stored(1, 0), stored(1, 1), stored(1, 2)]
    episodes = as_rollout(rows, episodes=2, group_size=2, kind="eval").rollout.episodes
    assert episodes.returns.tolist() == [0.5, 1.5]
    assert episodes.turns.tolist() == [1, 3]
    assert episodes.success.tolist() == [False, True]
    assert episodes.valid_format.tolist() == pytest.approx([1, 1 / 3])


def test_transcripts_are_kept_where_turns_carry_one() -> None:
    told = {"transcript": [{"observation": "o", "action": "a"}]}
    rows = [stored(1, 1, **told), stored(0, 0), stored(1, 0, **told)]
    (transcript,) = as_rollout(rows, episodes=2, group_size=2, kind="eval").rollout.transcripts
    assert transcript.success
    assert transcript.total_reward == pytest.approx(1.0)
    assert len(transcript.turns) == 2
    assert transcript.kind == "eval"


def test_an_episode_that_did_not_come_back_is_an_error() -> None:
    with pytest.raises(EpisodeError, match="1 of 3 episodes failed"):
        as_rollout([stored(0, 0), stored(2, 0)], episodes=3, group_size=3, kind="train")


def test_keys_name_group_session_and_turn() -> None:
    keys = ["train-1-0-1_2_0", "train-1-0-0_0_13"]
    assert episodes_of(keys, {"train-1-0-0": 0, "train-1-0-1": 1}, 4) == [6, 0]


def test_jagged_and_back() -> None:
    values = torch.arange(12.0).view(3, 4)
    lengths = [1, 4, 2]
    expected = values * (torch.arange(4) < torch.tensor(lengths)[:, None])
    assert torch.equal(unjagged(jagged(values, lengths), 4), expected)
    assert torch.equal(unjagged(values[:, :2], 3), torch.nn.functional.pad(values[:, :2], (0, 1)))
