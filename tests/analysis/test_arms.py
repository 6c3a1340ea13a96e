"""Arms are compared like for like, block by block."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.arms import arm_means, collapse_contrast, difference, difference_of_differences, options_named
from analysis.measures import RunTable
from analysis.simulation import World, simulate
from analysis.survival import log_rank_scores, permutation_log_rank, restricted_mean

CLIPS = {"sequence": ("sequence",), "tolerant": ("cispo", "soft")}


def study(blocks: int = 6, seed: int = 0, **truth: object) -> RunTable:
    return simulate(World(**truth), blocks, np.random.default_rng(seed))  # type: ignore[arg-type]


def drop(runs: RunTable, *rows: str) -> RunTable:
    return replace(runs, table=runs.table.drop(index=list(rows)))


def test_a_difference_is_that_of_block_means() -> None:
    runs = study()
    table = runs.table
    by_hand = []
    for _, block in table.groupby("block"):
        tolerant = block[block["is_clipping"].isin(["cispo", "soft"])]["final"].mean()
        by_hand.append(tolerant - block[block["is_clipping"] == "sequence"]["final"].mean())
    found = difference(runs, "is_clipping", CLIPS, "final")
    assert found.by_block == pytest.approx(by_hand)
    assert (found.blocks, found.contexts, found.runs) == (6, 8, 6 * 8 * 3)


def test_a_context_without_a_partner_is_left_out() -> None:
    runs = study()
    missing = runs.table.query("is_clipping == 'sequence' and block == 'b0' and advantage == 'gigpo'").index[
        0
    ]
    means = arm_means(drop(runs, missing), "is_clipping", CLIPS, "final")
    assert len(means) == 6 * 8 - 1
    other = difference(drop(runs, missing), "is_clipping", CLIPS, "final")
    assert other.runs == 6 * 8 * 3 - 3


def test_settings_that_never_differ_alone_say_nothing() -> None:
    runs = study()
    chosen = runs.table[runs.table["is_clipping"].isin(["cispo", "token"])]
    linked = chosen[(chosen["is_clipping"] == "cispo") == (chosen["advantage"] == "grpo")]
    advantages = {"grpo": ("grpo",), "gigpo": ("gigpo",)}
    assert difference(replace(runs, table=linked), "advantage", advantages, "final").blocks == 0
    assert collapse_contrast(replace(runs, table=linked), "advantage", advantages).blocks == 0
    assert difference(runs, "trainer.steps", advantages, "final").blocks == 0


def test_differences_of_differences_by_hand() -> None:
    runs = study(gain={"gigpo": 0.1})
    wide = runs.table.groupby(["block", "dynamic_filtering", "advantage"])["final"].mean().unstack([1, 2])
    gain = {a: wide["group_variance", a] - wide["none", a] for a in ("grpo", "gigpo")}
    found = difference_of_differences(
        runs,
        "dynamic_filtering",
        {"none": ("none",), "filtered": ("group_variance",)},
        "advantage",
        {"grpo": ("grpo",), "gigpo": ("gigpo",)},
        "final",
    )
    assert found.by_block == pytest.approx((gain["gigpo"] - gain["grpo"]).tolist())


def test_times_to_collapse_are_restricted_means_over_all_runs() -> None:
    runs = study(hazard={"cispo": 0.02, "soft": 0.01, "sequence": 0.002})
    found = collapse_contrast(runs, "is_clipping", {"early": ("cispo", "soft"), "late": ("sequence",)})
    late = runs.table[runs.table["is_clipping"] == "sequence"]
    early = runs.table[runs.table["is_clipping"].isin(["cispo", "soft"])]
    means = [restricted_mean(part["time"], part["event"], 100) for part in (late, early)]
    assert found.effect.estimate == pytest.approx(means[0] - means[1])
    assert found.horizon == 100
    assert found.p is not None
    assert found.p < 0.01


def test_the_options_of_a_block_move_together() -> None:
    """With one surrounding and two options, the p-value is that of flipping whole blocks."""
    runs = study(hazard={"cispo": 0.02, "sequence": 0.01})
    table = runs.table.query("advantage == 'grpo' and dynamic_filtering == 'none'")
    one = replace(runs, table=table[table["loss_aggregation"] == "token_mean"])
    found = collapse_contrast(one, "is_clipping", {"a": ("cispo",), "b": ("sequence",)})
    two = one.table[one.table["is_clipping"].isin(["cispo", "sequence"])]
    scores = log_rank_scores(two["time"], two["event"])
    blocks = [
        scores[[list(two.index).index(name) for name in part.sort_values("is_clipping").index]]
        for _, part in two.groupby("block")
    ]
    assert found.p == permutation_log_rank(blocks, [0]).p


def test_options_are_found_by_name_whatever_their_parameters() -> None:
    options = ["cispo", "cispo(hi=4)", "soft", "cispo_like"]
    assert options_named(options, "cispo") == ["cispo", "cispo(hi=4)"]
