"""Rows that are whole trajectories: what is in them, against transformers over the concatenated text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from envs.prompts import render, render_next, write_response
from envs.text_env import Demonstration, Observation
from tests.trainers.native.conftest import Configure
from tests.trainers.native.test_language_model import clone_of, load, make_model, trial
from trainers.behavior_cloning import CloningError, encode_demonstrations
from trainers.config import PromptConfig, TrainingConfig
from trainers.monitor import MemoryMonitor
from trainers.native.cloning import make_clone
from trainers.native.policies import load_policy
from trainers.native.training import NativeTrainer, train
from trainers.policy_gradient.objective import Objective
from trainers.rollout import Prompter
from trainers.rows import Rows


def changed(config: TrainingConfig, **changes: Any) -> TrainingConfig:
    """changed(config, rows="transcript", env={"max_turns": 1}): sections are merged, values replaced."""
    values = config.model_dump(mode="json")
    for name, value in changes.items():
        values[name] = {**values[name], **value} if isinstance(value, dict) else value
    return TrainingConfig.model_validate(values)


@pytest.fixture(scope="module")
def transcripts(configure: Configure) -> TrainingConfig:
    config = configure(trainer={"steps": 3, "checkpoint_every": 1, "micro_rows": 5})
    return changed(config, rows="transcript", cloning={"explore": 0.0}, model={"max_positions": 256})


@pytest.fixture(scope="module")
def clone_of_transcripts(transcripts: TrainingConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("transcripts")
    make_clone(transcripts, folder, lambda done, total: None)
    return folder


def rows_of(config: TrainingConfig, clone: Path, folder: Path) -> tuple[NativeTrainer, Rows]:
    trainer = NativeTrainer(config, clone, folder, MemoryMonitor())
    rows = trainer.collect(1).rows
    assert rows is not None
    return trainer, rows


def whole_text_log_probs(model: Any, rows: Rows) -> torch.Tensor:
    """Every token's log-probability by transformers, one concatenated text at a time; 0 outside the mask."""
    log_probs = torch.zeros(rows.mask.shape)
    for row in range(len(rows)):
        prompt = rows.prompts[row, : rows.prompt_lengths[row]]
        end = int(rows.mask[row].nonzero().max()) + 1
        response = rows.responses[row, :end]
        with torch.no_grad():
            logits = model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
        log_probs[row, :end] = torch.log_softmax(logits, -1).gather(1, response[:, None])[:, 0]
    return log_probs * rows.mask


