from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from arena import records
from arena.records import CorruptRecordError, Outcome, Recorder, read_last_rows, read_lines, read_outcome
from trainers.monitor import Histogram, Transcript


class StopAfter:
    """A watch that says stop at the third row whose loss is above 1."""

    def __init__(self) -> None:
        self.high = 0

    def update(self, row: Mapping[str, Any]) -> bool:
        self.high += row.get("train/loss", 0) > 1
        return self.high >= 3


def open_recorder(folder: Path, *, stop: bool = True) -> Recorder:
    return Recorder(folder, StopAfter, stop_on_collapse=stop)


def test_what_is_reported_is_read_back(tmp_path: Path) -> None:
    recorder = open_recorder(tmp_path)
    histogram = Histogram("advantage/all", (-1.0, 0.0, 1.0), (3, 4), exact=2)
    turn = {
        "observation": "a\u2028b\udc80",
        "response": "<x>\n",
        "action": "x",
        "reward": 0.5,
        "rejection": None,
    }
    episode = Transcript("train", True, 1.5, (turn,))
    recorder.report(1, "train", {"train/loss": 0.25}, histograms=[histogram], episodes=[episode])
    recorder.report(1, "eval", {"eval/success": 1.0})
    recorder.close()

    rows = read_lines(tmp_path / records.METRICS).rows
    assert rows == [
        {"step": 1, "kind": "train", "train/loss": 0.25},
        {"step": 1, "kind": "eval", "eval/success": 1.0},
    ]
    assert read_lines(tmp_path / records.HISTOGRAMS).rows == [
        {"step": 1, "name": "advantage/all", "edges": [-1.0, 0.0, 1.0], "counts": [3, 4], "exact": 2}
    ]
    assert read_lines(tmp_path / records.EPISODES).rows == [
        {"step": 1, "kind": "train", "success": True, "total_reward": 1.5, "turns": [turn]}
    ]


def test_a_report_is_on_file_when_it_returns(tmp_path: Path) -> None:
    recorder = open_recorder(tmp_path)
    for step in range(1, 4):
        recorder.report(step, "train", {"train/loss": 0.0})
        assert [row["step"] for row in read_lines(tmp_path / records.METRICS).rows] == list(
            range(1, step + 1)
        )


def test_non_finite_numbers_are_words_on_file_and_numbers_again_in_memory(tmp_path: Path) -> None:
    open_recorder(tmp_path).report(1, "train", {"a": math.nan, "b": math.inf, "c": -math.inf})

    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is not JSON")

    written = json.loads((tmp_path / records.METRICS).read_text(), parse_constant=refuse)
    assert (written["a"], written["b"], written["c"]) == ("NaN", "Infinity", "-Infinity")
    row = read_lines(tmp_path / records.METRICS).rows[0]
    assert math.isnan(row["a"])
    assert (row["b"], row["c"]) == (math.inf, -math.inf)


def test_the_rule_is_evaluated_in_the_report_that_breaks_it(tmp_path: Path) -> None:
    recorder = open_recorder(tmp_path)
    stopped = []
    for step, loss in enumerate([2, 0, 2, 0, 2, 0], start=1):
        recorder.report(step, "train", {"train/loss": loss})
        stopped.append(recorder.should_stop())
    assert stopped == [False, False, False, False, True, True]
    assert recorder.collapsed


def test_a_collapse_does_not_stop_a_trial_that_is_told_to_go_on(tmp_path: Path) -> None:
    recorder = open_recorder(tmp_path, stop=False)
    for step in range(1, 6):
        recorder.report(step, "train", {"train/loss": 2})
    assert recorder.collapsed
    assert not recorder.should_stop()


def test_a_stop_file_stops_and_is_no_collapse(tmp_path: Path) -> None:
    recorder = open_recorder(tmp_path)
    assert not recorder.should_stop()
    (tmp_path / records.STOP).touch()
    assert recorder.should_stop()
    assert recorder.user_stop
    assert not recorder.collapsed


def test_rewinding_gives_the_bytes_and_the_rule_of_the_time(tmp_path: Path) -> None:
    recorder = open_recorder(tmp_path)
    for step in (1, 2):
        recorder.report(step, "train", {"train/loss": 2}, episodes=[Transcript("train", False, 0.0, ())])
    position = recorder.position()
    before = {name: (tmp_path / name).read_bytes() for name in records.RECORDS}
    for step in (3, 4):
        recorder.report(step, "train", {"train/loss": 2}, episodes=[Transcript("eval", False, 0.0, ())])
    assert recorder.collapsed

    recorder.rewind(position)
    assert {name: (tmp_path / name).read_bytes() for name in records.RECORDS} == before
    assert not recorder.collapsed
    assert recorder.train_step == 2
    recorder.report(3, "train", {"train/loss": 2})
    assert recorder.should_stop()

    recorder.rewind({})
    assert all((tmp_path / name).read_bytes() == b"" for name in records.RECORDS)
    assert recorder.train_step == 0


def test_a_reopened_trial_knows_what_its_rule_had_seen(tmp_path: Path) -> None:
    first = open_recorder(tmp_path)
    for step in range(1, 4):
        first.report(step, "train", {"train/loss": 2})
    first.close()
    assert open_recorder(tmp_path).should_stop()


