"""Random generators keyed by (seed, stream, step): nothing draws from global state.

Keys instead of state make resuming exact (there is nothing to save) and keep streams apart: what a rollout
draws never depends on how often the evaluation ran.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def stream_seed(seed: int, stream: str, *position: int) -> int:
    """A 63-bit seed for one stream at one position (step, try, epoch)."""
    text = ":".join([str(seed), stream, *map(str, position)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def torch_generator(seed: int, stream: str, *position: int, device: str = "cpu") -> torch.Generator:
    """A torch generator for one stream at one position."""
    generator = torch.Generator(device=device)
    generator.manual_seed(stream_seed(seed, stream, *position))
    return generator


def numpy_generator(seed: int, stream: str, *position: int) -> np.random.Generator:
    """A numpy generator for one stream at one position."""
    return np.random.default_rng(stream_seed(seed, stream, *position))
