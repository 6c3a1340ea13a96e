"""Any transformers causal language model as a `Policy`, on any device, whole or through LoRA adapters.

The model's own forward is used, so that whatever it does to its logits is done here too. The layout is ours:
a prompt that many rows share is computed once and its cache gathered per row, and the output head sees the
positions of response tokens only. Dropout is off, always: a ratio of two passes must not be noise.

Only this module imports transformers (and peft, for adapters); it takes seconds to import.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainers.config import LoRAConfig, ModelConfig, PromptConfig
from trainers.native.kernels import token_log_probs
from trainers.native.sampling import room, sample
from trainers.native.text_codec import TextCodec
from trainers.policy import Generated, Sampling, choose_device, distinct_prompts, pad, unpack
from trainers.rows import Rows

SHARE_BELOW = 0.8  # prompts are computed once when that leaves less than this share of the tokens to compute


class LanguageModelError(ValueError):
    """A model that cannot be used; the message says why and what to do."""


class LanguageModel:
    """A transformers model with its tokenizer.

    model: a `PreTrainedModel`, or peft's `PeftModel` around one; prompt: its style decides whether prompts
    go through the tokenizer's chat template (`TextCodec.of`).
    """

    def __init__(
        self, model: Any, tokenizer: Any, prompt: PromptConfig, *, dtype: torch.dtype = torch.float32
    ) -> None:
        self.model, self.tokenizer, self.dtype = model.eval(), tokenizer, dtype
        base = model.get_base_model() if hasattr(model, "peft_config") else model
        self.head: nn.Module = base.get_output_embeddings()
        settings = base.config.get_text_config(decoder=True)
        self.positions: int | None = getattr(settings, "max_position_embeddings", None)
        self._arguments = frozenset(inspect.signature(base.forward).parameters)
        self._base = base
        self.codec = TextCodec.of(tokenizer, base.generation_config, prompt)
        self.ends = self.codec.ends
        if not self.ends:
            raise LanguageModelError("the model has no end-of-sequence token, so no response would end")
        self.pad_id: int = self.ends[0]  # never attended to, and surely one of the model's tokens

    @classmethod
    def load(
        cls, source: str | Path, config: ModelConfig, prompt: PromptConfig, *, seed: int
    ) -> LanguageModel:
        """The model in a folder or of a name, with fresh adapters if the configuration asks for some.

        source: also a GGUF file, or `package:file` for a file that an installed package carries. seed: of the
        adapters, which change nothing before they are trained. Raises LanguageModelError when it cannot be
        loaded.
        """
        transformers = _import("transformers", "lm")
        transformers.utils.logging.disable_progress_bar()
        name, options = _locate(source)
        frozen = config.lora is not None
        weights = torch.bfloat16 if frozen and config.dtype == "bfloat16" else torch.float32
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(name, **options)
            model = transformers.AutoModelForCausalLM.from_pretrained(name, dtype=weights, **options)
        except (OSError, ValueError, ImportError) as error:
            raise LanguageModelError(f"model.path: {source} does not load: {error}") from error
        if config.lora is not None:
            model = _with_adapters(model, config.lora, seed)
        return cls(model.to(choose_device(config)), tokenizer, prompt, dtype=getattr(torch, config.dtype))

    @property
    def module(self) -> nn.Module:
        """What the optimiser trains; frozen weights need no gradient."""
        return self.model  # type: ignore[no-any-return]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device  # type: ignore[no-any-return]

    @property
    def has_adapters(self) -> bool:
        """Whether adapters are trained instead of the model."""
        return hasattr(self.model, "peft_config")

    def save(self, folder: Path) -> None:
        """Write model and tokenizer in transformers' format, of a model with adapters these alone."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def restore(self, folder: Path) -> None:
        """Read the weights that `save` wrote, to the last bit."""
        if self.has_adapters:
            from peft import load_peft_weights, set_peft_model_state_dict

            set_peft_model_state_dict(self.model, load_peft_weights(str(folder), device="cpu"))
            return
        saved = type(self.model).from_pretrained(folder, dtype=self.model.dtype)
        self.model.load_state_dict(saved.state_dict())

    def export(self, folder: Path) -> None:
        """Write one model in transformers' format, adapters merged into its weights."""
        model = copy.deepcopy(self.model).merge_and_unload() if self.has_adapters else self.model
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def encode(self, prompt: str) -> list[int]:
        """See `TextCodec.encode`."""
        return self.codec.encode(prompt)

    def encode_response(self, text: str) -> list[int]:
        """See `TextCodec.encode_response`."""
        return self.codec.encode_response(text)

    def encode_next(self, text: str, response: Sequence[int]) -> list[int]:
        """See `TextCodec.encode_next`."""
        return self.codec.encode_next(text, response)

    def decode(self, tokens: Sequence[int]) -> str:
        """See `TextCodec.decode`."""
        return self.codec.decode(tokens)

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        row_prompt: Sequence[int],
        sampling: Sampling,
        generator: torch.Generator,
    ) -> Generated:
        """Sample one response for every entry of `row_prompt`, an index into the distinct `prompts`."""
        padded, lengths = pad(prompts, self.pad_id)
        rows = torch.tensor(row_prompt, device=self.device)
        with self._arithmetic():
            context, real = (part.to(self.device) for part in _contexts(padded, lengths))
            limit = room(context.shape[1], self.positions, sampling)
            cache = self._prefill(context, real)
            cache.batch_select_indices(rows)
            last = torch.tensor([prompt[-1] for prompt in prompts], device=self.device)
            return sample(
                _Continuation(self, cache, real[rows]),
                last[rows],
                sampling,
                limit=limit,
                ends=self.ends,
                pad_id=self.pad_id,
                generator=generator,
            )

    def score(
        self, rows: Rows, temperature: float, *, entropy_gradient: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies of the rows' response tokens, (N, T) each, 0 outside the mask."""
        rows = rows.to(self.device)
        row_prompt, first = distinct_prompts(rows)
        context, real = _contexts(rows.prompts[first], rows.prompt_lengths[first])
        numbers = torch.arange(1, rows.mask.shape[1] + 1, device=self.device)
        lengths = (rows.mask * numbers).amax(1)
        tokens = max(int(lengths.max()), 1)
        last = rows.prompts.gather(1, rows.prompt_lengths[:, None] - 1)
        inputs = torch.cat([last, rows.responses[:, : tokens - 1]], 1)
        seen = torch.cat([real[row_prompt], numbers[:tokens] <= lengths[:, None].clamp(min=1)], 1)
        row, column = rows.mask.nonzero().unbind(1)
        with self._arithmetic():
            if self._shares(len(first), len(rows), context.shape[1], tokens):
                cache = self._prefill(context, real)
                cache.batch_select_indices(row_prompt)
                logits = self.logits(inputs, seen, row * tokens + column, cache)
            else:
                width = context.shape[1] + tokens
                wanted = row * width + context.shape[1] + column
                logits = self.logits(torch.cat([context[row_prompt], inputs], 1), seen, wanted)
        chosen, entropy = token_log_probs(
            logits, rows.responses[row, column], temperature, entropy_gradient=entropy_gradient
        )
        place = row * rows.mask.shape[1] + column
        return unpack(chosen, place, rows.mask), unpack(entropy, place, rows.mask)

    def logits(self, tokens: Tensor, seen: Tensor, wanted: Tensor, cache: Any = None) -> Tensor:
        """Logits (m, vocabulary), in float32, of the positions `wanted`, (m,) long into the flattened tokens.

        tokens: (n, t) long, which go on after the cache if there is one; seen: (n, past + t) bool, what of
        cache and tokens is real.
        """
        arguments = {
            "input_ids": tokens,
            "attention_mask": seen.long(),
            "position_ids": (seen.long().cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :],
            "past_key_values": cache,
            "use_cache": cache is not None,
        }
        with self._head_on(wanted):
            output = self.model(**{key: value for key, value in arguments.items() if key in self._arguments})
        return output.logits[0].float()  # type: ignore[no-any-return]

    @contextmanager
    def _head_on(self, wanted: Tensor) -> Iterator[None]:
        """Let the output head see some positions alone: of (n, t, hidden) the (1, m, hidden) wanted."""

        def choose(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            hidden, *others = inputs
            return (hidden.flatten(0, 1)[wanted][None], *others)

        handle = self.head.register_forward_pre_hook(choose)
        try:
            yield
        finally:
            handle.remove()

    def _prefill(self, context: Tensor, real: Tensor) -> Any:
        """A cache of left-padded prompts (u, p); real: (u, p) bool."""
        from transformers import DynamicCache

        cache = DynamicCache(config=self._base.config)
        if context.shape[1]:
            self.logits(context, real, context.new_empty(0), cache)
        return cache

    def _shares(self, prompts: int, rows: int, context: int, tokens: int) -> bool:
        """Whether computing distinct prompts once pays, and the model's cache allows it."""
        from transformers import DynamicCache
        from transformers.cache_utils import DynamicLayer

        if prompts * context + rows * tokens > SHARE_BELOW * rows * (context + tokens):
            return False
        layers = DynamicCache(config=self._base.config).layers
        return all(type(layer) is DynamicLayer for layer in layers)

    def _arithmetic(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.dtype == torch.bfloat16)


class AdaptersOff:
    """A model as it was before its adapters were trained: the reference, at no memory of its own."""

    def __init__(self, policy: LanguageModel) -> None:
        self.policy = policy

    def score(
        self, rows: Rows, temperature: float, *, entropy_gradient: bool = False
    ) -> tuple[Tensor, Tensor]:
        """As `LanguageModel.score`."""
        with self.policy.model.disable_adapter():
            return self.policy.score(rows, temperature, entropy_gradient=entropy_gradient)


class _Continuation:
    """Rows being continued: the cache behind them and what of it is real."""

    def __init__(self, policy: LanguageModel, cache: Any, seen: Tensor) -> None:
        self.policy, self.cache, self.seen = policy, cache, seen

    def append(self, tokens: Tensor) -> tuple[Tensor, None]:
        """Logits after one more token per row."""
        self.seen = torch.cat([self.seen, self.seen.new_ones(len(tokens), 1)], 1)
        every = torch.arange(len(tokens), device=tokens.device)
        return self.policy.logits(tokens[:, None], self.seen, every, self.cache), None

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows only."""
        self.cache.batch_select_indices(rows)
        self.seen = self.seen[rows]


def _contexts(prompts: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Right-padded prompts without their last token, left-padded: (u, longest - 1) long, and what is real.

    Left, so that responses begin in one column and models with a sliding window see no gap.
    """
    width = int(lengths.max()) - 1
    shift = torch.arange(width, device=prompts.device) - (width + 1 - lengths)[:, None]
    return prompts.gather(1, shift.clamp(min=0)), shift >= 0


def _with_adapters(model: Any, lora: LoRAConfig, seed: int) -> Any:
    peft = _import("peft", "lm")
    targets = "all-linear" if lora.targets is None else list(lora.targets)
    settings = peft.LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, lora_dropout=0.0, task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng():  # peft draws from the global generator
        torch.manual_seed(seed)
        try:
            return peft.get_peft_model(model, settings)
        except ValueError as error:
            raise LanguageModelError(f"model.lora.targets: {error}") from error


def _locate(source: str | Path) -> tuple[str, dict[str, str]]:
    """What `from_pretrained` is given for a source: a folder or name, and the GGUF file in it."""
    text = str(source)
    package, colon, file = text.partition(":")
    if colon and package.isidentifier():
        found = importlib.util.find_spec(package)
        if found is None or not found.submodule_search_locations:
            raise LanguageModelError(f"model.path: {text}: the package {package} is not installed")
        text = str(Path(found.submodule_search_locations[0]) / file)
    if text.endswith(".gguf"):
        return str(Path(text).parent), {"gguf_file": Path(text).name}
    return text, {}


def _import(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise LanguageModelError(f"a language model needs {name}: pip install 'arlarena[{extra}]'") from error
