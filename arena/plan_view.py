"""A plan as people read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from arena.labels import settings_text
from arena.plan import Estimable, PlannedTrial, Progress, Study

MOST_ROWS = 60
"""Cells shown of a large plan; the totals below the table cover all of them."""

MOST_GROUPS, MOST_NAMES = 6, 8
"""Groups of effects shown, and names in a list."""

STATE_STYLES: Mapping[str, str] = {
    "done": "green",
    "running": "cyan",
    "pending": "",
    "interrupted": "yellow",
    "failed": "red",
    "unavailable": "magenta",
}


def plan_view(study: Study) -> RenderableType:
    """The plan: its cells, how far they are, what is left to do and what stands in the way."""
    cells: dict[str, list[PlannedTrial]] = {}
    for trial in study.trials:
        if not trial.search:
            cells.setdefault(trial.cell, []).append(trial)
    parts: list[RenderableType] = [Text(study.name, style="bold")]
    if study.question:
        parts.append(Text(study.question))
    if cells or not study.searches:
        parts.append(_table(study, cells))
    if len(cells) > MOST_ROWS:
        parts.append(Text(f"... and {len(cells) - MOST_ROWS:,} more cells"))
    parts += [Text(line) for line in design_lines(study.design, study.estimable)]
    parts.extend(_summary(study, cells))
    return Group(*parts)


def _table(study: Study, cells: Mapping[str, list[PlannedTrial]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("point", overflow="fold")
    table.add_column("env")
    table.add_column("cell")
    table.add_column("seeds")
    table.add_column("state")
    table.add_column("time", justify="right")
    for cell, trials in list(cells.items())[:MOST_ROWS]:
        left = [seconds for trial in trials if (seconds := study.estimate.trial_seconds.get(trial.id))]
        table.add_row(
            Text(trials[0].label),
            trials[0].env,
            cell,
            seeds_text([trial.seed for trial in trials]),
            states_text(trial.state for trial in trials),
            f"{len(left)} x {duration(left[0])}" if left else "",
        )
    return table


def _summary(study: Study, cells: Mapping[str, list[PlannedTrial]]) -> list[RenderableType]:
    estimate = study.estimate
    compared = [trial for trials in cells.values() for trial in trials]
    count = f"{_count(len(compared), 'trial')} ({_count(len(cells), 'cell')}): "
    lines: list[RenderableType] = []
    if compared or not study.searches:
        lines.append(Text(count).append_text(states_text(trial.state for trial in compared)))
    lines += tuning_lines(study)
    if estimate.seconds:
        gpus = f", {estimate.gpu_hours:,.1f} GPU-hours" if estimate.gpu_hours else ""
        time = f"About {duration(estimate.seconds)} with {estimate.at_once} at once{gpus}"
        lines.append(Text(f"{time} ({estimate.source})."))
    if estimate.unavailable:
        lines.append(Text(f"{estimate.unavailable}."))
    if estimate.memory:
        lines.append(Text(f"A trial takes {estimate.memory}, by count."))
    lines += [Text(f"warning: {warning}", style="yellow") for warning in estimate.warnings]
    if (rule := study.replication) is not None:
        added = "no more seeds are to come"
        if estimate.most_added:
            time = duration(estimate.added_seconds)
            added = f"at most {_count(estimate.most_added, 'more trial')}, about {time}"
        goal = f"until its 95% interval of final success is at most {rule.ci_width:g} wide"
        lines.append(Text(f"Every cell has {rule.least} to {rule.most} seeds, {goal}: {added}."))
    problems = dict.fromkeys(
        f"{trial.env}: {problem}" for trial in study.trials for problem in trial.problems
    )
    lines += [Text(f"unavailable: {problem}", style="magenta") for problem in problems]
    lines += [Text(f"over budget: {reason}", style="red") for reason in study.over_budget]
    return lines


def tuning_lines(study: Study) -> list[RenderableType]:
    """What is tuned before it is run, and how far that is."""
    lines: list[RenderableType] = []
    if not study.searches:
        return lines
    states = states_text(trial.state for trial in study.trials if trial.search)
    keys = {f"{key.name} ({key.text})": None for search in study.searches for key in search.keys}
    most = sum(search.most_trials for search in study.searches)
    each = study.searches[0].candidates
    tuned, rest = study.estimate.tuning_seconds, study.estimate.seconds
    cost = f", about {duration(tuned)} of {duration(rest)}" if tuned else ""
    head = (
        f"Tuning first: {len(study.searches)} x {_count(each, 'candidate')} over"
        f" {'; '.join(keys)}, {_count(most, 'trial')}{cost}"
    )
    lines.append(Text(head + (": " if states else "")).append_text(states))
    for search in study.searches:
        progress = study.progress.get(search.id) or Progress(search.id)
        chosen = progress.chosen
        ended = sum(one.state != "running" for one in progress.candidates)
        told = f"{ended} of {search.candidates} candidates tried"
        if chosen is not None:
            told = f"{values_text(chosen.values)} chosen, {'stable' if chosen.stable else 'not stable'}"
        elif progress.finished:
            told = "no candidate has a result; look at their logs and change `tuning`"
        compared = _count(len(search.cells) * len(study.seeds), "trial")
        after = "" if progress.finished else f", then {compared} with the best values"
        lines.append(Text(f"  {search.label}: {told}{after}"))
    return lines


def values_text(values: Mapping[str, Any]) -> str:
    """Values of keys as labels have them: `learning_rate=3e-4, hi=4`."""
    return ", ".join(settings_text({tuple(name.split(".")): value for name, value in values.items()}))


def design_lines(design: str, shown: Estimable) -> list[str]:
    """What the cells of a design can show and what they cannot; nothing when no two factors vary."""
    factors = shown.factors
    if len(factors) < 2:
        return []
    pairs = len(factors) * (len(factors) - 1) // 2
    if len(shown.main) == len(factors) and len(shown.interactions) == pairs:
        effects = f"all main effects and two-factor interactions of {_listed(factors)}"
        return [f"Design {design} tells apart {effects} (D-efficiency {shown.d_efficiency:.0%})."]
    if not shown.main:
        together = f"Design {design} changes {_listed(factors)} together"
        return [f"{together}: cells can be compared, no difference can be put down to one of these."]
    groups = shown.aliased if len(shown.aliased) > 1 else ()
    mixed = " | ".join(_listed(group) for group in groups[:MOST_GROUPS])
    lines = {
        "main effects": _listed(shown.clear),
        "main effects if nothing interacts": _listed([one for one in shown.main if one not in shown.clear]),
        "no main effect of its own": _listed([one for one in factors if one not in shown.main]),
        "interactions": _listed(shown.interactions) or ("none" if shown.complete else "not looked into"),
        "mixed up": mixed + (f" | {len(groups) - MOST_GROUPS} more" if len(groups) > MOST_GROUPS else ""),
    }
    efficiency = f" (D-efficiency {shown.d_efficiency:.0%})" if shown.d_efficiency else ""
    return [
        f"Design {design} tells apart{efficiency}",
        *(f"  {what}: {effects}" for what, effects in lines.items() if effects),
    ]


def _listed(names: Sequence[str]) -> str:
    more = f", {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def states_text(states: Iterable[str]) -> Text:
    """How many there are of each state: `3 done, 1 failed`."""
    counts = Counter(states)
    parts = [
        Text(f"{counts[state]:,} {state}", style) for state, style in STATE_STYLES.items() if counts[state]
    ]
    return Text(", ").join(parts)


def seeds_text(seeds: Iterable[int]) -> str:
    """Seeds, runs of them written as one: `0-2, 7`."""
    parts: list[list[int]] = []
    for seed in sorted(seeds):
        if parts and seed == parts[-1][1] + 1:
            parts[-1][1] = seed
        else:
            parts.append([seed, seed])
    shown = [str(low) if low == high else f"{low}-{high}" for low, high in parts]
    return ", ".join(shown[:6]) + (", ..." if len(shown) > 6 else "")


def duration(seconds: float) -> str:
    """A time as people say it: `45 s`, `12 min`, `3 h 20 min`, `5 d 4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def console(*, stderr: bool = False) -> Console:
    """A console; where there is no terminal its lines are long enough for a table."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=140)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
