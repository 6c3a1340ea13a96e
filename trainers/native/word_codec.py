"""Text and tokens of the tiny policy, as `text_codec` is for language models. Imports no transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainers.native.tokenizer import WordTokenizer


@dataclass(frozen=True)
class WordCodec:
    """A word-level tokenizer in use: a prompt ends with the token that opens a response."""

    tokenizer: WordTokenizer

    @property
    def ends(self) -> tuple[int, ...]:
        """The token that ends a response."""
        return (self.tokenizer.end_id,)

    def encode(self, prompt: str) -> list[int]:
        """Token ids of a prompt, ending with the token that opens a response."""
        return [*self.tokenizer.encode(prompt), self.tokenizer.response_id]

    def encode_response(self, text: str) -> list[int]:
        """Token ids of a response, its end included."""
        return [*self.tokenizer.encode(text), self.tokenizer.end_id]

    def encode_next(self, text: str, response: Sequence[int]) -> list[int]:
        """Token ids of what follows a response in a transcript."""
        end = [] if response[-1] == self.tokenizer.end_id else [self.tokenizer.end_id]
        return [*end, *self.encode(text)]

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of a response."""
        return self.tokenizer.decode(tokens)
