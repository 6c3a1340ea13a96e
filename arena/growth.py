"""What results add to a study: candidates of tuning, cells with the chosen values, seeds where in doubt."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from arena.ledger import trial_state
from arena.plan import PlannedTrial, Progress, Search, State, Study
from arena.replication import seeds_decided
from arena.searches import (
    at_seed,
    candidate_trials,
    chosen_trials,
    final_success,
    read_progress,
    write_progress,
)

Advance = Callable[[Search, Callable[[PlannedTrial], State]], Progress]
"""How far a search is, once what has ended is told and what may be tried is asked for."""


class GrowthError(RuntimeError):
    """What results add to a study cannot be found out; the message says why."""


class Growth:
    """The trials that a study lacks by its own rules, given what became of those it has.

    advance: goes on with the searches of the study; without it they are taken as they are on file.
    """

    def __init__(self, study: Study, advance: Advance | None = None) -> None:
        self._study, self._advance = study, advance
        self._finals: dict[str, float | None] = {}
        self.progress: dict[str, Progress] = read_progress(study.folder) if study.searches else {}

    @property
    def unfinished(self) -> tuple[str, ...]:
        """What is still being tuned, or could not be, by label."""
        found = {search.label: self._found(search) for search in self._study.searches}
        return tuple(label for label, progress in found.items() if progress.chosen is None)

    def more(self, trials: Sequence[PlannedTrial], states: Mapping[str, State]) -> list[PlannedTrial]:
        """The trials to be added to these, with their states; some may have a result already.

        The same results give the same trials, whatever the order in which they came. Raises GrowthError and
        OSError.
        """
        found, known = list(trials), dict(states)
        while added := self._tuned(found, known) or self._more_seeds(found, known):
            found += added
            known |= {trial.id: trial.state for trial in added}
        return found[len(trials) :]

    def _tuned(self, trials: Sequence[PlannedTrial], states: Mapping[str, State]) -> list[PlannedTrial]:
        """The candidates that searches try next, and the cells of those that have chosen."""
        study = self._study
        if not study.searches:
            return []
        here = {trial.id for trial in trials}
        before = dict(self.progress)
        wanted: dict[str, PlannedTrial] = {}
        for search in study.searches:
            if self._advance is not None:
                self.progress[search.id] = self._advance(
                    search, lambda trial: states[trial.id] if trial.id in states else self._state(trial)
                )
            progress = self._found(search)
            asked = [trial for one in progress.candidates for trial in candidate_trials(search, one.values)]
            chosen = progress.chosen
            if chosen is not None:
                asked += chosen_trials(search, chosen.values, study.seeds)
            wanted |= {trial.id: trial for trial in asked if trial.id not in here}
        if self._advance is not None and self.progress != before:
            write_progress(study.folder, study.searches, self.progress)
        return [replace(trial, state=self._state(trial)) for trial in wanted.values()]

    def _found(self, search: Search) -> Progress:
        return self.progress.get(search.id) or Progress(search.id)

    def _more_seeds(self, trials: Sequence[PlannedTrial], states: Mapping[str, State]) -> list[PlannedTrial]:
        rule, most = self._study.replication, self._study.budget.trials
        if rule is None:
            return []
        cells: dict[str, dict[int, PlannedTrial]] = {}
        for trial in trials:
            if not trial.search:
                cells.setdefault(trial.cell, {})[trial.seed] = trial
        results: dict[Hashable, Mapping[int, float | None]] = {
            cell: self._results(own.values(), states) for cell, own in cells.items()
        }
        for search in self._study.searches:
            if self._found(search).chosen is None:
                # Cells that are still to come have a claim on the budget.
                results |= {(search.id, number): {} for number in range(len(search.cells))}
        if most is not None:
            most -= sum(search.most_trials for search in self._study.searches)
        decided = seeds_decided(results, rule, most)
        added = [
            at_seed(next(iter(cells[cell].values())), seed)
            for seed in range(rule.most)
            for cell, seeds in decided.items()
            if isinstance(cell, str) and seed < seeds and seed not in cells[cell]
        ]
        if most is not None:
            added = added[
                : max(0, most - sum(map(len, cells.values())) - rule.least * (len(results) - len(cells)))
            ]
        return [replace(trial, state=self._state(trial)) for trial in added]

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
            self._finals[trial.id] = final_success(self._study.trial_folder(trial), trial.config)
        return self._finals[trial.id]

    def _state(self, trial: PlannedTrial) -> State:
        state: State = trial_state(self._study.trial_folder(trial))
        return "unavailable" if trial.problems and state != "done" else state


def live_growth(study: Study) -> Growth:
    """What grows a study that is being run. Imports Optuna where something is tuned."""
    if not study.searches:
        return Growth(study)
    from arena.tuning import Tuner

    return Growth(study, Tuner(study).advance)
