"""A trial as files for people who run verl themselves."""

from __future__ import annotations

import shlex
from pathlib import Path

from trainers.config import TrainingConfig
from trainers.verl.schema import composed
from trainers.verl.translation import Overrides, Surroundings, translate

CONFIG, COMMAND = "verl.yaml", "command.sh"


def export(config: TrainingConfig, folder: Path, *, around: Surroundings) -> list[Path]:
    """Write verl's whole configuration of a trial and the command that runs it into a folder.

    The command is verl's own; it finds our trainer, losses and agent loop by the entry point that comes with
    this package. Raises ValueError for what verl cannot do, VerlMissingError without verl's files.
    """
    from omegaconf import OmegaConf

    whole = OmegaConf.to_yaml(composed(translate(config, around) | _ray(config)))
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / CONFIG, folder / COMMAND]
    written[0].write_text(whole, encoding="utf-8")
    written[1].write_text(_command(config, folder), encoding="utf-8")
    written[1].chmod(0o755)
    return written


def _ray(config: TrainingConfig) -> Overrides:
    """A Ray of its own, whatever else runs on the machine; over several machines the one that is there."""
    assert config.verl is not None
    if config.verl.nodes == 1:
        return {"ray_kwargs.ray_init.address": "local"}
    return {"ray_kwargs.ray_init.address": "auto", "ray_kwargs.ray_init.num_cpus": None}


def _command(config: TrainingConfig, folder: Path) -> str:
    arguments = ["python", "-m", "verl.trainer.main_ppo", "--config-path", str(folder.absolute())]
    arguments += ["--config-name", CONFIG.removesuffix(".yaml")]
    assert config.verl is not None
    lines = [
        "#!/bin/sh",
        "# Needs: pip install 'arlarena[verl]', and the engine.",
        "set -e",
        "export VERL_USE_EXTERNAL_MODULES=trainers.verl.plugin",
    ]
    if config.verl.platform == "cpu":
        lines.append("# verl without a GPU, through patches of ours")
        lines.append("export ARLARENA_VERL_CPU=1 VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda")
        lines.append("unset CUDA_VISIBLE_DEVICES")
    return "\n".join([*lines, f'exec {shlex.join(arguments)} "$@"', ""])
