"""Makes `values.json`: what lifelines and rliable say of made-up runs. Needs those two packages.

    python tests/golden/statistics/make.py

Steps are multiples of 2, so that many runs collapse at the same one; three options, eight blocks; option
`loose` collapses most, `tight` never (for the case without a maximum), a quarter is censored early.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import lifelines
import numpy as np
import pandas as pd
from lifelines import CoxPHFitter, KaplanMeierFitter
from lifelines.statistics import multivariate_logrank_test
from lifelines.utils import restricted_mean_survival_time
from rliable import metrics


def runs() -> pd.DataFrame:
    random = np.random.default_rng(7)
    rows = []
    for block in range(8):
        for option, mean in (("loose", 12), ("token", 25), ("tight", np.inf)):
            for context in range(2):
                time = 2 * round(random.exponential(mean) / 2 + 0.5) if np.isfinite(mean) else 999
                limit = 30 if random.random() < 0.75 else 2 * int(random.integers(3, 15))
                rows.append([block, option, context, min(time, limit), int(time <= limit)])
    return pd.DataFrame(rows, columns=["block", "option", "context", "time", "event"])


def curves(table: pd.DataFrame) -> dict[str, Any]:
    found = {}
    for option, part in table.groupby("option"):
        fit = KaplanMeierFitter().fit(part["time"], part["event"])
        deaths = fit.event_table.query("observed > 0 and index > 0").index
        band = fit.confidence_interval_.loc[deaths].to_numpy()
        found[str(option)] = {
            "times": deaths.tolist(),
            "survival": fit.survival_function_.loc[deaths].iloc[:, 0].tolist(),
            "low": band[:, 0].tolist(),
            "high": band[:, 1].tolist(),
            "restricted_mean_20": float(restricted_mean_survival_time(fit, t=20)),
        }
    return found


def hazards(table: pd.DataFrame) -> dict[str, Any]:
    two = table[table["option"] != "tight"].assign(loose=lambda t: (t["option"] == "loose").astype(float))
    columns = ["time", "event", "loose", "context"]
    plain = CoxPHFitter().fit(two[columns], "time", "event")
    strata = CoxPHFitter().fit(two[[*columns, "block"]], "time", "event", strata=["block"])
    return {
        name: {"coefficients": fit.params_.tolist(), "errors": fit.standard_errors_.tolist()}
        for name, fit in (("plain", plain), ("stratified", strata))
    }


def aggregates() -> dict[str, Any]:
    random = np.random.default_rng(11)
    first, second = random.beta(6, 4, (8, 5)), random.beta(7, 4, (8, 5))
    return {
        "first": first.tolist(),
        "second": second.tolist(),
        "interquartile_mean": metrics.aggregate_iqm(first),
        "probability_of_improvement": metrics.probability_of_improvement(first, second),
    }


if __name__ == "__main__":
    table = runs()
    three = multivariate_logrank_test(table["time"], table["option"], table["event"])
    values = {
        "made_with": {"lifelines": lifelines.__version__},
        "runs": {name: table[name].tolist() for name in table},
        "kaplan_meier": curves(table),
        "log_rank": {"statistic": float(three.test_statistic), "p": float(three.p_value)},
        "cox": hazards(table),
        "rliable": aggregates(),
    }
    place = Path(__file__).with_name("values.json")
    place.write_text(json.dumps(values) + "\n", encoding="utf-8")
    sys.stdout.write(f"{place}\n")
