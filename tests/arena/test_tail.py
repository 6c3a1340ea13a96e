"""A record file is followed while it grows, and read anew when it was cut back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.tail import Position, Tail


def line(step: int, seconds: float = 1.0) -> str:
    return json.dumps({"step": step, "kind": "train", "time/step": seconds}) + "\n"


def steps(chunk) -> list[int]:
    return [row["step"] for row in chunk.rows]


def test_each_line_is_read_once_when_it_is_whole(tmp_path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = Tail(path)
    assert tail.read().rows == []
    path.write_text(line(1) + line(2)[:10])
    assert steps(tail.read()) == [1]
    path.write_text(line(1) + line(2) + line(3))
    assert steps(tail.read()) == [2, 3]
    assert steps(tail.read()) == []


@pytest.mark.parametrize("after", ["shorter", "as long", "longer", "gone"])
def test_a_file_that_was_cut_back_is_read_from_its_beginning(tmp_path, after) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1) + line(2) + line(3))
    tail = Tail(path)
    tail.read()
    again = {
        "shorter": [line(1), line(2)],
        "as long": [line(1), line(2), line(3, 2.0)],
        "longer": [line(1), line(2), line(3, 2.0), line(4)],
        "gone": [],
    }[after]
    path.write_text("".join(again))
    if after == "gone":
        path.unlink()
    chunk = tail.read()
    assert chunk.rewound
    assert steps(chunk) == [json.loads(text)["step"] for text in again]
    assert not tail.read().rewound


def test_a_position_outlives_the_process_that_read(tmp_path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1) + line(2))
    tail = Tail(path)
    tail.read()
    text = tail.position.dumps()
    path.write_text(line(1) + line(2) + line(3))
    assert steps(Tail(path, Position.loads(text)).read()) == [3]
    path.write_text(line(1) + line(2, 9.0) + line(3))
    assert Tail(path, Position.loads(text)).read().rewound


@given(st.text(max_size=30))
def test_a_damaged_position_means_the_beginning(text) -> None:
    position = Position.loads(text)
    assert position.offset >= 0
    assert Position.loads(position.dumps()) == position or position == Position()


def test_a_line_that_is_no_object_is_named_and_skipped(tmp_path, caplog) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1) + "[1, 2\n" + line(2))
    assert steps(Tail(path).read()) == [1, 2]
    assert "metrics.jsonl" in caplog.text
