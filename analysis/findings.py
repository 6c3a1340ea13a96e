"""The findings of the ARLArena paper as hypotheses, tested on the runs of a study (docs/statistics.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.arms import (
    Contrast,
    arm_means,
    collapse_contrast,
    collapse_risk,
    difference,
    difference_of_differences,
    options_named,
)
from analysis.markdown import interval
from analysis.measures import LEARNING_RATE, RunTable
from analysis.precursors import DIAGNOSTICS, RunPanel, Separation
from analysis.resampling import Interval, seed_interval
from analysis.significance import block_p_value
from analysis.study import Trial
from analysis.survival import restricted_mean
from analysis.verdicts import (
    NO_PARTNERS,
    SMALLEST_AREA,
    SMALLEST_RISK,
    SMALLEST_SUCCESS,
    Claim,
    claimed,
    judged,
    not_testable,
)

EARLY, LATE = 20, 5
"""Steps before a collapse between which depth is said to rise."""
LEAST_VARIATION = 0.1
"""Below this coefficient of variation of response lengths, both aggregations weigh tokens alike."""
CLEARED = 0.1
"""A mask removes collapse where the upper bound of the risk left is below this."""
MARGIN_RISK = 0.2


def judge_findings(runs: RunTable, panel: RunPanel) -> list[Claim]:
    """The six findings with their verdicts. panel: the records of the runs of the table."""
    return judged(
        [
            tolerant_clipping(runs),
            depth_before_collapse(panel),
            masking(runs),
            step_advantages(runs),
            filtering(runs),
            aggregation(runs, panel.trials),
        ]
    )


def tolerant_clipping(runs: RunTable) -> Claim:
    """1. Tolerant clipping collapses more and earlier than the sequence ratio's tight band."""
    name, text = "1", "Tolerant clipping (`cispo`, `soft`) collapses more and earlier than `sequence`"
    measure = "restricted mean time to collapse, steps (`sequence` minus tolerant)"
    options = runs.order("is_clipping")
    arms = {
        "tolerant": [o for o in options_named(options, "cispo", "soft") if "mask" not in o],
        "sequence": [o for o in options_named(options, "sequence") if "mask" not in o],
    }
    if not all(arms.values()):
        missing = "neither cispo nor soft" if not arms["tolerant"] else "no sequence"
        return not_testable(name, text, measure, f"the study has {missing} clipping")
    contrast = collapse_contrast(runs, "is_clipping", arms)
    if not contrast.blocks:
        return not_testable(name, text, measure, NO_PARTNERS)
    beside = [
        f"{arm}: {bad} of {count} runs collapsed"
        for arm, members in (*arms.items(), ("`token`", options_named(options, "token")))
        if members
        for bad, count in [collapse_risk(runs, "is_clipping", members)]
        if count
    ]
    token = options_named(options, "token")
    mine = runs.table[runs.table["is_clipping"].isin(token)]
    if len(mine):
        try:
            lasted = restricted_mean(mine["time"], mine["event"], contrast.horizon)
            beside.append(f"`token` lasts {lasted:.1f} of {contrast.horizon:.0f} steps")
        except ValueError:
            pass
    smallest = SMALLEST_RISK * contrast.horizon
    return claimed(name, text, measure, contrast, smallest, beside)


def depth_before_collapse(panel: RunPanel) -> Claim:
    """2. The depth of negative-advantage low-ratio rows rises before a collapse."""
    name, text = "2", "Depth of negative-advantage low-ratio rows rises before a collapse"
    measure = f"area under the ROC curve of its rise from {EARLY} to {LATE} steps before, minus 0.5"
    fallen = panel.onset[np.isfinite(panel.onset)]
    if not len(fallen):
        return not_testable(name, text, measure, "no run collapsed")
    found = panel.rise(DIAGNOSTICS[0], EARLY, LATE)
    beside = [
        f"{one.diagnostic.name}, {LATE} steps before: area {one.area.estimate:.2f}"
        for diagnostic in DIAGNOSTICS
        if (one := panel.separation(diagnostic, LATE)).cases
    ]
    if not found.cases:
        reason = (
            f"it takes a collapse after step {EARLY + 3} with other runs still at risk;"
            f" the last of {len(fallen)} came at step {fallen.max():.0f}"
        )
        return not_testable(name, text, measure, reason, beside)
    contrast = _of_area(found)
    beside.insert(0, f"{found.cases} collapses, each against {found.at_risk:.0f} runs at risk (median)")
    return claimed(name, text, measure, contrast, SMALLEST_AREA, beside)


