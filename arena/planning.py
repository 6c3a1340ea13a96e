"""Making a plan from a grid file. Nothing is created, and nothing heavy imported."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from analysis.option_names import option_label
from arena.cells import Cell, make_cells
from arena.clones import clone_id
from arena.configuration import Composer, resolve_profile
from arena.estimability import estimable
from arena.expectations import unreadable_hypotheses
from arena.grid import AdaptiveSeeds, Grid
from arena.grid_entries import GridFile
from arena.grid_file import read_grid
from arena.identity import trial_id
from arena.limits import Handling, Limits
from arena.mistakes import Mistake, MistakesError
from arena.options import AXES, CONF, Catalogue
from arena.plan import Budget, Estimable, Estimate, Part, PlannedTrial, Resources, Search, State, Study
from arena.plan_estimate import NO_ESTIMATE, estimate_of
from arena.replication import Replication
from arena.spending import Spent, spent, unit


def plan_study(
    grid: Path,
    assignments: Sequence[str] = (),
    *,
    studies: Path,
    conf: Path = CONF,
    part: Callable[[Study], Part] | None = None,
) -> Study:
    """Plan a grid file with the `key=value` of a command line over it.

    studies: where studies lie; read for what is done already, never written. part: what is run of a study,
    which has no estimate yet. Raises MistakesError with everything that is wrong in the file and on the
    command line.
    """
    with _no_garbage_collection():
        return _plan(grid, assignments, studies, Catalogue(conf), part)


def _plan(
    grid: Path,
    assignments: Sequence[str],
    studies: Path,
    catalogue: Catalogue,
    part: Callable[[Study], Part] | None,
) -> Study:
    file = read_grid(grid, assignments, catalogue)
    folder = studies / file.grid.name
    profile = _profile(file, folder, catalogue)
    cells, wrong = make_cells(file, catalogue, Composer(catalogue), profile)
    searches, misled = _searches(file, folder, cells, catalogue)
    axes = _axes(cells)
    if not file.mistakes and not wrong:
        methods = dict.fromkeys(name for cell in cells for name in (*cell.methods, cell.label))
        wrong = unreadable_hypotheses(file, axes, list(methods))
    if file.mistakes or wrong or misled:
        raise MistakesError([*file.mistakes, *wrong, *misled])
    tuned = {trial.cell for search in searches for trial in search.cells}
    untuned = [cell for cell in cells if cell.id not in tuned]
    budget = Budget(**file.grid.budget.model_dump())
    study = Study(
        name=file.grid.name,
        question=file.grid.question,
        folder=folder,
        grid=grid,
        text=file.source.text,
        assignments=tuple(assignments),
        axes=axes,
        design=file.grid.design.label if file.has_product else "points",
        estimable=_estimable(cells),
        profile=profile,
        trials=_trials(file, folder, untuned, file.grid.seed_list),
        budget=budget,
        estimate=NO_ESTIMATE,
        handling=_handling(file.grid),
        replication=_replication(file),
        hypotheses=tuple(file.grid.hypotheses),
        searches=searches,
        seeds=tuple(file.grid.seed_list),
    )
    study = grown(study)
    if part is not None:
        study = replace(study, part=part(study))
    estimate = estimate_of(study, cells, file.grid.estimate.model_dump(exclude_none=True))
    cost = spent(budget, folder, study.trials)
    planned = len(study.trials) + estimate.later
    return replace(study, estimate=estimate, over_budget=_over(budget, planned, estimate, cost))


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A plan has no cycles: looking for them would be a third of the time that a large one takes."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _profile(file: GridFile, folder: Path, catalogue: Catalogue) -> str:
    """The profile by name; `auto` stays what it was when the study was last run."""
    if file.grid.profile not in ("auto", *catalogue.names("profile")):
        return catalogue.defaults["profile"]
    if file.grid.profile == "auto":
        try:
            frozen = json.loads((folder / "plan.json").read_bytes())["profile"]
        except (OSError, ValueError, KeyError, TypeError):
            frozen = None
        if frozen in catalogue.names("profile"):
            return str(frozen)
    return resolve_profile(file.grid.profile)


def _trials(
    file: GridFile, folder: Path, cells: Iterable[Cell], seeds: Sequence[int]
) -> tuple[PlannedTrial, ...]:
    """All trials, seed by seed: a part of a study is a whole picture."""
    given = file.grid.resources.model_dump(exclude_none=True)
    known = _known(folder)
    placed = [(cell, Resources(**{**cell.base.resources, **given})) for cell in cells]
    clones = _Clones()
    return tuple(
        PlannedTrial(
            id=name,
            cell=cell.id,
            label=cell.label,
            methods=cell.methods,
            point=cell.point,
            env=cell.env,
            seed=seed,
            config=cell.config if seed == 0 else cell.config.model_copy(update={"seed": seed}),
            resources=resources,
            state=_state(folder / "trials" / name if name in known else None, cell.problems),
            problems=cell.problems,
            clone=clones.of(cell, seed),
            data=cell.data,
            rank=cell.rank,
            swept=cell.swept,
        )
        for seed in seeds
        for cell, resources in placed
        for name in [trial_id(cell.id, seed)]
    )


def _handling(grid: Grid) -> Handling:
    hang, hours = grid.limits.hang_minutes, grid.limits.hours
    limits = Limits(hang=None if hang is None else 60 * hang, total=None if hours is None else 3600 * hours)
    return Handling(limits, grid.retries, grid.on_out_of_memory)


class _Clones:
    """The ids of clones where every seed has its own, each computed once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], str] = {}

    def of(self, cell: Cell, seed: int) -> str:
        if seed == 0 or cell.config.cloning.clone_seed != "seed":
            return cell.clone
        if (cell.clone, seed) not in self._known:
            config = cell.config.model_copy(update={"seed": seed})
            self._known[cell.clone, seed] = clone_id(config, cell.data)
        return self._known[cell.clone, seed]


