"""Rows per CPU-second of a whole RL step, beside TRL's GRPOTrainer with the same model.

    python benchmarks/trl_peer.py

Both start from the same weights, take the rows of one of our steps (128 episodes of Sokoban, replies of about
8 tokens) and make four updates of a quarter each, against a reference model, on one thread. Two comparisons:

whole step  ours: environments, prompts, parsing, generation, reference, updates, diagnostics.
            TRL: generation by transformers for as many rows of the same prompts, in groups of eight equal
            ones, reference, updates; no environment.
updates     both on the identical rows, which TRL is handed as a `rollout_func`.

TRL lives in an environment of its own, made on the first run in the user's cache (about 1 GB): its newest
release, with the torch that is installed here. Where it cannot be installed, nothing is measured.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import torch

from arena.planning import plan_study
from trainers.config import TrainingConfig
from trainers.monitor import MemoryMonitor
from trainers.native.cloning import make_clone
from trainers.native.training import NativeTrainer
from trainers.rows import Rows

REPEATS = 5
GROUP, UPDATES = 8, 4
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arlarena" / "trl-peer"
GRID = """
name: benchmark
methods: [GRPO]
envs: [sokoban]
seeds: 1
overrides:
  env.thought_words: 2
  trainer.epochs: 1
  cloning.stages: [{steps: 200, learning_rate: 3e-3}]
