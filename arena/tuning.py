"""Optuna: which candidates a search tries next. Imports optuna.

Everything is in Optuna's storage before it is acted on, and everything acted on is found again by its number:
a driver that is killed at any moment goes on with the same candidates, and none is counted twice.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, Trial, TrialState

from arena.growth import GrowthError
from arena.plan import Candidate, PlannedTrial, Progress, Search, State, Study, TunedKey
from arena.searches import candidate_trials, judged, proposed

DATABASE = "tuning.db"
STARTUP_SHARE = 3
"""A third of the candidates is drawn at random before a model of the scores proposes the others."""

ENDED: tuple[State, ...] = ("done", "failed", "unavailable")


class Tuner:
    """Asks and tells. A candidate is proposed from the results of all that came `parallel` or more before it.

    Later results are held back until it is their turn, so that what is proposed depends on results alone, not
    on which candidate of those tried side by side ended first.
    """

    def __init__(self, study: Study) -> None:
        """Opens nothing yet."""
        self._folder, self._name = study.folder, study.name
        self._storages: dict[str, Any] = {}
        self._studies: dict[str, optuna.Study] = {}
        self._known: dict[str, Progress] = {}
        optuna.logging.set_verbosity(optuna.logging.ERROR)

    def advance(self, search: Search, state: Callable[[PlannedTrial], State]) -> Progress:
        """Tell what has ended, ask for what may be tried. Raises GrowthError when the storage cannot be used.

        state: how far a trial is.
        """
        known = self._known.get(search.id)
        if known is not None and not self._has_news(search, known, state):
            return known
        try:
            progress = self._advance(search, state)
        except Exception as error:
            # Optuna passes on whatever the database's own library raises.
            where = search.storage or self._folder / DATABASE
            told = (str(error).splitlines() or [""])[0]
            raise GrowthError(
                f"tuning of {search.label} ({where}): {type(error).__name__}: {told}"
            ) from error
        self._known[search.id] = progress
        return progress

    def _has_news(self, search: Search, progress: Progress, state: Callable[[PlannedTrial], State]) -> bool:
        """Whether the first candidate that is out has ended: until then nothing is to be told or asked."""
        first = next((one for one in progress.candidates if one.state == "running"), None)
        if first is None:
            # Trials that were removed are run again.
            return any(one.state == "done" and one.success is None for one in progress.candidates)
        return all(state(trial) in ENDED for trial in candidate_trials(search, first.values))

    def _advance(self, search: Search, state: Callable[[PlannedTrial], State]) -> Progress:
        study = self._study(search)
        told: list[Candidate] = []
        while True:
            asked = study.get_trials(deepcopy=False)
            while len(told) < len(asked) and asked[len(told)].state.is_finished():
                told.append(self._told(search, study, asked[len(told)]))
            ended = search.until_stable and any(one.stable for one in told)
            if len(asked) < search.candidates and len(asked) - len(told) < search.parallel and not ended:
                study.sampler = _sampler(search, len(asked))
                with _quiet():
                    self._values(search, study.ask())
                continue
            waiting = [self._candidate(search, study, trial) for trial in asked[len(told) :]]
            if not waiting:
                return Progress(search.id, tuple(told), True, _importance(study, told))
            trials = candidate_trials(search, waiting[0].values)
            if not all(state(trial) in ENDED for trial in trials):
                return Progress(search.id, (*told, *waiting))
            self._tell(study, self._judged(search, waiting[0]))

    def _candidate(self, search: Search, study: optuna.Study, trial: FrozenTrial) -> Candidate:
        """A candidate as it was asked for; values that a crash kept from being proposed are proposed now."""
        if all(key.name in trial.params for key in search.keys):
            values = {key.name: _applied(key, trial.params[key.name]) for key in search.keys}
        else:
            study.sampler = _sampler(search, trial.number)
            with _quiet():
                values = self._values(search, Trial(study, trial._trial_id))
        ids = tuple(planned.id for planned in candidate_trials(search, values))
        return Candidate(trial.number, values, ids)

    def _values(self, search: Search, trial: Trial) -> dict[str, Any]:
        return {key.name: _applied(key, trial._suggest(key.name, _distribution(key))) for key in search.keys}

    def _judged(self, search: Search, candidate: Candidate) -> Candidate:
        return judged(candidate, self._folder, candidate_trials(search, candidate.values))

    def _told(self, search: Search, study: optuna.Study, trial: FrozenTrial) -> Candidate:
        """A candidate that was told, with the score it was told with: its trials may have been removed."""
        candidate = self._judged(search, self._candidate(search, study, trial))
        if trial.state is TrialState.COMPLETE:
            return replace(candidate, state="done", score=trial.value)
        return replace(candidate, state="failed", score=None)

    def _tell(self, study: optuna.Study, candidate: Candidate) -> None:
        if candidate.score is None:
            study.tell(candidate.number, state=TrialState.FAIL)
        else:
            study.tell(candidate.number, candidate.score)

    def _study(self, search: Search) -> optuna.Study:
        if search.id not in self._studies:
            url = search.storage or f"sqlite:///{Path(self._folder).absolute() / DATABASE}"
            if url not in self._storages:
                self._storages[url] = optuna.storages.get_storage(url)
            self._studies[search.id] = optuna.create_study(
                study_name=f"{self._name}/{search.id}",
                storage=self._storages[url],
                direction="maximize",
                load_if_exists=True,
            )
        return self._studies[search.id]


def _sampler(search: Search, number: int) -> Any:
    """The sampler that proposes a candidate: of its number alone, so that it proposes the same again."""
    own = int(hashlib.sha256(f"{search.id} {number}".encode()).hexdigest()[:8], 16)
    of_all = int(search.id, 16) % 2**32
    startup = max(2, -(-search.candidates // STARTUP_SHARE))
    with _quiet():
        match search.sampler:
            case "random":
                return optuna.samplers.RandomSampler(seed=own)
            case "qmc":
                return optuna.samplers.QMCSampler(
                    seed=of_all,
                    scramble=True,
                    warn_independent_sampling=False,
                    warn_asynchronous_seeding=False,
                )
            case "gp":
                return optuna.samplers.GPSampler(seed=own, n_startup_trials=startup)
            case _:
                return optuna.samplers.TPESampler(
                    seed=own, n_startup_trials=startup, multivariate=True, constant_liar=True
                )


def _distribution(key: TunedKey) -> BaseDistribution:
    if key.choices:
        return CategoricalDistribution(key.choices)
    if isinstance(key.low, int) and isinstance(key.high, int):
        return IntDistribution(key.low, key.high, log=key.log)
    return FloatDistribution(key.low, key.high, log=key.log)


def _applied(key: TunedKey, value: Any) -> Any:
    return value if key.choices else proposed(value, key.low, key.high)


def _importance(study: optuna.Study, told: list[Candidate]) -> dict[str, float] | None:
    """How much of the variance of scores each key explains (fANOVA), where there is something to explain."""
    scores = {one.score for one in told if one.score is not None}
    if len(scores) < 3:
        return None
    if len(told[0].values) == 1:
        return dict.fromkeys(told[0].values, 1.0)
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    try:
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    except (RuntimeError, ValueError):
        return None
    return {name: round(float(value), 4) for name, value in found.items()}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what Optuna warns of: that something may change in another version."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
