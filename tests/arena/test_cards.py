"""Trials are told apart by what differs between them, and by nothing else."""

from __future__ import annotations

from arena.cards import cell_name, distinctions, flatten, option_name, trial_name
from arena.trial_sheet import TrialSheet


def sheet(cell: str, label: str = "GRPO", seed: int = 0, env: str = "sokoban", **trainer) -> TrialSheet:
    config = {"seed": seed, "trainer": {"steps": 6, **trainer}}
    return TrialSheet(f"{cell}-s{seed}", cell, "tried", label, env, seed, "0" * 16, config)


def test_cells_that_share_a_label_are_told_apart_by_the_settings_that_differ() -> None:
    sheets = [
        sheet("a", learning_rate=0.001, warmup=5),
        sheet("a", seed=1, learning_rate=0.001, warmup=5),
        sheet("b", learning_rate=0.01, warmup=5),
        sheet("c", label="SAMPO", learning_rate=0.01, warmup=5),
        sheet("d", env="alfworld", learning_rate=0.01, warmup=5),
    ]
    told = distinctions(sheets)
    assert told == {"a": "learning_rate=0.001", "b": "learning_rate=0.01", "c": "", "d": ""}
    assert trial_name(sheets[1], told["a"]) == "GRPO · sokoban · learning_rate=0.001 · s1"
    assert cell_name(sheets[3], told["c"]) == "SAMPO · sokoban"


def test_a_configuration_is_flat_with_dotted_keys() -> None:
    config = {"trainer": {"kl": {"coefficient": 0.01}, "betas": [0.9, 0.95], "extra": {}}, "seed": 0}
    assert flatten(config) == {
        "trainer.kl.coefficient": 0.01,
        "trainer.betas": "[0.9, 0.95]",
        "trainer.extra": "{}",
        "seed": 0,
    }


def test_an_option_is_named_without_its_parameters() -> None:
    assert [option_name("cispo"), option_name({"cispo": {"hi": 4}})] == ["cispo", "cispo"]
