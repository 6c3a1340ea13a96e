"""The native loop: what it records, that it repeats itself across a kill, and that it stops when told."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.trainers.native.conftest import Configure, option
from trainers.monitor import MemoryMonitor
from trainers.native.checkpoint import newest_checkpoint
from trainers.native.cloning import make_clone
from trainers.native.training import Diverged, NativeTrainer, train


def untimed(monitor: MemoryMonitor) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in monitor.rows]


class Killed(BaseException):
    """Stands for the process dying: nothing of ours catches it."""


class Dying(MemoryMonitor):
    """Dies in the middle of reporting a step."""

    die_at = -1

    def report(self, step: int, kind: Any, metrics: Any, **more: Any) -> None:
        super().report(step, kind, metrics, **more)
        if step == self.die_at:
            raise Killed


def test_same_trial_twice_gives_the_same_metrics(configure: Configure, clone: Path, tmp_path: Path) -> None:
    first, second = MemoryMonitor(), MemoryMonitor()
    train(configure(), clone=clone, checkpoints=tmp_path / "a", monitor=first)
    train(configure(), clone=clone, checkpoints=tmp_path / "b", monitor=second)
    assert untimed(first) == untimed(second)
    assert first.histograms == second.histograms
    third = MemoryMonitor()
    train(configure(seed=1), clone=clone, checkpoints=tmp_path / "c", monitor=third)
    assert untimed(third) != untimed(first)


@pytest.mark.parametrize("die_at", [1, 2, 3, 4])
def test_killed_and_resumed_equals_uninterrupted(
    configure: Configure, clone: Path, tmp_path: Path, die_at: int
) -> None:
    config = configure(
        loss_aggregation="seq_mean_token_mean",
        is_clipping="sequence",
        dynamic_filtering="group_variance",
        advantage="gigpo",
    )
    whole = MemoryMonitor()
    train(config, clone=clone, checkpoints=tmp_path / "whole", monitor=whole)
    cut = Dying()
    cut.die_at = die_at
    with pytest.raises(Killed):
        train(config, clone=clone, checkpoints=tmp_path / "cut", monitor=cut)
    cut.die_at = -1
    before = newest_checkpoint(tmp_path / "cut")
    assert (before.step if before else 0) == (die_at - 1) // 2 * 2
    train(config, clone=clone, checkpoints=tmp_path / "cut", monitor=cut)
    assert untimed(cut) == untimed(whole)
    assert cut.histograms == whole.histograms
    names = ("model.safetensors", "optimizer.safetensors")
    for name in names:
        ours, theirs = (load_file(tmp_path / run / "step-000004" / name) for run in ("cut", "whole"))
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_damaged_checkpoint_falls_back_to_the_one_before(
    configure: Configure, clone: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = MemoryMonitor()
    train(configure(), clone=clone, checkpoints=tmp_path, monitor=whole)
    newest = tmp_path / "step-000004" / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    found = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 2
    assert "step-000004" in caplog.text
    train(configure(), clone=clone, checkpoints=tmp_path, monitor=whole)
    again = MemoryMonitor()
    shutil.rmtree(tmp_path)
    train(configure(), clone=clone, checkpoints=tmp_path, monitor=again)
    assert untimed(whole) == untimed(again)


def test_records_are_those_of_the_schedule(configure: Configure, clone: Path, tmp_path: Path) -> None:
    monitor = MemoryMonitor()
    train(configure(trainer={"steps": 3}), clone=clone, checkpoints=tmp_path, monitor=monitor)
    assert [(row["kind"], row["step"]) for row in monitor.rows] == [
        ("eval", 0),
        ("train", 1),
        ("train", 2),
        ("eval", 2),
        ("train", 3),
        ("eval", 3),
    ]
    assert monitor.rows[0]["eval/episodes"] == 64
    assert monitor.rows[3]["eval/episodes"] == 16
    assert all(
        math.isfinite(float(str(value))) for row in monitor.rows for k, value in row.items() if "/" in k
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000003"]


def test_stop_leaves_a_checkpoint_to_continue_from(configure: Configure, clone: Path, tmp_path: Path) -> None:
    whole = MemoryMonitor()
    train(configure(), clone=clone, checkpoints=tmp_path / "whole", monitor=whole)
    stopped = MemoryMonitor(stop_after=3)
    train(configure(), clone=clone, checkpoints=tmp_path / "cut", monitor=stopped)
    assert max(int(str(row["step"])) for row in stopped.rows) == 3
    stopped.stop_after = None
    train(configure(), clone=clone, checkpoints=tmp_path / "cut", monitor=stopped)
    assert untimed(stopped) == untimed(whole)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_divergence_is_reported_and_raised(configure: Configure, clone: Path, tmp_path: Path) -> None:
    monitor = MemoryMonitor()
    trainer = NativeTrainer(configure(), clone, tmp_path, monitor)
    with torch.no_grad():
        trainer.policy.model.norm[0] = float("nan")
    generate = trainer.reference.generate  # sample from the sound copy, so that the update meets the damage
    trainer.policy.generate = generate  # type: ignore[method-assign]
    with pytest.raises(Diverged, match="update 1"):
        trainer.run()
    last = monitor.rows[-1]
    assert last["kind"] == "train"
    assert math.isnan(float(str(last["train/loss"])))


@pytest.mark.parametrize("micro_rows", [1, 7])
def test_micro_batches_change_nothing_but_rounding(
    configure: Configure, clone: Path, tmp_path: Path, micro_rows: int
) -> None:
    point: dict[str, Any] = {
        "loss_aggregation": "seq_mean_token_mean",
        "is_clipping": option("is_clipping", "cispo", sequence_mask={"delta": 0.002, "denominator": "kept"}),
    }
    one, many = MemoryMonitor(), MemoryMonitor()
    base = {"steps": 1, "epochs": 2}
    train(configure(trainer=base, **point), clone=clone, checkpoints=tmp_path / "one", monitor=one)
    split = {**base, "micro_rows": micro_rows}
    train(configure(trainer=split, **point), clone=clone, checkpoints=tmp_path / "many", monitor=many)
    for name in ("train/loss", "train/gradient_norm_last", "train/kl_old_last"):
        assert many.rows[1][name] == pytest.approx(one.rows[1][name], rel=1e-3, abs=1e-7), name


def test_clone_is_the_same_every_time_and_imitates_better_than_chance(
    configure: Configure, clone: Path, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    make_clone(configure(), tmp_path, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (80, 80)
    ours, theirs = load_file(tmp_path / "model.safetensors"), load_file(clone / "model.safetensors")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    stages = json.loads((tmp_path / "clone.json").read_text())["stages"]
    assert stages[0]["last_loss"] < stages[0]["first_loss"] / 3


def test_one_update_per_rollout_makes_every_clip_agree(
    configure: Configure, clone: Path, tmp_path: Path
) -> None:
    """At ratio 1 all options have the policy gradient: same weights after the first step."""
    weights = []
    for name in ("token", "sequence", "soft", "cispo", "none"):
        config = configure(trainer={"steps": 1, "minibatch": {"count": 1}}, is_clipping=name)
        train(config, clone=clone, checkpoints=tmp_path / name, monitor=MemoryMonitor())
        weights.append(load_file(tmp_path / name / "step-000001" / "model.safetensors"))
    start = load_file(clone / "model.safetensors")
    for other in weights[1:]:
        for name, value in weights[0].items():
            moved = (value - start[name]).abs().max()
            torch.testing.assert_close(other[name], value, atol=float(moved) * 0.02, rtol=0)


def test_a_step_stops_where_the_policy_has_moved_too_far(
    configure: Configure, clone: Path, tmp_path: Path
) -> None:
    base: dict[str, Any] = {"steps": 2, "minibatch": {"count": 8}, "epochs": 2}
    free, bound = MemoryMonitor(), MemoryMonitor()
    train(configure(trainer=base), clone=clone, checkpoints=tmp_path / "free", monitor=free)
    first, *_, last = (row["train/kl_old_last"] for row in free.rows if row["kind"] == "train")
    limit = min(float(str(first)), float(str(last))) / 3
    stop = configure(trainer={**base, "stop_at_kl": limit})
    train(stop, clone=clone, checkpoints=tmp_path / "bound", monitor=bound)
    for plain, row in zip(free.rows, bound.rows, strict=True):
        if row["kind"] == "train":
            assert (plain["train/updates"], plain["train/stopped_at_kl"]) == (16, 0)
            assert 1 <= float(str(row["train/updates"])) < 16
            assert row["train/stopped_at_kl"] == 1
            assert float(str(row["train/kl_old_last"])) <= limit
