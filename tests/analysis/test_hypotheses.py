"""Declared hypotheses: what is read, what is refused and how, what the runs say of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.arms import collapse_contrast, difference
from analysis.declared import judge_hypotheses
from analysis.hypotheses import HypothesisError, Vocabulary, parse
from analysis.simulation import World, simulate
from analysis.verdicts import NO_PARTNERS

NAMES = Vocabulary(
    {
        "is_clipping": ["token", "cispo", "cispo(hi=4)", "sequence"],
        "advantage": ["grpo", "gigpo"],
        "dynamic_filtering": ["none", "group_variance"],
        "trainer.learning_rate": ["0.0003", "0.0006"],
        "other": ["none", "some"],
    },
    ["GRPO", "SAMPO"],
)


@pytest.mark.parametrize(
    ("text", "form", "metric"),
    [
        ("cispo collapses before sequence", "collapses before", "final"),
        ("gigpo beats grpo in final success", "beats", "final"),
        ("gigpo  beats grpo.", "beats", "final"),
        ("SAMPO beats GRPO in area under the curve at equal episodes", "beats", "area"),
        ("sequence matches token in stability", "matches", "healthy"),
        ("token collapses less than cispo(hi=4)", "collapses less than", "final"),
        ("group_variance helps gigpo more than grpo", "helps", "final"),
        ("trainer.learning_rate=0.0006 collapses more than trainer.learning_rate=0.0003",
         "collapses more than", "final"),
    ],
)  # fmt: skip
def test_the_forms(text: str, form: str, metric: str) -> None:
    found = parse(text, NAMES)
    assert (found.form, found.metric) == (form, metric)


def test_a_name_without_parameters_means_all_variants() -> None:
    found = parse("sequence beats cispo where advantage=gigpo and trainer.learning_rate=0.0003", NAMES)
    assert found.second.options == ("cispo",)  # the option itself is there: its variants are others
    assert found.where == {"advantage": ("gigpo",), "trainer.learning_rate": ("0.0003",)}
    assert parse("trainer.learning_rate=6e-4 beats trainer.learning_rate=3e-4", NAMES).first.options == (
        "0.0006",
    )
    masked = Vocabulary({"is_clipping": ["cispo(mask(delta=0.003, of=kept))", "cispo"]})
    written = parse("cispo(mask.of=kept, mask.delta=3e-3) beats cispo", masked)
    assert written.first.options == ("cispo(mask(delta=0.003, of=kept))",)
    only_variants = Vocabulary({"is_clipping": ["token", "cispo(hi=4)", "cispo(hi=2)"]})
    assert parse("cispo beats token", only_variants).first.options == ("cispo(hi=4)", "cispo(hi=2)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cispo is bad", "not one of the forms: A beats B"),
        ("cispo colapses before token", "not one of the forms"),
        ("cisspo beats token", "unknown option or method 'cisspo'; did you mean 'cispo'?"),
        ("cispo beats gigpo", "'cispo' is an option of is_clipping and 'gigpo' an option of advantage"),
        ("cispo beats GRPO", "'GRPO' a method: only two of the same can be compared"),
        ("cispo beats cispo", "compared with itself"),
        ("cispo beats token in final sucess", "unknown metric 'final sucess'; did you mean 'final success'?"),
        ("cispo beats token at equal epochs", "unknown unit 'epochs'"),
        ("cispo collapses before token in stability", "no metric"),
        ("group_variance helps gigpo", "A helps B more than C"),
        ("gigpo helps gigpo more than grpo", "must be an option of another axis"),
        ("none beats group_variance", "write dynamic_filtering=none or other=none"),
        ("cispo beats token where gigpo", "SETTING=OPTION, not 'gigpo'"),
        ("steps=3 beats token", "unknown setting 'steps'"),
    ],
)
def test_what_cannot_be_read_says_what_to_write(text: str, message: str) -> None:
    with pytest.raises(HypothesisError) as error:
        parse(text, NAMES)
    assert message in str(error.value)


def test_verdicts_follow_the_truth_of_a_simulated_study() -> None:
    world = World(gain={"gigpo": 0.15}, hazard={"cispo": 0.05}, noise=0.02, slope=0.01)
    runs = simulate(world, 8, np.random.default_rng(0))
    texts = [
        "gigpo beats grpo",
        "grpo beats gigpo",
        "cispo collapses before sequence",
        "cispo collapses less than token",
        "group_variance matches dynamic_filtering=none",
        "token matches cispo in stability",
    ]
    claims = {claim.text: claim for claim in judge_hypotheses(texts, runs)}
    assert [claims[text].verdict for text in texts] == [
        "supported",
        "contradicted",
        "supported",
        "contradicted",
        "supported",
        "contradicted",
    ]
    by_hand = difference(runs, "advantage", {"grpo": ("grpo",), "gigpo": ("gigpo",)}, "final")
    assert claims["gigpo beats grpo"].effect == by_hand.effect
    assert claims["grpo beats gigpo"].effect.estimate == pytest.approx(-by_hand.effect.estimate)  # type: ignore[union-attr]
    lasted = collapse_contrast(runs, "is_clipping", {"a": ("cispo",), "b": ("sequence",)})
    assert claims["cispo collapses before sequence"].effect == lasted.effect


def test_methods_are_compared_block_by_block() -> None:
    runs = simulate(World(gain={"sequence": 0.2}, noise=0.01, slope=0.0), 6, np.random.default_rng(1))
    named = {"token": ("GRPO",), "sequence": ("GSPO",)}
    table = runs.table.assign(methods=[named.get(option, ()) for option in runs.table["is_clipping"]])
    (claim,) = judge_hypotheses(["GSPO beats GRPO"], replace(runs, table=table))
    assert claim.verdict == "supported"
    assert claim.effect is not None
    assert claim.effect.estimate == pytest.approx(0.2, abs=0.02)


def test_few_blocks_leave_everything_undecided() -> None:
    runs = simulate(World(gain={"gigpo": 0.3}), 4, np.random.default_rng(0))
    (claim,) = judge_hypotheses(["gigpo beats grpo"], runs)
    assert (claim.verdict, claim.reason) == ("undecided", "4 blocks, fewer than the 5 that a test takes")


def test_a_name_the_runs_do_not_have_is_not_testable() -> None:
    runs = simulate(World(), 5, np.random.default_rng(0))
    (claim,) = judge_hypotheses(["rloo beats grpo"], runs)
    assert claim.verdict == "not testable"
    assert "unknown option or method 'rloo'" in claim.reason


def test_what_was_planned_and_has_no_run_has_a_name() -> None:
    runs = simulate(World(), 5, np.random.default_rng(0))
    planned = {
        axis: (*runs.order(axis), *(["gated"] if axis == "is_clipping" else [])) for axis in runs.settings
    }
    (claim,) = judge_hypotheses(["gated collapses before sequence"], replace(runs, axes=planned))
    assert (claim.verdict, claim.reason) == ("not testable", NO_PARTNERS)


def test_an_effect_that_few_blocks_cannot_prove_is_said_to_take_more() -> None:
    """With five blocks the smallest exact p is 1/16, whatever is seen."""
    runs = simulate(World(hazard={"cispo": 1.0}), 5, np.random.default_rng(0))
    (claim,) = judge_hypotheses(["cispo collapses more than sequence"], runs)
    assert (claim.verdict, claim.p) == ("undecided", 0.0625)
    assert claim.reason == "the interval leaves out none, but corrected p is 0.062: it takes more blocks"
