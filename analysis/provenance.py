"""What ran: versions, code, machines and hours, with whatever was mixed named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from analysis.markdown import code, escape, table
from analysis.study import Study, Trial


def what_ran(study: Study) -> list[str]:
    """Blocks of markdown; empty when nothing ran."""
    ran = [trial for trial in study.trials if trial.provenance or len(trial.train) or len(trial.evaluations)]
    if not ran:
        return []
    rows = [
        ["trials", f"{len(study.trials)} planned, {sum(t.has_result for t in study.trials)} with a result"],
        ["design", code(study.design)],
        ["environments", _counted(trial.env for trial in ran)],
        ["seeds", escape(_numbers(sorted({trial.seed for trial in ran})))],
        ["model", _setting(ran, "model", "name")],
        ["steps", _setting(ran, "trainer", "steps")],
        ["learning rate", _setting(ran, "trainer", "learning_rate")],
        ["evaluation", _evaluation(ran)],
        ["code", _counted(map(_commits, ran))],
        ["trainer", _counted(told for t in ran if (told := str(t.provenance.get("trainer", ""))))],
        ["versions", _versions(ran)],
        ["machine", _machines(ran)],
        ["time", _hours(ran)],
        ["started again", _retries(ran)],
        ["taken over", _taken_over(ran)],
    ]
    blocks = [table(("", ""), [[name, value] for name, value in rows if value])]
    commits = {_commit(origin) for trial in ran for origin in _origins(trial)}
    if len(commits) > 1:
        blocks.append("**Mixed code:** these trials did not all run on the same commit.")
    if shrunk := [trial for trial in ran if trial.outcome and trial.outcome.micro_rows]:
        blocks.append(_shrunk(shrunk))
    return blocks


def _retries(trials: Sequence[Trial]) -> str:
    counts = [trial.outcome.retries for trial in trials if trial.outcome and trial.outcome.retries]
    if not counts:
        return ""
    times = "once each" if max(counts) == 1 else f"{sum(counts)} times in all"
    return f"{len(counts)} trials, {times}, after failures of the machine or for lack of memory"


def _taken_over(trials: Sequence[Trial]) -> str:
    """Trials that another study trained; provenance keeps their code and machine."""
    return _counted(f"from {name}" for trial in trials if (name := trial.provenance.get("taken_from")))


def _shrunk(trials: Sequence[Trial]) -> str:
    """What ran out of memory: the mini-batch is the same, and so is the gradient but for rounding."""
    named = [f"{code(trial.id)} ({trial.outcome.micro_rows})" for trial in trials if trial.outcome]
    shown = ", ".join(named[:20]) + (f", … ({len(named)} in all)" if len(named) > 20 else "")
    return f"**Out of memory:** these trials went on with fewer rows in memory at once: {shown}."


def _counted(values: Any) -> str:
    counts = Counter(values)
    return ", ".join(f"{escape(value)} ({count} trials)" for value, count in counts.items())


def _numbers(values: Sequence[int]) -> str:
    shown = ", ".join(map(str, values[:20]))
    return shown + (f", … ({len(values)} in all)" if len(values) > 20 else "")


def _setting(trials: Sequence[Trial], section: str, key: str) -> str:
    values = dict.fromkeys(
        str(part[key])
        for trial in trials
        if isinstance(part := trial.config.get(section), Mapping) and key in part
    )
    return escape(", ".join(values))


def _evaluation(trials: Sequence[Trial]) -> str:
    parts = [part for trial in trials if isinstance(part := trial.config.get("evaluation"), Mapping)]
    texts = dict.fromkeys(
        f"every {part['every']} steps on {part['episodes']} episodes"
        for part in parts
        if "every" in part and "episodes" in part
    )
    return escape("; ".join(texts)) + (", the clone on four times as many" if texts else "")


def _origins(trial: Trial) -> list[Mapping[str, Any]]:
    """Where a trial began, and wherever it went on under other code or on another machine."""
    resumed = trial.provenance.get("resumed")
    later = resumed if isinstance(resumed, list) else []
    return [origin for origin in (trial.provenance, *later) if isinstance(origin, Mapping)]


def _commit(origin: Mapping[str, Any]) -> str:
    commit = origin.get("commit")
    name = str(commit)[:12] if commit else "unknown commit"
    return name + (" with uncommitted changes" if origin.get("dirty") else "")


def _commits(trial: Trial) -> str:
    return ", then ".join(dict.fromkeys(map(_commit, _origins(trial))))


def _versions(trials: Sequence[Trial]) -> str:
    found: dict[str, dict[str, None]] = {}
    for trial in trials:
        for origin in _origins(trial):
            versions = origin.get("versions")
            for name, version in (versions if isinstance(versions, Mapping) else {}).items():
                found.setdefault(str(name), {})[str(version)] = None
    return escape(", ".join(f"{name} {' and '.join(seen)}" for name, seen in found.items()))


def _machines(trials: Sequence[Trial]) -> str:
    names = []
    for trial in trials:
        machine = trial.provenance.get("machine")
        if isinstance(machine, Mapping):
            parts = [str(machine.get("cpu") or "unknown processor"), f"{machine.get('cores', '?')} cores"]
            if machine.get("memory_gb"):
                parts.append(f"{machine['memory_gb']} GB")
            gpus = machine.get("gpus")
            parts.append(", ".join(map(str, gpus)) if isinstance(gpus, list) and gpus else "no GPU")
            names.append(", ".join(parts))
    return _counted(names)


def _hours(trials: Sequence[Trial]) -> str:
    """Summed over trials, and on the clock from the first record to the last."""
    train = sum(float(trial.train["time/step"].sum()) for trial in trials if "time/step" in trial.train)
    cpu = sum(float(trial.train["time/cpu"].sum()) for trial in trials if "time/cpu" in trial.train)
    evaluation = sum(
        float(trial.evaluations["time/evaluation"].sum())
        for trial in trials
        if "time/evaluation" in trial.evaluations
    )
    if not train + evaluation:
        return ""
    text = f"training {_duration(train)} ({_duration(cpu)} CPU), evaluation {_duration(evaluation)}, summed"
    clocks = [
        float(frame["time/clock"].iloc[place])
        for trial in trials
        for frame in (trial.train, trial.evaluations)
        if "time/clock" in frame
        for place in (0, -1)
    ]
    if clocks:
        first, last = (datetime.fromtimestamp(stamp, UTC) for stamp in (min(clocks), max(clocks)))
        text += f"; from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
    return text


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.1f} min"
