"""The hypotheses that a grid declared, tested on the runs of its study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analysis.arms import (
    NOTHING_ALIKE,
    Contrast,
    collapse_contrast,
    difference,
    difference_of_differences,
    restricted,
)
from analysis.hypotheses import Hypothesis, HypothesisError, Vocabulary, parse
from analysis.measures import MEASURES, RunTable
from analysis.verdicts import (
    NO_PARTNERS,
    SMALLEST_RISK,
    SMALLEST_SUCCESS,
    Claim,
    claimed,
    judged,
    not_testable,
)


def judge_hypotheses(texts: Sequence[str], runs: RunTable) -> list[Claim]:
    """The verdicts on hypotheses; they are one family: p-values are corrected for their number.

    Those that name what the study's runs do not have are not testable.
    """
    vocabulary = vocabulary_of(runs)
    return judged([_claim(text, vocabulary, runs) for text in texts])


def vocabulary_of(runs: RunTable) -> Vocabulary:
    """The names that the runs of a study answer to."""
    methods = dict.fromkeys(name for names in runs.table["methods"] for name in names)
    labels = dict.fromkeys(map(str, runs.table["label"]))
    options = {axis: list(options) for axis, options in runs.axes.items()}
    for setting in runs.settings:
        # what was planned and never ran has a name as well
        options[setting] = list(dict.fromkeys([*options.get(setting, ()), *runs.order(setting)]))
    return Vocabulary(options, [*methods, *(label for label in labels if label not in methods)])


def _claim(text: str, vocabulary: Vocabulary, runs: RunTable) -> Claim:
    try:
        hypothesis = parse(text, vocabulary)
    except HypothesisError as error:
        return not_testable(text, text, "-", str(error))
    contrast, measure, smallest = _tested(hypothesis, restricted(runs, hypothesis.where))
    if not contrast.blocks:
        reason = NO_PARTNERS if hypothesis.first.setting else "one of the methods has no finished run"
        return not_testable(text, text, measure, reason)
    matches = hypothesis.form == "matches"
    return claimed(text, text, measure, contrast, smallest, claims_nothing=matches)


def _tested(hypothesis: Hypothesis, runs: RunTable) -> tuple[Contrast, str, float]:
    """The contrast that is positive where the hypothesis holds, what it measures, its smallest effect."""
    first, second = hypothesis.first, hypothesis.second
    if hypothesis.third is not None:
        reference = [o for o in runs.order(first.setting) if o not in first.options][:1]
        arms = {"without": reference, "with": first.options}
        levels = {"third": hypothesis.third.options, "second": second.options}
        column, measure = _measure(hypothesis)
        smallest = SMALLEST_RISK if column == "healthy" else SMALLEST_SUCCESS
        if not reference:
            return NOTHING_ALIKE, measure, smallest
        contrast = difference_of_differences(runs, first.setting, arms, second.setting, levels, column)
        return contrast, f"gain in {measure} over {reference[0]}", smallest
    if not first.setting:
        runs = _of_methods(runs, first.name, second.name)
    setting = first.setting or "method"
    arms = {"second": second.options, "first": first.options}
    if hypothesis.form == "collapses before":
        earlier = collapse_contrast(runs, setting, {"first": first.options, "second": second.options})
        measure = "steps until collapse (restricted mean), second minus first"
        return earlier, measure, SMALLEST_RISK * earlier.horizon
    if hypothesis.form.startswith("collapses"):
        less = hypothesis.form == "collapses less than"
        ordered = arms if less else dict(reversed(arms.items()))
        return difference(runs, setting, ordered, "healthy"), "share of runs that collapsed", SMALLEST_RISK
    column, measure = _measure(hypothesis)
    smallest = SMALLEST_RISK if column == "healthy" else SMALLEST_SUCCESS
    return difference(runs, setting, arms, column), measure, smallest


def _measure(hypothesis: Hypothesis) -> tuple[str, str]:
    measure = MEASURES[hypothesis.metric]
    if hypothesis.unit is None:
        return hypothesis.metric, measure
    return f"{hypothesis.metric}_{hypothesis.unit}", f"{measure} at equal {hypothesis.unit}s"


def _of_methods(runs: RunTable, *names: str) -> RunTable:
    """Only the runs of these methods, with the method as their one setting."""
    table = runs.table.copy()
    table["method"] = [
        next((name for name in names if name in methods or name == label), "")
        for methods, label in zip(table["methods"], table["label"], strict=True)
    ]
    return replace(runs, table=table[table["method"] != ""], settings=("method",))
