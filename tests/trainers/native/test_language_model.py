"""Transformers models as policies, against plain loops over rows without padding, caches or hooks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from envs.prompts import render, write_response
from envs.text_env import Observation
from tests.trainers.native.conftest import Configure
from trainers.config import LoRAConfig, ModelConfig, PromptConfig, TrainingConfig
from trainers.monitor import MemoryMonitor
from trainers.native.checkpoint import newest_checkpoint
from trainers.native.cloning import make_clone
from trainers.native.language_model import AdaptersOff, LanguageModel, LanguageModelError
from trainers.native.training import NativeTrainer, train
from trainers.policy import Sampling, pad
from trainers.rows import Rows

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WALL = "wall floor player box target on Up Down Left Right push "
SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
FAMILIES: dict[str, Callable[..., transformers.PreTrainedConfig]] = {
    "llama": lambda **more: transformers.LlamaConfig(**SMALL, num_key_value_heads=1, **more),
    "qwen2": lambda **more: transformers.Qwen2Config(
        **SMALL, num_key_value_heads=2, tie_word_embeddings=True, **more
    ),
    "sliding": lambda **more: transformers.MistralConfig(
        **SMALL, num_key_value_heads=2, sliding_window=5, **more
    ),
    "softcap": lambda **more: transformers.Gemma2Config(
        **SMALL, num_key_value_heads=2, head_dim=8, final_logit_softcapping=3.0, sliding_window=4, **more
    ),
    "dropout": lambda **more: transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, **more),
}


def make_model(folder: Path, family: str = "llama", *, template: bool = False) -> Path:
    """A random model of a family and a byte-level tokenizer learnt from a prompt, as transformers saves."""
    observation = Observation(WALL, None, ("Up", "Down", "Left", "Right"))
    texts = [render("full", "Push every box onto a target.", (), observation), WALL]
    texts += [write_response(f"push {word}", word) for word in ("Up", "Down", "Left", "Right")] * 20
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = ["<|end|>", "<|im_start|>", "<|im_end|>"]
    raw.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=420,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>" if template else "<|end|>"
    )
    if template:
        tokenizer.chat_template = TEMPLATE
    config = FAMILIES[family](vocab_size=len(tokenizer), pad_token_id=None, bos_token_id=None)
    config.max_position_embeddings = 512
    config.eos_token_id = tokenizer.eos_token_id
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config)
        with torch.no_grad():  # far from uniform, so that mistakes show
            model.get_output_embeddings().weight.mul_(20)
    if template:
        model.generation_config.eos_token_id = [tokenizer.eos_token_id, 0]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def load(folder: Path, style: str = "compact", **model: Any) -> LanguageModel:
    torch.set_num_threads(1)
    config = ModelConfig(path=str(folder), device="cpu", **model)
    return LanguageModel.load(folder, config, PromptConfig.model_validate({"style": style}), seed=3)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in made:
            made[family] = make_model(tmp_path_factory.mktemp(family), family)
        return made[family]

    return folder


def sample_rows(policy: LanguageModel, row_prompt: list[int]) -> Rows:
    """Rows sampled from the policy after prompts of unequal length; a fourth of all tokens ends one."""
    policy.ends += tuple(range(100))
    prompts = [
        policy.encode(text) for text in ("wall floor wall", "box target", "player on a target, box up")
    ]
    generator = torch.Generator().manual_seed(1)
    out = policy.generate(prompts, row_prompt, Sampling(1.3, max_tokens=9), generator)
    n = len(row_prompt)
    padded, lengths = pad(prompts, policy.pad_id)
    index, zeros = torch.tensor(row_prompt), torch.zeros(n)
    return Rows(
        prompts=padded[index],
        prompt_lengths=lengths[index],
        prompt_id=index,
        responses=out.tokens,
        mask=torch.arange(out.tokens.shape[1]) < out.lengths[:, None],
        old_log_probs=out.log_probs,
        entropies=zeros,
        token_entropies=out.token_entropies,
        group=torch.zeros(n, dtype=torch.long),
        trajectory=torch.arange(n),
        turn=torch.zeros(n, dtype=torch.long),
        rewards=zeros,
        penalties=zeros,
        anchor=torch.full((n,), -1),
        success=torch.zeros(n, dtype=torch.bool),
    )


def plain_scores(model: Any, rows: Rows, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Row by row: one sequence without padding through the model's own forward."""
    log_probs, entropies = torch.zeros(rows.mask.shape), torch.zeros(rows.mask.shape)
    for row in range(len(rows)):
        prompt = rows.prompts[row, : rows.prompt_lengths[row]]
        response = rows.responses[row, rows.mask[row]]
        logits = model(torch.cat([prompt, response])[None], use_cache=False).logits[0, len(prompt) - 1 : -1]
        spread = torch.distributions.Categorical(logits=logits / temperature)
        log_probs[row, : len(response)] = spread.log_prob(response)
        entropies[row, : len(response)] = spread.entropy()
    return log_probs, entropies


