"""A study on a disk that runs full, and again when there is room: `full_disk.py FOLDER`.

Run by `unshare --map-root-user --mount`, so that a small file system can be mounted on FOLDER.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fake_study import HANDLING, fake_config, make_study, run_without_ray

from arena.ledger import study_states
from arena.plan import Study
from arena.processes import tagged
from arena.records import RECORDS, read_outcome


def main(folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(folder)], check=True)
    handling = replace(HANDLING, retries=0)
    configs = [fake_config(seed=seed, steps=600, checkpoint_every=50) for seed in range(3)]
    study = make_study(folder, configs, handling=handling)
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert run_without_ray(monkeypatch, study) == 1
        states = study_states(study.folder)
        done = contents(study)
        assert "running" not in states.values()
        assert list(states.values()).count("done") == 1, "the disk is to run full in the second trial"
        assert shutil.disk_usage(folder).free < 64 << 10, "the disk was never full"
        assert tagged(folder) == []
        subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
        assert run_without_ray(monkeypatch, study, retry_failed=True) == 0
    assert set(study_states(study.folder).values()) == {"done"}
    after = contents(study)
    assert all(after[name] == content for name, content in done.items() if states[name] == "done")
    for trial in study.trials:
        rows = (study.trial_folder(trial) / "metrics.jsonl").read_text().splitlines()
        assert sum('"train"' in row for row in rows) == 600
        outcome = read_outcome(study.trial_folder(trial))
        assert outcome is not None
        assert outcome.is_result


def contents(study: Study) -> dict[str, list[bytes]]:
    return {
        trial.id: [
            (study.trial_folder(trial) / name).read_bytes()
            for name in RECORDS
            if (study.trial_folder(trial) / name).exists()
        ]
        for trial in study.trials
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