"""

PEER = '''
import json, os, random, statistics, sys, time, warnings
warnings.simplefilter("ignore")
os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}
import torch
torch.set_num_threads(1)
import transformers, trl
from datasets import Dataset
from transformers import TrainerCallback
transformers.logging.set_verbosity_error()

job = json.load(open(sys.argv[1]))
rows, prompts, completions = job["rows"], job["prompts"], job["completions"]
draw = random.Random(0)

class Clock(TrainerCallback):
    """CPU time at the end of every RL step, a round of updates."""
    def __init__(self):
        self.marks = []
    def on_step_end(self, args, state, control, **more):
        if state.global_step % job["updates"] == 0:
            self.marks.append(time.process_time())

def given(asked, trainer):
    return {"prompt_ids": prompts, "completion_ids": completions, "logprobs": job["log_probs"]}

def seconds(rollout_func):
    clock = Clock()
    config = trl.GRPOConfig(
        output_dir=job["folder"], max_steps=job["updates"] * (job["repeats"] + 1), seed=0,
        per_device_train_batch_size=rows // job["updates"], steps_per_generation=job["updates"],
        gradient_accumulation_steps=1, num_generations=job["group"], num_iterations=1,
        max_completion_length=job["limit"], temperature=1.0, learning_rate=job["rate"],
        lr_scheduler_type="constant", beta=0.01, epsilon=0.2, loss_type="bnpo", max_grad_norm=1.0,
        bf16=False, use_cpu=True, gradient_checkpointing=False, logging_steps=10**6, save_strategy="no",
        report_to="none", disable_tqdm=True, shuffle_dataset=False, dataloader_pin_memory=False,
    )
    trainer = trl.GRPOTrainer(
        model=job["model"], args=config, callbacks=[clock], rollout_func=rollout_func,
        reward_funcs=lambda completions, **more: [draw.random() for _ in completions],
        train_dataset=Dataset.from_dict({"prompt": job["texts"]}),
        processing_class=transformers.AutoTokenizer.from_pretrained(job["model"]),
    )
    trainer.train()
    return statistics.median(after - before for before, after in zip(clock.marks, clock.marks[1:]))

whole, updates = seconds(None), seconds(given)
json.dump({"whole": whole, "updates": updates, "version": trl.__version__}, open(sys.argv[2], "w"))
'''


def environment() -> Path | None:
    """The Python of TRL's own environment, made if need be; None, and why in words, when it cannot be."""
    python = CACHE / "bin" / "python"
    works = [str(python), "-c", "import trl, torch"]
    if python.exists() and subprocess.run(works, capture_output=True, check=False).returncode == 0:
        return python
    print(f"installing TRL into {CACHE} ...", flush=True)
    venv.create(CACHE, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    version = torch.__version__.partition("+")[0]
    done = subprocess.run([*pip, f"torch=={version}", "trl"], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        print(f"skipped: TRL cannot be installed here ({reason})")
        return None
    return python


def ours(config: TrainingConfig, clone: Path, folder: Path) -> tuple[float, float, float, Rows]:
    """CPU-seconds of a step, of its updates, rows per step (medians), and the rows of a step."""
    trainer = NativeTrainer(config, clone, folder, MemoryMonitor())
    first = trainer.collect(1).rows
    assert first is not None
    whole, rollouts, counts = [], [], []
    for step in range(1, REPEATS + 2):
        began = time.process_time()
        collected = trainer.collect(step)
        rollouts.append(time.process_time() - began)
        assert collected.rows is not None
        counts.append(len(collected.rows))
        began = time.process_time()
        trainer.step(step)
        whole.append(time.process_time() - began)
    trainer.close()
    updates = [step - rollout for step, rollout in zip(whole[1:], rollouts[1:], strict=True)]
    return statistics.median(whole[1:]), statistics.median(updates), statistics.median(counts[1:]), first


def theirs(python: Path, config: TrainingConfig, rows: Rows, clone: Path, folder: Path) -> dict[str, float]:
    """What TRL took for the rows, in its own process."""
    from trainers.native.tokenizer import WordTokenizer

    words = WordTokenizer.load(clone).words
    prompts = [
        row[:length] for row, length in zip(rows.prompts.tolist(), rows.prompt_lengths.tolist(), strict=True)
    ]
    lengths = rows.tokens.tolist()
    responses, log_probs = (
        [row[:length] for row, length in zip(column.tolist(), lengths, strict=True)]
        for column in (rows.responses, rows.old_log_probs)
    )
    job = {
        "rows": len(rows),
        "updates": UPDATES,
        "group": GROUP,
        "repeats": REPEATS,
        "prompts": prompts,
        "completions": responses,
        "log_probs": log_probs,
        "texts": [" ".join(words[token] for token in prompt) for prompt in prompts[::GROUP]],
        "limit": config.prompt.max_response_tokens,
        "rate": config.trainer.learning_rate,
        "model": str(clone),
        "folder": str(folder / "trl"),
    }
    (folder / "job.json").write_text(json.dumps(job))
    result = folder / "result.json"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-c", PEER, str(folder / "job.json"), str(result)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"TRL failed:\n{ran.stderr[-3000:]}")
    measured: dict[str, float] = json.loads(result.read_text())
    return measured


def main() -> None:
    torch.set_num_threads(1)
    python = environment()
    if python is None:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "grid.yaml").write_text(GRID)
        config = plan_study(folder / "grid.yaml", studies=folder).trials[0].config
        clone = folder / "clone"
        clone.mkdir()
        make_clone(config, clone, lambda done, total: None)
        whole, updates, count, rows = ours(config, clone, folder / "run")
        size = len(rows) // (GROUP * UPDATES) * GROUP * UPDATES
        rows = rows.select(torch.arange(size))
        peer = theirs(python, config, rows, clone, folder)
    length, load = float(rows.tokens.float().mean()), os.getloadavg()[0]
    print(f"TRL {peer['version']}, {size} rows of {length:.1f} tokens; load {load:.1f}")
    for what, mine, other in (("whole step", whole, peer["whole"]), ("updates", updates, peer["updates"])):
        ratio = (count / mine) / (size / other)
        print(
            f"{what:10}  ours {mine:.2f} CPU-s, {count / mine:,.0f} rows per CPU-second; "
            f"TRL {other:.2f} CPU-s, {size / other:,.0f}; ratio {ratio:.1f}"
        )


if __name__ == "__main__":
    sys.exit(main())
