"""The tiny policy against transformers' Llama, and its sampler against its own scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from trainers.config import ModelConfig
from trainers.native.policy import TinyPolicy
from trainers.native.tokenizer import WordTokenizer
from trainers.policy import Sampling, pad
from trainers.rows import Rows

WORDS = [f"w{index}" for index in range(20)]


@pytest.fixture(scope="module")
def policy() -> TinyPolicy:
    torch.set_num_threads(1)
    tokenizer = WordTokenizer.from_vocabulary(WORDS)
    generator = torch.Generator().manual_seed(0)
    policy = TinyPolicy.create(ModelConfig(max_positions=64), tokenizer, generator)
    with torch.no_grad():  # sharp enough that lengths vary and mistakes show
        policy.model.lm_head.mul_(40)
    return policy


def make_rows(
    policy: TinyPolicy, prompts: list[list[int]], row_prompt: list[int]
) -> tuple[Rows, torch.Tensor]:
    """Rows sampled from the policy itself, and the sampler's own token entropies."""
    generator = torch.Generator().manual_seed(1)
    out = policy.generate(prompts, row_prompt, Sampling(temperature=1.3, max_tokens=12), generator)
    n = len(row_prompt)
    padded, lengths = pad(prompts, policy.tokenizer.pad_id)
    index = torch.tensor(row_prompt)
    zeros = torch.zeros(n)
    rows = Rows(
        prompts=padded[index],
        prompt_lengths=lengths[index],
        prompt_id=index,
        responses=out.tokens,
        mask=torch.arange(out.tokens.shape[1]) < out.lengths[:, None],
        old_log_probs=out.log_probs,
        entropies=out.token_entropies.sum(1) / out.lengths,
        token_entropies=out.token_entropies,
        group=torch.zeros(n, dtype=torch.long),
        trajectory=torch.arange(n),
        turn=torch.zeros(n, dtype=torch.long),
        rewards=zeros,
        penalties=zeros,
        anchor=torch.full((n,), -1),
        success=torch.zeros(n, dtype=torch.bool),
    )
    return rows, out.token_entropies


def prompts_of(policy: TinyPolicy, *lengths: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(2)
    return [
        policy.encode(" ".join(WORDS[int(i)] for i in torch.randint(20, (length,), generator=generator)))
        for length in lengths
    ]


@pytest.mark.parametrize("lengths", [(7, 7, 7), (3, 9, 5)], ids=["equal", "unequal"])
def test_scores_equal_transformers_llama(
    policy: TinyPolicy, tmp_path: Path, lengths: tuple[int, ...]
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    policy.save(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == model.config.vocab_size == len(policy.tokenizer)
    assert tokenizer("w3 <pad> w1 nonsense")["input_ids"] == policy.tokenizer.encode("w3 <pad> w1 nonsense")

    rows, _ = make_rows(policy, prompts_of(policy, *lengths), [0, 1, 2, 1, 0, 2, 2])
    log_probs, entropies = policy.score(rows, temperature=1.3)
    for row in range(len(rows)):
        prompt = rows.prompts[row, : rows.prompt_lengths[row]]
        response = rows.responses[row, rows.mask[row]]
        with torch.no_grad():
            logits = model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits / 1.3, -1)
        count = len(response)
        torch.testing.assert_close(
            log_probs[row, :count], expected.gather(1, response[:, None])[:, 0], atol=2e-5, rtol=0
        )
        torch.testing.assert_close(
            entropies[row, :count],
            torch.distributions.Categorical(logits=expected).entropy(),
            atol=2e-5,
            rtol=0,
        )
    assert not log_probs[~rows.mask].any()


@pytest.mark.parametrize("lengths", [(7, 7, 7), (3, 9, 5)], ids=["equal", "unequal"])
def test_sampled_log_probs_equal_scores(policy: TinyPolicy, lengths: tuple[int, ...]) -> None:
    rows, entropies = make_rows(policy, prompts_of(policy, *lengths), [0, 1, 2] * 30)
    assert len(set(rows.tokens.tolist())) > 3, "lengths must vary, or compaction is not exercised"
    log_probs, token_entropies = policy.score(rows, temperature=1.3)
    torch.testing.assert_close(log_probs, rows.old_log_probs, atol=2e-5, rtol=0)
    torch.testing.assert_close(token_entropies, entropies, atol=2e-5, rtol=0)


def test_tokens_outside_the_mask_are_context_but_have_no_score(policy: TinyPolicy) -> None:
    rows, _ = make_rows(policy, prompts_of(policy, 7, 7), [0, 1] * 10)
    long = rows.select(rows.tokens > 3)
    masked = replace(long, mask=long.mask & (torch.arange(long.mask.shape[1]) != 1))
    whole, _ = policy.score(long, 1.0)
    part, _ = policy.score(masked, 1.0)
    torch.testing.assert_close(part, whole * masked.mask, atol=1e-6, rtol=0)


def test_samples_follow_the_distribution(policy: TinyPolicy) -> None:
    prompt = prompts_of(policy, 5)
    generator = torch.Generator().manual_seed(3)
    out = policy.generate(prompt, [0] * 20_000, Sampling(max_tokens=1), generator)
    counts = torch.bincount(out.tokens[:, 0], minlength=len(policy.tokenizer)) / 20_000
    probabilities = torch.zeros_like(counts).scatter_(0, out.tokens[:, 0], out.log_probs[:, 0].exp())
    assert (counts - probabilities).abs().max() < 0.015


def test_top_k_and_top_p_keep_the_likeliest(policy: TinyPolicy) -> None:
    prompt = prompts_of(policy, 5)

    def drawn(**limits: float) -> set[int]:
        generator = torch.Generator().manual_seed(4)
        sampling = Sampling(temperature=3.0, max_tokens=1, **limits)  # type: ignore[arg-type]
        return set(policy.generate(prompt, [0] * 3000, sampling, generator).tokens[:, 0].tolist())

    everything, few, one = drawn(), drawn(top_k=3), drawn(top_p=1e-6)
    assert len(everything) > 3
    assert len(few) == 3
    assert len(one) == 1
    assert one <= few <= everything


def test_same_generator_same_sample(policy: TinyPolicy) -> None:
    first, _ = make_rows(policy, prompts_of(policy, 4, 6), [0, 1] * 8)
    second, _ = make_rows(policy, prompts_of(policy, 4, 6), [0, 1] * 8)
    assert torch.equal(first.responses, second.responses)


def test_save_and_load_give_the_same_weights(policy: TinyPolicy, tmp_path: Path) -> None:
    policy.save(tmp_path)
    again = TinyPolicy.load(tmp_path, ModelConfig(max_positions=64))
    for (name, weight), (_, other) in zip(
        policy.module.named_parameters(), again.module.named_parameters(), strict=True
    ):
        assert torch.equal(weight, other), name
