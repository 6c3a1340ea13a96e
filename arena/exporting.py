"""Finding the configuration of a trial that is to be exported: a started one, or a planned one."""

from __future__ import annotations

from pathlib import Path

from arena.identity import TrialConfig


def find_config(name: str, *, grid: Path | None, studies: Path) -> tuple[str, str, TrialConfig]:
    """A trial's id, its clone's and its configuration, under the verl back-end.

    name: the beginning of an id. grid: plan it and look there; else among trials that were started. A trial
    of the native back-end is exported as verl would run it. Raises NoSuchTrialError, and MistakesError for
    a grid that is wrong.
    """
    from arena.ledger import NoSuchTrialError, find_trial
    from arena.planning import plan_study
    from arena.trial_sheet import read_sheet

    if grid is None:
        sheet = read_sheet(find_trial(studies, name))
        return sheet.trial, sheet.clone, _for_verl(TrialConfig.model_validate(dict(sheet.config)))
    found = [trial for trial in plan_study(grid, studies=studies).trials if trial.id.startswith(name)]
    if len(found) != 1:
        many = ", ".join(trial.id for trial in found[:3]) or "none"
        raise NoSuchTrialError(f"{name!r} must begin one id of the trials of {grid}; found: {many}")
    return found[0].id, found[0].clone, _for_verl(found[0].config)


def _for_verl(config: TrialConfig) -> TrialConfig:
    from trainers.config import VerlConfig

    if config.verl is not None:
        return config
    settings = VerlConfig(platform="cpu", engine="hf_cpu") if config.model.device == "cpu" else VerlConfig()
    return config.model_copy(update={"verl": settings, "backend": "verl"})
