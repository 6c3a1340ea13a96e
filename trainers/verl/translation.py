"""A trial's configuration in the words of verl's: every key that it decides, or why verl cannot do it.

What verl's own functions would do differently (mini-batches, aggregation, step-level advantages, filtering)
is done by ours, under verl's trainer (`trainers.verl.trainer`); verl's keys of the same meaning are set all
the same, so that its configuration, its logs and its checks tell what runs. Imports neither torch nor verl.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.config import TrainingConfig, VerlConfig
from trainers.policy_gradient.parameters import Gate

NAME = "arlarena"
"""What ours is called in verl's registries: trainer, policy loss, advantage estimator, agent loop."""
SECTION = "actor_rollout_ref.rollout.custom"
"""Where verl's configuration carries ours, which all of its processes are given."""
AGENT_LOOPS = Path(__file__).parent / "agent_loops.yaml"

AGGREGATIONS = {
    "token_mean": "token-mean",
    "seq_mean_token_mean": "seq-mean-token-mean",
    "seq_mean_token_sum": "seq-mean-token-sum",
    "seq_mean_token_sum_norm": "seq-mean-token-sum-norm",
}
ESTIMATORS = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}
NO_DUAL_CLIP = 1e9  # verl has no switch for it
LOG_PROB_ROWS = 16  # rows scored at once without gradient, where the configuration does not say

Overrides = dict[str, Any]
"""verl's keys, dotted, and their values."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the verl back-end cannot do. key: the choice to blame; message: why, and what to do."""

    key: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a trial finds on its machine and is no part of its configuration.

    model: folder or name of the policy it starts from; checkpoints: where it saves; gpus: how many it may use
    on each node, 1 for the one pretended on a CPU; cpus: cores of the node.
    """

    model: str
    checkpoints: str
    gpus: int = 1
    cpus: int = 1
    name: str = "trial"


def refusals(config: TrainingConfig) -> list[Refusal]:
    """Everything of a configuration that the verl back-end does not do."""
    found = []
    if config.verl is None:
        found.append(Refusal(("backend",), "the section `verl` is missing; choose `backend: verl`"))
        return found
    clipping = config.is_clipping.parameters
    gates = [Gate.model_validate(gate) for side in ("low", "high") if (gate := clipping.get(side))]
    if clipping.get("unit") == "trajectory" and any(
        gate.share is not None and gate.level == "token" for gate in gates
    ):
        message = (
            "with `unit: trajectory` only gates of sequences are drawn at random; "
            "set `unit: row`, or `backend: native`"
        )
        found.append(Refusal(("is_clipping",), message))
    if config.rows == "transcript" and config.model.path and config.prompt.max_context_tokens is None:
        message = (
            "an engine is told beforehand how long a transcript may get: with `rows: transcript` set "
            "`prompt.max_context_tokens`, prompt and responses together"
        )
        found.append(Refusal(("prompt", "max_context_tokens"), message))
    if config.verl.platform == "cpu" and config.model.device == "cuda":
        message = "platform cpu, but `model.device` is cuda; set `model.device: cpu` (profile laptop does)"
        found.append(Refusal(("verl", "platform"), message))
    if config.verl.platform == "cuda" and config.model.device == "cpu":
        message = (
            "verl needs a GPU, and `model.device` is cpu; choose `profile: gpu`, or for a machine without "
            "one `verl.platform: cpu` with `verl.engine: hf_cpu`"
        )
        found.append(Refusal(("verl", "platform"), message))
    if config.verl.platform == "cpu" and config.verl.attention != "sdpa":
        message = f"{config.verl.attention} needs a GPU; use `verl.attention: sdpa`"
        found.append(Refusal(("verl", "attention"), message))
    if config.verl.platform == "cpu" and config.model.lora is not None:
        message = "the CPU platform trains whole models; take `model.lora` out, or use the native back-end"
        found.append(Refusal(("model", "lora"), message))
    if config.verl.rollout_correction.bypass and config.advantage.option == "empg":
        message = (
            "empg needs the entropy under the old policy, which rollout_correction.bypass does not compute"
        )
        found.append(Refusal(("advantage",), message))
    for key in flat(config.verl.overrides):
        if key in OURS or any(key.startswith(f"{ours}.") for ours in OURS):
            message = f"the trial itself decides this; {OURS.get(key, 'change the trial instead')}"
            found.append(Refusal(("verl", "overrides", *key.split(".")), message))
    return found


OURS: Mapping[str, str] = {
    SECTION: "it carries the trial's configuration",
    "actor_rollout_ref.actor.policy_loss.loss_mode": "choose an option of `is_clipping`",
    "actor_rollout_ref.actor.loss_agg_mode": "choose an option of `loss_aggregation`",
    "actor_rollout_ref.actor.ppo_epochs": "set `trainer.epochs`",
    "actor_rollout_ref.rollout.n": "set `trainer.group_size`",
    "actor_rollout_ref.rollout.agent.default_agent_loop": "it plays the trial's environment",
    "actor_rollout_ref.actor.optim.lr": "set `trainer.learning_rate`",
    "algorithm.adv_estimator": "choose an option of `advantage`",
    "algorithm.filter_groups.enable": "choose an option of `dynamic_filtering`",
    "algorithm.use_kl_in_reward": "set `trainer.kl.where`",
    "data.train_batch_size": "set `trainer.groups`",
    "trainer.total_training_steps": "set `trainer.steps`",
    "trainer.v1.trainer_mode": "it names the trainer that runs ours",
    "trainer.use_v1": "the legacy trainer has no place for ours",
}
"""Keys that `verl.overrides` may not set: what decides them instead."""


def translate(config: TrainingConfig, around: Surroundings) -> Overrides:
    """verl's keys for a trial. Raises ValueError for what `refusals` finds."""
    if found := refusals(config):
        raise ValueError("; ".join(refusal.message for refusal in found))
    verl = config.verl
    assert verl is not None
    return {
        SECTION: {NAME: config.model_dump(mode="json")},
        **_data(config, verl),
        **_model(config, verl, around),
        **_actor(config, verl),
        **_algorithm(config, verl),
        **_rollout(config, verl, around),
        **_trainer(config, verl, around),
        **(_cpu(verl) if verl.platform == "cpu" else {}),
        **flat(verl.overrides),
    }


