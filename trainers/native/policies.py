"""Which policy a configuration asks for: the tiny one, or a transformers language model by its path.

The language model's module is imported only when one is asked for: a trial of the tiny policy starts three
times as fast without transformers.
"""

from __future__ import annotations

from pathlib import Path

from envs.prompts import FORMAT_WORDS
from envs.text_env import EnvConfig, Environment
from trainers.config import ModelConfig, PromptConfig, TrainingConfig
from trainers.native.policy import TinyPolicy
from trainers.native.tokenizer import WordTokenizer
from trainers.policy import Policy, Scorer
from trainers.randomness import stream_seed, torch_generator


def new_policy(config: TrainingConfig, environment: Environment, env_config: EnvConfig) -> Policy:
    """The policy that cloning starts from: random weights, or the pretrained model."""
    seed = config.clone_seed
    if config.model.path is not None:
        from trainers.native.language_model import LanguageModel

        adapters = stream_seed(seed, "adapters")
        return LanguageModel.load(config.model.path, config.model, config.prompt, seed=adapters)
    tokenizer = WordTokenizer.from_vocabulary(
        FORMAT_WORDS, environment.task(env_config).split(), environment.vocabulary(env_config)
    )
    return TinyPolicy.create(config.model, tokenizer, torch_generator(seed, "weights"))


def load_policy(clone: Path, config: TrainingConfig) -> Policy:
    """The policy that training starts from: a clone, with fresh adapters where some are to be trained."""
    if config.model.path is not None:
        from trainers.native.language_model import LanguageModel

        adapters = stream_seed(config.seed, "adapters")
        return LanguageModel.load(clone, config.model, config.prompt, seed=adapters)
    return TinyPolicy.load(clone, config.model)


def load_saved(
    folder: Path, model: ModelConfig, prompt: PromptConfig, *, clone: Path | None = None
) -> Policy:
    """The policy in a clone's folder or, when `clone` says what it started from, in a checkpoint's."""
    if model.path is None:
        return TinyPolicy.load(folder, model)
    from trainers.native.language_model import LanguageModel

    policy = LanguageModel.load(clone or folder, model, prompt, seed=0)
    if clone is not None:
        policy.restore(folder)
    return policy


def load_reference(clone: Path, config: TrainingConfig, policy: Policy) -> Scorer:
    """The policy as it was at RL step 0, frozen; of a policy with adapters the same model without them."""
    if config.model.lora is not None:
        from trainers.native.language_model import AdaptersOff, LanguageModel

        assert isinstance(policy, LanguageModel)
        return AdaptersOff(policy)
    reference = load_policy(clone, config)
    reference.module.requires_grad_(False)
    return reference
