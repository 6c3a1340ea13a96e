"""What a study's statistics say, as sections of its report in markdown."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.conclusions import Conclusions, OptionSummary
from analysis.factorial import FactorialEffect
from analysis.markdown import code, escape, interval, listing, table
from analysis.measures import MEASURES, UNITS
from analysis.pairs import PairEffect
from analysis.precursors import STEPS_BEFORE, Separation
from analysis.resampling import LEAST_BLOCKS
from analysis.results import Cell
from analysis.transcripts import before_and_after, side_by_side
from analysis.verdicts import Claim

MOST_ROWS = 40
MOST_EFFECTS = 15
NO_SIZE = 0.0005
"""Effects below this would be printed as 0.000."""


def p_text(p: float | None) -> str:
    """`0.013`, `< 0.001`, or `-` where nothing was tested."""
    return "-" if p is None or p != p else f"{p:.3f}" if p >= 0.001 else "&lt; 0.001"


def verdicts(found: Conclusions) -> list[str]:
    """What is established, and the verdict on every claim that the study bears on."""
    established = found.established()
    blocks = []
    if established:
        blocks.append(
            "**Established** (beyond chance, corrected for the number of tests, and large enough to matter):"
        )
        blocks.append("\n".join(f"- {sentence}" for sentence in established))
    elif found.blocks >= LEAST_BLOCKS:
        blocks.append(
            "**Nothing is established:** no claim and no difference between options holds beyond chance."
        )
    claims = [*found.declared, *(claim for claim in found.findings if claim.verdict != "not testable")]
    if claims:
        blocks.append(_claims(claims))
        blocks.append(
            "Effects are positive where the claim holds. The verdicts are defined in the documentation, under"
            " *What the statistics mean*."
        )
    return blocks


def _claims(claims: Sequence[Claim], *, measures: bool = False) -> str:
    """A row per claim; measures: with what each is measured in."""
    header = ["claim", "verdict", "effect", "blocks", "runs", "p, corrected", "why"]
    rows = [
        [
            claim.text if claim.name != claim.text else escape(claim.text),
            f"**{claim.verdict}**",
            interval(claim.effect) if claim.effect else "-",
            str(claim.blocks or "-"),
            str(claim.runs or "-"),
            p_text(claim.p_holm),
            escape(claim.reason),
        ]
        for claim in claims
    ]
    if measures:
        header.insert(1, "measure")
        for row, claim in zip(rows, claims, strict=True):
            row.insert(1, claim.measure)
    return table(header, rows, right=(3 + measures, 4 + measures))


def findings(found: Conclusions) -> list[str]:
    """The six findings, one after the other, also those that cannot be tested here, and why."""
    if not found.findings:
        return []
    blocks = [
        table(
            ("", "finding", "verdict", "measure", "effect", "blocks", "runs", "p", "p, corrected"),
            [
                [
                    claim.name,
                    claim.text,
                    f"**{claim.verdict}**",
                    claim.measure,
                    interval(claim.effect) if claim.effect else "-",
                    str(claim.blocks or "-"),
                    str(claim.runs or "-"),
                    p_text(claim.p),
                    p_text(claim.p_holm),
                ]
                for claim in found.findings
            ],
            right=(5, 6),
        )
    ]
    lines = []
    for claim in found.findings:
        told = "; ".join([escape(claim.reason, 600), *claim.beside])
        lines.append(f"- **{claim.name}.** {told}.")
    blocks.append("\n".join(lines))
    if len(found.margins):
        blocks += ["### Stability margins", *_margins(found)]
    return blocks


def gates(found: Conclusions) -> list[str]:
    """Whether a sequence's ratio or a tight band stabilises, and the runs that say so."""
    if found.gates is None:
        return []
    arms = [
        [
            escape(arm.context),
            code(arm.level),
            arm.side,
            "-" if arm.tightness is None else f"{arm.tightness:.1%}",
            "-" if arm.gated is None else f"{arm.gated:.1%}",
            f"{arm.kl:.3f}",
            interval(arm.final, sign=False),
            f"{arm.collapsed} of {arm.results}",
        ]
        for arm in found.gates.arms
    ]
    return [
        f"**{found.gates.conclusion}**",
        _claims(found.gates.claims, measures=True),
        "Gates are compared where they are equally tight: in the first 16 updates of runs without a gate,"
        " equal shares of the tokens of a sign of the advantage lie outside. What they then hold back is"
        " their doing, and a check on the matching:",
        table(
            (
                "where",
                "gate",
                "side",
                "meant to hold back",
                "held back, of all tokens",
                "KL to old",
                "final success",
                "collapsed",
            ),
            arms,
            right=(3, 4, 5),
        ),
    ]


