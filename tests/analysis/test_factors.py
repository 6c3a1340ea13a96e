"""What cells differ in."""

from __future__ import annotations

from analysis.factors import differing, settings


def test_an_option_with_its_parameters_is_one_setting() -> None:
    flat = settings(
        {"seed": 1, "is_clipping": {"option": "token", "lo": 0.2}, "trainer": {"kl": {"coefficient": 0.01}}}
    )
    assert list(flat) == ["is_clipping", "trainer.kl.coefficient"]


def test_only_what_differs_is_listed_and_variants_of_an_option_are_told_apart() -> None:
    cells = {
        "a": {"is_clipping": {"option": "cispo", "hi": 4, "mask": None}, "trainer": {"steps": 3, "lr": 1e-3}},
        "b": {
            "is_clipping": {"option": "cispo", "hi": 0.2, "mask": None},
            "trainer": {"steps": 3, "lr": 1e-4},
        },
        "c": {"is_clipping": {"option": "token", "mask": {"delta": 1}}, "trainer": {"steps": 3, "lr": 1e-4}},
        "d": {"is_clipping": {"option": "token", "mask": None}, "trainer": {"steps": 3, "lr": 1e-4}},
    }
    table = differing(cells)
    assert list(table.columns) == ["is_clipping", "trainer.lr"]
    assert table["is_clipping"].to_dict() == {
        "a": "cispo(hi=4)",
        "b": "cispo(hi=0.2)",
        "c": "token(mask.delta=1)",
        "d": "token",
    }
    assert table.loc["a", "trainer.lr"] == "0.001"
