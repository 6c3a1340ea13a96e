"""The native RL loop: roll out, judge, update; evaluate and checkpoint between steps.

A step reads top to bottom in `NativeTrainer.step`. Everything random comes from generators keyed by
(seed, stream, step), so a run that was killed and resumed from a checkpoint repeats the same numbers.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

import torch
from torch import Tensor

from envs.registry import load_environment
from trainers.collection import Collected, collect
from trainers.config import BASELINE_EVALUATIONS, TrainingConfig
from trainers.diagnostics import (
    Ratios,
    StepDiagnostics,
    evaluation_metrics,
    kl_old,
    rollout_metrics,
)
from trainers.minibatches import Minibatch, minibatches
from trainers.monitor import Diverged, Monitor
from trainers.native.checkpoint import newest_checkpoint, restore_optimizer, save_checkpoint
from trainers.native.policies import load_policy, load_reference
from trainers.policy import Sampling
from trainers.policy_gradient.objective import Objective
from trainers.policy_gradient.options import bind
from trainers.policy_gradient.parameters import FilteringSettings, settings
from trainers.randomness import numpy_generator, torch_generator
from trainers.rollout import Prompter, Rollout, rollout
from trainers.rows import Rows

__all__ = ["Diverged", "NativeTrainer", "train"]

SCORE_ROWS = 1024  # rows scored at once when no gradient is needed


def train(config: TrainingConfig, *, clone: Path, checkpoints: Path, monitor: Monitor) -> None:
    """Train from the clone, or from the newest checkpoint when there is one, to the last step.

    Returns early when the monitor says stop, leaving a checkpoint. Raises Diverged after reporting the step
    in which numbers stopped being finite.
    """
    trainer = NativeTrainer(config, clone, checkpoints, monitor)
    try:
        trainer.run()
    finally:
        trainer.close()


class NativeTrainer:
    """One trial: the policy, its reference, the optimiser and the environments."""

    def __init__(self, config: TrainingConfig, clone: Path, checkpoints: Path, monitor: Monitor) -> None:
        self.config, self.checkpoints, self.monitor = config, checkpoints, monitor
        environment, env_config = load_environment(config.env)
        self.pool = environment.make_pool(env_config)
        self.policy = load_policy(clone, config)
        self.reference = load_reference(clone, config, self.policy)
        self.prompter = Prompter(self.policy, config.prompt, environment.task(env_config), config.rows)
        trainer = config.trainer
        self.optimizer = torch.optim.AdamW(
            self.policy.module.parameters(),
            lr=trainer.learning_rate,
            betas=trainer.betas,
            weight_decay=trainer.weight_decay,
            fused=True,
        )
        self.objective = Objective(config)
        self.keep = bind("dynamic_filtering", config.dynamic_filtering)
        self.filtering = settings(config.dynamic_filtering, FilteringSettings)
        self.diagnostics = StepDiagnostics(config)
        self.done, self.updates = 0, 0

    def close(self) -> None:
        """Release the environments."""
        self.pool.close()

    def run(self) -> None:
        """Resume if there is a checkpoint, then step to the end."""
        self._resume()
        if self.done == 0:
            self.evaluate(0, BASELINE_EVALUATIONS * self.config.evaluation.episodes)
        steps, every = self.config.trainer.steps, self.config.evaluation.every
        while self.done < steps and not self.monitor.should_stop():
            step = self.done + 1
            self.step(step)
            if step % every == 0 or step == steps:
                self.evaluate(step, self.config.evaluation.episodes)
            self.done = step
            if (
                step % self.config.trainer.checkpoint_every == 0
                or step == steps
                or self.monitor.should_stop()
            ):
                self._checkpoint()

    def step(self, step: int) -> None:
        """One RL step: collect, advantages, mini-batch updates, report."""
        began, cpu = time.perf_counter(), time.process_time()
        collected = self.collect(step)
        rolled = time.perf_counter()
        self.diagnostics.start(step)
        diverged, stopped = None, False
        if collected.rows is not None:
            rows = self.objective.mark_void(collected.rows)
            reference = self._reference_log_probs(rows)
            rows = self.objective.charge_kl(rows, reference)
            advantages = self.objective.advantages(rows)
            try:
                stopped = self.update(step, rows, reference, advantages)
            except Diverged as error:
                diverged = error
        metrics = {
            **rollout_metrics(collected, self.objective, self.config.trainer.group_size),
            **self.diagnostics.metrics(),
            "train/stopped_at_kl": float(stopped),
            "train/learning_rate": self.config.trainer.learning_rate_at(self.updates),
            "time/rollout": rolled - began,
            "time/update": time.perf_counter() - rolled,
            "time/step": time.perf_counter() - began,
            "time/cpu": time.process_time() - cpu,
        }
        self.monitor.report(
            step,
            "train",
            metrics,
            histograms=self.diagnostics.histograms(),
            episodes=collected.rollouts[0].transcripts,
        )
        if diverged is not None:
            raise diverged

    def collect(self, step: int) -> Collected:
        """Play the step's episodes."""
        trainer = self.config.trainer
        sampling = Sampling(
            temperature=trainer.temperature, max_tokens=self.config.prompt.max_response_tokens
        )

        def play(attempt: int) -> Rollout:
            states = numpy_generator(self.config.seed, "states", step, attempt)
            seeds = states.integers(2**31, size=trainer.groups).repeat(trainer.group_size).tolist()
            return rollout(
                self.policy,
                self.pool,
                self.prompter,
                seeds,
                split="train",
                group_size=trainer.group_size,
                sampling=sampling,
                penalty=trainer.penalty,
                generator=torch_generator(self.config.seed, "rollout", step, attempt),
                transcripts=trainer.transcripts if attempt == 0 else 0,
            )

        return collect(
            play,
            self.keep,
            self.filtering,
            step=step,
            groups=trainer.groups,
            group_size=trainer.group_size,
        )

    def update(self, step: int, rows: Rows, reference: Tensor, advantages: Tensor) -> bool:
        """All mini-batch updates of a step; whether it was cut short by `stop_at_kl`.

        Raises Diverged before a non-finite update is applied.
        """
        trainer = self.config.trainer
        for epoch in range(trainer.epochs):
            generator = torch_generator(self.config.seed, "minibatches", step, epoch)
            for batch in minibatches(rows.trajectory, trainer, generator):
                if not self._update_once(rows, reference, advantages, batch, generator):
                    return True
        return False

    def _update_once(
        self, rows: Rows, reference: Tensor, advantages: Tensor, batch: Minibatch, generator: torch.Generator
    ) -> bool:
        """One update; False, and nothing done, where the policy has moved too far from the old one."""
        trainer = self.config.trainer
        device = self.policy.device
        chosen = rows.select(batch.index).to(device)
        reference, advantages = reference[batch.index].to(device), advantages[batch.index].to(device)
        for group in self.optimizer.param_groups:
            group["lr"] = trainer.learning_rate_at(self.updates)
        self.optimizer.zero_grad(set_to_none=True)
        result = self.objective.backward(chosen, advantages, reference, self._score, generator)
        copies = batch.copies.to(device)
        if trainer.stop_at_kl is not None:
            moved = kl_old(Ratios.of(chosen, result.log_probs, advantages, copies))
            if float(moved) > trainer.stop_at_kl:
                return False
        norm = float(
            torch.nn.utils.clip_grad_norm_(
                self.policy.module.parameters(), trainer.gradient_clip, foreach=True
            )
        )
        self.diagnostics.add(result, chosen, advantages, reference, copies, gradient_norm=norm)
        if not math.isfinite(result.loss) or not math.isfinite(norm):
            raise Diverged(f"loss {result.loss}, gradient norm {norm} at update {self.updates + 1}")
        self.optimizer.step()
        self.updates += 1
        return True

    def evaluate(self, step: int, episodes: int) -> None:
        """Play the first `episodes` states of the eval split and report."""
        began = time.perf_counter()
        evaluation = self.config.evaluation
        result = rollout(
            self.policy,
            self.pool,
            self.prompter,
            range(episodes),
            split="eval",
            group_size=1,
            sampling=Sampling(
                evaluation.temperature,
                evaluation.top_p,
                evaluation.top_k,
                self.config.prompt.max_response_tokens,
            ),
            penalty=self.config.trainer.penalty,
            generator=torch_generator(self.config.seed, "evaluation", step),
            transcripts=self.config.trainer.transcripts,
        )
        metrics = {
            **evaluation_metrics(result.episodes),
            "time/evaluation": time.perf_counter() - began,
        }
        self.monitor.report(step, "eval", metrics, episodes=result.transcripts)

    def _reference_log_probs(self, rows: Rows) -> Tensor:
        trainer = self.config.trainer
        with torch.no_grad():
            parts = [
                self.reference.score(rows.select(index), trainer.temperature)[0].cpu()
                for index in torch.split(torch.arange(len(rows)), trainer.micro_rows or SCORE_ROWS)
            ]
        return torch.cat(parts)

    def _score(self, rows: Rows) -> tuple[Tensor, Tensor]:
        trainer = self.config.trainer
        return self.policy.score(rows, trainer.temperature, entropy_gradient=trainer.entropy_bonus > 0)

    def _checkpoint(self) -> None:
        state = {
            "updates": self.updates,
            "diagnostics": self.diagnostics.state(),
            "records": self.monitor.position(),
        }
        save_checkpoint(
            self.checkpoints,
            self.done,
            self.policy,
            self.optimizer,
            state,
            keep=self.config.trainer.keep_checkpoints,
        )

    def _resume(self) -> None:
        checkpoint = newest_checkpoint(self.checkpoints)
        if checkpoint is None:
            self.monitor.rewind({})
            return
        self.policy.restore(checkpoint.folder)
        restore_optimizer(checkpoint, self.optimizer)
        self.done, self.updates = checkpoint.step, int(checkpoint.state["updates"])
        self.diagnostics.restore(checkpoint.state["diagnostics"])
        self.monitor.rewind(checkpoint.state["records"])