def trainer_line(verl: VerlConfig) -> str:
    """Which of verl's trainers runs, and whether it would give the same numbers again.

    verl's legacy trainer (`use_v1: false`) promises that with full determinism, but has no place for ours.
    """
    how = "full determinism on, " if verl.deterministic else ""
    which = f"verl's V1 trainer (use_v1: true), synchronous, {how}not reproducible to the bit"
    return f"{which}; engine {verl.engine}"


def flat(nested: Mapping[str, Any], above: str = "") -> Overrides:
    """Dotted keys and their values, of mappings in mappings."""
    keys: Overrides = {}
    for name, value in nested.items():
        keys |= flat(value, f"{above}{name}.") if isinstance(value, Mapping) else {f"{above}{name}": value}
    return keys


def _data(config: TrainingConfig, verl: VerlConfig) -> Overrides:
    """Initial states come from the environment by their seeds; verl's data sets stay unread."""
    return {
        "data.train_files": [],
        "data.val_files": [],
        "data.train_batch_size": config.trainer.groups,
        "data.max_prompt_length": prompt_limit(config, verl),
        "data.max_response_length": response_limit(config, verl),
        "data.dataloader_num_workers": 0,
    }


def context_limit(config: TrainingConfig, verl: VerlConfig) -> int:
    """How many tokens prompt and response may have together, in the engine and in a row."""
    response, whole = config.prompt.max_response_tokens, config.prompt.max_context_tokens
    positions = config.model.max_positions if config.model.path is None else None
    limits = [positions] if config.rows == "turn" else [whole, positions]
    known = [limit for limit in limits if limit is not None]
    return min(known, default=verl.max_prompt_tokens + response)


def prompt_limit(config: TrainingConfig, verl: VerlConfig) -> int:
    """How many tokens a row's prompt may have: what the context leaves beside one response."""
    return context_limit(config, verl) - config.prompt.max_response_tokens


def response_limit(config: TrainingConfig, verl: VerlConfig) -> int:
    """How many tokens a row's response may have: a turn's, or a whole transcript's but for its first."""
    return config.prompt.max_response_tokens if config.rows == "turn" else context_limit(config, verl) - 1