def _searches(
    file: GridFile, folder: Path, cells: Sequence[Cell], catalogue: Catalogue
) -> tuple[tuple[Search, ...], list[Mistake]]:
    """What is tuned before it is run, and what is wrong with it."""
    tuning = file.grid.tuning
    if tuning is None:
        return (), []
    from arena.planned_searches import TunedCell, plan_searches

    trials = _trials(file, folder, cells, [0])
    placed = [
        TunedCell(trial, tuple(sorted((key, repr(value)) for key, value in cell.levels.items())), cell.name)
        for cell, trial in zip(cells, trials, strict=True)
    ]
    return plan_searches(placed, file.tuned, tuning, catalogue)


def _replication(file: GridFile) -> Replication | None:
    seeds = file.grid.seeds
    if not isinstance(seeds, AdaptiveSeeds):
        return None
    return Replication(seeds.min, seeds.max, seeds.until.ci_width)


def grown(study: Study) -> Study:
    """A study with the trials that its results ask for, and those seeds that have a result all the same."""
    rule = study.replication
    if rule is None and not study.searches:
        return study
    from arena.growth import Growth
    from arena.searches import at_seed

    states = {trial.id: trial.state for trial in study.trials}
    growth = Growth(study)
    trials = [*study.trials, *growth.more(study.trials, states)]
    study = replace(study, progress=growth.progress)
    if rule is None:
        return replace(study, trials=tuple(trials))
    planned, known = {trial.id for trial in trials}, _known(study.folder)
    cells = {trial.cell: trial for trial in trials if not trial.search}
    names = {trial_id(cell, seed): (cell, seed) for cell in cells for seed in range(rule.most)}
    for name in sorted(known & names.keys() - planned):
        cell, seed = names[name]
        if _state(study.folder / "trials" / name, ()) == "done":
            trials.append(replace(at_seed(cells[cell], seed), state="done"))
    return replace(study, trials=tuple(trials))


def _known(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder / "trials"))
    except OSError:
        return frozenset()


def _state(folder: Path | None, problems: Sequence[str]) -> State:
    """How far a trial is; None: it has no folder. problems: why it cannot run here."""
    state: State = "pending"
    if folder is not None:
        from arena.ledger import trial_state

        state = trial_state(folder)
    return "unavailable" if problems and state in ("pending", "failed", "interrupted") else state


def _axes(cells: Iterable[Cell]) -> dict[str, tuple[str, ...]]:
    """Per axis the labels of the options that occur, in order."""
    labels: dict[str, dict[str, None]] = {axis: {} for axis in AXES}
    seen: set[int] = set()
    for cell in cells:
        if id(cell.point) in seen:
            continue
        seen.add(id(cell.point))
        for axis, option in cell.point.items():
            labels[axis][option_label(option)] = None
    return {axis: tuple(names) for axis, names in labels.items()}


def _estimable(cells: Iterable[Cell]) -> Estimable:
    """What the cells can show. Other clones are repetitions, as other seeds are, and no factor."""
    return estimable([(cell.levels, cell.surroundings) for cell in cells], ignoring="cloning.clone_seed")


def _over(budget: Budget, trials: int, estimate: Estimate, spent: Spent) -> tuple[str, ...]:
    checks = {
        "trials": (0.0, float(trials), budget.trials),
        "hours": (spent.hours, estimate.seconds / 3600, budget.hours),
        "gpu_hours": (spent.gpu_hours, estimate.gpu_hours, budget.gpu_hours),
    }
    return tuple(
        f"{f'{used:,.4g} {unit(name)} spent and ' if used else ''}{needed:,.4g}"
        f"{'' if used else f' {unit(name)}'} planned, the budget allows {allowed:,.4g}; "
        f"plan less, or raise `budget.{name}`"
        for name, (used, needed, allowed) in checks.items()
        if allowed is not None and needed and used + needed > allowed
    )