SHARED, ALONE = [0, 1, 2] * 6, [2, 0, 1]


@pytest.mark.parametrize("row_prompt", [SHARED, ALONE], ids=["shared prompts", "one row a prompt"])
@pytest.mark.parametrize("family", FAMILIES)
def test_scores_and_their_gradients_equal_a_plain_loop(
    folders: Callable[[str], Path], family: str, row_prompt: list[int]
) -> None:
    policy = load(folders(family))
    plain = transformers.AutoModelForCausalLM.from_pretrained(folders(family)).eval()
    rows = sample_rows(policy, row_prompt)
    assert len(set(rows.tokens.tolist())) > 1, "lengths must vary, or padding is not exercised"
    ours, theirs = policy.score(rows, 1.3, entropy_gradient=True), plain_scores(plain, rows, 1.3)
    weight = torch.linspace(-1, 1, rows.mask.numel()).view(rows.mask.shape)
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected, atol=2e-5, rtol=0)
    for log_probs, entropies in (ours, theirs):
        (weight * log_probs + weight.square() * entropies).sum().backward()
    for (name, mine), expected in zip(policy.module.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, expected.grad, atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize("family", FAMILIES)
def test_sampled_log_probs_equal_scores(folders: Callable[[str], Path], family: str) -> None:
    policy = load(folders(family))
    rows = sample_rows(policy, SHARED)
    with torch.no_grad():
        log_probs, entropies = policy.score(rows, 1.3)
    torch.testing.assert_close(rows.old_log_probs, log_probs, atol=2e-5, rtol=0)
    torch.testing.assert_close(rows.token_entropies, entropies, atol=2e-5, rtol=0)


def test_tokens_outside_the_mask_have_no_score(folders: Callable[[str], Path]) -> None:
    policy = load(folders("llama"))
    rows = sample_rows(policy, SHARED)
    rows.mask[:, 1] = False
    with torch.no_grad():
        log_probs, _ = policy.score(rows, 1.3)
    torch.testing.assert_close(log_probs, rows.old_log_probs * rows.mask, atol=2e-5, rtol=0)


def test_any_end_of_the_model_ends_a_response(tmp_path: Path) -> None:
    policy = load(make_model(tmp_path, template=True))
    assert policy.ends == (policy.tokenizer.eos_token_id, 0)
    rows = sample_rows(policy, SHARED * 4)
    for response, length in zip(rows.responses.tolist(), rows.tokens.tolist(), strict=True):
        ended = [token in policy.ends for token in response[:length]]
        assert not any(ended[:-1])
        assert ended[-1] or length == 9


def test_full_prompts_go_through_the_chat_template(tmp_path: Path) -> None:
    make_model(tmp_path, "qwen2", template=True)
    full, compact = load(tmp_path, "full"), load(tmp_path)
    shown = full.tokenizer.decode(full.encode("push it"))
    assert shown == "<|im_start|>user\npush it<|im_end|>\n<|im_start|>assistant\n"
    assert compact.tokenizer.decode(compact.encode("push it")) == "push it\n"
    response = full.encode_response("<think> a </think> <action> Up </action>")
    assert response[-1] == full.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert full.decode(response) == "<think> a </think> <action> Up </action>"
    assert full.decode([*response[:-1], 1, response[-1]]).endswith("</action><|im_start|>")


def test_adapters_change_nothing_until_trained_and_leave_the_reference_as_it_was(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    plain, policy = load(folders("llama")), load(folders("llama"), lora=LoRAConfig(rank=2, alpha=4))
    rows = sample_rows(plain, SHARED)
    with torch.no_grad():
        before = plain.score(rows, 1.0)[0]
    torch.testing.assert_close(policy.score(rows, 1.0)[0].detach(), before, atol=1e-6, rtol=0)
    optimizer = torch.optim.SGD([w for w in policy.module.parameters() if w.requires_grad], lr=1.0)
    for _ in range(2):
        policy.score(rows, 1.0)[0].sum().backward()
        optimizer.step()
    assert {name.split(".")[-3] for name, w in policy.module.named_parameters() if w.grad is not None} == {
        "lora_A",
        "lora_B",
    }
    with torch.no_grad():
        after = policy.score(rows, 1.0)[0]
        assert (after - before).abs().max() > 0.1
        torch.testing.assert_close(AdaptersOff(policy).score(rows, 1.0)[0], before, atol=1e-6, rtol=0)
        policy.export(tmp_path)
        torch.testing.assert_close(load(tmp_path).score(rows, 1.0)[0], after, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(policy.score(rows, 1.0)[0], after, atol=0, rtol=0)


@pytest.mark.parametrize("lora", [None, LoRAConfig(rank=2)], ids=["whole", "lora"])
def test_restored_weights_are_the_saved_ones(
    folders: Callable[[str], Path], tmp_path: Path, lora: LoRAConfig | None
) -> None:
    policy, other = (load(folders("qwen2"), lora=lora) for _ in range(2))
    with torch.no_grad():
        for weight in policy.module.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(5)))
    policy.save(tmp_path)
    other.restore(tmp_path)
    for (name, mine), theirs in zip(policy.module.named_parameters(), other.module.parameters(), strict=True):
        assert torch.equal(mine, theirs), name
    assert (tmp_path / ("adapter_model.safetensors" if lora else "model.safetensors")).is_file()


def test_what_cannot_be_used_is_said(tmp_path: Path, folders: Callable[[str], Path]) -> None:
    with pytest.raises(LanguageModelError, match=r"model\.path: .*nowhere does not load"):
        load(tmp_path / "nowhere")
    with pytest.raises(LanguageModelError, match="package no_such_package is not installed"):
        LanguageModel.load("no_such_package:a.gguf", ModelConfig(path="x"), PromptConfig(), seed=0)
    with pytest.raises(LanguageModelError, match=r"model\.lora\.targets: .*nothing_like_it"):
        load(folders("llama"), lora=LoRAConfig(targets=("nothing_like_it",)))
    with pytest.raises(ValueError, match=r"lora is for a language model: set model\.path"):
        ModelConfig(lora=LoRAConfig())
    policy = load(folders("llama"))
    with pytest.raises(ValueError, match="leaves no room for a response in the model's 512 positions"):
        policy.generate([[5] * 600], [0], Sampling(), torch.Generator())


# Training: the loop of the tiny policy, with another policy in it.


def trial(configure: Configure, path: Path, **changes: Any) -> TrainingConfig:
    config = configure(trainer={"groups": 3, "micro_rows": 16}).model_dump(mode="json")
    config["env"].update(train_levels=40, eval_levels=16, max_turns=2, max_optimal=2)
    config["model"] = {"path": str(path), "device": "cpu", **changes.pop("model", {})}
    config["prompt"] = {"style": "full", "history": 1, "max_response_tokens": 32}
    config["evaluation"] = {"every": 2, "episodes": 4}
    config["cloning"] = {"episodes": 30, "batch": 16, "stages": [{"steps": 12, "learning_rate": 1e-2}]}
    return TrainingConfig.model_validate(config | changes)


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("chat"), "qwen2", template=True)