def test_a_transcript_is_scored_as_transformers_scores_its_text(
    transcripts: TrainingConfig, clone_of_transcripts: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    trainer, rows = rows_of(transcripts, clone_of_transcripts, tmp_path)
    assert len(rows) == 16
    turns = trainer.policy.decode  # each turn's response is between what the environment said
    texts = [turns(row[mask].tolist()) for row, mask in zip(rows.responses, rows.mask, strict=True)]
    assert max(text.count("<think>") for text in texts) > 1, "some transcripts must have several turns"
    expected = whole_text_log_probs(AutoModelForCausalLM.from_pretrained(clone_of_transcripts).eval(), rows)
    torch.testing.assert_close(rows.old_log_probs, expected, atol=2e-5, rtol=0)
    with torch.no_grad():
        scored, entropies = trainer.policy.score(rows, 1.0)
    torch.testing.assert_close(scored, expected, atol=2e-5, rtol=0)
    assert rows.token_entropies is not None
    torch.testing.assert_close(entropies, rows.token_entropies, atol=2e-5, rtol=0)


def test_a_transcript_is_the_episode_as_it_was_written(
    transcripts: TrainingConfig, clone_of_transcripts: Path, tmp_path: Path
) -> None:
    trainer = NativeTrainer(transcripts, clone_of_transcripts, tmp_path, MemoryMonitor())
    played = trainer.collect(1).rollouts[0]
    rows, tokenizer = played.rows, trainer.policy.tokenizer  # type: ignore[attr-defined]
    for number, transcript in enumerate(played.transcripts):
        first, *others = transcript.turns
        written = [str(turn["response"]).split() for turn in transcript.turns]
        text = render("compact", "", (), Observation(str(first["observation"]), None, None))
        prompt = rows.prompts[number, : rows.prompt_lengths[number]].tolist()
        assert [tokenizer.words[token] for token in prompt] == [*text.split(), "<assistant>"]
        expected, mask = [*written[0], "<eos>"], [True] * (len(written[0]) + 1)
        for turn, response in zip(others, written[1:], strict=True):
            between = render_next("compact", Observation(str(turn["observation"]), None, None)).split()
            expected += [*between, "<assistant>", *response, "<eos>"]
            mask += [False] * (len(between) + 1) + [True] * (len(response) + 1)
        row = [tokenizer.words[token] for token in rows.responses[number, : len(mask)].tolist()]
        assert row == expected
        assert rows.mask[number, : len(mask)].tolist() == mask
        assert not rows.mask[number, len(mask) :].any()
        assert float(rows.rewards[number]) == pytest.approx(transcript.total_reward)
        refused = [turn for turn in transcript.turns if turn["rejection"]]
        assert float(rows.penalties[number]) == pytest.approx(0.1 * len(refused))


def test_with_one_turn_a_transcript_is_the_turn(configure: Configure, clone: Path, tmp_path: Path) -> None:
    runs = []
    for rows in ("turn", "transcript"):
        config = changed(
            configure(trainer={"steps": 2}),
            rows=rows,
            env={"max_turns": 1, "max_optimal": 1, "min_optimal": 1},
        )
        monitor = MemoryMonitor()
        train(config, clone=clone, checkpoints=tmp_path / rows, monitor=monitor)
        runs.append([{k: v for k, v in row.items() if not k.startswith("time/")} for row in monitor.rows])
    assert runs[0] == runs[1]


def test_training_on_transcripts_learns_and_is_resumed_exactly(
    transcripts: TrainingConfig, clone_of_transcripts: Path, tmp_path: Path
) -> None:
    whole, cut = MemoryMonitor(), MemoryMonitor(stop_after=2)
    for monitor, folder in ((whole, "whole"), (cut, "cut")):
        train(transcripts, clone=clone_of_transcripts, checkpoints=tmp_path / folder, monitor=monitor)
    cut.stop_after = None
    train(transcripts, clone=clone_of_transcripts, checkpoints=tmp_path / "cut", monitor=cut)
    kept = [[{k: v for k, v in row.items() if "time/" not in k} for row in run.rows] for run in (whole, cut)]
    assert kept[0] == kept[1]
    trained = [row for row in whole.rows if row["kind"] == "train"]
    for row in trained:
        assert row["rollout/rows"] == row["rollout/episodes"] == 16
        assert float(str(row["rollout/turns"])) > 1
        assert row["train/engine_gap"] == pytest.approx(0, abs=1e-5)
    assert float(str(trained[-1]["train/kl_ref_last"])) > 0


def test_an_episode_ends_where_another_response_has_no_room(
    transcripts: TrainingConfig, clone_of_transcripts: Path, tmp_path: Path
) -> None:
    room = {"max_response_tokens": 12, "max_context_tokens": 100}
    trainer, rows = rows_of(changed(transcripts, prompt=room), clone_of_transcripts, tmp_path)
    lengths = rows.prompt_lengths + (rows.mask * torch.arange(1, rows.mask.shape[1] + 1)).amax(1)
    assert int(lengths.max()) <= 100
    trainer.step(1)
    row = trainer.monitor.rows[-1]  # type: ignore[attr-defined]
    assert row["rollout/context_full"] > 0
    narrow = changed(transcripts, prompt={"max_response_tokens": 12, "max_context_tokens": 30})
    with pytest.raises(ValueError, match=r"begins with \d+ tokens, which leaves no room .* in 30 tokens"):
        rows_of(narrow, clone_of_transcripts, tmp_path)
    with pytest.raises(ValueError, match="max_context_tokens"):
        PromptConfig(max_response_tokens=12, max_context_tokens=12)


def test_the_constant_length_of_a_transcript_is_that_of_all_its_turns(
    configure: Configure, transcripts: TrainingConfig
) -> None:
    assert Objective(configure()).max_tokens == 32
    assert Objective(transcripts).max_tokens == 4 * 32


@pytest.mark.parametrize("name", ["gigpo", "empg"])
def test_advantages_of_turns_are_refused(configure: Configure, name: str) -> None:
    with pytest.raises(ValueError, match=r"is that of a turn, .* set rows: turn"):
        Objective(changed(configure(advantage=name), rows="transcript"))


# Cloning: demonstrated episodes as transcripts.


def episode(*turns: tuple[str, str, str]) -> list[Demonstration]:
    """Demonstrations of (observation, thought, action), an expert that does what it writes."""
    past: list[tuple[str, str]] = []
    shown = []
    for text, thought, action in turns:
        shown.append(
            Demonstration(tuple(past), Observation(text, None, None), write_response(thought, action))
        )
        past.append((text, action))
    return shown


def test_demonstrated_turns_are_put_together_to_their_episodes(clone: Path, configure: Configure) -> None:
    config = changed(configure(), rows="transcript")
    policy = load_policy(clone, config)
    prompter = Prompter(policy, config.prompt, "", "transcript")
    forked = [
        *episode(("player", "up", "up"), ("wall", "left", "left")),
        *episode(("player", "up", "up"), ("wall", "right", "right")),
        *episode(("player", "down", "down")),
    ]
    order = [3, 0, 4, 2, 1]  # however they are mixed
    examples = encode_demonstrations([forked[place] for place in order], prompter, max_tokens=32)
    learned = sorted(
        policy.decode(row[mask].tolist()) for row, mask in zip(examples.responses, examples.mask, strict=True)
    )
    assert learned == sorted(
        " ".join(write_response(word, word) for word in words)
        for words in (("up", "left"), ("up", "right"), ("down",))
    )
    assert len(examples.prompt_id.unique()) == 1


def test_an_expert_that_does_not_do_what_it_writes_is_refused(configure: Configure, tmp_path: Path) -> None:
    with pytest.raises(CloningError, match=r"set cloning\.explore: 0, not 0\.35"):
        make_clone(changed(configure(), rows="transcript"), tmp_path, lambda done, total: None)


# Language models.


def test_a_language_models_transcript_is_the_chat_templates(tmp_path: Path) -> None:
    make_model(tmp_path, "qwen2", template=True)
    policy, plain = load(tmp_path, "full"), load(tmp_path)
    messages = [("user", "push it"), ("assistant", "Up"), ("user", "wall"), ("assistant", "Left")]
    whole = policy.tokenizer.apply_chat_template(
        [{"role": role, "content": content} for role, content in messages], tokenize=False
    )
    response = policy.encode_response("Up")
    said = [*policy.encode("push it"), *response, *policy.encode_next("wall", response)]
    assert policy.tokenizer.decode([*said, *policy.encode_response("Left")]) + "\n" == whole
    cut = response[:-1]  # a response that hit its limit is ended for it
    assert policy.encode_next("wall", cut) == [response[-1], *policy.encode_next("wall", response)]
    assert plain.tokenizer.decode(plain.encode_next("wall", cut)) == "<|im_end|>\nwall\n"


def test_a_language_models_transcript_is_scored_as_its_text(configure: Configure, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = make_model(tmp_path, "qwen2", template=True)
    config = trial(configure, model, cloning={"stages": []}, rows="transcript")
    clone = clone_of(config, tmp_path / "clone")
    trainer = NativeTrainer(config, clone, tmp_path / "run", MemoryMonitor())
    trainer.policy.positions = 2048  # type: ignore[misc]  # two full prompts are long for a small model
    rows = trainer.collect(1).rows
    assert rows is not None
    assert int((~rows.mask & (rows.responses > 0)).sum()) > 0, "several turns"
    expected = whole_text_log_probs(AutoModelForCausalLM.from_pretrained(clone).eval(), rows)
    torch.testing.assert_close(rows.old_log_probs, expected, atol=5e-5, rtol=0)
