"""Our RL loop on verl's workers, engine and checkpoints.

verl brings the policy up on its devices, generates, scores, updates and saves. What a step is (which
episodes, which of them count, advantages, mini-batches, what is measured, when to stop) is as in the native
trainer, by the same functions; `Trainer.step` reads like its.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf, open_dict
from torch import Tensor
from verl.trainer.ppo.v1 import PPOTrainerSync
from verl.utils import tensordict_utils

from envs.text_env import Split
from trainers.collection import Collected, collect, collected
from trainers.config import BASELINE_EVALUATIONS
from trainers.diagnostics import (
    Ratios,
    StepDiagnostics,
    evaluation_metrics,
    kl_old,
    rollout_metrics,
)
from trainers.minibatches import Minibatch, minibatches
from trainers.monitor import Diverged, Monitor
from trainers.policy_gradient.objective import Objective, Pass
from trainers.policy_gradient.options import bind
from trainers.policy_gradient.parameters import FilteringSettings, settings
from trainers.randomness import numpy_generator, torch_generator
from trainers.rollout import EnvironmentsFailedError, Rollout
from trainers.rows import Rows, concatenate
from trainers.verl.batches import Played, Stored, as_rollout, episodes_of, failures_of
from trainers.verl.carried import trial_of
from trainers.verl.row_store import EVAL, TRAIN, RowStore
from trainers.verl.translation import LOG_PROB_ROWS
from trainers.verl.updates import Update, engine_weights, prepare_update
from trainers.verl.worker import PolicyWorker

_LOG = logging.getLogger(__name__)

POLL = 0.02  # seconds between looks at which episodes are over; verl's own is 2


class Trainer(PPOTrainerSync):
    """A trial under verl. monitor: what is told, verl's own loggers when there is none."""

    global_steps: int
    role_worker_mapping: dict[Any, Any]

    def __init__(self, config: Any, monitor: Monitor | None = None) -> None:
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"  # what verl's other parts know us as
        self.trial = trial_of(config.actor_rollout_ref.rollout)
        super().__init__(config)
        self.replay_buffer.poll_interval = POLL
        self.monitor = monitor or _Loggers(config)
        self.objective = Objective(self.trial)
        self.keep = bind("dynamic_filtering", self.trial.dynamic_filtering)
        self.filtering = settings(self.trial.dynamic_filtering, FilteringSettings)
        self.diagnostics = StepDiagnostics(self.trial)
        self.updates = 0
        self.learning_rate = self.trial.trainer.learning_rate_at(0)
        self.resumed: dict[str, Any] | None = None

    # What verl's set-up asks for

    def _init_dataloader(self) -> None:
        """Initial states come from the environment. In the loader's place in checkpoints is our own state."""
        self.train_dataloader = _State(self)
        self.steps_per_epoch = self.total_training_steps = self.trial.trainer.steps
        with open_dict(self.config):
            # of the learning rate's schedule, which is constant after its warm-up
            self.config.actor_rollout_ref.actor.optim.total_training_steps = 10**9

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        self.role_worker_mapping = dict.fromkeys(self.role_worker_mapping, ray.remote(PolicyWorker))

    # The loop

    def fit(self, agent_loop_manager: Any) -> None:
        """Resume if there is a checkpoint, then step to the end or until the monitor says stop."""
        self.agent_loop_manager = agent_loop_manager
        trainer, every = self.trial.trainer, self.trial.evaluation.every
        self.rows = RowStore(
            self.actor_rollout_wg,
            None if self.ref_in_actor else self.ref_policy_wg,
            temperature=trainer.temperature,
            micro_rows=trainer.micro_rows or LOG_PROB_ROWS,
            end=self.tokenizer.eos_token_id,
        )
        self.monitor.rewind({} if self.resumed is None else self.resumed["records"])
        if self.global_steps == 0:
            self.evaluate(0, BASELINE_EVALUATIONS * self.trial.evaluation.episodes)
        while self.global_steps < trainer.steps and not self.monitor.should_stop():
            step = self.global_steps + 1
            self.step(step)
            self.checkpoint_manager.update_weights(step)
            if step % every == 0 or step == trainer.steps:
                self.evaluate(step, self.trial.evaluation.episodes)
            self.global_steps = step
            if step % trainer.checkpoint_every == 0 or step == trainer.steps or self.monitor.should_stop():
                self._save_checkpoint()
        self._shutdown_dump_executor()

    def step(self, step: int) -> None:
        """One RL step: collect, score, advantages, mini-batch updates, report."""
        began, cpu = time.perf_counter(), time.process_time()
        played: list[Played] = []
        found = self.collect(step, played)
        self.checkpoint_manager.sleep_replicas()
        rolled = time.perf_counter()
        found, keys, engine = self.score(found, played)
        self.diagnostics.start(step)
        diverged, gap, stopped = None, None, False
        if found.rows is not None:
            assert engine is not None
            rows = self.objective.mark_void(found.rows)
            reference = self.rows.reference(keys, rows)
            rows = self.objective.charge_kl(rows, reference)
            advantages = self.objective.advantages(rows)
            gap = _gap(rows, engine)
            try:
                stopped = self.update(step, keys, rows, reference, advantages, engine)
            except Diverged as error:
                diverged = error
        metrics = {
            **rollout_metrics(found, self.objective, self.trial.trainer.group_size),
            **self.diagnostics.metrics(),
            **({} if gap is None else {"train/engine_gap": gap}),
            "train/stopped_at_kl": float(stopped),
            "train/learning_rate": self.learning_rate,
            "time/rollout": rolled - began,
            "time/update": time.perf_counter() - rolled,
            "time/step": time.perf_counter() - began,
            "time/cpu": time.process_time() - cpu,
        }
        self.rows.clear([key for part in played for key in (*part.keys, *part.left_out)], TRAIN)
        self.monitor.report(
            step,
            "train",
            metrics,
            histograms=self.diagnostics.histograms(),
            episodes=found.rollouts[0].transcripts,
        )
        if diverged is not None:
            raise diverged

    def collect(self, step: int, played: list[Played]) -> Collected:
        """Play the step's episodes; what was played, try by try, is appended to `played`."""
        trainer = self.trial.trainer

        def play(attempt: int) -> Rollout:
            states = numpy_generator(self.trial.seed, "states", step, attempt)
            seeds = states.integers(2**31, size=trainer.groups).tolist()
            keep = trainer.transcripts if attempt == 0 else 0
            name = f"train-{step}-{attempt}"
            played.append(self.play(seeds, "train", name, group_size=trainer.group_size, transcripts=keep))
            return played[-1].rollout

        return collect(
            play,
            self.keep,
            self.filtering,
            step=step,
            groups=trainer.groups,
            group_size=trainer.group_size,
        )

    def evaluate(self, step: int, episodes: int) -> None:
        """Play the first `episodes` states of the eval split and report."""
        began = time.perf_counter()
        keep = self.trial.trainer.transcripts
        played = self.play(range(episodes), "eval", f"eval-{step}", group_size=1, transcripts=keep)
        self.rows.clear([*played.keys, *played.left_out], EVAL)
        metrics = {
            **evaluation_metrics(played.rollout.episodes),
            "time/evaluation": time.perf_counter() - began,
        }
        self.monitor.report(step, "eval", metrics, episodes=played.rollout.transcripts)

    def play(
        self, seeds: Sequence[int], split: Split, name: str, *, group_size: int, transcripts: int
    ) -> Played:
        """Play `group_size` episodes of every seed through verl's agent loops, the first with transcripts.

        When the environments of all of them failed they are played once more, as by the native trainer;
        raises EnvironmentsFailedError when those failed too, EpisodeError when some could not be played.
        """
        episodes = len(seeds) * group_size
        said = ""
        for attempt in (name, f"{name}-again"):
            stored = self._played(seeds, split, attempt, group_size=group_size, transcripts=transcripts)
            failures = failures_of(stored, episodes=episodes)
            if len(failures) < episodes:
                return as_rollout(stored, episodes=episodes, group_size=group_size, kind=split)
            self.rows.clear([row.key for row in stored], _partition(split))
            said = failures[0]
            _LOG.warning("the environments of all %d episodes failed: %s", episodes, said)
        raise EnvironmentsFailedError(
            f"the environments of all {episodes} episodes of a rollout failed, twice; the first says: {said}"
        )

    def _played(
        self, seeds: Sequence[int], split: Split, name: str, *, group_size: int, transcripts: int
    ) -> list[Stored]:
        """What verl's agent loops made of the episodes."""
        partition = _partition(split)
        names = [f"{name}-{number}" for number in range(len(seeds))]
        kept = [max(0, min(group_size, transcripts - number * group_size)) for number in range(len(seeds))]
        columns = {
            "uid": names,
            "index": list(range(len(seeds))),
            "state_seed": [int(seed) for seed in seeds],
            "split": [split] * len(seeds),
            "transcripts": kept,
            "raw_prompt": [[] for _ in seeds],
        }
        batch = tensordict_utils.get_tensordict(
            {
                key: np.array(values, dtype=object) if key == "uid" else values
                for key, values in columns.items()
            }
        )
        tensordict_utils.assign_non_tensor_data(batch, "global_steps", self.global_steps)
        if split == "eval":
            tensordict_utils.assign_non_tensor_data(batch, "validate", True)
        tag = {"is_prompt": True, "status": "pending", "global_steps": self.global_steps}
        tq.kv_batch_put(keys=names, partition_id=partition, tags=[dict(tag) for _ in names])
        self.agent_loop_manager.generate_sequences(batch)
        found, _ = self.replay_buffer.sample(
            global_steps=self.global_steps, partition_id=partition, batch_size=len(names)
        )
        groups = {group: number for number, group in enumerate(names)}
        return self.rows.read(found.keys, partition, episodes_of(found.keys, groups, group_size))

    def score(
        self, found: Collected, played: Sequence[Played]
    ) -> tuple[Collected, tuple[str, ...], Tensor | None]:
        """Log-probs and entropies under pi_old, by the trainer's own forward pass, for all episodes.

        Also the keys of the rows that are used, and the engine's own log-probs of them, (rows, tokens).
        """
        engine = [part.rollout.rows for part in played]
        if not self._bypass:
            rollouts = [
                replace(part.rollout, rows=self._scored(part.keys, part.rollout.rows)) for part in played
            ]
            found = collected(rollouts, found.used)
        keys = tuple(
            key
            for part, used in zip(played, found.used, strict=True)
            for key, is_used in zip(part.keys, used.tolist(), strict=True)
            if is_used
        )
        if found.rows is None:
            return found, keys, None
        parts = [rows.select(used) for rows, used in zip(engine, found.used, strict=True) if bool(used.any())]
        return found, keys, concatenate(parts).old_log_probs

    def _scored(self, keys: Sequence[str], rows: Rows) -> Rows:
        log_probs, entropies = self.rows.forward(keys, rows)
        return replace(
            rows,
            old_log_probs=log_probs,
            token_entropies=entropies,
            entropies=entropies.sum(1) / rows.tokens.clamp(min=1),
        )

    # Updates

    def update(
        self,
        step: int,
        keys: tuple[str, ...],
        rows: Rows,
        reference: Tensor,
        advantages: Tensor,
        engine: Tensor,
    ) -> bool:
        """All mini-batch updates of a step; whether it was cut short by `stop_at_kl`.

        Raises Diverged when numbers stop being finite.
        """
        correction = self._correction(rows, engine)
        self.rows.leave(keys, rows, reference)
        log_probs, made = rows.old_log_probs, 0
        for epoch in range(self.trial.trainer.epochs):
            generator = torch_generator(self.trial.seed, "minibatches", step, epoch)
            for batch in minibatches(rows.trajectory, self.trial.trainer, generator):
                if (made or self._bypass) and self._needs_log_probs:
                    log_probs = self._known(keys, rows, batch)
                if self._moved_too_far(rows, advantages, log_probs, batch):
                    return True
                update = prepare_update(
                    self.objective,
                    rows,
                    advantages,
                    log_probs,
                    batch,
                    generator=generator,
                    correction=correction,
                )
                self._update_once(keys, rows, reference, advantages, update)
                made += 1
        return False

    @property
    def _bypass(self) -> bool:
        return self.trial.verl is not None and self.trial.verl.rollout_correction.bypass

    @property
    def _needs_log_probs(self) -> bool:
        """Whether what an update does hangs on the policy's log-probs before it."""
        return self.objective.needs_every_row or self.trial.trainer.stop_at_kl is not None

    def _moved_too_far(self, rows: Rows, advantages: Tensor, log_probs: Tensor, batch: Minibatch) -> bool:
        """Whether a mini-batch's KL to the policy that wrote it is above `stop_at_kl`, before its update."""
        most = self.trial.trainer.stop_at_kl
        if most is None:
            return False
        index = batch.index
        ratios = Ratios.of(rows.select(index), log_probs[index], advantages[index], batch.copies)
        return float(kl_old(ratios)) > most

    def _update_once(
        self, keys: Sequence[str], rows: Rows, reference: Tensor, advantages: Tensor, update: Update
    ) -> None:
        made = self.rows.update(keys, rows, advantages, update)
        index = update.index
        self.diagnostics.add(
            Pass(made.loss, made.log_probs, made.entropies, update.weights.kept),
            rows.select(index),
            advantages[index],
            reference[index],
            update.copies,
            gradient_norm=made.gradient_norm,
        )
        if not math.isfinite(made.loss) or not math.isfinite(made.gradient_norm):
            told = f"loss {made.loss}, gradient norm {made.gradient_norm}"
            raise Diverged(f"{told} at update {self.updates + 1}")
        self.updates += 1
        self.learning_rate = made.learning_rate

    def _correction(self, rows: Rows, engine: Tensor) -> Tensor | None:
        assert self.trial.verl is not None
        correction = self.trial.verl.rollout_correction
        if correction.weights is None:
            return None
        return engine_weights(
            rows.old_log_probs, engine, rows.mask, per=correction.weights, threshold=correction.threshold
        )

    def _known(self, keys: tuple[str, ...], rows: Rows, batch: Minibatch) -> Tensor:
        """Log-probs (N, tokens) before an update, of whose rows alone they are new."""
        index = torch.unique(batch.index)
        now, _ = self.rows.forward([keys[number] for number in index.tolist()], rows.select(index))
        return rows.old_log_probs.index_copy(0, index, now)


