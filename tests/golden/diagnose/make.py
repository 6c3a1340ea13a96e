"""Makes the logs in this folder with the loggers of transformers, verl, TensorBoard and MLflow themselves.

    python tests/golden/diagnose/make.py

Needs verl, tensorboard and MLflow installed. The courses are drawn: 60 steps, the gradient norm swells from
step 30 on, success falls from step 38 on. `healthy` keeps rising.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STEPS = 60


def course(step: int, *, falls: bool = True) -> dict[str, float]:
    wobble = 1 + 0.04 * math.sin(1.7 * step)
    rise = 0.3 + 0.4 * (1 - math.exp(-step / 12))
    success = max(0.02, rise - 0.06 * max(0, step - 38)) if falls else rise
    swell = math.exp(0.35 * max(0, step - 30)) if falls and step > 30 else 1.0
    return {
        "success": round(success * wobble, 4),
        "grad_norm": round(min(500.0, 0.6 * wobble * swell), 4),
        "kl": round(0.002 * step * (3 if falls and step > 34 else 1), 5),
        "entropy": round(0.9 - 0.004 * step, 4),
        "std": round(0.4 * wobble, 4),
        "length": round(120 * wobble, 1),
    }


def trl(step: int, **kind: bool) -> dict[str, Any]:
    now = course(step, **kind)
    return {
        "loss": round(0.01 * now["std"], 4), "grad_norm": now["grad_norm"], "learning_rate": 1e-06,
        "num_tokens": 4096.0 * step, "completions/mean_length": now["length"],
        "completions/clipped_ratio": 0.0, "rewards/accuracy_reward/mean": now["success"],
        "rewards/accuracy_reward/std": now["std"], "rewards/format_reward/mean": 0.97,
        "reward": round(now["success"] + 0.97, 4), "reward_std": now["std"], "frac_reward_zero_std": 0.2,
        "kl": now["kl"], "clip_ratio/low_mean": 0.01, "clip_ratio/high_mean": 0.02,
        "entropy": now["entropy"], "epoch": round(step / STEPS, 2),
    }  # fmt: skip


def verl(step: int) -> dict[str, Any]:
    import numpy as np

    now = course(step)
    found = {
        "training/global_step": step, "actor/pg_loss": 0.01, "actor/grad_norm": now["grad_norm"],
        "actor/ppo_kl": now["kl"] / 10, "actor/pg_clipfrac": 0.01, "actor/entropy": now["entropy"],
        "actor/lr": 1e-06, "critic/score/mean": np.float64(now["success"]),
        "critic/rewards/mean": np.float64(now["success"]), "response_length/mean": now["length"],
        "perf/throughput": 1034.5,
    }  # fmt: skip
    if step % 5 == 0:
        found["val-core/gsm8k/reward/mean@1"] = np.float64(now["success"])
    return found


def transformers_logs() -> None:
    from transformers.trainer_callback import PrinterCallback, TrainerControl, TrainerState
    from transformers.training_args import TrainingArguments

    state = TrainerState(log_history=[{**trl(step), "step": step} for step in range(1, STEPS + 1)])
    state.global_step = STEPS
    state.save_to_json(str(HERE / "trainer_state.json"))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, report_to=[], use_cpu=True)
    for name, falls in (("trl_printed.log", True), ("trl_healthy.log", False)):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            print("Loading checkpoint shards: 100%|##########| 2/2 [00:01<00:00]")  # noqa: T201
            for step in range(1, STEPS + 1):
                printer = PrinterCallback()
                printer.on_log(arguments, TrainerState(), TrainerControl(), logs=trl(step, falls=falls))
                print(f"  {step}/{STEPS} [00:{step:02d}<00:10,  1.2s/it]")  # noqa: T201
        (HERE / name).write_text(out.getvalue(), encoding="utf-8")


def verl_logs() -> None:
    from verl.utils.logger.aggregate_logger import LocalLogger
    from verl.utils.tracking import FileLogger

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print("(TaskRunner pid=812) Size of train dataloader: 29")  # noqa: T201
        for step in range(1, STEPS + 1):
            LocalLogger().log(verl(step), step)
    (HERE / "verl_console.log").write_text(out.getvalue(), encoding="utf-8")
    os.environ["VERL_FILE_LOGGER_PATH"] = str(HERE / "verl_file.jsonl")
    with contextlib.redirect_stdout(io.StringIO()):
        logger = FileLogger("project", "run")
    for step in range(1, STEPS + 1):
        logger.log(verl(step), step)
    logger.finish()


def tensorboard_logs() -> None:
    from torch.utils.tensorboard import SummaryWriter

    folder = HERE / "tensorboard"
    shutil.rmtree(folder, ignore_errors=True)
    writer = SummaryWriter(str(folder))
    for step in range(1, STEPS + 1):
        for key, value in trl(step).items():
            writer.add_scalar(f"train/{key}", value, step)
    writer.close()
    (made,) = folder.iterdir()
    made.rename(folder / "events.out.tfevents.1790000000.machine.1.0")


def mlflow_logs() -> None:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    path = HERE / "mlflow.db"
    path.unlink(missing_ok=True)
    client = MlflowClient(f"sqlite:///{path}")
    run = client.create_run(
        client.create_experiment("runs"), run_name="from_mlflow", start_time=1790000000000
    )
    batch = [
        Metric(f"train/{key}", value, 1790000000000 + step, step)
        for step in range(1, STEPS + 1)
        for key, value in trl(step).items()
        if key in ("rewards/accuracy_reward/mean", "reward", "grad_norm", "kl", "loss")
    ]
    client.log_batch(run.info.run_id, metrics=batch)
    # What MLflow wrote, without the tables that nobody reads here: a megabyte of empty pages.
    with sqlite3.connect(path) as store:
        store.execute("pragma foreign_keys = off")
        for (table,) in store.execute("select name from sqlite_master where type = 'table'").fetchall():
            if table not in ("runs", "metrics", "experiments"):
                store.execute(f'drop table "{table}"')
    with sqlite3.connect(path) as store:
        store.execute("vacuum")


def wandb_export() -> None:
    """The form of a chart's CSV export: a column per run and metric, `__MIN` and `__MAX` beside."""
    metric = "train/rewards/accuracy_reward/mean"
    header = ["Step"]
    for name in ("falls", "rises"):
        header += [f"{name} - {metric}", f"{name} - {metric}__MIN", f"{name} - {metric}__MAX"]
    with (HERE / "wandb_export.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(header)
        for step in range(1, STEPS + 1):
            values = [course(step, falls=falls)["success"] for falls in (True, False)]
            writer.writerow([step, *(value for value in values for _ in range(3))])


if __name__ == "__main__":
    transformers_logs()
    wandb_export()
    tensorboard_logs()
    verl_logs()
    mlflow_logs()
