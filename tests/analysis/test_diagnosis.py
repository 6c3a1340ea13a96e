"""Runs logged by other tools: files made by those tools' own loggers (tests/golden/diagnose/make.py)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from analysis.diagnosis import diagnose, told
from analysis.foreign import ALIASES, UnreadableError, read_source
from arena.cli import cli

LOGS = Path(__file__).parents[1] / "golden" / "diagnose"
FALLING = {
    "trl_printed.log": "printed dicts",
    "trainer_state.json": "trainer_state.json",
    "verl_console.log": "verl console",
    "verl_file.jsonl": "JSON lines",
    "tensorboard": "TensorBoard",
    "mlflow.db": "MLflow",
}


@pytest.mark.parametrize(("name", "kind"), FALLING.items())
def test_every_format_tells_the_same_story(name: str, kind: str) -> None:
    """Success falls from step 38 on and the gradient norm swells from step 30 on, whoever wrote it down."""
    (run,) = read_source(LOGS / name)
    assert (run.format, run.steps) == (kind, 60)
    found = diagnose(run)
    assert found.verdict.outcome == "collapsed"
    assert found.verdict.onset is not None
    assert 40 <= found.verdict.onset <= 50
    moved = {event.metric: event.step for event in found.events}
    assert 31 <= moved["train/gradient_norm"] <= 36
    assert any("is_clipping" in choice for choice in found.bears_on())


def test_values_survive_the_reading() -> None:
    (run,) = read_source(LOGS / "trl_printed.log")
    state = json.loads((LOGS / "trainer_state.json").read_text())["log_history"]
    for row, entry in zip(run.rows, state, strict=True):
        assert row["step"] == entry["step"]
        # transformers prints four digits.
        assert row["train/gradient_norm"] == pytest.approx(entry["grad_norm"], rel=1e-3)
        assert row["rollout/success"] == pytest.approx(entry["rewards/accuracy_reward/mean"], rel=1e-3)
    (saved,) = read_source(LOGS / "trainer_state.json")
    assert [row["train/kl_ref"] for row in saved.rows] == [entry["kl"] for entry in state]
    (events,) = read_source(LOGS / "tensorboard")
    assert [row["train/gradient_norm"] for row in events.rows] == pytest.approx(
        [entry["grad_norm"] for entry in state]
    )


def test_evaluations_of_verl_are_used_where_there_are_any() -> None:
    (run,) = read_source(LOGS / "verl_console.log")
    found = diagnose(run)
    assert found.judged_by == "eval/success"
    assert [row["step"] for row in run.rows if row["kind"] == "eval"][:3] == [5, 10, 15]
    assert not any("no evaluation" in text for text in found.unknowable)


def test_unknown_keys_are_listed_and_missing_statistics_named() -> None:
    (run,) = read_source(LOGS / "trl_printed.log")
    assert {"num_tokens", "completions/clipped_ratio", "epoch"} <= set(run.unknown)
    text = "\n".join(told(diagnose(run)))
    assert "no evaluation: what happened is judged by training rollouts" in text
    assert "no ratio statistics" in text
    assert "train/gradient_norm <- grad_norm" in text


def test_a_healthy_run_is_healthy() -> None:
    (run,) = read_source(LOGS / "trl_healthy.log")
    found = diagnose(run)
    assert found.healthy
    assert found.verdict.learned


def test_an_export_of_wandb_holds_several_runs() -> None:
    runs = {run.name: diagnose(run) for run in read_source(LOGS / "wandb_export.csv")}
    assert {name: found.healthy for name, found in runs.items()} == {"falls": False, "rises": True}


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_loss_that_is_nan_is_a_divergence(tmp_path: Path) -> None:
    lines = [str({"loss": 0.1, "reward": 0.5, "grad_norm": 1.0}) for _ in range(6)]
    log = write(tmp_path / "a.log", [*lines, "{'loss': nan, 'reward': 0.5, 'grad_norm': inf}", *lines])
    (run,) = read_source(log)
    found = diagnose(run)
    assert (found.verdict.outcome, found.verdict.onset) == ("diverged", 7)
    assert math.isnan(run.rows[6]["train/loss"])


def test_reward_of_any_scale_stands_in_for_success(tmp_path: Path) -> None:
    import random

    noise = random.Random(0)
    flat = [3.0 + noise.gauss(0, 0.3) for _ in range(60)]
    falling = [(12.0 if step < 40 else -5.0) + noise.gauss(0, 0.3) for step in range(60)]
    for values, outcome in ((flat, True), (falling, False)):
        log = write(tmp_path / "a.log", [str({"reward": value, "kl": 0.1}) for value in values])
        found = diagnose(read_source(log)[0])
        assert found.healthy is outcome
        assert "stands in for it" in found.unknowable[0]


def test_hostile_text_is_neither_evaluated_nor_shown_raw(tmp_path: Path) -> None:
    marker = tmp_path / "made"
    lines = [
        f"{{'loss': __import__('pathlib').Path({str(marker)!r}).touch(), 'reward': 1}}",
        "{'loss': " + "(" * 500 + "1" + ")" * 500 + "}",
        "{'loss': 0.1, 'reward': 0.5, '\x1b[31mred\u202e': 3}",
        "{'loss': 0.1, 'reward': 0.5}",
    ]
    (run,) = read_source(write(tmp_path / "a.log", lines))
    assert not marker.exists()
    assert len(run.rows) == 2
    text = "\n".join(told(diagnose(run)))
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize("content", [b"", b"nothing here\n", b"\x00\x01\x02" * 50])
@pytest.mark.parametrize("name", ["a.log", "a.csv", "a.jsonl", "trainer_state.json", "a.tfevents.1", "a.db"])
def test_what_holds_no_run_is_unreadable(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnreadableError):
        read_source(tmp_path / name)


@pytest.mark.parametrize("name", [name for name in FALLING if (LOGS / name).is_file()])
@pytest.mark.parametrize("ending", [".log", ".json", ".jsonl", ".csv", ".dat", ""])
def test_a_log_is_what_it_holds_whatever_it_is_called(tmp_path: Path, name: str, ending: str) -> None:
    renamed = tmp_path / f"run{ending}"
    renamed.write_bytes((LOGS / name).read_bytes())
    (expected,), (run,) = read_source(LOGS / name), read_source(renamed)
    assert (run.rows, run.mapped) == (expected.rows, expected.mapped)


@pytest.mark.parametrize("name", ["a.log", "a.jsonl"])
def test_a_line_that_no_tool_writes_spoils_no_other(tmp_path: Path, name: str) -> None:
    lines = [
        '{"loss": 0.1, "reward": 0.5, "step": 1}',
        "{[1]: 2}",
        '{"a": ' * 3000 + "1" + "}" * 3000,
        f'{{"loss": 0.1, "num_tokens": 1{"0" * 400}, "step": 2}}',
        '{"loss": 0.1, "rew',
        "\x00\x00",
        '{"loss": 0.2, "reward": 0.5, "step": 3}',
    ]
    (run,) = read_source(write(tmp_path / name, lines))
    assert [(row["step"], row["train/loss"]) for row in run.rows] == [(1, 0.1), (2, 0.1), (3, 0.2)]


@pytest.mark.parametrize(
    "name", ["verl_file.jsonl", "wandb_export.csv", "trl_printed.log", "verl_console.log"]
)
def test_a_log_cut_short_is_read_up_to_there(tmp_path: Path, name: str) -> None:
    whole = (LOGS / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) * 2 // 3])
    runs = read_source(tmp_path / name)
    assert all(20 < run.steps < 60 for run in runs)


def test_event_files_cut_short_are_read_up_to_there(tmp_path: Path) -> None:
    (source,) = (LOGS / "tensorboard").iterdir()
    whole = source.read_bytes()
    cut = tmp_path / "events.out.tfevents.cut"
    cut.write_bytes(whole[: len(whole) // 2])
    (run,) = read_source(cut)
    assert 20 < run.steps < 60


def test_no_key_means_two_things() -> None:
    keys = [alias for aliases in ALIASES.values() for alias in aliases]
    assert len(keys) == len(set(keys))


def test_the_command_says_it_with_its_exit_code(tmp_path: Path) -> None:
    def run(*arguments: Any) -> Any:
        return CliRunner().invoke(cli, ["diagnose", *map(str, arguments)], standalone_mode=False)

    figure = tmp_path / "runs.png"
    both = run(LOGS / "trl_printed.log", LOGS / "trl_healthy.log", "--figure", figure)
    assert both.return_value == 3
    assert figure.stat().st_size > 10_000
    assert both.output.count("collapsed") >= 2
    assert run(LOGS / "trl_healthy.log").return_value == 0
    missing = run(tmp_path / "nothing.log")
    assert missing.return_value == 2
    document = json.loads(run(LOGS / "verl_file.jsonl", "--format", "json").output)
    assert document[0]["outcome"] == "collapsed"
    assert document[0]["mapped"]["train/gradient_norm"] == "actor/grad_norm"
