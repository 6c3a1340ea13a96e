"""Gates of equal tightness, compared: drawn studies of which it is known what decides."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

from analysis.conclusions import conclude
from analysis.evidence import gates as section
from analysis.gates import LEVEL, RANDOM, Gates, judge_gates
from analysis.measures import run_table
from analysis.plot_gates import draw_distance, draw_gates, told_apart
from analysis.report import write_report
from analysis.study import load_study

New = Callable[..., Any]
SHARES = (0.01, 0.05, 0.2, 0.5)
SEEDS = range(6)


def eps(share: float, side: str) -> float:
    """Beyond which a share lies of the drawn log-ratios: 4,000 of a normal, 900 that never moved."""
    deviation, mean = 0.07, {"low": -0.6, "high": 0.4}[side] * 0.07
    place = NormalDist(mean, deviation).inv_cdf(
        share * 4900 / 4000 if side == "low" else 1 - share * 4900 / 4000
    )
    return 1 - math.exp(place) if side == "low" else math.exp(place) - 1


@pytest.fixture
def method(methods: tuple[Any, ...]) -> Callable[..., Any]:
    """A drawn method of this label, clipping and final success; a low one falls."""

    def make(label: str, end: float, option: str = "gated") -> Any:
        return replace(methods[0], label=label, is_clipping=option, end=end, falls=end < 0.2, methods=())

    return make


@pytest.fixture
def study_of(new_study: New, method: New) -> Callable[..., Gates]:
    """A study of gates with a final success by level and share; 0.1 without a gate or with a random one."""

    def make(end: Callable[[str, float], float]) -> Gates:
        builder = new_study()
        for seed in SEEDS:
            builder.trial(method("no gate", 0.1, "none"), seed)
            for share in SHARES:
                for level in ("token", "sequence"):
                    gate = gated(level, share, "low", "high")
                    builder.trial(method(f"{level} {share}", end(level, share)), seed, is_clipping=gate)
                drawn = gated("token", share, "low", "high", random=True)
                builder.trial(method(f"random {share}", 0.1), seed, is_clipping=drawn)
            builder.trial(method("low", 0.3), seed, is_clipping=gated("token", 0.2, "low"))
        study = load_study(builder.plan())
        gates = judge_gates(run_table(study), study.trials)
        assert gates is not None
        return gates

    return make


def gated(level: str, share: float, *sides: str, random: bool = False, **more: Any) -> dict[str, Any]:
    one = {"share": share} if random else None
    return {
        "option": "gated",
        "function": "package.gated",
        "weight": more.get("weight", level),
        **dict.fromkeys(("low", "high")),
        **{side: {"level": level, **(one or {"eps": eps(share, side)})} for side in sides},
    }


def verdicts(gates: Gates) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for claim in gates.claims:
        found.setdefault(claim.name, []).append(claim.verdict)
    return found


def test_gates_are_matched_by_what_lies_outside_without_them(study_of: New) -> None:
    gates = study_of(lambda level, share: 0.5)
    intended = {
        (arm.level, arm.side, share): arm.tightness
        for arm in gates.arms
        for share in SHARES
        if arm.tightness is not None and abs(math.log(arm.tightness / share)) < 0.5
    }
    both = [(level, "both", share) for level in ("token", "sequence") for share in SHARES]
    for key in [*both, ("token", "low", 0.2)]:
        assert intended[key] == pytest.approx(key[2], rel=0.15)
    random = [arm for arm in gates.arms if arm.level == RANDOM]
    assert sorted(arm.tightness or 0 for arm in random) == list(SHARES)
    assert all(arm.gated is None for arm in random)


@pytest.mark.parametrize(
    ("end", "words", "expected"),
    [
        (lambda level, share: 0.6 if share > 0.1 else 0.15, "The tight band:", {"tightness": "supported"}),
        (
            lambda level, share: 0.6 if level == "sequence" else 0.15,
            "The sequence level:",
            {"level": "supported"},
        ),
        (
            lambda level, share: 0.6 if level == "token" else 0.15,
            "Neither was shown to help: a tight gate makes no difference, and at equal tightness a"
            " sequence's gate hurts.",
            {"level": "contradicted"},
        ),
        (lambda level, share: 0.6, "Neither was shown to help", {"which tokens": "supported"}),
        (
            lambda level, share: 0.3 + 0.2 * (share > 0.1) + 0.2 * (level == "sequence"),
            "The tight band and the sequence level:",
            {"level": "supported", "tightness": "supported"},
        ),
    ],
)
def test_what_decides_is_found(
    study_of: New, end: Callable[[str, float], float], words: str, expected: dict[str, str]
) -> None:
    gates = study_of(end)
    assert gates.conclusion.startswith(words)
    for name, verdict in verdicts(gates).items():
        if name in expected:
            assert expected[name] in verdict
        elif name != "which tokens":
            assert "supported" not in verdict


def test_one_sided_gates_and_other_weights_are_arms_of_their_own(new_study: New, method: New) -> None:
    builder = new_study()
    for seed in SEEDS:
        builder.trial(method("no gate", 0.1, "none"), seed)
        mixed = gated("sequence", 0.2, "low", "high", weight="token")
        builder.trial(method("mixed", 0.5), seed, is_clipping=mixed)
        builder.trial(method("plain", 0.5), seed, is_clipping=gated("sequence", 0.2, "low", "high"))
    found = conclude(load_study(builder.plan()))
    assert found.gates is not None
    assert {arm.level for arm in found.gates.arms} == {"none", "sequence, weight token", "sequence"}
    assert {claim.verdict for claim in found.gates.claims} == {"not testable"}
    assert LEVEL not in found.runs.settings
    report = write_report(builder.folder)
    text = report.read_text()
    assert f"## Tight band or sequence level\n\n**{found.gates.conclusion}**" in text
    assert "| `sequence, weight token` | both | 20" in text
    assert "(figures/gates.png)" in text
    assert (report.parent / "figures" / "gates.png").stat().st_size > 10_000


def test_without_runs_that_had_no_gate_tightness_is_unknown(
    new_study: New, method: New, tmp_path: Path
) -> None:
    builder = new_study()
    for seed in SEEDS:
        builder.trial(method("token", 0.5), seed, is_clipping=gated("token", 0.2, "low", "high"))
        builder.trial(method("sequence", 0.5), seed, is_clipping=gated("sequence", 0.2, "low", "high"))
    found = conclude(load_study(builder.plan()))
    assert found.gates is not None
    assert [arm.tightness for arm in found.gates.arms] == [None, None]
    assert {claim.verdict for claim in found.gates.claims} == {"not testable"}
    assert draw_gates(found.gates.arms, tmp_path / "gates.png") is None


def test_a_study_without_gates_says_nothing_of_them(new_study: New, method: New) -> None:
    builder = new_study()
    builder.trial(method("no gate", 0.1, "none"), 0)
    found = conclude(load_study(builder.plan()))
    assert found.gates is None
    assert section(found) == []


def test_gates_in_different_surroundings_are_told_apart(new_study: New, method: New) -> None:
    builder = new_study()
    for hidden in (32, 64):
        model = {"name": "tiny", "hidden": hidden}
        for seed in range(2):
            builder.trial(method(f"no gate {hidden}", 0.1, "none"), seed, model=model)
            gate = gated("token", 0.2, "low", "high")
            builder.trial(method(f"token {hidden}", 0.5), seed, is_clipping=gate, model=model)
    study = load_study(builder.plan())
    gates = judge_gates(run_table(study), study.trials)
    assert gates is not None
    contexts = {arm.context for arm in gates.arms}
    assert contexts == {"model tiny(hidden=32)", "model tiny(hidden=64)"}
    assert [arm.results for arm in gates.arms] == [2, 2, 2, 2]


def test_the_first_steps_alone_make_the_early_distance(new_study: New, method: New, tmp_path: Path) -> None:
    builder = new_study()
    for seed in range(2):
        builder.trial(method("no gate", 0.1, "none"), seed)
        gate = gated("token", 0.2, "low", "high")
        builder.trial(method("token", 0.5), seed, is_clipping=gate)
    study = load_study(builder.plan())
    for trial in study.trials:
        far = 0.4 if trial.label == "no gate" else 0.1
        kl = [far, 3 * far, *[9.0] * (len(trial.train) - 2)]
        trial.train["train/kl_old"] = kl
    gates = judge_gates(run_table(study), study.trials)
    assert gates is not None
    assert {arm.level: pytest.approx(arm.early_kl) for arm in gates.arms} == {"none": 0.8, "token": 0.2}
    assert draw_distance(gates.arms, tmp_path / "two.png") is None
    assert draw_distance(gates.arms * 2, tmp_path / "four.png") == ""
    assert (tmp_path / "four.png").stat().st_size > 10_000
    still = replace(gates.arms[0], early_kl=2e-13)
    assert "1 that never left" in str(draw_distance((*gates.arms * 2, still), tmp_path / "four.png"))


def test_figures_name_contexts_by_what_tells_them_apart() -> None:
    usual, more = "learning_rate 0.0006, steps 30", "learning_rate 0.0006, steps 120"
    assert told_apart([more, usual, usual]) == {more: "steps 120", usual: "steps 30"}
    assert told_apart([usual]) == {usual: usual}
    assert told_apart([""]) == {"": ""}
    long, short, other = (
        "env sokoban(words=20), rate 1, stop null",
        "env sokoban(words=1), rate 1, stop null",
        "env sokoban(words=20), rate 2, stop 0.1",
    )
    named = told_apart([long, short, long, other])
    assert named == {long: "words=20, rate 1", short: "words=1", other: "rate 2, stop 0.1"}
