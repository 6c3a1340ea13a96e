"""A word-level tokenizer: one token per word of the environment's vocabulary.

Saved in the format that transformers reads (`tokenizer.json`, `tokenizer_config.json`); loaded here without
importing transformers, because a trial starts three times as fast without it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

PAD, UNKNOWN, END, RESPONSE = "<pad>", "<unk>", "<eos>", "<assistant>"
SPECIAL = (PAD, UNKNOWN, END, RESPONSE)


class WordTokenizer:
    """Splits at white space; unknown words become `<unk>`."""

    def __init__(self, words: Sequence[str]) -> None:
        if tuple(words[: len(SPECIAL)]) != SPECIAL or len(set(words)) != len(words):
            raise ValueError(f"a vocabulary starts with {SPECIAL} and repeats no word")
        self.words = list(words)
        self.ids = {word: index for index, word in enumerate(words)}
        self.pad_id, self.unknown_id, self.end_id, self.response_id = (self.ids[word] for word in SPECIAL)

    @classmethod
    def from_vocabulary(cls, *vocabularies: Iterable[str]) -> WordTokenizer:
        """A tokenizer of the special words and the given ones, in order of appearance."""
        return cls(list(dict.fromkeys([*SPECIAL, *(word for words in vocabularies for word in words)])))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, text: str) -> list[int]:
        """Token ids of the text's words."""
        ids, unknown = self.ids, self.unknown_id
        return [ids.get(word, unknown) for word in text.split()]

    def decode(self, tokens: Iterable[int]) -> str:
        """The words joined by spaces, without padding and the end-of-sequence token."""
        words, skip = self.words, (self.pad_id, self.end_id)
        return " ".join([words[token] for token in tokens if token not in skip])

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and `tokenizer_config.json` as transformers reads them."""
        special = [
            {
                "id": self.ids[word],
                "content": word,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for word in SPECIAL
        ]
        tokenizer = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": special,
            "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": self.ids, "unk_token": UNKNOWN},
        }
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": PAD,
            "unk_token": UNKNOWN,
            "eos_token": END,
            "clean_up_tokenization_spaces": False,
            "chat_template": "{% for message in messages %}{{ message['content'] }} {% endfor %}"
            "{% if add_generation_prompt %}" + RESPONSE + "{% endif %}",
        }
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))

    @classmethod
    def load(cls, folder: Path) -> WordTokenizer:
        """Read what `save` wrote."""
        ids = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
        return cls(sorted(ids, key=ids.__getitem__))
