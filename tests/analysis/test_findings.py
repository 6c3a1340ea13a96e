"""The six findings on simulated studies: true ones are supported, null ones claim nothing."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.conclusions import _option
from analysis.declared import judge_hypotheses
from analysis.factorial import fit_factorial
from analysis.findings import judge_findings, risk_bound, stability_margins
from analysis.measures import RunTable
from analysis.pairs import pair_effects
from analysis.precursors import RunPanel
from analysis.simulation import AXES, World, simulate
from analysis.verdicts import Claim, judged

PAPER = World(
    gain={"gigpo": 0.1, "seq_mean_token_mean": 0.0},
    hazard={"cispo": 0.05, "soft": 0.03},
    noise=0.02,
    slope=0.005,
)


def runs_of(world: World, blocks: int, seed: int = 0, **axes: tuple[str, ...]) -> RunTable:
    return simulate(world, blocks, np.random.default_rng(seed), axes={**AXES, **axes})


def verdicts(runs: RunTable, trials: list[Any] | None = None) -> dict[str, Claim]:
    return {claim.name: claim for claim in judge_findings(runs, RunPanel(trials or []))}


def test_what_is_true_is_supported_and_what_is_not_there_is_not_testable() -> None:
    found = verdicts(runs_of(PAPER, 8))
    assert found["1"].verdict == "supported"
    assert found["4"].verdict == "supported"
    assert found["5"].verdict == "no effect"
    for name, reason in (("2", "no run collapsed"), ("3", "none of them both with and without the mask")):
        assert found[name].verdict == "not testable"
        assert reason in found[name].reason
    assert "8 blocks" not in found["1"].reason
    assert any("`token`: 0 of 64 runs collapsed" in line for line in found["1"].beside)


def test_the_contrary_is_contradicted() -> None:
    found = verdicts(runs_of(World(gain={"gigpo": -0.1}, hazard={"sequence": 0.06}, noise=0.02), 8))
    assert found["1"].verdict == "contradicted"
    assert found["4"].verdict == "contradicted"


def test_filtering_that_helps_one_advantage_only() -> None:
    runs = runs_of(World(noise=0.02, slope=0.005), 8)
    both = (runs.table["dynamic_filtering"] == "group_variance") & (runs.table["advantage"] == "gigpo")
    table = runs.table.assign(final_episode=runs.table["final_episode"] + 0.2 * both)
    found = verdicts(replace(runs, table=table))["5"]
    assert found.verdict == "supported"
    assert found.effect is not None
    assert found.effect.estimate == pytest.approx(0.2, abs=0.03)
    assert "at equal numbers of steps" in found.beside[0]


def test_masking_is_held_against_no_mask_and_a_random_one() -> None:
    clips = ("cispo", "cispo(sequence_mask(delta=0.003))", "cispo(random_mask(delta=0.003))")
    world = World(hazard={clips[0]: 0.05, clips[2]: 0.05})
    found = verdicts(runs_of(world, 8, is_clipping=clips))["3"]
    assert found.verdict == "supported"
    assert found.beside[0] == "removed: with the mask 0 of 64 collapsed, at most 5% with 95% confidence"
    assert "against masking as many random rows: +" in found.beside[1]
    alone = verdicts(runs_of(world, 8, is_clipping=clips[:2]))["3"]
    assert "no random mask ran" in alone.beside[1]


def test_aggregation_takes_lengths_that_vary() -> None:
    runs = runs_of(World(noise=0.01, slope=0.0), 8, is_clipping=("token",))
    hurt = (runs.table["loss_aggregation"] == "seq_mean_token_mean") & (runs.table["advantage"] == "gigpo")
    runs = replace(runs, table=runs.table.assign(final=runs.table["final"] - 0.2 * hurt))

    def trials(low: float, high: float) -> list[Any]:
        cv = {"grpo": low, "gigpo": high}
        return [
            SimpleNamespace(
                id=name, train=pd.DataFrame({"rollout/response_tokens_cv": [cv[row["advantage"]]] * 4})
            )
            for name, row in runs.table.iterrows()
        ]

    from analysis.findings import aggregation

    even = aggregation(runs, trials(0.02, 0.05))
    assert even.verdict == "not testable"
    assert "below 0.1" in even.reason
    alike = aggregation(runs, trials(0.4, 0.45))
    assert "vary alike" in alike.reason
    (found,) = judged([aggregation(runs, trials(0.1, 0.5))])
    assert found.verdict == "supported"
    assert found.effect is not None
    assert found.effect.estimate == pytest.approx(0.2, abs=0.02)


def test_the_bound_of_a_risk_is_clopper_and_pearsons() -> None:
    for bad, count in ((0, 29), (3, 40), (39, 40)):
        interval = stats.binomtest(bad, count).proportion_ci(0.90, "exact")
        assert risk_bound(bad, count) == pytest.approx(interval.high)
    assert risk_bound(0, 29) < 0.1 < risk_bound(0, 28)
    assert (risk_bound(5, 5), risk_bound(0, 0)) == (1.0, 1.0)


def test_the_margin_is_the_largest_rate_with_few_collapses() -> None:
    rates = ("0.0003", "0.0006", "0.0012")
    axes = {"is_clipping": ("cispo", "sequence"), "trainer.learning_rate": rates}
    runs = simulate(World(hazard={"0.0012": 0.1}), 10, np.random.default_rng(0), axes=axes)
    worse = (runs.table["is_clipping"] == "cispo") & (runs.table["trainer.learning_rate"] == "0.0006")
    table = runs.table.assign(collapsed=runs.table["collapsed"] | worse)
    margins = stability_margins(replace(runs, table=table)).set_index("option")["margin"]
    assert margins.to_dict() == {"cispo": 0.0003, "sequence": 0.0006}
    assert stability_margins(runs_of(World(), 2)).empty


def test_margins_compare_options_in_runs_that_are_alike_in_everything_else() -> None:
    axes = {
        "is_clipping": ("cispo", "sequence"),
        "advantage": ("grpo", "gigpo"),
        "trainer.learning_rate": ("0.0003", "0.0006"),
    }
    runs = simulate(World(), 5, np.random.default_rng(0), axes=axes)
    cispo = runs.table["is_clipping"] == "cispo"
    # all of cispo collapses, and it ran with grpo alone: no fault of grpo's
    table = runs.table.assign(collapsed=cispo)[~(cispo & (runs.table["advantage"] == "gigpo"))]
    found = stability_margins(replace(runs, table=table)).set_index("option")
    assert found["alike"].all()
    assert found["runs"].to_dict() == dict.fromkeys(("cispo", "sequence", "grpo", "gigpo"), 10)
    assert found.loc["grpo", ["0.0003", "0.0006", "margin"]].tolist() == [0, 0, 0.0006]
    assert found.loc["cispo", "0.0003"] == 1
    # levels and the share that collapsed are told of the same runs
    grpo = _option(replace(runs, table=table), "advantage", "grpo", 100.0, None)
    assert (grpo.alike, grpo.collapsed, grpo.results) == (True, 0, 10)
    # where two options never meet, all runs are counted, and that is said
    apart = replace(
        runs, table=table[~((table["is_clipping"] == "sequence") & (table["advantage"] == "grpo"))]
    )
    assert not stability_margins(apart)["alike"].any()


@pytest.mark.slow
def test_a_hundred_studies_in_which_nothing_differs_claim_nothing() -> None:
    """All options alike, some collapse by chance: no finding, no hypothesis and no effect is claimed."""
    hypotheses = ["gigpo beats grpo", "cispo collapses before sequence", "token matches cispo in stability"]
    claimed: list[Any] = []
    significant = differing = 0
    for seed in range(100):
        rate = 0.002 * (seed % 3)
        world = World(hazard=dict.fromkeys(AXES["is_clipping"], rate))
        runs = runs_of(world, 8, seed)
        for claim in [*judge_findings(runs, RunPanel([])), *judge_hypotheses(hypotheses[:2], runs)]:
            if claim.verdict in ("supported", "contradicted"):
                claimed.append((seed, claim.name, claim.effect))
        differing += any(pair.established for pair in pair_effects(runs, beside=()))
        fit = fit_factorial(runs.table, list(AXES), "final")
        significant += any(e.p_holm is not None and e.p_holm < 0.05 for e in fit.effects)
    assert claimed == []
    # By far fewer than the one in twenty that the correction allows: an effect must also be large enough.
    assert differing <= 2
    # Corrected for all effects of a study, at most one study in twenty has one by chance.
    assert significant <= 10
