"""Text and tokens of a language model: what its prompts look like to it and what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainers.config import PromptConfig

RESPONSE = "[the response]"  # stands for one in a chat template


@dataclass(frozen=True)
class TextCodec:
    """A transformers tokenizer in use.

    chat: whether prompts go through its chat template; ends: the tokens that end a response, the usual one
    first.
    """

    tokenizer: Any
    chat: bool
    ends: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Any, generation_config: Any, prompt: PromptConfig) -> TextCodec:
        """A model's codec. All styles but `compact` use the chat template of a tokenizer that has one."""
        chat = prompt.style != "compact" and getattr(tokenizer, "chat_template", None) is not None
        return cls(tokenizer, chat, _ends(tokenizer, generation_config))

    def encode(self, prompt: str) -> list[int]:
        """Token ids of a prompt: a user's message where there is a chat template, else plain text."""
        if self.chat:
            message = [{"role": "user", "content": prompt}]
            text = self.tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
            return self.tokenizer.encode(text, add_special_tokens=False)  # type: ignore[no-any-return]
        return self.tokenizer.encode(prompt + "\n")  # type: ignore[no-any-return]

    def encode_response(self, text: str) -> list[int]:
        """Token ids of a response and the token that ends it."""
        return [*self.tokenizer.encode(text, add_special_tokens=False), self.ends[0]]

    def encode_next(self, text: str, response: Sequence[int]) -> list[int]:
        """Token ids of what follows a response: by the chat template a user's message, else plain text."""
        if self.chat:
            turn = [("user", "-"), ("assistant", RESPONSE), ("user", text)]
            messages = [{"role": role, "content": content} for role, content in turn]
            whole = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
            _, _, rest = whole.partition(RESPONSE)
            tokens: list[int] = self.tokenizer.encode(rest, add_special_tokens=False)
        else:
            tokens = [self.ends[0], *self.tokenizer.encode(f"\n{text}\n", add_special_tokens=False)]
        return tokens[1:] if tokens[0] in self.ends and response[-1] in self.ends else tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of a response; other special tokens than its end stay visible, and spoil its format."""
        kept = [token for token in tokens if token not in self.ends]
        return self.tokenizer.decode(kept, clean_up_tokenization_spaces=False)  # type: ignore[no-any-return]


def _ends(tokenizer: Any, generation_config: Any) -> tuple[int, ...]:
    """The tokens that end a response, by tokenizer and model; none when neither knows one."""
    ends = getattr(generation_config, "eos_token_id", None)
    listed = ends if isinstance(ends, list) else [ends]
    return tuple(dict.fromkeys(end for end in [tokenizer.eos_token_id, *listed] if end is not None))
