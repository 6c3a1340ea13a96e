"""The rows of a step as verl keeps them, and what its workers do with them.

verl's queue holds rows under keys; workers are told keys, fetch what they need and write back what they make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.workers.utils.padding import response_from_nested

from trainers.rows import Rows
from trainers.verl.batches import Stored, jagged, unjagged
from trainers.verl.loss import ADVANTAGE, DRAWS, EVERY, POLICY, REST, ROW, assemble
from trainers.verl.updates import Update

TRAIN, EVAL = "train", "val"
"""verl's names of the two parts of its queue."""


@dataclass(frozen=True)
class Updated:
    """What an update gave: loss, gradient norm before clipping, the next update's learning rate.

    log_probs, entropies: (rows, tokens), of its forward pass.
    """

    loss: float
    gradient_norm: float
    learning_rate: float
    log_probs: Tensor
    entropies: Tensor


class RowStore:
    """Rows by their keys.

    workers: verl's group that holds the policy; reference: its group that holds the reference, None where
    the reference is the policy without its adapters; micro_rows: rows of a micro-batch; end: a token.
    """

    def __init__(
        self, workers: Any, reference: Any | None, *, temperature: float, micro_rows: int, end: int
    ) -> None:
        self.workers, self.reference_workers = workers, reference
        self.temperature, self.end = temperature, end
        ranks = workers._query_dispatch_info("actor")
        workers._dispatch_info["actor"] = ranks
        # so that every device has whole micro-batches
        self.multiple = (max(ranks) + 1) * micro_rows
        self._empty: list[str] = []

    def read(self, keys: Sequence[str], partition: str, episodes: Sequence[int]) -> list[Stored]:
        """What agent loops stored."""
        fields = ["prompts", "responses", "response_mask", "rollout_log_probs", "extra_fields"]
        data = tq.kv_batch_get(keys=list(keys), partition_id=partition, select_fields=fields)
        extra = data["extra_fields"]  # a list, or a stack of what is no tensor
        extra = extra.tolist() if hasattr(extra, "tolist") else list(extra)
        told = [getattr(value, "data", value) for value in extra]
        prompts, responses, masks, log_probs = (list(data[name].unbind()) for name in fields[:-1])
        return [
            Stored(key, episode, prompt, response, mask.bool(), engine, told_)
            for key, episode, prompt, response, mask, engine, told_ in zip(
                keys, episodes, prompts, responses, masks, log_probs, told, strict=True
            )
        ]

    def clear(self, keys: Sequence[str], partition: str) -> None:
        """Forget rows, and the empty ones that filled batches up."""
        tq.kv_clear(keys=list(keys), partition_id=partition)
        if self._empty:
            tq.kv_clear(keys=self._empty, partition_id=TRAIN)
            self._empty = []

    def forward(self, keys: Sequence[str], rows: Rows) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies (rows, tokens) under the present policy, 0 outside the mask."""
        self._compute(self.workers.compute_log_prob, keys, calculate_entropy=True)
        log_probs, entropies = self._computed(keys, ["log_probs", "entropy"], rows)
        return log_probs, entropies

    def reference(self, keys: Sequence[str], rows: Rows) -> Tensor:
        """Log-probs (rows, tokens) under the policy at RL step 0, 0 outside the mask."""
        if self.reference_workers is None:
            self._compute(self.workers.compute_log_prob, keys, calculate_entropy=False, no_lora_adapter=True)
        else:
            self._compute(self.reference_workers.compute_ref_log_prob, keys, calculate_entropy=False)
        return self._computed(keys, ["log_probs"], rows)[0]

    def leave(self, keys: Sequence[str], rows: Rows, reference: Tensor) -> None:
        """Leave for the workers what is the same in all updates of a step; reference: (rows, tokens)."""
        lengths = response_lengths(rows)
        old = jagged(rows.old_log_probs.float(), lengths)
        self._put(keys, {"old_log_probs": old, "ref_log_prob": jagged(reference.float(), lengths)})

    def update(self, keys: Sequence[str], rows: Rows, advantages: Tensor, update: Update) -> Updated:
        """One update of the policy. keys, rows, advantages: of the step, of which `update` names some."""
        mine = [keys[number] for number in update.index.tolist()]
        chosen = rows.select(update.index)
        lengths = response_lengths(chosen)
        fields = {
            POLICY: jagged(update.weights.policy.float(), lengths),
            EVERY: jagged(update.weights.every.float(), lengths),
            ADVANTAGE: advantages[update.index].float(),
            ROW: update.index,
        }
        if update.rest is not None:
            fields[REST] = update.rest.float()
        if update.weights.draws is not None:
            fields[DRAWS] = jagged(update.weights.draws, lengths)
        self._put(mine, fields)
        batch = self._filled(mine, keys, list(fields))
        batch.extra_info |= {
            "calculate_entropy": True,
            "global_batch_size": len(batch),
            "mini_batch_size": len(batch),
            "epochs": 1,
            "seed": 0,
            "dataloader_kwargs": {"shuffle": False},
        }
        told = self.workers.update_actor(batch)["metrics"]
        seen = [part for of_worker in self.workers.take_seen() for part in of_worker]
        log_probs, entropies = assemble(seen, update.index, rows.mask.shape[1])
        return Updated(
            loss=_last(told["loss"]),
            gradient_norm=_last(told["grad_norm"]),
            learning_rate=_last(told["lr"]),
            log_probs=log_probs * chosen.mask,
            entropies=entropies * chosen.mask,
        )

    def _compute(self, method: Any, keys: Sequence[str], **told: Any) -> None:
        method(self._batch(keys, compute_loss=False, **told))

    def _computed(self, keys: Sequence[str], names: Sequence[str], rows: Rows) -> list[Tensor]:
        """What workers wrote for whole sequences, of the responses alone."""
        fields = [*names, "response_mask"]
        data = tq.kv_batch_get(keys=list(keys), partition_id=TRAIN, select_fields=fields)
        tokens = rows.mask.shape[1]
        return [
            unjagged(response_from_nested(data[name], data["response_mask"]), tokens) * rows.mask
            for name in names
        ]

    def _batch(self, keys: Sequence[str], **told: Any) -> KVBatchMeta:
        """Rows as workers are given them, filled up with empty ones to a number they can share."""
        batch = KVBatchMeta(
            partition_id=TRAIN,
            keys=list(keys),
            tags=[{"seq_len": 1} for _ in keys],
            extra_info={"temperature": self.temperature, **told},
        )
        whole = upsample_batch_to_divisible_size(batch, self.multiple, self.end)
        self._empty += whole.keys[len(keys) :]
        return whole

    def _filled(self, mine: list[str], keys: Sequence[str], names: Sequence[str]) -> KVBatchMeta:
        """A mini-batch, filled up with rows that weigh nothing: others of the step first, then empty ones.

        names: of the fields that an update leaves for its own rows.
        """
        own = set(mine)
        others = [key for key in keys if key not in own][: -len(mine) % self.multiple]
        whole = self._batch([*mine, *others])
        fillers = whole.keys[len(mine) :]
        if fillers:
            fields = ["response_mask"]
            data = tq.kv_batch_get(keys=fillers, partition_id=TRAIN, select_fields=fields)
            nothing = _weightless(data["response_mask"].offsets().diff().tolist())
            self._put(fillers, {name: nothing[name] for name in names})
        empty = fillers[len(others) :]
        if empty:
            zero = jagged(torch.zeros(len(empty), 1), [1] * len(empty))
            self._put(empty, {"old_log_probs": zero, "ref_log_prob": zero.clone()})
        return whole

    def _put(self, keys: Sequence[str], fields: dict[str, Tensor]) -> None:
        data = TensorDict(fields, batch_size=len(keys))
        tq.kv_batch_put(keys=list(keys), partition_id=TRAIN, fields=data)


def response_lengths(rows: Rows) -> list[int]:
    """Tokens of every response as verl has stored it: one where nothing was written."""
    numbers = torch.arange(1, rows.mask.shape[1] + 1)
    lengths: list[int] = (rows.mask * numbers).amax(1).clamp(min=1).tolist()
    return lengths


def _weightless(lengths: list[int]) -> dict[str, Tensor]:
    """What an update may leave, for rows that weigh nothing."""
    return {
        **{name: jagged(torch.zeros(len(lengths), max(lengths)), lengths) for name in (POLICY, EVERY, DRAWS)},
        ADVANTAGE: torch.zeros(len(lengths)),
        ROW: torch.full((len(lengths),), -1),
        REST: torch.zeros(len(lengths), 2),
    }


def _last(value: Any) -> float:
    while isinstance(value, list | tuple):
        value = value[-1]
    return float(value)
