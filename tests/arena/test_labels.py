"""Labels: what a point is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.option_names import value_text
from arena.labels import differences, option_label, settings_text
from arena.planning import plan_study


def labels(tmp_path: Path, **grid: Any) -> list[tuple[str, tuple[str, ...]]]:
    path = tmp_path / "g.yaml"
    path.write_text(yaml.safe_dump({"name": "a", **grid}))
    return [(trial.label, trial.methods) for trial in plan_study(path, studies=tmp_path).trials]


@pytest.mark.parametrize(
    ("method", "label"),
    [
        ("SAMPO", "SAMPO"),
        ({"CISPO": {"is_clipping.hi": 4}}, "CISPO(hi=4)"),
        ({"CISPO": {"is_clipping.hi": 0.2}}, "CISPO"),
        ({"GRPO": {"trainer.learning_rate": 1e-5}}, "GRPO(learning_rate=1e-5)"),
        ({"GRPO": {"trainer.kl.coefficient": 0}}, "GRPO(kl.coefficient=0)"),
        ({"GRPO_SM": {"is_clipping.sequence_mask.delta": 0.1}}, "GRPO_SM(sequence_mask.delta=0.1)"),
        ({"GIGPO": {"advantage.fuzzy": 0.9, "is_clipping.lo": 0}}, "GIGPO(lo=0, fuzzy=0.9)"),
    ],
)
def test_a_method_is_labelled_with_what_differs(method: Any, label: str, tmp_path: Path) -> None:
    assert labels(tmp_path, methods=[method]) == [(label, (label,))]


def test_a_point_that_is_a_method_has_its_name(tmp_path: Path) -> None:
    axes = {
        "loss_aggregation": ["seq_mean_token_mean"],
        "is_clipping": ["sequence", {"sequence": {"hi": 0.1}}],
    }
    assert labels(tmp_path, axes=axes) == [("GSPO", ("GSPO",)), ("GSPO(hi=0.1)", ("GSPO(hi=0.1)",))]


def test_a_mask_makes_it_the_method_that_has_one(tmp_path: Path) -> None:
    axes = {"is_clipping": [{"soft": {"sequence_mask": {"delta": 0.003}}}]}
    assert labels(tmp_path, axes=axes) == [("SAPO_SM", ("SAPO_SM",))]


def test_what_goes_without_saying_is_told_only_against_something_else(tmp_path: Path) -> None:
    masks = [
        {"cispo": {"token_mask": {"delta": 0.003}}},
        {"cispo": {"token_mask": {"delta": 0.003, "denominator": "all"}}},
        {"sequence": {"random_mask": {"delta": 0.003, "denominator": "kept"}}},
    ]
    assert [label for label, _ in labels(tmp_path, axes={"is_clipping": masks})] == [
        "CISPO(token_mask.delta=0.003)",
        "CISPO(token_mask.delta=0.003, token_mask.denominator=all)",
        "GRPO + sequence(random_mask.delta=0.003)",
    ]
    masked = {"mask": {"delta": 1, "of": "kept"}}
    assert differences(masked, {"mask": None}, [("mask", "of")]) == {("mask", "delta"): 1}
    assert differences(masked, {"mask": {"delta": 1, "of": "all"}}, [("mask", "of")]) == {
        ("mask", "of"): "kept"
    }


def test_one_change_from_the_default_point_is_named_by_it(tmp_path: Path) -> None:
    axes = {"dynamic_filtering": [{"top_variance": {"keep_fraction": 0.5}}]}
    assert labels(tmp_path, axes=axes) == [("GRPO + top_variance(keep_fraction=0.5)", ())]


def test_what_is_swept_is_told_once(tmp_path: Path) -> None:
    gates = {
        "narrow": {"is_clipping": {"weight": "token", "low": {"level": "token", "eps": 0.1}}},
        "random": {"is_clipping": {"weight": "token", "low": {"level": "token", "share": 0.1}}},
    }
    sweep = {
        "gate": {"values": gates, "when": {"is_clipping": "gated"}},
        "is_clipping.hi": {"values": [1, 4], "when": {"is_clipping": "cispo", "advantage": "lite"}},
    }
    axes = {"is_clipping": ["gated", "cispo"], "advantage": ["grpo", "lite"]}
    found = [label for label, _ in labels(tmp_path, axes=axes, sweep=sweep)]
    assert found == [
        "GRPO + gated, gate=narrow",
        "GRPO + gated, gate=random",
        "gated / lite / none / token_mean, gate=narrow",
        "gated / lite / none / token_mean, gate=random",
        "CISPO",
        "cispo / lite / none / token_mean, hi=1",
        "cispo / lite / none / token_mean, hi=4",
    ]


def test_other_points_are_named_by_their_options(tmp_path: Path) -> None:
    axes = {
        "is_clipping": [{"cispo": {"hi": 4}}],
        "advantage": ["gigpo"],
        "dynamic_filtering": ["group_variance"],
        "loss_aggregation": ["seq_mean_token_mean"],
    }
    assert labels(tmp_path, axes=axes) == [("cispo(hi=4) / gigpo / group_variance / seq_mean_token_mean", ())]


def test_swept_values_that_vary_are_in_the_label(tmp_path: Path) -> None:
    sweep = {"trainer.learning_rate": [3e-4, 6e-4], "trainer.epochs": [4]}
    found = labels(tmp_path, methods=["GRPO"], sweep=sweep)
    assert found == [("GRPO, learning_rate=0.0003", ("GRPO",)), ("GRPO, learning_rate=0.0006", ("GRPO",))]


def test_a_setting_for_all_trials_is_in_no_label(tmp_path: Path) -> None:
    found = labels(tmp_path, methods=["GRPO", "CISPO"], overrides={"is_clipping.lo": 0.5})
    assert found == [("GRPO", ("GRPO",)), ("CISPO", ("CISPO",))]


def test_differences_are_leaves() -> None:
    ours = {"a": 1, "b": {"c": 2, "d": 3}, "e": None}
    theirs = {"a": 1.0, "b": {"c": 0, "d": 3}, "e": {"f": 1}, "g": 4}
    assert differences(ours, theirs) == {("b", "c"): 2, ("e",): None, ("g",): None}
    assert differences(ours, ours) == {}

    # of a part that was turned on, what is off in it goes without saying
    assert differences({"gate": {"eps": None, "share": 0.5}}, {"gate": None}) == {("gate", "share"): 0.5}
    assert differences({"gate": {"eps": None, "share": 0.5}}, {"gate": {"eps": 1, "share": None}}) == {
        ("gate", "eps"): None,
        ("gate", "share"): 0.5,
    }


def test_values_are_short_and_unambiguous() -> None:
    values = [None, True, 4.0, 0.2, 1e-5, 6e-4, 10, "kept", [1, 2], 1e12]
    assert [value_text(value) for value in values] == [
        "off", "true", "4", "0.2", "1e-5", "0.0006", "10", "kept", "[1, 2]", "1000000000000.0",
    ]  # fmt: skip
    assert settings_text({("is_clipping", "lo"): 1, ("env", "lo"): 2, ("rows",): "turn"}) == [
        "is_clipping.lo=1",
        "env.lo=2",
        "rows=turn",
    ]
    assert option_label("cispo", {("hi",): 4.0}) == "cispo(hi=4)"
