"""How long a language model's trial takes on GPUs, by counting operations. Imports no torch.

P: parameters; a token read costs 2 P operations, a token learned from 6 P and 2 P more where activations are
computed again (Kaplan et al. 2020, without attention's own, a few percent at these lengths). GPUs do them at
a declared share of a declared peak, and generate at a declared rate; both are to be replaced by what is
measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainers.config import TrainingConfig
from trainers.sizing import GB, model_size, total_gpus

READ, LEARNED, AGAIN = 2, 6, 2  # operations a token and parameter
FROZEN = 2  # less where the weights are frozen: no gradient of theirs


@dataclass(frozen=True, slots=True)
class Declared:
    """What GPUs do and what episodes are like, as `conf/config.yaml` or a grid's `estimate` declares it.

    gpu_memory_gb: of each GPU; gpu_tflops: its peak in 1e12 operations a second; utilisation: the share of it
    that training reaches; generated_per_second: tokens that a GPU writes, all sequences together; turns: the
    share of `env.max_turns` that an episode takes; prompt_tokens, response_tokens: of a turn.
    """

    gpu_memory_gb: float
    gpu_tflops: float
    utilisation: float
    generated_per_second: float
    turns: float
    prompt_tokens: float
    response_tokens: float


@dataclass(frozen=True, slots=True)
class Work:
    """Seconds of a trial on all of its GPUs: per episode to play it, and to learn from it for an epoch; once,
    on one GPU, to make its clone.
    """

    rollout: float
    update: float
    clone: float


def work_of(config: TrainingConfig, gpus: float, declared: Declared) -> Work | None:
    """The work of a trial with `gpus` on each of its machines; None for models of unknown size, or no GPU."""
    size = model_size(config.model)
    if size is None or gpus <= 0 or (config.verl is not None and config.verl.platform == "cpu"):
        return None
    every = total_gpus(config, gpus) if config.verl is not None else min(gpus, 1.0)
    rate = declared.gpu_tflops * 1e12 * declared.utilisation
    parameters = size.billions * GB
    turns = max(1.0, declared.turns * float(config.env.get("max_turns", 1)))
    prompt, response = turn_tokens(config, declared)
    written = turns * response
    # a transcript is shown again at every turn, and learned from once
    shown = turns * prompt if config.rows == "turn" else prompt + written
    play = READ * parameters * shown / rate + written / declared.generated_per_second
    verl, lora = config.verl, config.model.lora
    learn = LEARNED + (AGAIN if verl is not None else 0) - (FROZEN if lora is not None else 0)
    # the reference reads all rows once a step; so does the old policy, unless it told its log-probs
    reads = 1 + (verl is not None and not verl.rollout_correction.bypass)
    learn_once = (learn + READ * reads / config.trainer.epochs) * parameters * (shown + written) / rate
    return Work(play / every, learn_once / every, _clone(config, parameters, prompt + response, rate))


def turn_tokens(config: TrainingConfig, declared: Declared) -> tuple[float, float]:
    """Tokens of a turn's prompt and response: those declared, as far as the configuration allows them."""
    prompt = declared.prompt_tokens
    if config.verl is not None and config.rows == "turn":
        prompt = min(prompt, config.verl.max_prompt_tokens)
    return prompt, min(declared.response_tokens, config.prompt.max_response_tokens)


def _clone(config: TrainingConfig, parameters: float, tokens: float, rate: float) -> float:
    """Supervised learning on one GPU; a clone without stages is the model as it is."""
    updates: Any = sum(stage.steps for stage in config.cloning.stages)
    return float(updates * config.cloning.batch * tokens * LEARNED * parameters / rate)