def _margins(found: Conclusions) -> list[str]:
    told = ("setting", "option", "alike", "runs", "margin")
    rates = [str(name) for name in found.margins.columns if name not in told]
    rows = [
        [
            code(row["setting"]) + ("" if row["alike"] else "\\*"),
            code(row["option"]),
            str(row["runs"]),
            *("-" if row[rate] != row[rate] else f"{row[rate]:.0%}" for rate in rates),
            "none" if row["margin"] != row["margin"] else f"**{row['margin']:g}**",
        ]
        for row in found.margins.to_dict("records")
    ]
    header = ("setting", "option", "runs", *(f"collapsed at {float(rate):g}" for rate in rates), "margin")
    return [
        table(header, rows, right=(2,)),
        "The share of runs that collapsed at each learning rate, where every option of the setting ran, all"
        " else equal (star: nowhere; all runs are counted, which differ in other settings too). Margin: the"
        " largest learning rate with at most 20%, so that no regime is picked after the fact.",
    ]


def effects(found: Conclusions) -> list[str]:
    """Main effects and interactions, then options over all runs, then pairs at equal budgets."""
    blocks = []
    for metric, fit in found.factorial.items():
        if not fit.effects:
            continue
        ranked = sorted(fit.effects, key=lambda effect: -effect.size)
        shown = [effect for effect in ranked if effect.size >= NO_SIZE][:MOST_EFFECTS]
        if metric == "final":
            blocks.append("### Main effects and interactions")
        mean = f"On {MEASURES[metric]} (mean {interval(fit.mean, sign=False)})"
        if not shown:
            blocks.append(f"{mean} nothing has an effect: all are below {NO_SIZE:.4f}.")
            continue
        blocks.append(f"{mean}:")
        blocks.append(
            table(
                ("effect", "size", "share", "largest deviations", "blocks", "p", "p, corrected"),
                [_effect_row(effect) for effect in shown],
                right=(1, 2, 4),
            )
        )
        if len(ranked) > len(shown):
            blocks.append(
                f"{len(ranked) - len(shown)} smaller ones are in [factorial.csv](tables/factorial.csv)."
            )
    if blocks:
        blocks.append(
            "Size: root mean square of the deviations from the mean, in the unit of the outcome. Share: of"
            " the variance between cells, for complete designs. Star: can only be told where there are no"
            " interactions."
        )
    hidden = next((fit.hidden for fit in found.factorial.values() if fit.hidden), ())
    alone = [name for name in hidden if " x " not in name]
    if hidden:
        names = listing([code(name) for name in alone or hidden], 10)
        rest = ", nor any interaction with them" if alone and len(alone) < len(hidden) else ""
        blocks.append(
            f"The cells of this study do not determine the effect of {names}{rest}: what can be said of them"
            " are the pairs above."
        )
    return blocks


def _effect_row(effect: FactorialEffect) -> list[str]:
    ranked = sorted(zip(effect.deviations, effect.levels, strict=True), key=lambda one: -abs(one[0].estimate))
    told = ", ".join(f"{code(' / '.join(level))} {interval(deviation)}" for deviation, level in ranked[:2])
    return [
        code(effect.name) + ("\\*" if effect.alone else ""),
        f"**{effect.size:.3f}**",
        "-" if effect.share != effect.share else f"{effect.share:.0%}",
        told,
        str(effect.blocks),
        p_text(effect.p),
        p_text(effect.p_holm),
    ]


def budgets(found: Conclusions) -> list[str]:
    """The pairs at equal budgets of each unit, with the probability of improvement."""
    if not found.pairs:
        return []
    units = [unit for unit in UNITS if any(f"final_{unit}" in pair.contrasts for pair in found.pairs)]
    header = (
        "axis",
        "from",
        "to",
        *(f"at equal {unit}s" for unit in units),
        "area",
        "improves",
        "p, corrected",
    )
    rows = [_budget_row(pair, units) for pair in found.pairs[: 2 * MOST_ROWS]]
    told = "; ".join(
        f"{escape(env)}: {budget:,.0f} {unit}s" for (env, unit), budget in found.runs.budgets.items()
    )
    return [
        "### At equal budgets",
        table(header, rows),
        f"Change in final success when runs are compared at equal budgets ({told}); in area under the curve"
        " over steps; the probability that a run with the second option ends higher than one with the first;"
        " the p-value of the change in final success, corrected for all rows.",
    ]


def _budget_row(pair: PairEffect, units: Sequence[str]) -> list[str]:
    def shown(measure: str) -> str:
        return interval(pair.contrasts[measure].effect) if measure in pair.contrasts else "-"

    return [
        code(pair.setting),
        code(pair.first),
        code(pair.second),
        *(shown(f"final_{unit}") for unit in units),
        shown("area"),
        interval(pair.improvement, sign=False),
        p_text(pair.p_holm),
    ]


