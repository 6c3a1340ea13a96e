"""Effects of designs equal those of statsmodels; what a design cannot show is not shown."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pytest

from analysis.factorial import contrasts, fit_factorial

FACTORS: Mapping[str, Sequence[str]] = {
    "is_clipping": ("token", "cispo", "sequence"),
    "advantage": ("grpo", "gigpo"),
    "dynamic_filtering": ("none", "group_variance"),
}


def design(blocks: int, *, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    rows = []
    for block in range(blocks):
        level = random.normal(0, 0.1)
        for cell in itertools.product(*FACTORS.values()):
            clipping = {"token": 0.0, "cispo": -0.2, "sequence": 0.1}[cell[0]]
            gain = (cell[1] == "gigpo") * (0.05 + 0.1 * (cell[2] == "group_variance"))
            rows.append([*cell, f"b{block}", 0.5 + level + clipping + gain + random.normal(0, 0.05)])
    return pd.DataFrame(rows, columns=[*FACTORS, "block", "final"])


def test_f_statistics_equal_the_repeated_measures_anova_of_statsmodels() -> None:
    from statsmodels.stats.anova import AnovaRM

    table = design(6)
    reference = AnovaRM(table, "final", "block", within=list(FACTORS)).fit().anova_table
    fit = fit_factorial(table, list(FACTORS), "final")
    pairs = {e.name: e for e in fit.effects if len(e.factors) == 1}
    for name, effect in pairs.items():
        assert effect.f == pytest.approx(reference.loc[name, "F Value"])
        assert effect.degrees == (reference.loc[name, "Num DF"], reference.loc[name, "Den DF"])
        if effect.degrees[0] == 1:  # with two options there is no sphericity to correct for
            assert effect.p == pytest.approx(reference.loc[name, "Pr > F"])
        else:
            assert effect.p is not None
            assert effect.p >= reference.loc[name, "Pr > F"]
    crossed = next(e for e in fit.effects if e.factors == ("advantage", "dynamic_filtering"))
    assert crossed.f == pytest.approx(reference.loc["advantage:dynamic_filtering", "F Value"])


def test_deviations_equal_a_sum_coded_regression_with_blocks() -> None:
    import statsmodels.formula.api as smf

    table = design(5)
    reference = smf.ols(
        "final ~ C(is_clipping, Sum) * C(advantage, Sum) * C(dynamic_filtering, Sum) + C(block, Sum)", table
    ).fit()
    fit = fit_factorial(table, list(FACTORS), "final")
    assert fit.mean.estimate == pytest.approx(reference.params["Intercept"])
    advantage = next(e for e in fit.effects if e.name == "advantage")
    found = dict(zip(advantage.levels, advantage.deviations, strict=True))
    assert found[("gigpo",)].estimate == pytest.approx(
        reference.params["C(advantage, Sum)[S.gigpo]"], abs=1e-12
    )


def test_shares_of_a_full_design_add_up_to_what_two_factors_explain() -> None:
    fit = fit_factorial(design(6), list(FACTORS), "final")
    assert 0.9 < sum(e.share for e in fit.effects) <= 1
    largest = max(fit.effects, key=lambda e: e.size)
    assert largest.name == "is_clipping"
    low = min(zip(largest.deviations, largest.levels, strict=True), key=lambda pair: pair[0].estimate)
    assert low[1] == ("cispo",)
    assert low[0].high < 0


def test_a_missing_trial_takes_only_its_block_out() -> None:
    table = design(6)
    whole = fit_factorial(table, list(FACTORS), "final")
    holed = table.copy()
    holed.loc[[0, 1, 2], "final"] = np.nan
    fit = fit_factorial(holed, list(FACTORS), "final")
    assert {e.name for e in fit.effects} == {e.name for e in whole.effects}
    one, other = fit.effects[0].deviations[0].estimate, whole.effects[0].deviations[0].estimate
    assert one == pytest.approx(other, abs=0.05)


def test_a_half_fraction_hides_what_it_confounds() -> None:
    """Of 2^3, the half in which three signs multiply to 1: each main effect is one with an interaction."""
    names = ["a", "b", "c"]
    random = np.random.default_rng(1)
    rows = [
        [*map(str, cell), f"b{block}", float(random.normal() + cell[0])]
        for block in range(6)
        for cell in itertools.product((-1, 1), repeat=3)
        if np.prod(cell) == 1
    ]
    fit = fit_factorial(pd.DataFrame(rows, columns=[*names, "block", "y"]), names, "y")
    assert [e.name for e in fit.effects] == names
    assert all(e.alone for e in fit.effects)
    assert fit.hidden == ("a x b", "a x c", "b x c")


def test_methods_that_differ_in_several_axes_show_no_effect_of_any() -> None:
    rows = [
        ["token", "grpo", "b0", 0.1],
        ["sequence", "gigpo", "b0", 0.4],
        ["token", "grpo", "b1", 0.2],
        ["sequence", "gigpo", "b1", 0.4],
    ]
    table = pd.DataFrame(rows, columns=["is_clipping", "advantage", "block", "final"])
    fit = fit_factorial(table, ["is_clipping", "advantage"], "final")
    assert fit.effects == ()
    assert set(fit.hidden) == {"is_clipping", "advantage", "is_clipping x advantage"}


def test_below_five_blocks_there_are_no_p_values() -> None:
    fit = fit_factorial(design(4), list(FACTORS), "final")
    assert all(e.p is None and e.p_holm is None for e in fit.effects)
    assert all(d.kind == "range" for e in fit.effects for d in e.deviations)


@pytest.mark.parametrize("levels", [2, 3, 5])
def test_contrasts_are_orthogonal_and_sum_to_zero(levels: int) -> None:
    matrix = contrasts(levels)
    assert matrix.sum(0) == pytest.approx(np.zeros(levels - 1))
    assert matrix.T @ matrix / levels == pytest.approx(np.eye(levels - 1))
