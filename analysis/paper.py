"""Numbers published in the ARLArena paper (arXiv 2602.21534), to be printed beside ours.

Success in per cent, Qwen3-4B, one seed, no error bars. The paper's own tables disagree in places (SAMPO on
WebShop is also given as 74.08), so these are a comparison, never an expected value.
"""

from __future__ import annotations

MODEL = "Qwen3-4B"
SOURCE = "arXiv 2602.21534"

SUCCESS: dict[str, dict[str, float]] = {
    "alfworld": {
        "GRPO": 62.36,
        "GRPO_ST": 72.61,
        "SAPO": 25.16,
        "CISPO": 54.42,
        "GSPO": 78.61,
        "GIGPO": 81.09,
        "EMPG": 57.91,
        "DAPO_GRPO": 49.58,
        "DAPO_GIGPO": 60.55,
        "SAMPO": 92.72,
        "CISPO_SM": 78.88,
        "SAPO_SM": 76.92,
    },
    "webshop": {
        "GRPO": 57.71,
        "GRPO_ST": 51.29,
        "SAPO": 52.10,
        "CISPO": 54.71,
        "GSPO": 72.48,
        "GIGPO": 56.55,
        "EMPG": 64.32,
        "DAPO_GRPO": 46.17,
        "DAPO_GIGPO": 76.82,
        "SAMPO": 77.73,
    },
    "sokoban": {
        "GRPO": 83.90,
        "GRPO_ST": 68.73,
        "SAPO": 30.25,
        "CISPO": 26.02,
        "GSPO": 82.22,
        "GIGPO": 82.67,
        "EMPG": 79.16,
        "DAPO_GRPO": 82.40,
        "DAPO_GIGPO": 86.20,
        "SAMPO": 88.86,
    },
}
"""Success by environment and method."""

TIR_MATH: dict[str, tuple[float, float]] = {
    "GRPO": (49.96, 30.78),
    "GRPO_ST": (27.55, 21.63),
    "SAPO": (45.00, 30.85),
    "CISPO": (36.53, 30.87),
    "GSPO": (51.29, 37.95),
    "DAPO_GRPO": (54.66, 38.97),
}
"""Tool-integrated maths: AIME and AIME25 by method."""

COLLAPSED_AT = {("alfworld", "SAPO"): 130, ("alfworld", "CISPO"): 130}
"""About the step, of 200, at which the paper's curves collapse."""


def published(env: str, methods: tuple[str, ...]) -> str | None:
    """What the paper reports for the first of these methods it knows in this environment, as text."""
    for method in methods:
        if method in SUCCESS.get(env, {}):
            collapse = COLLAPSED_AT.get((env, method))
            return f"{SUCCESS[env][method]:.2f}" + (f", collapses about step {collapse}" if collapse else "")
        if env == "tir_math" and method in TIR_MATH:
            aime, aime25 = TIR_MATH[method]
            return f"{aime:.2f} AIME, {aime25:.2f} AIME25"
    return None