def times_to_collapse(found: Conclusions) -> list[str]:
    """Every option: how many runs collapsed, how long they lasted, hazard ratios, log-rank tests."""
    if not found.runs.table["event"].any() or not found.options:
        return []
    rows = [_option_row(option, found) for option in found.options[: 2 * MOST_ROWS]]
    blocks = [
        table(
            ("setting", "option", "final success", "middle half", "collapsed", "steps until collapse",
             "hazard ratio", "p of the setting"),
            rows,
        )
    ]  # fmt: skip
    text = (
        "In runs where every option of a setting ran, all else equal (star: nowhere; all runs with an option,"
        " whatever else they are). Steps until collapse: restricted mean, of at most"
        f" {found.horizon:.0f}; healthy runs are censored at their last step. Middle half: interquartile"
        " mean."
    )
    if found.penalised is not None:
        text += " Hazard ratio: against the setting's first option, all settings in one Cox model"
        text += ", penalised because an option never collapsed." if found.penalised else "."
    if found.log_ranks:
        text += " p: log-rank test that the options of a setting collapse alike, corrected for all settings."
    excluded = sorted(found.runs.excluded.values())
    if failed := excluded.count("failed"):
        text += f" {failed} failed trials are not among the runs."
    return [*blocks, text]


def _option_row(option: OptionSummary, found: Conclusions) -> list[str]:
    if option.hazard is None:
        hazard = "-"
    elif option.hazard == (1.0, 1.0, 1.0):
        hazard = "1 (reference)"
    else:
        ratio, low, high = option.hazard
        hazard = f"{ratio:.2g} [{low:.2g}, {high:.2g}]"
    return [
        code(option.setting) + ("" if option.alike else "\\*"),
        code(option.option),
        interval(option.level, sign=False),
        "-" if not option.middle.blocks else f"{option.middle.estimate:.2f}",
        f"{option.collapsed} of {option.results}",
        "-" if option.lasted is None else f"{option.lasted:.1f}",
        hazard,
        p_text(found.log_ranks.get(option.setting)),
    ]


def what_came_first(found: Conclusions) -> list[str]:
    """The order of warnings before collapses, and which statistics separated runs in advance."""
    if not found.runs.table["event"].any():
        return []
    blocks = []
    cases = found.warnings[0].cases if found.warnings else 0
    if cases:
        blocks.append(
            table(
                ("warning", "before a collapse", "first of all", "steps ahead (median)", "false alarms"),
                [
                    [
                        order.name.replace("_", " "),
                        f"{order.preceded} of {order.cases}",
                        str(order.first),
                        "-" if order.lead is None else f"{order.lead:g}",
                        f"{order.false} of {order.healthy} healthy runs",
                    ]
                    for order in found.warnings
                ],
            )
        )
    else:
        blocks.append("Every collapse fell within the warm-up, before any warning could have fired.")
    return blocks


def separations(found: Conclusions) -> list[str]:
    """The areas under the ROC curves, at levels and relative to each run's own start."""
    if not found.levels:
        return [
            f"No collapse came late enough to look {STEPS_BEFORE[0]} steps back, with other runs still at"
            " risk."
        ]
    befores = sorted({one.before for one in found.levels})
    rows = []
    for name in dict.fromkeys(one.diagnostic.name for one in found.levels):
        row = [name]
        for group in (found.levels, found.changes):
            row += [_area(group, name, before) for before in befores]
        rows.append(row)
    header = (
        "statistic",
        *(f"{before} steps before" for before in befores),
        *(f"its change, {before} before" for before in befores),
    )
    cases = {one.before: max(o.cases for o in found.levels if o.before == one.before) for one in found.levels}
    counted = ", ".join(f"{count} at {before}" for before, count in sorted(cases.items()))
    risk = max(one.at_risk for one in found.levels)
    return [
        table(header, rows),
        "Area under the ROC curve: how often the run that was to collapse looked worse than a run at risk"
        " at the"
        f" same step (1: always, 0.5: a coin). Cases: {counted}; against up to {risk:.0f} runs at risk"
        " (median)."
        " Change: relative to the run's own first steps, which removes what merely tells methods apart. What"
        " collapses also shows in success itself: the last row is what a warning should beat.",
    ]


def _area(group: Sequence[Separation], name: str, before: int) -> str:
    for one in group:
        if one.diagnostic.name == name and one.before == before:
            return interval(one.area, sign=False)
    return "-"


def episodes(cells: Sequence[Cell]) -> list[str]:
    """Sampled episodes of before and after a collapse, side by side, as plain text."""
    blocks = []
    for pair in before_and_after(cells):
        label = next(cell.label for cell in cells if cell.id == pair.trial.cell)
        onset = pair.trial.verdict.onset
        blocks.append(
            f"### {escape(label)}, seed {pair.trial.seed}: before and after its collapse at step {onset}"
        )
        blocks.append(side_by_side(pair))
    return blocks