def _model(config: TrainingConfig, verl: VerlConfig, around: Surroundings) -> Overrides:
    keys: Overrides = {
        "actor_rollout_ref.model.path": around.model,
        # rows without padding in one sequence are kept apart by flash attention alone
        "actor_rollout_ref.model.use_remove_padding": verl.attention == "flash_attention_2",
        "actor_rollout_ref.model.override_config.attn_implementation": verl.attention,
        "actor_rollout_ref.model.enable_gradient_checkpointing": config.model.path is not None,
    }
    if (lora := config.model.lora) is not None:
        keys["actor_rollout_ref.model.lora_rank"] = lora.rank
        keys["actor_rollout_ref.model.lora_alpha"] = lora.alpha
        keys["actor_rollout_ref.model.target_modules"] = (
            "all-linear" if lora.targets is None else list(lora.targets)
        )
    return keys


def _actor(config: TrainingConfig, verl: VerlConfig) -> Overrides:
    trainer, actor = config.trainer, "actor_rollout_ref.actor"
    keys: Overrides = {
        "strategy": "fsdp2",
        "policy_loss.loss_mode": NAME,
        "loss_agg_mode": AGGREGATIONS.get(config.loss_aggregation.option, "token-mean"),
        "loss_scale_factor": (
            config.prompt.max_response_tokens
            if config.loss_aggregation.option == "seq_mean_token_sum_norm"
            else None
        ),
        **_clip(config),
        "entropy_coeff": trainer.entropy_bonus,
        "calculate_entropy": True,
        # whichever way KL counts, the reference is needed: it is measured always
        "use_kl_loss": True,
        "kl_loss_coef": trainer.kl.coefficient if trainer.kl.where == "loss" else 0.0,
        "kl_loss_type": ESTIMATORS[trainer.kl.estimator],
        "ppo_epochs": trainer.epochs,
        # our trainer cuts mini-batches itself (trainer.minibatch), each an update of its own
        "ppo_mini_batch_size": trainer.groups,
        "ppo_micro_batch_size_per_gpu": trainer.micro_rows or LOG_PROB_ROWS,
        "grad_clip": trainer.gradient_clip,
        "optim.lr": trainer.learning_rate,
        "optim.betas": list(trainer.betas),
        "optim.weight_decay": trainer.weight_decay,
        "optim.clip_grad": trainer.gradient_clip,
        # verl's cosine schedule over no cycle is constant, and unlike its constant one it counts the warm-up
        # from one as we do: (update + 1) / warm-up
        "optim.lr_scheduler_type": "cosine",
        "optim.num_cycles": 0.0,
        "optim.lr_warmup_steps": trainer.warmup_updates,
        "optim.zero_indexed_step": False,
        "optim.min_lr_ratio": 0.0,
        "fsdp_config.dtype": config.model.dtype,
        "fsdp_config.model_dtype": "fp32",
        "fsdp_config.param_offload": verl.offload,
        "fsdp_config.optimizer_offload": verl.offload,
        "fsdp_config.full_determinism": verl.deterministic,
    }
    return {f"{actor}.{key}": value for key, value in keys.items()}


def _clip(config: TrainingConfig) -> Overrides:
    """The band of the option as verl would write it; our loss reads the option itself."""
    parameters = config.is_clipping.parameters
    keys: Overrides = {"clip_ratio_c": parameters.get("dual_clip") or NO_DUAL_CLIP}
    if "lo" in parameters and "hi" in parameters:
        keys |= {"clip_ratio_low": parameters["lo"], "clip_ratio_high": parameters["hi"]}
    if "tau_pos" in parameters and "tau_neg" in parameters:
        keys |= {"tau_pos": parameters["tau_pos"], "tau_neg": parameters["tau_neg"]}
    return keys


