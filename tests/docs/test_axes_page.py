"""`docs/axes.md` says what the code says, and its figure shows the gradients of the formulas."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def axes() -> ModuleType:
    """The script that writes the page."""
    spec = importlib.util.spec_from_file_location("axes_page", DOCS / "axes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(axes: ModuleType) -> None:
    assert axes.PAGE.read_text() == axes.page(), "run `make docs`"


def test_the_figure_has_every_clipping_option_and_can_be_drawn(axes: ModuleType, tmp_path: Path) -> None:
    assert {drawn.option for drawn in axes.panels()} == set(axes.CATALOGUE.names("is_clipping"))
    axes.draw_gradients(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    assert "](figures/gradients.png)" in axes.PAGE.read_text()
    assert axes.FIGURE.is_file()


# weight on A grad log pi at ratio w, for A > 0 and for A < 0
FORMULAS: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "token": (lambda w: w * (w <= 1.2), lambda w: w * (w >= 0.8)),
    "token_higher": (lambda w: w * (w <= 1.28), lambda w: w * (w >= 0.8)),
    "sequence": (lambda w: w * (w <= 1.004), lambda w: w * (w >= 0.997)),
    "soft": (
        lambda w: w / math.cosh((w - 1) / 2) ** 2,
        lambda w: w / math.cosh(1.05 * (w - 1) / 2) ** 2,
    ),
    "cispo": (lambda w: min(w, 1.2), lambda w: min(w, 1.2)),
    "none": (lambda w: w, lambda w: w),
}


@pytest.mark.parametrize("option", FORMULAS)
def test_the_curves_are_those_of_the_formulas(axes: ModuleType, option: str) -> None:
    ratios = torch.tensor([0.3, 0.79, 0.81, 0.996, 0.998, 1.0, 1.003, 1.005, 1.19, 1.21, 1.27, 1.29, 3.0])
    for formula, sign in zip(FORMULAS[option], (1, -1), strict=True):
        drawn = axes.gradient_weights(option, {}, ratios, sign)
        expected = torch.tensor([formula(w) for w in ratios.double().tolist()], dtype=torch.float64)
        torch.testing.assert_close(drawn, expected)