def clone_of(config: TrainingConfig, folder: Path) -> Path:
    folder.mkdir()
    make_clone(config, folder, lambda done, total: None)
    return folder


@pytest.mark.parametrize("lora", [None, {"rank": 2}], ids=["whole", "lora"])
def test_killed_and_resumed_equals_uninterrupted(
    configure: Configure, chat_model: Path, tmp_path: Path, lora: dict[str, int] | None
) -> None:
    config = trial(configure, chat_model, model={"lora": lora})
    clone = clone_of(config, tmp_path / "clone")
    stages = json.loads((clone / "clone.json").read_text())["stages"]
    assert stages[0]["last_loss"] < stages[0]["first_loss"]
    whole, cut = MemoryMonitor(), MemoryMonitor(stop_after=3)
    train(config, clone=clone, checkpoints=tmp_path / "whole", monitor=whole)
    train(config, clone=clone, checkpoints=tmp_path / "cut", monitor=cut)
    shutil.rmtree(tmp_path / "cut" / "step-000003")  # killed at step 3: step 2 is the newest checkpoint
    found = newest_checkpoint(tmp_path / "cut")
    assert found is not None
    assert found.step == 2
    cut.stop_after = None
    train(config, clone=clone, checkpoints=tmp_path / "cut", monitor=cut)
    timeless = [
        [{name: value for name, value in row.items() if not name.startswith("time/")} for row in run.rows]
        for run in (cut, whole)
    ]
    assert timeless[0] == timeless[1]
    name = "adapter_model.safetensors" if lora else "model.safetensors"
    ours, theirs = (load_file(tmp_path / run / "step-000004" / name) for run in ("cut", "whole"))
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    first = next(row for row in whole.rows if row["kind"] == "train")
    assert first["train/kl_ref_first"] == pytest.approx(0, abs=1e-6)
    assert first["train/engine_gap"] == pytest.approx(0, abs=1e-5)


