"""Whether a study's report and MLflow runs are up to date: a run with nothing to do is then over at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from arena.ledger import TRIALS
from arena.plan import Study
from arena.records import OUTCOME

UP_TO_DATE = "up_to_date"
"""Key of the study's lock file: the fingerprint of what report and MLflow were last made from."""


def fingerprint(study: Study, origin: Mapping[str, Any]) -> str | None:
    """What a study's report and its MLflow runs are made from, in a few letters; None when that is not known.

    origin: the provenance of the code, of which uncommitted changes say nothing.
    """
    store = os.environ.get("MLFLOW_TRACKING_URI")
    if origin.get("dirty") or (store is None and not (study.studies / "mlflow.db").exists()):
        return None
    whole = sha256()
    told = [study.text, study.assignments, origin.get("versions"), origin.get("commit"), store]
    whole.update(repr([*told, [trial.id for trial in study.trials]]).encode())
    for name in sorted(os.listdir(study.folder / TRIALS)):
        whole.update(f"{name} {_version(study.folder / TRIALS / name / OUTCOME)}\n".encode())
    return whole.hexdigest()[:16]


def _version(path: Path) -> str:
    with suppress(OSError):
        status = path.stat()
        return f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"
    return ""
