"""Which trials of a plan a run is about: `--only "is_clipping=cispo"` and `--limit 5`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arena.conditions import MISSING, ConditionError, Facts, assertion, dig
from arena.configuration import Key, scalar_keys
from arena.mistakes import Mistake, MistakesError, Place, nearest
from arena.options import AXES
from arena.plan import PlannedTrial, State, Study


def select(
    study: Study, only: Sequence[str], limit: int | None, *, retry_failed: bool = False
) -> frozenset[str]:
    """The ids of the trials that meet every condition of `only`, of which `limit` are still to be run.

    Raises MistakesError for a condition that cannot be understood, or that no trial of the plan meets.
    """
    found = list(study.trials)
    if not found and study.searches:
        message = "tuning has not decided on any trial yet; run the grid without --only and --limit first"
        raise MistakesError([Mistake(Place("command line"), "", message)])
    for text in only:
        place = Place(f"command line (--only {text})")
        try:
            condition = assertion(text)
        except ConditionError as error:
            raise MistakesError([Mistake(place, "", str(error))]) from None
        if all(facts_of(trial)(condition.key) is MISSING for trial in study.trials):
            key = ".".join(condition.key)
            swept = dict.fromkeys(name for trial in study.trials for name in trial.swept)
            near = nearest(key, [*AXES, "env", "seed", "method", *swept, *scalar_keys()])
            suggestion = f"; did you mean {near!r}?" if near else ""
            raise MistakesError([Mistake(place, "", f"no trial has {key!r}{suggestion}")])
        found = [trial for trial in found if condition.holds(facts_of(trial))]
        if not found:
            raise MistakesError([Mistake(place, "", "no trial of this plan is left")])
    if limit is not None:
        wanted: tuple[State, ...] = ("pending", "interrupted", *(("failed",) if retry_failed else ()))
        found = [trial for trial in found if trial.state in wanted][:limit]
    return frozenset(trial.id for trial in found)


def facts_of(trial: PlannedTrial) -> Facts:
    """A planned trial as conditions see it: configuration, swept keys, and `env`, `seed` and `method`."""

    def facts(key: Key) -> Any:
        first, *rest = key
        if key == ("env",):
            return trial.env
        if key == ("method",):
            return trial.methods[0] if trial.methods else trial.label
        if key == ("seed",):
            return trial.seed
        if ".".join(key) in trial.swept:
            return trial.swept[".".join(key)]
        if first in AXES:
            option = getattr(trial.config, first)
            return dig(option.parameters, tuple(rest)) if rest else option.option
        return dig(trial.config, key)

    return facts