def test_clone_of_no_stage_is_the_model_itself(
    configure: Configure, chat_model: Path, tmp_path: Path
) -> None:
    config = trial(configure, chat_model, cloning={"stages": []})
    clone = clone_of(config, tmp_path / "clone")
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (clone, chat_model))
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_tiny_path_imports_no_transformers(configure: Configure, clone: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(configure(trainer={"steps": 1}).model_dump_json())
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from trainers.config import TrainingConfig\n"
        "from trainers.monitor import MemoryMonitor\n"
        "from trainers.native import cloning, training\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "config = TrainingConfig.model_validate_json((folder / 'config.json').read_text())\n"
        f"training.train(config, clone=Path({str(clone)!r}), checkpoints=folder, monitor=MemoryMonitor())\n"
        "assert not {'transformers', 'peft', 'tokenizers'} & set(sys.modules)\n"
    )
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[3], env=environment)


def test_tiny_policy_saved_here_loads_as_a_language_model_and_scores_alike(
    configure: Configure, clone: Path, tmp_path: Path
) -> None:
    """The two implementations of a policy agree on rows of a real rollout."""
    trainer = NativeTrainer(configure(), clone, tmp_path, MemoryMonitor())
    rows = trainer.collect(1).rows
    assert rows is not None
    other = load(clone, "full")  # its chat template ends a prompt with the token that opens a response
    prompt = rows.prompts[0, : rows.prompt_lengths[0]].tolist()
    assert other.encode(other.tokenizer.decode(prompt[:-1])) == prompt
    with torch.no_grad():
        for ours, theirs in zip(trainer.policy.score(rows, 0.8), other.score(rows, 0.8), strict=True):
            torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)
