"""The sections of a report that tell what the trials were and what became of them, in markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analysis.answer import level, outcomes
from analysis.effects import Effect, matched_effects
from analysis.markdown import code, escape, interval, listing, table
from analysis.measures import SURROUNDINGS
from analysis.paper import MODEL, SOURCE, published
from analysis.precursors import sequence_of_events
from analysis.results import BAD_ENDS, Cell, effect_table, environments
from analysis.study import Study, Trial

MOST_ROWS = 40


def method_tables(cells: Sequence[Cell]) -> list[str]:
    """Per environment a row for every method with a result: how it ended, every seed, and what it took."""
    blocks = []
    envs = environments(cells)
    for env in envs:
        if len(envs) > 1:
            blocks.append(f"### {escape(env)}")
        here = [cell for cell in cells if cell.env == env]
        shown = [cell for cell in here if cell.results] or here
        waiting = len(here) - len(shown)
        blocks.append(
            table(
                (
                    "method",
                    "final success",
                    "by seed",
                    "clone",
                    "outcomes",
                    "learned",
                    "collapse at step",
                    "minutes a trial",
                    "CPU-minutes",
                ),
                [_method_row(cell) for cell in shown],
                right=(7, 8),
            )
        )
        if waiting:
            blocks.append(
                f"{waiting} more {'methods have' if waiting > 1 else 'method has'} no result yet"
                " ([which](#trials-that-do-not-count))."
            )
    if any(cell.results for cell in cells):
        blocks.append(
            "Final success: mean over seeds of the last fifth of the evaluations; in brackets a 95% interval,"
            " in parentheses, with fewer than five seeds, their range. Star: stopped at its collapse, last"
            " value carried on. Learned: seeds that ended above their clone by more than chance. Minutes:"
            " training and evaluation on the clock; CPU-minutes: training."
        )
    return blocks


def _method_row(cell: Cell) -> list[str]:
    finals = [
        f"{trial.verdict.final:.2f}" + ("\\*" if trial.verdict.carried else "")
        for trial in cell.results
        if trial.verdict.final is not None
    ]
    onsets = [str(trial.verdict.onset) for trial in cell.results if trial.verdict.onset is not None]
    learned = f"{cell.count_learned(True)} of {len(cell.results)}" if cell.results else "-"
    wall = _mean_minutes(cell.results, ("time/step", "time/evaluation"))
    return [
        f"**{escape(cell.label)}**",
        level(cell.final),
        " ".join(finals) or "-",
        f"{cell.start.estimate:.2f}" if cell.start.blocks else "-",
        outcomes(cell),
        learned,
        ", ".join(onsets) or "-",
        wall,
        _mean_minutes(cell.results, ("time/cpu",)),
    ]


def _mean_minutes(trials: Sequence[Trial], metrics: Sequence[str]) -> str:
    seconds = [
        sum(
            float(frame[name].sum())
            for frame in (trial.train, trial.evaluations)
            for name in metrics
            if name in frame
        )
        for trial in trials
    ]
    return f"{sum(seconds) / len(seconds) / 60:.1f}" if any(seconds) else "-"


def what_happened(study: Study, cells: Sequence[Cell]) -> list[str]:
    """Every trial that collapsed or diverged, and why; at the end, records that would be judged otherwise."""
    names = _names(cells)
    bad = [trial for trial in study.trials if trial.status in BAD_ENDS]
    blocks = []
    if bad:
        rows = [
            [
                names[trial.cell],
                str(trial.seed),
                trial.status,
                _onset(trial),
                _warnings_before(trial),
                escape(
                    trial.outcome.reason if trial.outcome and trial.outcome.reason else trial.verdict.reason
                ),
            ]
            for trial in bad[:MOST_ROWS]
        ]
        blocks.append(table(("method", "seed", "outcome", "onset (step)", "warnings before it", "why"), rows))
        if len(bad) > MOST_ROWS:
            blocks.append(f"{len(bad) - MOST_ROWS} more are in [trials.csv](trials.csv).")
    elif any(trial.has_result for trial in study.trials):
        blocks.append("No trial with a result collapsed or diverged.")
    changed = [trial for trial in study.trials if trial.has_result and trial.verdict.outcome != trial.status]
    if changed:
        ids = listing([code(trial.id) for trial in changed], MOST_ROWS)
        blocks.append(
            f"Judged again from their records, {len(changed)} trials would have another outcome than was"
            f" recorded: {ids}. What was recorded counts."
        )
    return blocks


def _onset(trial: Trial) -> str:
    interval = trial.verdict.onset_interval
    return f"{interval[1]} (after {interval[0]})" if interval else "-"


def _warnings_before(trial: Trial) -> str:
    """Which warnings had fired before the onset, and by how many steps."""
    onset = trial.verdict.onset
    if onset is None:
        return "-"
    leads = [(name.replace("_", " "), onset - step) for name, step in sequence_of_events(trial)]
    parts = [f"{name} {lead} step{'s' if lead != 1 else ''} before" for name, lead in leads]
    watched = trial.verdict.warnings_from
    if not parts and (watched is None or onset <= watched):
        return "none possible, still warming up"
    return ", ".join(parts) or "none"


def single_changes(study: Study) -> list[str]:
    """Pairs of options in trials that differ in nothing else, and the axes of which nothing can be said."""
    effects_of = effect_table(study)
    if effects_of.empty:
        return []
    settings = [name for name in effects_of.columns if name not in ("block", "final", "collapsed")]
    rows, silent = [], []
    for axis in dict.fromkeys([*study.axes, *settings]):
        if axis.split(".")[0] in SURROUNDINGS:
            continue
        effects: list[Effect] = []
        if axis in settings:
            others = [name for name in settings if name != axis]
            effects = matched_effects(effects_of, axis, others=others, order=study.axes.get(axis, ()))
        if not effects and axis in study.axes:
            silent.append(code(axis))
        rows += [_effect_row(effect) for effect in effects]
    blocks = []
    if rows:
        header = ("axis", "from", "to", "change in final success", "by seed", "collapsed", "pairs")
        blocks.append(table(header, rows[: 2 * MOST_ROWS]))
        blocks.append(
            "Pairs of trials that share everything else: environment, seed, clone and every other setting."
            " Positive: the option in *to* ended higher. Pairs of one seed are averaged first; brackets are a"
            " 95% interval over seeds, parentheses their range. Collapsed: trials of these pairs that"
            " collapsed or diverged, *from* against *to*."
        )
    if silent:
        blocks.append(
            f"Nothing can be said of {', '.join(silent)}: no two finished trials differ in it alone. Methods"
            " that differ in several axes at once cannot tell them apart."
        )
    return blocks


def _effect_row(effect: Effect) -> list[str]:
    blocks = effect.by_block()
    estimate, _, reach = interval(effect.difference).partition(" ")
    shown = [f"{value:+.2f}" for value in blocks.values()]
    total = len(effect.pairs)
    return [
        code(effect.axis),
        code(effect.first),
        code(effect.second),
        f"**{estimate}** {reach}".rstrip(),
        " ".join(shown[:10]) + (" …" if len(shown) > 10 else ""),
        f"{effect.first_collapsed} of {total} against {effect.second_collapsed} of {total}",
        str(total) + (f" in {effect.contexts} surroundings" if effect.contexts > 1 else ""),
    ]


def _names(cells: Sequence[Cell]) -> dict[str, str]:
    """The escaped label of every cell, with its environment where there are several."""
    several = len(environments(cells)) > 1
    return {cell.id: escape(f"{cell.label}, {cell.env}" if several else cell.label) for cell in cells}


def not_counted(study: Study, cells: Sequence[Cell]) -> list[str]:
    """Planned trials without a result, trials outside the plan, records that were damaged."""
    called = _names(cells)
    blocks = []
    missing = [trial for trial in study.trials if not trial.has_result]
    if missing:
        alike: dict[tuple[str, str, str], list[Trial]] = {}
        for trial in missing:
            alike.setdefault((called[trial.cell], trial.status, _why(trial)), []).append(trial)
        rows = [
            [
                name,
                " ".join(str(trial.seed) for trial in trials),
                status,
                why,
                " ".join(code(trial.id) for trial in trials),
            ]
            for (name, status, why), trials in alike.items()
        ]
        blocks.append(table(("method", "seeds", "state", "why", "trials"), rows))
    elif study.trials:
        blocks.append(f"None: all {len(study.trials)} planned trials have a result.")
    if study.others:
        names = [f"{escape(t.label)} seed {t.seed} ({t.status}, {code(t.id)})" for t in study.others]
        blocks.append(
            f"In the study's folder but not in its last plan, so not counted, {len(names)} trials:"
            f" {listing(names, MOST_ROWS)}."
        )
    damaged = [
        f"{code(trial.id)}: {escape('; '.join(trial.problems))}"
        for trial in study.trials
        if trial.problems and trial.status not in ("missing", "unavailable")
    ]
    if damaged or study.problems:
        blocks.append("\n".join(f"- {line}" for line in [*map(escape, study.problems), *damaged]))
    return blocks


def _why(trial: Trial) -> str:
    if trial.outcome is not None and trial.outcome.reason:
        return escape(trial.outcome.reason)
    seen = max(
        (int(frame.index.max()) for frame in (trial.train, trial.evaluations) if len(frame)), default=0
    )
    return {
        "unfinished": f"has records up to step {seen} but no outcome: it still runs, or was killed",
        "missing": "never started",
        "unavailable": "could not run on this machine",
    }.get(trial.status, f"ended at step {seen}")


def beside_the_paper(cells: Sequence[Cell]) -> list[str]:
    """The paper's numbers of the same method in the same environment, where there are any."""
    rows = [
        [escape(cell.label), escape(cell.env), level(cell.final), text]
        for cell in cells
        if cell.final.blocks and (text := published(cell.env, cell.methods)) is not None
    ]
    if not rows:
        return []
    return [
        table(("method", "environment", "here, final success", f"paper, success in % ({MODEL})"), rows),
        f"The paper ({SOURCE}) trains {MODEL} on one seed, without error bars; model, scale and data differ"
        " from ours. Compare the order of methods, not the numbers.",
    ]


