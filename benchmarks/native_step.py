"""CPU-seconds of a 128-episode RL step of the default model, beside the same rows through transformers.

The peer is transformers' own LlamaForCausalLM with the same weights: `generate` for the same prompts, and a
forward and backward pass over the same rows with the same loss. It has no environment, no parsing, no
reference policy and no diagnostics to pay for; ours includes them.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from arena.planning import plan_study
from trainers.config import TrainingConfig
from trainers.monitor import MemoryMonitor
from trainers.native import training
from trainers.native.cloning import make_clone
from trainers.native.training import NativeTrainer
from trainers.rows import Rows

REPEATS = 5
GRID = """
name: benchmark
methods: [GRPO]
envs: [sokoban]
seeds: 1
overrides:
  env.thought_words: {words}
  trainer.epochs: 1
  cloning.stages: [{{steps: 200, learning_rate: 3e-3}}]
"""


def cpu(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Median CPU-seconds of a call, after one to warm up."""
    work()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return statistics.median(times)


def ours(config: TrainingConfig, clone: Path, folder: Path) -> tuple[float, float, Rows]:
    """CPU-seconds of a step, the share of them that diagnostics take, and the rows of a step."""
    trainer = NativeTrainer(config, clone, folder, MemoryMonitor())
    spent = [0.0]

    def clocked(work: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*given: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return work(*given, **named)
            finally:
                spent[0] += time.process_time() - began

        return measured

    diagnostics = trainer.diagnostics
    for name in ("add", "metrics", "histograms"):
        setattr(diagnostics, name, clocked(getattr(diagnostics, name)))
    steps = iter(range(1, 100))
    with mock.patch.object(training, "rollout_metrics", clocked(training.rollout_metrics)):
        seconds = cpu(lambda: trainer.step(next(steps)))
    fresh = NativeTrainer(config, clone, folder, MemoryMonitor())
    rows = fresh.collect(1).rows
    assert rows is not None
    return seconds, spent[0] / (REPEATS + 1) / seconds, rows


def theirs(rows: Rows, clone: Path, minibatches: int) -> tuple[float, float]:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(clone)
    pad, end = model.config.pad_token_id, model.config.eos_token_id
    turns = [rows.select(rows.turn == turn) for turn in range(int(rows.turn.max()) + 1)]

    @torch.no_grad()
    def generate() -> None:
        for turn in turns:
            mask = torch.ones_like(turn.prompts)
            model.generate(
                turn.prompts,
                attention_mask=mask,
                do_sample=True,
                max_new_tokens=32,
                pad_token_id=pad,
                eos_token_id=end,
            )

    whole = torch.cat([rows.prompts, rows.responses], 1)
    attention = torch.cat([torch.ones_like(rows.prompts), rows.mask.long()], 1)

    def train() -> None:
        for part in torch.arange(len(rows)).chunk(minibatches):
            kept = rows.responses.shape[1] + 1
            logits = model(whole[part], attention_mask=attention[part], logits_to_keep=kept).logits[:, :-1]
            log_p = torch.log_softmax(logits, -1)
            entropy = -(log_p.detach().exp() * log_p.detach()).sum(-1)
            chosen = log_p.gather(-1, rows.responses[part][..., None])[..., 0]
            loss = -(chosen * rows.mask[part]).sum() / rows.mask[part].sum()
            model.zero_grad()
            (loss + 0 * entropy.sum()).backward()

    return cpu(generate), cpu(train)


def configure(folder: Path, words: int) -> TrainingConfig:
    """The default trial, one epoch a step, its expert writing at most so many words of its plan."""
    grid = folder / "grid.yaml"
    grid.write_text(GRID.format(words=words))
    return plan_study(grid, studies=folder).trials[0].config


def main() -> None:
    torch.set_num_threads(1)
    for words in (2, 20):
        with tempfile.TemporaryDirectory() as folder:
            config = configure(Path(folder), words)
            clone = Path(folder) / "clone"
            clone.mkdir()
            make_clone(config, clone, lambda done, total: None)
            seconds, diagnostics, rows = ours(config, clone, Path(folder) / "run")
            generate, train = theirs(rows, clone, minibatches=4)
        length = float(rows.tokens.float().mean())
        print(
            f"thoughts of at most {words} words: {len(rows)} rows of {length:.1f} tokens; "
            f"our whole step {seconds:.2f} CPU-s ({seconds / int(rows.tokens.sum()) * 1e6:.0f} us a token), "
            f"{diagnostics:.1%} of it diagnostics; "
            f"transformers generate {generate:.2f} + train {train:.2f} CPU-s; "
            f"ratio {(generate + train) / seconds:.1f}"
        )


if __name__ == "__main__":
    main()
