"""What the terminal shows while a study runs: a table in a terminal, plain lines anywhere else."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from arena.live_state import CloneProgress, ShownTrial, StudyProgress, TrialProgress, shown_trials
from arena.plan import PlannedTrial, Study
from arena.records import RESULTS

BLOCKS, PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
STYLES = {
    "stable": "green",
    "unstable": "yellow",
    "undecided": "yellow",
    "collapsed": "bold red",
    "diverged": "bold red",
    "failed": "bold red",
    "interrupted": "magenta",
}
WIDE = 88
"""From this width on a row has a sparkline and a bar."""
_FIXED_LINES = 4
"""Two of the header, the table's head, and the line of the cursor."""
LINES_AT_ONCE = 8
"""Running trials named in one round of plain lines."""


class LiveView:
    """The controller's window: `with LiveView.of(study) as view:`, then `view.refresh()` again and again.

    In a terminal it redraws a table at most every `redraw` seconds. Elsewhere it prints a line when a trial
    starts or ends and, every `interval` seconds, one for each running trial that has moved.
    """

    def __init__(
        self,
        name: str,
        progress: StudyProgress,
        *,
        console: Console | None = None,
        notes: Callable[[], Sequence[str]] = tuple,
        redraw: float = 0.5,
        interval: float = 10.0,
    ) -> None:
        """notes: lines to show below the table, such as what keeps MLflow from being up to date."""
        self.name = name
        self.progress = progress
        self.console = console or Console()
        self._notes = notes
        self._redraw, self._interval = redraw, interval
        self._live: Live | None = None
        self._next_redraw = self._next_lines = float("-inf")
        self._said: dict[str, tuple[str, int]] = {}
        self._said_notes: tuple[str, ...] = ()
        self._several_envs = len({trial.trial.env for trial in progress.trials}) > 1

    @classmethod
    def of(
        cls,
        study: Study,
        chosen: Sequence[PlannedTrial] | None = None,
        *,
        retry_failed: bool = False,
        console: Console | None = None,
        notes: Callable[[], Sequence[str]] = tuple,
        begun: Callable[[], Collection[str]] | None = None,
    ) -> LiveView:
        """The view of a plan that is about to run.

        chosen: the trials it is about, by default all. begun: the ids of those that the run has begun.
        """
        estimate = study.estimate
        chosen = study.trials if chosen is None else chosen
        trials = shown_trials(chosen, estimate.trial_seconds, retry_failed=retry_failed)
        # The whole plan's time says nothing of a part of it.
        planned = estimate.seconds if len(chosen) == len(study.trials) else None
        progress = StudyProgress(study.folder, trials, at_once=estimate.at_once, planned=planned, begun=begun)
        return cls(study.name, progress, console=console, notes=notes)

    def __enter__(self) -> LiveView:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False, vertical_overflow="crop")
            self._live.start()
        self.refresh()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refresh(now=True)
        if self._live is not None:
            self._live.stop()
            self._live = None

    def add(self, trials: Sequence[ShownTrial]) -> None:
        """Show trials that joined the study."""
        self.progress.add(trials)

    def say(self, message: str) -> None:
        """Print a line above the table."""
        self.console.print(Text(message), soft_wrap=True)

    def refresh(self, *, now: bool = False) -> None:
        """Read what is new and show it; does nothing when the last time is too close, unless `now`."""
        clock = self.progress.clock()
        if clock < self._next_redraw and not now:
            return
        self._next_redraw = clock + self._redraw
        self.progress.look()
        if self._live is not None:
            self._live.update(self.render(), refresh=True)
        else:
            self._print_lines(moved=clock >= self._next_lines or now)

    def render(self) -> RenderableType:
        """The header, the table and what is below it, at most as high as the terminal."""
        below: list[RenderableType] = [self._clone_line(clone) for clone in self.progress.clones]
        below += [Text(note, style="yellow", no_wrap=True, overflow="ellipsis") for note in self._notes()]
        header = Table.grid(expand=True, padding=(0, 2, 0, 0))
        header.add_column(no_wrap=True, overflow="ellipsis")
        header.add_column(ratio=1)
        header.add_row(self._headline(), ProgressBar(total=1.0, completed=self.progress.share_done))
        counts = self._counts()
        counts.no_wrap, counts.overflow = True, "ellipsis"
        room = self.console.height - _FIXED_LINES - len(below)
        table = self._table(max(1, room))
        return Group(header, counts, *([table] if table.row_count else []), *below)

    def _headline(self) -> Text:
        ended = len(self.progress.standing("ended"))
        return Text.assemble(
            (self.name, "bold"), f"  {ended} of {len(self.progress.trials)} done, {self._left_text()}"
        )

    def _counts(self) -> Text:
        """How trials ended, how many run and wait, and how long it has taken so far."""
        outcomes = self.progress.outcomes()
        parts = [Text(f"{outcomes[name]} {name}", style) for name, style in STYLES.items() if outcomes[name]]
        for standing in ("running", "waiting"):
            if count := len(self.progress.standing(standing)):
                parts.append(Text(f"{count} {standing}"))
        parts.append(Text(f"{clock_text(self.progress.elapsed)} so far", "dim"))
        return Text(", ").join(parts)

    def _summary(self) -> str:
        return f"{self._headline().plain}: {self._counts().plain}"

    def _left_text(self) -> str:
        if len(self.progress.standing("ended")) == len(self.progress.trials):
            return "nothing left"
        left = self.progress.seconds_left()
        return "time left not known yet" if left is None else f"about {duration_text(left)} left"

    def _table(self, room: int) -> Table:
        """Running trials first, then those that ended; what does not fit is summed up by label."""
        running, ended = self.progress.standing("running"), self.progress.standing("ended")
        wide = self.console.width >= WIDE
        table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1))
        table.add_column("trial", no_wrap=True, overflow="ellipsis", ratio=3)
        if wide:
            table.add_column("steps", width=12)
        table.add_column("" if wide else "step", justify="right", no_wrap=True)
        if wide:
            table.add_column("success", width=20, no_wrap=True)
        table.add_column("last" if wide else "success", justify="right", no_wrap=True)
        table.add_column("", no_wrap=True, overflow="ellipsis", ratio=3)
        table.add_column("left", justify="right", no_wrap=True)
        lines = room
        shown = running[: lines if len(running) <= lines else max(0, lines - 1)]
        for trial in shown:
            table.add_row(*self._row(trial, wide))
        lines -= len(shown)
        if len(shown) < len(running):
            table.add_row(Text(f"and {len(running) - len(shown)} more running", style="dim"))
            lines -= 1
        if len(ended) <= lines:
            for trial in ended:
                table.add_row(*self._row(trial, wide))
        elif lines > 0:
            for row in self._summed_up(ended, lines, wide):
                table.add_row(*row)
        return table

    def _row(self, trial: TrialProgress, wide: bool) -> list[RenderableType]:
        ended = trial.standing == "ended"
        step = trial.outcome.step if trial.outcome is not None else trial.step
        cells: list[RenderableType] = [Text(self._name(trial), style="dim" if ended else "")]
        if wide:
            cells.append(ProgressBar(total=max(1, trial.trial.steps), completed=step))
        cells.append(Text(f"{step}/{trial.trial.steps}"))
        if wide:
            cells.append(Text(self._sparkline(trial.evaluations), style="dim" if ended else "cyan"))
        cells.append(Text(f"{trial.evaluations[-1]:.2f}" if trial.evaluations else ""))
        cells.append(self._mark(trial))
        left = None if ended else self.progress.trial_seconds_left(trial)
        cells.append(Text("" if left is None else duration_text(left)))
        return cells

    def _mark(self, trial: TrialProgress) -> Text:
        """How a trial ended; while it runs, what it was caught at."""
        outcome = trial.outcome
        if outcome is not None:
            words: str = outcome.outcome
            if outcome.onset is not None:
                words += f" at {outcome.onset}"
            if outcome.learned is not None and outcome.is_result:
                words += ", learned" if outcome.learned else ", flat"
            if outcome.outcome == "failed" and outcome.reason:
                words += f": {outcome.reason}"
            return Text(words, style=STYLES[outcome.outcome])
        if trial.collapsed is not None:
            return Text(f"collapsed at {trial.collapsed}", style=STYLES["collapsed"])
        if trial.warnings:
            name, step = trial.warnings[-1]
            return Text(f"! {name} at {step}", style="yellow")
        return Text("" if trial.step else "starting", style="dim")

    def _summed_up(
        self, ended: Sequence[TrialProgress], lines: int, wide: bool
    ) -> list[list[RenderableType]]:
        groups: dict[str, list[TrialProgress]] = defaultdict(list)
        for trial in ended:
            groups[self._group(trial)].append(trial)
        rows = [self._sum(label, trials, wide) for label, trials in groups.items()]
        if len(rows) > lines:
            rest = list(groups.values())[lines - 1 :]
            others = [trial for trials in rest for trial in trials]
            name = f"{len(rest)} other labels" if lines > 1 else f"{len(rest)} labels"
            rows = [*rows[: lines - 1], self._sum(name, others, wide)]
        return rows

    def _sum(self, label: str, trials: Sequence[TrialProgress], wide: bool) -> list[RenderableType]:
        """A line for several trials that ended."""
        counts = Counter(trial.outcome.outcome for trial in trials if trial.outcome is not None)
        words = Text(", ").join(Text(f"{n} {name}", style=STYLES[name]) for name, n in counts.most_common())
        last = [
            trial.evaluations[-1]
            for trial in trials
            if trial.evaluations and trial.outcome is not None and trial.outcome.outcome in RESULTS
        ]
        mean = Text(f"{sum(last) / len(last):.2f}" if last else "")
        cells: list[RenderableType] = [Text(label, style="dim")]
        cells += [""] if wide else []
        cells.append(Text(f"{len(trials)} done", style="dim"))
        cells += [Text(f"mean of {len(last)}" if last else "", style="dim")] if wide else []
        return [*cells, mean, words, ""]

    def _clone_line(self, clone: CloneProgress) -> RenderableType:
        text = Text(
            "making the clone that trials start from", style="cyan", no_wrap=True, overflow="ellipsis"
        )
        if clone.total:
            text.append(f"  {100 * clone.done // clone.total}%")
        if clone.seconds_left is not None:
            text.append(f", about {duration_text(clone.seconds_left)} left")
        return text

    def _sparkline(self, values: Sequence[float]) -> str:
        return sparkline(values, width=20, blocks=PLAIN_BLOCKS if self.console.options.ascii_only else BLOCKS)

    def _group(self, trial: TrialProgress) -> str:
        shown = trial.trial
        return f"{shown.label} {shown.env}" if self._several_envs else shown.label

    def _name(self, trial: TrialProgress) -> str:
        return f"{self._group(trial)} s{trial.trial.seed}"

    def _print_lines(self, *, moved: bool) -> None:
        """Lines for what changed since it was last said."""
        lines: list[str] = []
        # What ended before this run is counted, not told.
        for trial in self.progress.take_changed():
            if self._said.get(trial.trial.id, ("waiting", 0))[0] != trial.standing:
                self._said[trial.trial.id] = (trial.standing, trial.step)
                if trial.standing == "running":
                    lines.append(f"{self._name(trial)}: started")
                elif trial.standing == "ended":
                    success = f", success {trial.evaluations[-1]:.2f}" if trial.evaluations else ""
                    lines.append(f"{self._name(trial)}: {self._mark(trial).plain}{success}")
        told_end = bool(lines)
        if moved:
            self._next_lines = self.progress.clock() + self._interval
            lines += self._moved_lines()
        notes = tuple(self._notes())
        lines += [note for note in notes if note not in self._said_notes]
        self._said_notes = notes
        for line in lines:
            self.console.print(
                f"[{clock_text(self.progress.elapsed)}] {line}", markup=False, highlight=False, soft_wrap=True
            )
        if told_end or (moved and lines):
            self.console.print(self._summary(), markup=False, highlight=False, soft_wrap=True)

    def _moved_lines(self) -> list[str]:
        lines = [
            f"clone: {100 * clone.done // clone.total}%" for clone in self.progress.clones if clone.total
        ]
        moved = [
            trial for trial in self.progress.standing("running") if trial.step > self._said[trial.trial.id][1]
        ]
        for trial in moved[:LINES_AT_ONCE]:
            success = f", success {trial.evaluations[-1]:.2f}" if trial.evaluations else ""
            mark = self._mark(trial).plain
            lines.append(
                f"{self._name(trial)}: step {trial.step} of {trial.trial.steps}{success}"
                + (f", {mark}" if mark else "")
            )
        for trial in moved:
            self._said[trial.trial.id] = (trial.standing, trial.step)
        if len(moved) > LINES_AT_ONCE:
            lines.append(f"and {len(moved) - LINES_AT_ONCE} more trials moved on")
        return lines


def sparkline(values: Sequence[float], *, width: int, blocks: str = BLOCKS) -> str:
    """Values from 0 to 1 as blocks; with more values than `width`, each block is the mean of its share."""
    if len(values) > width:
        edges = [round(i * len(values) / width) for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    top = len(blocks) - 1
    return "".join(blocks[round(min(1.0, max(0.0, value)) * top)] for value in values)


def clock_text(seconds: float) -> str:
    """`1:05`, `2:03:04`."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def duration_text(seconds: float) -> str:
    """A time left in words, no more exact than it is known: `40 s`, `6 min`, `2.5 h`, `3 days`."""
    if seconds < 50:
        return f"{round(seconds) if seconds < 10 else round(seconds / 5) * 5} s"
    if seconds < 5400:
        return f"{round(seconds / 60) or 1} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{round(seconds / 86_400)} days"