def test_records_cut_at_any_byte_keep_their_whole_lines(tmp_path: Path) -> None:
    recorder = open_recorder(tmp_path)
    for step in range(1, 6):
        recorder.report(step, "train", {"train/loss": step / 7})
    recorder.close()
    path = tmp_path / records.METRICS
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in random.Random(1).sample(range(len(whole) + 1), 60):
        path.write_bytes(whole[:cut])
        complete = whole[:cut].count(b"\n")
        assert [row["step"] for row in read_lines(path).rows] == list(range(1, complete + 1))
        recorder = open_recorder(tmp_path)
        recorder.report(99, "train", {})
        recorder.close()
        assert path.read_bytes().startswith(b"".join(lines[:complete]) + b'{"step": 99')


def test_a_half_written_line_longer_than_a_block_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / records.METRICS
    path.write_bytes(b'{"step": 1, "kind": "train"}\n' + b"x" * 200_000)
    open_recorder(tmp_path)
    assert path.read_bytes() == b'{"step": 1, "kind": "train"}\n'


def test_corrupt_lines_are_skipped_and_named_by_their_place(tmp_path: Path) -> None:
    path = tmp_path / records.METRICS
    good = b'{"step": 1}\n'
    path.write_bytes(good + b"\x00\xff{]\n" + b"[1]\n" + b'{"step": 2}\n')
    lines = read_lines(path)
    assert [row["step"] for row in lines.rows] == [1, 2]
    assert [problem.split(":")[0] for problem in lines.problems] == [
        "metrics.jsonl, byte 12",
        "metrics.jsonl, byte 17",
    ]


def test_reading_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / records.METRICS
    path.write_bytes(b'{"step": 1}\n{"st')
    first = read_lines(path)
    with path.open("ab") as file:
        file.write(b'ep": 2}\n')
    second = read_lines(path, first.end)
    assert (first.rows, second.rows) == ([{"step": 1}], [{"step": 2}])
    assert second.end == path.stat().st_size


def test_the_last_rows_are_the_end_of_all_rows(tmp_path: Path) -> None:
    recorder = open_recorder(tmp_path)
    for step in range(1, 200):
        recorder.report(step, "train", {f"metric/{index}": step * index for index in range(20)})
    everything = read_lines(tmp_path / records.METRICS).rows
    last = read_last_rows(tmp_path / records.METRICS, at_least_bytes=5000)
    assert 0 < len(last) < 50
    assert last == everything[-len(last) :]
    assert read_last_rows(tmp_path / "none.jsonl") == []


def test_a_checkpoint_beyond_the_records_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    recorder = open_recorder(tmp_path)
    recorder.report(1, "train", {}, episodes=[Transcript("train", True, 1.0, ())])
    position = recorder.position()
    for wrong, message in ((10**6, "at least 1000000"), (position[records.METRICS] - 1, "no line ends")):
        with pytest.raises(CorruptRecordError, match=message):
            recorder.rewind({**position, records.METRICS: wrong, records.EPISODES: 0})
        assert recorder.position() == position


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_and_leaves_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = open_recorder(tmp_path)
    recorder.report(1, "train", {"train/loss": 0.5})
    before = (tmp_path / records.METRICS).read_bytes()
    real_write = os.write
    full = os.open("/dev/full", os.O_WRONLY)

    with monkeypatch.context() as patch:
        patch.setattr(records.os, "write", _failing_write(real_write, full))
        with pytest.raises(OSError, match="No space left"):
            recorder.report(2, "train", {"train/loss": 0.5})
    os.close(full)
    assert (tmp_path / records.METRICS).read_bytes() == before
    recorder.report(2, "train", {"train/loss": 0.5})
    assert [row["step"] for row in read_lines(tmp_path / records.METRICS).rows] == [1, 2]


def _failing_write(real_write: Any, full: int) -> Any:
    """Writes seven bytes, then meets a full disk."""
    calls = iter([False, True])

    def write(handle: int, data: bytes) -> int:
        result: int = real_write(full, data) if next(calls) else real_write(handle, data[:7])
        return result

    return write


def test_an_outcome_is_read_back_as_written(tmp_path: Path) -> None:
    assert read_outcome(tmp_path) is None
    outcome = Outcome("collapsed", False, "from best", 12, 18, 30, 0, 2, ({"name": "kl", "step": 3},))
    records.write_outcome(tmp_path, outcome)
    assert read_outcome(tmp_path) == outcome
    assert outcome.is_result
    assert not Outcome("failed").is_result
    assert sorted(os.listdir(tmp_path)) == [records.OUTCOME]


@pytest.mark.parametrize("content", [b"", b'{"outcome": "sta', b"[]", b'{"outcome": "fine"}', b"\xff\x00"])
def test_a_corrupt_outcome_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / records.OUTCOME).write_bytes(content)
    with pytest.raises(CorruptRecordError, match=records.OUTCOME):
        read_outcome(tmp_path)


def test_an_atomic_write_that_fails_keeps_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    records.write_json(path, {"a": 1})

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(records.os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        records.write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["plan.json"]
