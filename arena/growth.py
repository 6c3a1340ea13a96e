"""What the results of a study add to it: more seeds for cells in doubt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from analysis.collapse import judge
from arena.clones import clone_id
from arena.identity import TrialConfig, trial_id
from arena.ledger import trial_state
from arena.plan import PlannedTrial, State, Study
from arena.records import METRICS, read_lines
from arena.replication import Replication, seeds_decided


class Growth:
    """The trials that a study lacks by its own rules, given what became of those it has."""

    def __init__(self, study: Study) -> None:
        self._folder = study.folder
        self._rule = study.replication
        self._most = study.budget.trials
        self._finals: dict[str, float | None] = {}

    def more(self, trials: Sequence[PlannedTrial], states: Mapping[str, State]) -> list[PlannedTrial]:
        """The trials to be added to these, with their states; some may have a result already.

        The same results give the same trials, whatever the order in which they came.
        """
        if self._rule is None:
            return []
        found = list(trials)
        known = dict(states)
        while added := self._more_seeds(self._rule, found, known):
            found += added
            known |= {trial.id: trial.state for trial in added}
        return found[len(trials) :]

    def _more_seeds(
        self, rule: Replication, trials: Sequence[PlannedTrial], states: Mapping[str, State]
    ) -> list[PlannedTrial]:
        cells: dict[str, dict[int, PlannedTrial]] = {}
        for trial in trials:
            cells.setdefault(trial.cell, {})[trial.seed] = trial
        results = {cell: self._results(own.values(), states) for cell, own in cells.items()}
        decided = seeds_decided(results, rule, self._most)
        added = [
            self._at_seed(next(iter(cells[cell].values())), seed)
            for seed in range(rule.most)
            for cell, seeds in decided.items()
            if seed < seeds and seed not in cells[cell]
        ]
        return added if self._most is None else added[: max(0, self._most - len(trials))]

    def _results(
        self, trials: Iterable[PlannedTrial], states: Mapping[str, State]
    ) -> dict[int, float | None]:
        """Final success by seed; None where a trial ended without, or cannot run here."""
        results: dict[int, float | None] = {}
        for trial in trials:
            state = states.get(trial.id, trial.state)
            if state == "done":
                results[trial.seed] = self._final(trial)
            elif state in ("failed", "unavailable"):
                results[trial.seed] = None
        return results

    def _final(self, trial: PlannedTrial) -> float | None:
        if trial.id not in self._finals:
            self._finals[trial.id] = final_success(self._folder / "trials" / trial.id, trial.config)
        return self._finals[trial.id]

    def _at_seed(self, like: PlannedTrial, seed: int) -> PlannedTrial:
        made = at_seed(like, seed)
        state: State = trial_state(self._folder / "trials" / made.id)
        unavailable = bool(made.problems) and state != "done"
        return replace(made, state="unavailable" if unavailable else state)


def at_seed(trial: PlannedTrial, seed: int) -> PlannedTrial:
    """Another seed of a trial's cell, not looked for on the disk yet."""
    config = trial.config.model_copy(update={"seed": seed})
    own = config.cloning.clone_seed == "seed"
    return replace(
        trial,
        id=trial_id(trial.cell, seed),
        seed=seed,
        config=config,
        state="pending",
        clone=clone_id(config, trial.data) if own else trial.clone,
    )


def final_success(folder: Path, config: TrialConfig) -> float | None:
    """Final success as the report counts it, of a trial that has a result."""
    rows = read_lines(folder / METRICS).rows
    return judge(rows, config.collapse.model_dump(), finished=True).final
