"""What the terminal shows of a running study, from files that grow as a run would make them grow."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from arena.live import LiveView, clock_text, duration_text, sparkline
from arena.live_state import ShownTrial, StudyProgress
from arena.locks import Lock

SECONDS_A_STEP, SECONDS_AN_EVALUATION = 2.0, 0.5
"""What the rows of conftest say."""


class Stage:
    """A study of two labels with two seeds, of which trials can be started and ended at will."""

    def __init__(self, study, rows) -> None:
        self.study, self.rows = study, rows
        self.now = 0.0
        self.locks: dict[str, Lock] = {}
        cells = {"a" * 12: "SAMPO", "b" * 12: "CISPO"}
        self.trials = [
            ShownTrial(f"{cell}-s{seed}", label, "sokoban", seed, 6, clone="c" * 16)
            for cell, label in cells.items()
            for seed in (0, 1)
        ]

    def progress(self, **more) -> StudyProgress:
        return StudyProgress(self.study.folder, self.trials, at_once=2, clock=lambda: self.now, **more)

    def begin(self, index: int) -> Path:
        trial = self.trials[index]
        cell, _, seed = trial.id.rpartition("-s")
        folder = self.study.folder / "trials" / trial.id
        if not folder.exists():
            self.study.trial(cell, int(seed), label=trial.label)
        self.locks[trial.id] = Lock(folder / "lock")
        return folder

    def train(self, index: int, steps, success) -> None:
        folder = self.study.folder / "trials" / self.trials[index].id
        for step in steps:
            self.study.rows(folder, [self.rows["train"](step), self.rows["eval"](step, success)])

    def end(self, index: int, outcome: str, **more) -> None:
        trial = self.trials[index]
        self.study.outcome(self.study.folder / "trials" / trial.id, outcome, **more)
        self.locks.pop(trial.id).release()


@pytest.fixture
def stage(make_study, row_of):
    stage = Stage(make_study("tried"), row_of)
    yield stage
    for lock in stage.locks.values():
        lock.release()


def screen(view: LiveView) -> str:
    with view.console.capture() as captured:
        view.console.print(view.render())
    return captured.get()


def terminal(width: int = 100, height: int = 30, **more) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None, **more
    )


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(name))


def test_rows_follow_the_files_as_they_grow(stage) -> None:
    progress = stage.progress()
    view = LiveView("tried", progress, console=terminal())
    progress.look()
    assert "0 of 4 done" in screen(view)
    assert "SAMPO" not in screen(view)

    folder = stage.begin(0)
    progress.look()
    assert "starting" in row(screen(view), "SAMPO s0")

    stage.train(0, (1, 2, 3), 0.75)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "kind": "train", "half a li')
    progress.look()
    shown = row(screen(view), "SAMPO s0")
    assert "3/6" in shown
    assert "0.75" in shown

    stage.end(0, "stable", step=6)
    progress.look()
    assert "6/6" in row(screen(view), "SAMPO s0")
    assert "stable, learned" in row(screen(view), "SAMPO s0")
    assert "1 of 4 done" in screen(view)
    assert "1 stable" in screen(view)


def test_a_record_cut_back_to_a_checkpoint_is_read_again(stage) -> None:
    progress = stage.progress()
    folder = stage.begin(0)
    stage.train(0, (1, 2, 3, 4), 0.5)
    progress.look()
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:4]))
    progress.look()
    assert progress.trials[0].step == 2
    stage.train(0, (3,), 0.9)
    progress.look()
    assert progress.trials[0].evaluations == [0.5, 0.5, 0.9]


def test_a_collapse_and_a_warning_are_marked_while_the_trial_still_runs(stage) -> None:
    progress = stage.progress()
    view = LiveView("tried", progress, console=terminal())
    folder = stage.begin(2)
    stage.study.rows(folder, [stage.rows["eval"](0, 0.6)])
    stage.train(2, (1, 2, 3), 0.6)
    progress.look()
    assert "collapsed" not in row(screen(view), "CISPO s0")
    stage.train(2, range(4, 12), 0.0)
    progress.look()
    assert "collapsed at" in row(screen(view), "CISPO s0")


def test_time_left_comes_from_the_pace_that_was_measured(stage) -> None:
    progress = stage.progress()
    assert progress.seconds_left() is None
    stage.begin(0)
    stage.train(0, (1, 2), 0.5)
    progress.look()
    a_step = SECONDS_A_STEP + SECONDS_AN_EVALUATION
    assert progress.trial_seconds_left(progress.trials[0]) == pytest.approx(4 * a_step)
    # Two at once: the running one, then one more, beside two others: 4 + 6 steps and 6 + 6.
    assert progress.seconds_left() == pytest.approx(12 * a_step)


def test_a_planned_duration_is_scaled_by_what_was_measured(stage) -> None:
    # Planned a second a step, and slower in truth; the last trial is planned to be long.
    planned = (6.0, 6.0, 6.0, 60.0)
    stage.trials = [
        ShownTrial(t.id, t.label, t.env, t.seed, t.steps, seconds=s)
        for t, s in zip(stage.trials, planned, strict=True)
    ]
    progress = stage.progress()
    assert progress.seconds_left() == pytest.approx(66.0)
    stage.begin(0)
    stage.train(0, (1, 2, 3), 0.5)
    progress.look()
    factor = SECONDS_A_STEP + SECONDS_AN_EVALUATION
    assert progress.seconds_left() == pytest.approx(factor * (6 + 60))


def test_the_clock_of_an_ended_trial_counts_what_no_record_has(stage) -> None:
    progress = stage.progress()
    stage.begin(0)
    progress.look()
    stage.train(0, range(1, 7), 0.5)
    stage.end(0, "stable")
    stage.now = 50.0
    progress.look()
    # 15 s in the record, 50 by the clock; three more, two at once.
    assert progress.seconds_left() == pytest.approx(100.0)


def test_before_the_first_trial_the_plan_says_how_long_it_takes(stage) -> None:
    progress = stage.progress(planned=200.0)
    assert progress.seconds_left() is None
    stage.trials = [ShownTrial(t.id, t.label, t.env, t.seed, t.steps, seconds=5.0) for t in stage.trials]
    progress = stage.progress(planned=200.0)
    stage.now = 30.0
    assert progress.seconds_left() == pytest.approx(170.0)
    stage.begin(0)
    progress.look()
    assert progress.seconds_left() == pytest.approx(10.0)


def test_what_an_earlier_run_left_counts_as_done_only_with_a_result(stage) -> None:
    for index, outcome in enumerate(("stable", "interrupted", "failed")):
        stage.begin(index)
        stage.train(index, (1, 2), 0.5)
        stage.end(index, outcome)
    stage.trials[2] = ShownTrial(stage.trials[2].id, "CISPO", "sokoban", 0, 6, runs=False)
    progress = stage.progress()
    progress.look()
    assert [trial.standing for trial in progress.trials] == ["ended", "waiting", "ended", "waiting"]
    # The interrupted one goes on, and is interrupted once more.
    stage.begin(1)
    progress.look()
    assert progress.trials[1].standing == "running"
    stage.end(1, "interrupted")
    progress.look()
    assert progress.trials[1].standing == "ended"


@pytest.mark.parametrize("height", range(5, 12))
@pytest.mark.parametrize("width", [40, 100])
def test_it_fits_the_screen_and_sums_up_what_does_not(stage, width, height) -> None:
    stage.trials = [ShownTrial(f"{i:012x}-s0", f"m{i % 3}", "sokoban", 0, 6) for i in range(9)]
    for index in range(9):
        stage.begin(index)
        stage.train(index, (1,), 0.5)
    for index in range(2, 9):
        stage.end(index, "stable")
    progress = stage.progress()
    progress.look()
    text = screen(LiveView("tried", progress, console=terminal(width, height)))
    assert len(text.splitlines()) < height
    assert all(len(line) <= width for line in text.splitlines())
    assert "7 of 9 done" in text
    if height >= 9:
        assert "m2" in text


def test_trials_of_several_environments_are_told_apart(stage) -> None:
    envs = ("sokoban", "alfworld")
    stage.trials = [ShownTrial(f"{i:012x}-s0", "SAMPO", env, 0, 6) for i, env in enumerate(envs)]
    for index in (0, 1):
        stage.begin(index)
    progress = stage.progress()
    progress.look()
    text = screen(LiveView("tried", progress, console=terminal()))
    assert row(text, "SAMPO sokoban s0")
    assert row(text, "SAMPO alfworld s0")


def test_a_clone_in_the_making_is_shown_with_its_time_left(stage) -> None:
    job = stage.study.folder.parent / ".cache" / "clones" / ("c" * 16 + ".job")
    job.mkdir(parents=True)
    stage.locks["clone"] = Lock(job / "lock")
    progress = stage.progress()
    view = LiveView("tried", progress, console=terminal())
    for done, now in ((100, 0.0), (200, 20.0)):
        (job / "progress.json").write_text(json.dumps({"done": done, "total": 600}))
        stage.now = now
        progress.look()
    assert "33%, about 1 min left" in row(screen(view), "making the clone")
    stage.locks.pop("clone").release()
    progress.look()
    assert "making the clone" not in screen(view)


def test_outside_a_terminal_there_is_a_line_for_each_change(stage) -> None:
    output = io.StringIO()
    said: list[str] = []
    console = Console(file=output, force_terminal=False, width=100)
    progress = stage.progress()

    def lines() -> list[str]:
        text = output.getvalue()
        output.seek(0)
        output.truncate()
        return text.splitlines()

    with LiveView("tried", progress, console=console, notes=lambda: said) as view:
        lines()
        stage.begin(0)
        stage.now = 1.0
        view.refresh()
        assert lines()[0] == "[0:01] SAMPO s0: started"
        stage.train(0, (1, 2), 0.5)
        stage.now = 2.0
        view.refresh()
        assert lines() == []
        stage.now = 11.0
        view.refresh()
        assert lines()[0] == "[0:11] SAMPO s0: step 2 of 6, success 0.50"
        stage.now = 22.0
        view.refresh()
        assert lines() == []
        said.append("MLflow is behind")
        stage.now = 23.0
        view.refresh()
        view.refresh(now=True)
        assert lines() == ["[0:23] MLflow is behind"]
        stage.end(0, "stable")
        stage.now = 24.0
        view.refresh()
        first, second = lines()
        assert first == "[0:24] SAMPO s0: stable, learned, success 0.50"
        assert second.startswith("tried  1 of 4 done, about")


def test_it_ends_on_the_last_state_in_a_terminal(stage) -> None:
    console = terminal()
    with LiveView("tried", stage.progress(), console=console) as view:
        stage.begin(0)
        stage.train(0, range(1, 7), 0.5)
        stage.end(0, "unstable")
        view.say("[stopping]")
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "[stopping]" in text
    assert "1 unstable" in text


def test_an_ascii_terminal_gets_ascii(stage) -> None:
    stage.begin(0)
    stage.train(0, range(1, 5), 0.5)
    progress = stage.progress()
    progress.look()
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=file, force_terminal=True, width=100, height=20, color_system=None)
    console.print(LiveView("tried", progress, console=console).render())
    file.flush()
    assert "4/6" in file.buffer.getvalue().decode("ascii")


def test_a_sparkline_spans_zero_to_one_and_keeps_its_width() -> None:
    assert sparkline([0.0, 0.5, 1.0, 1.5, -1.0], width=9) == "▁▅██▁"
    assert sparkline([0.0] * 50 + [1.0] * 50, width=10) == "▁" * 5 + "█" * 5


def test_times_are_no_more_exact_than_they_are_known() -> None:
    assert [clock_text(s) for s in (5, 65, 7384)] == ["0:05", "1:05", "2:03:04"]
    texts = {3.2: "3 s", 42: "40 s", 58: "1 min", 400: "7 min", 9000: "2.5 h", 300_000: "3 days"}
    assert {seconds: duration_text(seconds) for seconds in texts} == texts


def test_only_what_a_run_has_begun_is_looked_at(stage) -> None:
    begun: list[str] = []
    progress = stage.progress(begun=lambda: begun)
    stage.begin(0)
    progress.look()
    assert progress.standing("running") == []
    begun.append(stage.trials[0].id)
    progress.look()
    assert [trial.trial.id for trial in progress.standing("running")] == begun
    stage.end(0, "stable")
    progress.look()
    assert progress.outcomes() == {"stable": 1}
    stage.study.outcome(stage.study.folder / "trials" / begun[0], "collapsed")
    progress.look()
    assert progress.outcomes() == {"stable": 1}, "a result is not read again"


def test_the_time_left_of_many_trials_is_that_of_giving_each_its_place(tmp_path, monkeypatch) -> None:
    trials = [ShownTrial(f"{n:012x}-s0", "GRPO", "sokoban", 0, 10, seconds=20.0 + n % 7) for n in range(400)]
    progress = StudyProgress(tmp_path, trials, at_once=3, clock=lambda: 0.0)
    together = progress.seconds_left()
    monkeypatch.setattr("arena.live_state._MANY", 1000)
    assert together == pytest.approx(progress.seconds_left(), rel=0.01)