def masking(runs: RunTable) -> Claim:
    """3. Masking sequences removes, or reduces, the collapse of tolerant clipping."""
    name, text = "3", "`sequence_mask` removes or reduces the collapse of `cispo` and `soft`"
    measure = "risk of collapse, unmasked minus masked"
    options = options_named(runs.order("is_clipping"), "cispo", "soft")
    masked = [o for o in options if "sequence_mask" in o]
    random = [o for o in options if "random_mask" in o]
    plain = [o for o in options if "mask" not in o]
    bases = {o.partition("(")[0] for o in masked} & {o.partition("(")[0] for o in plain}
    if not bases:
        return not_testable(name, text, measure, "the study has none of them both with and without the mask")
    plain, masked, random = (
        [o for o in group if o.partition("(")[0] in bases] for group in (plain, masked, random)
    )
    contrast = difference(runs, "is_clipping", {"plain": plain, "masked": masked}, "healthy")
    if not contrast.blocks:
        return not_testable(name, text, measure, NO_PARTNERS)
    bad, count = collapse_risk(runs, "is_clipping", masked)
    bound = risk_bound(bad, count)
    removed = "removed: " if bound < CLEARED else ""
    beside = [f"{removed}with the mask {bad} of {count} collapsed, at most {bound:.0%} with 95% confidence"]
    if random:
        control = difference(runs, "is_clipping", {"random": random, "masked": masked}, "healthy")
        beside.append(
            f"against masking as many random rows: {_interval(control.effect)}"
            if control.blocks
            else "no run with a random mask is alike in everything else"
        )
    else:
        beside.append("no random mask ran: whether it matters which rows are masked is not known")
    return claimed(name, text, measure, contrast, SMALLEST_RISK, beside)


def step_advantages(runs: RunTable) -> Claim:
    """4. Step-level advantages beat episode-level ones."""
    name, text = "4", "`gigpo` beats `grpo` in final success"
    options = runs.order("advantage")
    gigpo = options_named(options, "gigpo")
    plain = [o for o in gigpo if "match_grpo" not in o]
    arms = {"grpo": options_named(options, "grpo"), "gigpo": plain}
    if not all(arms.values()):
        return not_testable(name, text, "final success", "the study does not have both")
    contrast = difference(runs, "advantage", arms, "final")
    if not contrast.blocks:
        return not_testable(name, text, "final success", NO_PARTNERS)
    beside = []
    if rescaled := [o for o in gigpo if "match_grpo" in o]:
        matched = difference(runs, "advantage", {"grpo": arms["grpo"], "gigpo": rescaled}, "final")
        beside.append(f"with advantages rescaled to `grpo`'s: {_interval(matched.effect)}")
    else:
        beside.append("`rescale: match_grpo` did not run: the scale of advantages may be what helps")
    return claimed(name, text, "final success", contrast, SMALLEST_SUCCESS, beside)


def filtering(runs: RunTable) -> Claim:
    """5. Filtering groups helps with step-level advantages and not without."""
    name, text = "5", "`group_variance` helps with `gigpo` and not with `grpo`"
    measure = "final success at equal numbers of episodes, difference of differences"
    filters, advantages = runs.order("dynamic_filtering"), runs.order("advantage")
    arms = {"none": options_named(filters, "none"), "filtered": options_named(filters, "group_variance")}
    gigpo = [o for o in options_named(advantages, "gigpo") if "match_grpo" not in o]
    levels = {"grpo": options_named(advantages, "grpo"), "gigpo": gigpo}
    if not all(arms.values()) or not all(levels.values()):
        return not_testable(name, text, measure, "the study does not cross both filters with both advantages")
    contrast = difference_of_differences(
        runs, "dynamic_filtering", arms, "advantage", levels, "final_episode"
    )
    if not contrast.blocks:
        return not_testable(name, text, measure, NO_PARTNERS)
    steps = difference_of_differences(runs, "dynamic_filtering", arms, "advantage", levels, "final_step")
    beside = [f"at equal numbers of steps: {_interval(steps.effect)}"]
    return claimed(name, text, measure, contrast, SMALLEST_SUCCESS, beside)


