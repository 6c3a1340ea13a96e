"""The answer of a study in sentences, made from its numbers alone."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.markdown import code, escape, listing
from analysis.resampling import LEAST_BLOCKS, Interval
from analysis.results import BAD_ENDS, Cell, environments
from analysis.study import Study

MOST_NAMED, FEW = 12, 3
"""Up to so many methods are all named; of more, so many of each kind."""


def answer(study: Study, cells: Sequence[Cell]) -> list[str]:
    """Paragraphs of markdown: how many trials count, what ended highest, what collapsed, how sure that is."""
    results = sum(len(cell.results) for cell in cells)
    planned = len(study.trials)
    if not results:
        return [f"**Nothing can be said yet:** none of the {planned} planned trials has a result."]
    paragraphs = []
    if results < planned:
        paragraphs.append(
            f"**Incomplete:** {results} of {planned} planned trials have a result. The others are named"
            " [below](#trials-that-do-not-count); nothing here speaks for them."
        )
    envs = environments(cells)
    for env in envs:
        here = [cell for cell in cells if cell.env == env and cell.results]
        if here:
            prefix = f"**{escape(env)}.** " if len(envs) > 1 else ""
            ranking, counts = _ranking(here), _counts_of_all(here)
            if len(here) > MOST_NAMED:
                paragraphs += [prefix + " ".join(ranking), "\n".join(f"- {line}" for line in counts)]
            else:
                paragraphs.append(prefix + " ".join([*ranking, *counts]))
    paragraphs.append(_caution(study, cells))
    return paragraphs


def level(interval: Interval) -> str:
    """`0.78 [0.75, 0.81]` with an interval, `0.78 (0.77 to 0.80)` with a range, `0.78` with a single seed."""
    if not interval.blocks:
        return "-"
    text = f"{interval.estimate:.2f}"
    if interval.kind == "interval":
        return f"{text} [{interval.low:.2f}, {interval.high:.2f}]"
    return f"{text} ({interval.low:.2f} to {interval.high:.2f})" if interval.blocks > 1 else text


def outcomes(cell: Cell) -> str:
    """`2 collapsed, 1 stable`: how many trials of a cell came to what, results first."""
    statuses = dict.fromkeys((*BAD_ENDS, "unstable", "undecided", "stable"))
    statuses |= dict.fromkeys(trial.status for trial in cell.trials)
    return ", ".join(f"{count} {status}" for status in statuses if (count := cell.count(status)))


def _counts_of_all(cells: Sequence[Cell]) -> list[str]:
    """What came to what, a sentence for each kind of end."""
    sentences: list[str] = []
    told: set[str] = set()

    def say(text: str, group: Sequence[Cell], names: Sequence[str]) -> None:
        if group:
            told.update(cell.id for cell in group)
            many = len(cells) > MOST_NAMED
            count = f" ({len(group)} of {len(cells)})" if many else ""
            sentences.append(f"{text}{count}: {listing(names, FEW if many else MOST_NAMED)}.")

    def tell(group: Sequence[Cell], text: str) -> None:
        say(text, group, [_name(cell) for cell in group])

    def all_seeds(cell: Cell, count: int) -> bool:
        return count == len(cell.results)

    tell(
        [c for c in cells if all_seeds(c, c.count("stable")) and all_seeds(c, c.count_learned(True))],
        "Stable and above the clone with every seed",
    )
    tell([c for c in cells if all_seeds(c, c.count(*BAD_ENDS))], "Collapsed or diverged with every seed")
    tell(
        [c for c in cells if not c.count(*BAD_ENDS) and all_seeds(c, c.count_learned(False))],
        "Neither collapsed nor above the clone with any seed",
    )
    rest = [cell for cell in cells if cell.id not in told]
    say("Others" if told else "Outcomes", rest, [f"{_name(cell)} ({_counts(cell)})" for cell in rest])
    return sentences


def _counts(cell: Cell) -> str:
    return f"{outcomes(cell)}; {cell.count_learned(True)} of {len(cell.results)} learned"


def _ranking(cells: Sequence[Cell]) -> list[str]:
    """Who ended highest and lowest, and whether their seeds keep them apart."""
    ranked = [cell for cell in cells if cell.final.blocks]
    if not ranked:
        return []
    best, worst = ranked[0], ranked[-1]
    sentences = [f"**{_name(best)}** ended highest: {_ending(best)}."]
    if len(ranked) == 1:
        return sentences
    second = ranked[1]
    compared = best.final.blocks > 1 and second.final.blocks > 1
    if compared and min(best.finals.values()) > max(second.finals.values()):
        sentences.append(f"All its seeds ended above all of the next, {_name(second)}: {_ending(second)}.")
    elif compared:
        sentences.append(
            f"Its seeds overlap with those of the next, {_name(second)}, so their order is open:"
            f" {_ending(second)}."
        )
    if worst is not second or not compared:
        sentences.append(f"{_name(worst)} ended lowest: {_ending(worst)}.")
    return sentences


def _ending(cell: Cell) -> str:
    """`success 0.78, seeds from 0.76 to 0.80, where its clone had 0.31`."""
    values = list(cell.finals.values())
    text = f"success {cell.final.estimate:.2f}"
    if cell.final.kind == "interval":
        text += f", 95% interval {cell.final.low:.2f} to {cell.final.high:.2f}"
    elif len(values) > 1:
        text += f", seeds from {min(values):.2f} to {max(values):.2f}"
    return text + (f", where its clone had {cell.start.estimate:.2f}" if cell.start.blocks else "")


def _name(cell: Cell) -> str:
    """Marked off from the next one in a list where it has a comma itself."""
    return code(cell.label) if "," in cell.label else escape(cell.label)


def _caution(study: Study, cells: Sequence[Cell]) -> str:
    counts = sorted({len(cell.finals) for cell in cells if cell.results})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    plural = "" if counts == [1] else "s"
    if counts[-1] < LEAST_BLOCKS:
        text = (
            f"How sure: {seeds} seed{plural} a method, fewer than the {LEAST_BLOCKS} an interval takes."
            " Ranges are those of the seeds that ran; read this as a description of them, not as a finding."
        )
    else:
        text = f"How sure: {seeds} seeds a method; intervals are 95%, by resampling seeds."
    if study.seeds_until is not None:
        text += (
            " A method got more seeds until its interval of final success was at most"
            f" {study.seeds_until:g} wide, which makes intervals a little too narrow."
        )
    return text + _clones(cells)


def _clones(cells: Sequence[Cell]) -> str:
    """From how many clones it all started: with few of them results are conditional on those."""
    results = [trial for cell in cells for trial in cell.results if trial.clone_seed is not None]
    clones = {trial.clone_seed for trial in results}
    own = bool(results) and all(trial.config["cloning"]["clone_seed"] == "seed" for trial in results)
    text = " Every seed has a clone of its own, so intervals cover cloning too." if own else ""
    if clones and len(clones) < 3:
        what = "one clone" if len(clones) == 1 else f"{len(clones)} clones"
        text += f" All of it is conditional on {what}, which every method of an environment started from."
    return text