def _algorithm(config: TrainingConfig, verl: VerlConfig) -> Overrides:
    kl, correction = config.trainer.kl, verl.rollout_correction
    return {
        "algorithm.adv_estimator": NAME,
        "algorithm.gamma": config.advantage.parameters.get("gamma", 1.0),
        "algorithm.norm_adv_by_std_in_grpo": config.advantage.option == "grpo",
        "algorithm.use_kl_in_reward": kl.where == "reward",
        "algorithm.kl_penalty": ESTIMATORS[kl.estimator],
        "algorithm.kl_ctrl.kl_coef": kl.coefficient if kl.where == "reward" else 0.0,
        # filtering is ours: verl's evicts and refills without a limit of tries
        "algorithm.filter_groups.enable": False,
        "algorithm.rollout_correction.rollout_is": correction.weights,
        "algorithm.rollout_correction.rollout_is_threshold": correction.threshold,
        "algorithm.rollout_correction.bypass_mode": correction.bypass,
    }


def _rollout(config: TrainingConfig, verl: VerlConfig, around: Surroundings) -> Overrides:
    evaluation, rollout = config.evaluation, "actor_rollout_ref.rollout"
    length = context_limit(config, verl)
    keys: Overrides = {
        "name": verl.engine,
        "n": config.trainer.group_size,
        "temperature": config.trainer.temperature,
        "top_p": 1.0,
        "top_k": -1,
        "val_kwargs.temperature": evaluation.temperature,
        "val_kwargs.top_p": evaluation.top_p,
        "val_kwargs.top_k": evaluation.top_k or -1,
        "val_kwargs.do_sample": True,
        "val_kwargs.n": 1,
        "seed": config.seed,
        "full_determinism": verl.deterministic,
        "dtype": config.model.dtype,
        "max_model_len": length,
        "max_num_batched_tokens": max(8192, length),
        "tensor_model_parallel_size": verl.tensor_parallel,
        "gpu_memory_utilization": verl.gpu_memory,
        "calculate_log_probs": True,
        "log_prob_micro_batch_size_per_gpu": config.trainer.micro_rows or LOG_PROB_ROWS,
        "agent.num_workers": verl.agent_workers,
        "agent.default_agent_loop": NAME,
        "agent.agent_loop_config_path": str(AGENT_LOOPS),
    }
    ref = {
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": keys["log_prob_micro_batch_size_per_gpu"]
    }
    return {f"{rollout}.{key}": value for key, value in keys.items()} | ref


def _trainer(config: TrainingConfig, verl: VerlConfig, around: Surroundings) -> Overrides:
    trainer = config.trainer
    return {
        "trainer.total_training_steps": trainer.steps,
        "trainer.total_epochs": 1,
        "trainer.save_freq": trainer.checkpoint_every,
        "trainer.test_freq": config.evaluation.every,
        "trainer.max_actor_ckpt_to_keep": trainer.keep_checkpoints,
        "trainer.default_local_dir": around.checkpoints,
        "trainer.resume_mode": "auto",
        "trainer.project_name": NAME,
        "trainer.experiment_name": around.name,
        "trainer.logger": ["console"],
        "trainer.nnodes": verl.nodes,
        "trainer.n_gpus_per_node": around.gpus,
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": NAME,
        # rewards come from the environment, so nobody has to compute them
        "reward.num_workers": 0,
        # Ray waits without a word for more virtual CPUs than a small machine has
        "ray_kwargs.ray_init.num_cpus": max(32, around.cpus),
        "ray_kwargs.ray_init.include_dashboard": False,
    }


def _cpu(verl: VerlConfig) -> Overrides:
    """What a run without GPU needs on top (trainers/verl/cpu_platform.py)."""
    fsdp = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    return {
        "trainer.device": "cpu",
        "actor_rollout_ref.actor.fsdp_config.use_torch_compile": False,
        "actor_rollout_ref.actor.use_torch_compile": False,
        "actor_rollout_ref.ref.use_torch_compile": False,
        "actor_rollout_ref.actor.fsdp_config.mixed_precision": fsdp,
        "actor_rollout_ref.ref.fsdp_config.mixed_precision": fsdp,
        "actor_rollout_ref.ref.fsdp_config.dtype": "float32",
        "actor_rollout_ref.rollout.enforce_eager": True,
        "actor_rollout_ref.rollout.free_cache_engine": False,
        "actor_rollout_ref.rollout.enable_sleep_mode": False,
        "actor_rollout_ref.rollout.max_num_seqs": 256,
        "actor_rollout_ref.rollout.agent.num_workers": 1,
        "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes": 64,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "ray_kwargs.ray_init.num_gpus": 1,
    }