def thresholds(study: Study) -> list[str]:
    """The thresholds of collapse that the trials ran under, and what they mean."""
    rules = list(dict.fromkeys(trial.rule for trial in study.trials))
    if not rules:
        return []
    names = list(rules[0].to_dict())
    blocks = []
    if len(rules) > 1:
        blocks.append(f"**The trials ran under {len(rules)} different rules.**")
    rows = [[code(name), *(f"{rule.to_dict()[name]}" for rule in rules)] for name in names]
    counts = [sum(trial.rule == rule for trial in study.trials) for rule in rules]
    header = ["`collapse.`", *(f"{count} trials" for count in counts)]
    blocks.append(table(header, rows))
    blocks.append(_definitions())
    return blocks


def _definitions() -> str:
    lines: Iterable[str] = (
        "m is the mean success of the last `window` evaluations; a standard error (SE) comes from p(1-p)/n.",
        "**collapsed**: for `patience` evaluations in a row, m at least max(`best_share` x best,"
        " `best_floor`, `standard_errors` SE) below its best; or m at least max(`start_floor`,"
        " `standard_errors` SE) below the clone; or well-formed responses below `format_broken` after"
        " having been above `format_healthy`.",
        "**diverged**: a loss or gradient was not finite.",
        "**stable**: neither, and over the last evaluations success varied around a line by less than"
        " `stable_variance` beyond sampling; else **unstable**; **undecided** with fewer than 5 evaluations.",
        "**learned**: the last fifth of the evaluations at least max(`learned_floor`, `standard_errors` SE)"
        " above the clone.",
    )
    return "\n".join(f"- {line}" for line in lines)
