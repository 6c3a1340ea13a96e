"""What a run came to, in a few lines at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from arena.live import STYLES
from arena.plan import State, Study
from arena.plan_view import tuning_lines
from arena.records import CorruptRecordError, Outcome, read_outcome

MOST_REASONS = 8
"""Failures told with their reasons; the report has all of them."""


def summary(study: Study, states: Mapping[str, State]) -> RenderableType:
    """A line per label and environment with its outcomes, and why trials failed."""
    outcomes = {trial.id: _outcome(study, trial.id) for trial in study.trials}
    groups: dict[tuple[str, str], list[str]] = {}
    for trial in study.trials:
        if trial.search:
            continue
        groups.setdefault((trial.label, trial.env), []).append(trial.id)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("point", "env", "outcomes", "learned"):
        table.add_column(column, overflow="fold")
    for (label, env), names in groups.items():
        words = Counter(_word(outcomes[name], states[name]) for name in names)
        results = [outcome for name in names if (outcome := outcomes[name]) is not None and outcome.is_result]
        learned = sum(outcome.learned is True for outcome in results)
        table.add_row(
            Text(label),
            env,
            Text(", ").join(Text(f"{count} {word}", STYLES.get(word, "")) for word, count in words.items()),
            f"{learned} of {len(results)}" if results else "",
        )
    parts: list[RenderableType] = [*tuning_lines(study), table]
    failed = [trial for trial in study.trials if states[trial.id] == "failed"]
    for trial in failed[:MOST_REASONS]:
        outcome = outcomes[trial.id]
        reason = outcome.reason if outcome is not None else "it was not written down"
        parts.append(Text(f"failed: {trial.id} ({trial.label}): {reason}", STYLES["failed"]))
    if len(failed) > MOST_REASONS:
        parts.append(Text(f"... and {len(failed) - MOST_REASONS} more failed"))
    if failed:
        parts.append(Text(f"`arena logs {failed[0].id}` shows a log; `--retry failed` runs them again."))
    return Group(*parts)


def _outcome(study: Study, trial: str) -> Outcome | None:
    with suppress(CorruptRecordError):
        return read_outcome(study.folder / "trials" / trial)
    return None


def _word(outcome: Outcome | None, state: State) -> str:
    return outcome.outcome if outcome is not None and state == "done" else state
