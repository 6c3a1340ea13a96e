"""Saved views of an experiment: which runs and columns the MLflow page shows, one click away under "Views".

The page keeps a view as a tag of the experiment. Its own table shows neither outcomes nor final success until
their columns are picked by hand. A version of MLflow that does not know these tags ignores them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

GROUP = "group"
"""Tag of trials: the name of their cell, to draw them as one curve."""
TAG = "mlflow.sharedViewState."
_CREATED = 1_700_000_000_000
"""A moment in the past, in milliseconds: the page sorts views by it, newest first."""


@dataclass(frozen=True)
class View:
    """Runs and columns. runs: a search as one types it; order: what to sort by, largest first.

    means_over: tags; runs that agree in them are drawn as one curve, their mean, with a band.
    """

    name: str
    runs: str
    order: str
    columns: tuple[str, ...]
    means_over: tuple[str, ...] = ()


def views(axes: Sequence[str]) -> tuple[View, ...]:
    """The views of a study with these axes."""
    options = tuple(f"tags.`{axis}`" for axis in axes)
    success = "metrics.`final/success`"
    trial = ("tags.`outcome`", "tags.`learned`", "tags.`onset`", success, "metrics.`final/start`")
    return (
        View(
            "methods",
            "tags.kind = 'cell'",
            success,
            (success, "metrics.`final/success_std`", "metrics.`final/seeds`", "tags.`outcomes`", *options),
        ),
        View("trials", "tags.kind = 'trial'", success, (*trial, "tags.`seed`", *options)),
        View(
            "collapsed and diverged",
            # A search knows neither OR nor IN for tags; those two are the outcomes with an onset.
            "tags.kind = 'trial' AND tags.onset LIKE '%'",
            success,  # ordered by a metric, trials are listed; by time, they hide behind their cells
            (*trial, "tags.`warnings`", "tags.`reason`"),
        ),
        View("means over seeds (charts)", "tags.kind = 'trial'", success, trial, (GROUP,)),
    )


def view_tags(axes: Sequence[str]) -> dict[str, str]:
    """The tags of the experiment that hold the views."""
    return {
        f"{TAG}arena-{index}": json.dumps(
            {
                "name": view.name,
                "createdAt": _CREATED - index,
                "updatedAt": _CREATED - index,
                "state": json.dumps(_state(view)),
            }
        )
        for index, view in enumerate(views(axes))
    }


def _state(view: View) -> dict[str, object]:
    keys = [{"mode": "tag", "groupByData": tag} for tag in view.means_over]
    return {
        "searchFilter": view.runs,
        "orderByKey": view.order,
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(view.columns),
        "columnOrder": list(view.columns),
        "columnWidths": {},
        "runsHiddenMode": "FIRST_20_RUNS",
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": False,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": {"aggregateFunction": "average", "groupByKeys": keys} if keys else None,
        "groupsExpanded": {},
    }