class _State:
    """The trainer's own state, which travels in verl's checkpoints where its data loader's would."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        """What resuming needs; taken after the step's records."""
        return {
            "updates": self.trainer.updates,
            "diagnostics": self.trainer.diagnostics.state(),
            "records": self.trainer.monitor.position(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it up again."""
        self.trainer.updates = int(state["updates"])
        self.trainer.diagnostics.restore(state["diagnostics"])
        self.trainer.resumed = state


class _Loggers:
    """The monitor of a run outside the platform: verl's loggers, and no opinion when to stop."""

    def __init__(self, config: Any) -> None:
        from verl.utils.tracking import Tracking

        self._tracking = Tracking(
            project_name=config.trainer.project_name,
            experiment_name=config.trainer.experiment_name,
            default_backend=config.trainer.logger,
            config=OmegaConf.to_container(config, resolve=True),
        )

    def report(self, step: int, kind: str, metrics: dict[str, float], **_: Any) -> None:
        """Log the metrics."""
        self._tracking.log(data=dict(metrics), step=step)

    def should_stop(self) -> bool:
        """Never."""
        return False

    def position(self) -> dict[str, int]:
        """Loggers cannot be rewound."""
        return {}

    def rewind(self, position: Any) -> None:
        """Loggers cannot be rewound."""


def _partition(split: Split) -> str:
    return TRAIN if split == "train" else EVAL


def _gap(rows: Rows, engine: Tensor) -> float:
    """Mean difference of log-probs between rollout engine and trainer, over the tokens used."""
    gap = torch.where(rows.mask, rows.old_log_probs - engine, 0.0).abs()
    return float(gap.sum() / rows.mask.sum().clamp(min=1))
