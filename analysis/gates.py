"""Tight band or sequence level? Runs of the `gated` option, compared where their gates are equally tight.

Sequence clipping differs from token clipping twice over: its ratio is a sequence's, and its band holds back
far more. Gates of both levels are matched by how much they hold back *before* they act: tightness is the
share of tokens that lie outside in the first updates of runs without any gate, alike in everything else
(`analysis.calibration`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.arms import difference, restricted
from analysis.calibration import LEVELS, SHARES, SIDES, outside, within
from analysis.factors import settings
from analysis.measures import RunTable
from analysis.resampling import Interval, seed_interval
from analysis.study import Trial
from analysis.verdicts import SMALLEST_RISK, SMALLEST_SUCCESS, Claim, Verdict, claimed, judged

AXIS = "is_clipping"
LEVEL, TIGHTNESS, SIDE = "gate level", "tightness", "gated side"
"""What the clipping axis is taken apart into."""
TOKEN, SEQUENCE, RANDOM = "token", "sequence", "token at random"
TIGHT = 0.1
"""A gate with at least this share outside is called tight."""
EARLY_STEPS = 2
LEAST_SHARE = 0.001
"""With less outside, a gate does nothing: at one update per rollout all ratios are 1."""


@dataclass(frozen=True)
class Arm:
    """One gate in one context: what it was meant to hold back, what it did, and what became of its runs.

    tightness: None where no run without a gate tells it. gated: realised share of tokens beyond the gate, by
    steps, None for a random gate, which has no edge; kl: to the old policy, nats per token, by steps;
    early_kl: the same of the first `EARLY_STEPS` steps, before most collapses.
    """

    context: str
    level: str
    side: str
    tightness: float | None
    gated: float | None
    kl: float
    early_kl: float
    final: Interval
    collapsed: int
    results: int


@dataclass(frozen=True)
class Gates:
    """What a study says of gates. `claims` is a family of its own; `conclusion` sums it up."""

    claims: tuple[Claim, ...]
    arms: tuple[Arm, ...]
    conclusion: str


def judge_gates(runs: RunTable, trials: Sequence[Trial]) -> Gates | None:
    """Compare gates of equal tightness; None where the study has no gated runs. trials: of the run table."""
    if not any(_option(trial) == "gated" for trial in trials):
        return None
    shares = nominal_shares(trials)
    apart = _taken_apart(runs, trials, shares)
    claims = judged(_claims(apart))
    return Gates(tuple(claims), tuple(_arms(apart, trials, shares)), _conclusion(claims))


def nominal_shares(trials: Sequence[Trial]) -> dict[str, float]:
    """By cell of a gated run, the share of tokens outside its gate in runs without one, else alike.

    A gate on both sides has the mean of both. Cells without such runs are left out.
    """
    ungated: dict[str, list[Trial]] = {}
    for trial in trials:
        if _option(trial) == "none" and trial.has_result:
            ungated.setdefault(_around(trial), []).append(trial)
    found: dict[str, float] = {}
    for trial in trials:
        if _option(trial) != "gated" or trial.cell in found:
            continue
        of_sides = [
            share
            for side in SIDES
            if (gate := _gate(trial, side)) is not None
            and (share := _share(gate, side, ungated.get(_around(trial), []))) is not None
        ]
        if of_sides:
            found[trial.cell] = float(np.mean(of_sides))
    return found


def _share(gate: Mapping[str, Any], side: str, ungated: Sequence[Trial]) -> float | None:
    if gate.get("share") is not None:
        return float(gate["share"])
    histograms = within(ungated, f"{LEVELS[gate['level']]}/{SIDES[side]}")
    return None if histograms is None else outside(histograms, float(gate["eps"]), side)


def _taken_apart(runs: RunTable, trials: Sequence[Trial], shares: Mapping[str, float]) -> RunTable:
    """The run table with the clipping axis as three settings: level, tightness and side of the gate."""
    of_trial = {trial.id: trial for trial in trials}
    parts = [_parts(of_trial[str(name)], shares) for name in runs.table.index]
    table = runs.table.assign(**dict(zip((LEVEL, TIGHTNESS, SIDE), zip(*parts, strict=True), strict=True)))
    others = tuple(name for name in runs.settings if name != AXIS)
    return replace(runs, table=table, settings=(LEVEL, TIGHTNESS, SIDE, *others))


def _parts(trial: Trial, shares: Mapping[str, float]) -> tuple[str, str, str]:
    if _option(trial) != "gated":
        return trial.options.get(AXIS, ""), "-", "-"
    gates = {side: gate for side in SIDES if (gate := _gate(trial, side)) is not None}
    side = "both" if len(gates) == 2 else next(iter(gates), "none")
    share = shares.get(trial.cell)
    tightness = "?" if share is None else "none" if share < LEAST_SHARE else f"{_nearest(share):.0%}"
    return _level(trial, gates), tightness, side


def _level(trial: Trial, gates: Mapping[str, Mapping[str, Any]]) -> str:
    """`token` or `sequence` where weight and gates agree, else what each is."""
    weight = str(trial.config[AXIS].get("weight", "token"))
    levels = {
        str(gate["level"]) + (" at random" if gate.get("share") is not None else "")
        for gate in gates.values()
    }
    gate = " and ".join(sorted(levels)) or "none"
    return gate if gate.removesuffix(" at random") == weight else f"{gate}, weight {weight}"


def _nearest(share: float) -> float:
    """The intended share that a share is nearest to, in its logarithm."""
    return min(SHARES, key=lambda intended: abs(np.log(share / intended)))


def _claims(runs: RunTable) -> list[Claim]:
    """The primary comparisons: level at equal tightness, tightness at equal level, which tokens."""
    known = [f"{share:.0%}" for share in SHARES]
    tight = [f"{share:.0%}" for share in SHARES if share >= TIGHT]
    loose = [label for label in known if label not in tight]
    matched = restricted(runs, {TIGHTNESS: known, SIDE: ["both"]})
    levels = {TOKEN: (TOKEN,), SEQUENCE: (SEQUENCE,)}
    of_level = restricted(matched, {LEVEL: [TOKEN, SEQUENCE]})
    widths = {"loose": loose, "tight": tight}
    draws = {"random": (RANDOM,), "gate": (TOKEN,)}
    claims = []
    for name, text, setting, arms, table in (
        ("level", "A sequence gate {} than a token gate that is as tight", LEVEL, levels, of_level),
        (
            "tightness",
            "A tight gate (20%, 50%) {} than a loose one (1%, 5%) of its level",
            TIGHTNESS,
            widths,
            of_level,
        ),
        ("which tokens", "A token gate {} than one that holds back as many at random", LEVEL, draws, matched),
    ):
        for metric, verb, smallest in (
            ("final", "ends higher", SMALLEST_SUCCESS),
            ("healthy", "collapses less", SMALLEST_RISK),
        ):
            contrast = difference(table, setting, arms, metric)
            measure = "final success" if metric == "final" else "share that did not collapse"
            claims.append(claimed(name, text.format(verb), measure, contrast, smallest))
    return claims


def _conclusion(claims: Sequence[Claim]) -> str:
    """What tightness and level were found to do, in success or in collapse, in one sentence."""
    tight, level = (_does([c.verdict for c in claims if c.name == name]) for name in ("tightness", "level"))
    found = [name for name, does in (("tight band", tight), ("sequence level", level)) if does == "helps"]
    lead = f"The {' and the '.join(found)}" if found else "Neither was shown to help"
    return f"{lead}: a tight gate {tight}, and at equal tightness a sequence's gate {level}."


def _does(verdicts: Sequence[Verdict]) -> str:
    found = {"supported", "contradicted"}.intersection(verdicts)
    if len(found) == 2:
        return "helps in one measure and hurts in the other"
    if found:
        return "helps" if "supported" in found else "hurts"
    return "makes no difference" if set(verdicts) == {"no effect"} else "was not shown to matter"


def _arms(runs: RunTable, trials: Sequence[Trial], shares: Mapping[str, float]) -> list[Arm]:
    of_trial = {trial.id: trial for trial in trials}
    others = [name for name in runs.settings if name not in (LEVEL, TIGHTNESS, SIDE)]
    labels = [
        runs.table["surroundings"],
        *(f"{name.rpartition('.')[2]} " + runs.table[name].astype(str) for name in others),
    ]
    context = pd.Series(
        [", ".join(filter(None, parts)) for parts in zip(*labels, strict=True)], runs.table.index
    )
    found = []
    for (where, _), table in runs.table.groupby([context, "cell"], sort=False):
        members = [of_trial[str(name)] for name in table.index]
        results = table[table["result"].astype(bool)]
        first = members[0]
        found.append(
            Arm(
                context=str(where),
                level=str(table[LEVEL].iloc[0]),
                side=str(table[SIDE].iloc[0]),
                tightness=shares.get(first.cell),
                gated=_gated(members),
                kl=float(np.mean([_mean(trial, "train/kl_old") for trial in members])),
                early_kl=float(np.mean([_mean(trial, "train/kl_old", EARLY_STEPS) for trial in members])),
                final=seed_interval(results.groupby("block")["final"].mean()),
                collapsed=int(results["collapsed"].sum()),
                results=len(results),
            )
        )
    return found


def _gated(trials: Sequence[Trial]) -> float | None:
    """Beyond the gate, of all tokens of steps: what an option without an edge has none of."""
    if _option(trials[0]) == "gated" and any(
        (gate := _gate(trials[0], side)) is not None and gate.get("share") is not None for side in SIDES
    ):
        return None
    return float(np.mean([_mean(t, "train/clip_low") + _mean(t, "train/clip_high") for t in trials]))


def _mean(trial: Trial, metric: str, steps: int | None = None) -> float:
    return float(trial.train[metric].iloc[:steps].mean()) if metric in trial.train else float("nan")


def _option(trial: Trial) -> str:
    section = trial.config.get(AXIS)
    return str(section.get("option", "")) if isinstance(section, Mapping) else ""


def _gate(trial: Trial, side: str) -> Mapping[str, Any] | None:
    gate = trial.config[AXIS].get(side)
    return gate if isinstance(gate, Mapping) else None


def _around(trial: Trial) -> str:
    """Its settings without the clipping axis, as text."""
    return json.dumps(
        {key: value for key, value in settings(trial.config).items() if key != AXIS}, sort_keys=True
    )