def aggregation(runs: RunTable, trials: Sequence[Trial]) -> Claim:
    """6. Averaging over rows instead of tokens hurts where response lengths vary."""
    name, text = "6", "`seq_mean_token_mean` hurts where response lengths vary"
    measure = "final success lost, at the most against the least varying lengths"
    options = runs.order("loss_aggregation")
    arms = {
        "token_mean": options_named(options, "token_mean"),
        "seq_mean": options_named(options, "seq_mean_token_mean"),
    }
    if not all(arms.values()):
        return not_testable(name, text, measure, "the study does not have both aggregations")
    variation = {
        trial.id: float(trial.train["rollout/response_tokens_cv"].iloc[:3].mean())
        for trial in trials
        if "rollout/response_tokens_cv" in trial.train
    }
    table = runs.table.assign(variation=pd.Series(variation, dtype=float).reindex(runs.table.index))
    wide = replace(runs, table=table)
    lost = arm_means(wide, "loss_aggregation", arms, "final")
    if lost.empty:
        return not_testable(name, text, measure, NO_PARTNERS)
    lengths = arm_means(wide, "loss_aggregation", arms, "variation").mean(axis=1).reindex(lost.index)
    per_context = lengths.groupby(level="context").mean()
    highest, spread = float(per_context.max()), float(per_context.max() - per_context.min())
    gap = lost["token_mean"] - lost["seq_mean"]
    plain = _interval(seed_interval(list(gap.groupby(level="block").mean())))
    beside = [f"lost on average over all surroundings: {plain}"]
    if not highest >= LEAST_VARIATION:
        reason = (
            f"response lengths hardly vary (coefficient of variation {highest:.2f}, below {LEAST_VARIATION}):"
            " both weigh tokens alike"
        )
        return not_testable(name, text, measure, reason, beside)
    if spread < LEAST_VARIATION:
        reason = f"response lengths vary alike in all surroundings (coefficients within {spread:.2f})"
        return not_testable(name, text, measure, reason, beside)
    slopes = []
    for _, part in gap.groupby(level="block"):
        x = lengths.loc[part.index]
        if x.max() - x.min() >= LEAST_VARIATION:
            slopes.append(float(np.polyfit(x, part, 1)[0]) * spread)
    contrast = Contrast(seed_interval(slopes), block_p_value(slopes), len(gap) * 2, len(per_context))
    return claimed(name, text, measure, contrast, SMALLEST_SUCCESS, beside)


def risk_bound(collapsed: int, runs: int, *, level: float = 0.95) -> float:
    """The one-sided upper bound of a risk (Clopper and Pearson 1934); 1 without any run."""
    from scipy.special import betaincinv

    if not runs or collapsed == runs:
        return 1.0
    return float(betaincinv(collapsed + 1, runs - collapsed, level))


def stability_margins(runs: RunTable) -> pd.DataFrame:
    """Per option the share that collapsed at every learning rate, and the largest with at most 20%.

    Counted where every option of the setting ran, all else equal; all runs where there is no such place.
    Columns: setting, option, alike (whether so), runs, one per learning rate (ascending; NaN where it did not
    run), margin (NaN where every one collapses more). Empty unless the study swept the learning rate.
    """
    if LEARNING_RATE not in runs.settings:
        return pd.DataFrame()
    rates = sorted(runs.order(LEARNING_RATE), key=float)
    rows = []
    for setting in runs.settings:
        if setting == LEARNING_RATE:
            continue
        table, alike = runs.side_by_side(setting)
        table = table[table["result"].astype(bool)]
        for option in runs.order(setting):
            mine = table[table[setting].astype(str) == option]
            shares = mine.groupby(mine[LEARNING_RATE].astype(str))["collapsed"].mean()
            row = {rate: float(shares.get(rate, np.nan)) for rate in rates}
            good = [float(rate) for rate, share in row.items() if share <= MARGIN_RISK]
            told = {"setting": setting, "option": option, "alike": alike, "runs": len(mine)}
            rows.append({**told, **row, "margin": max(good, default=np.nan)})
    return pd.DataFrame(rows)


def _of_area(found: Separation) -> Contrast:
    """An area as a distance from 0.5; its p-value compares the blocks in which runs collapsed."""
    area = found.area
    kind = area.kind if len(found.by_block) >= 5 else "range"
    effect = Interval(area.estimate - 0.5, area.low - 0.5, area.high - 0.5, kind, len(found.by_block))
    p = block_p_value(np.array(found.by_block) - 0.5)
    return Contrast(effect, p, found.cases + round(found.at_risk), 1, found.by_block)


def _interval(effect: Interval) -> str:
    return interval(effect) if effect.blocks else "no finished runs are alike"
