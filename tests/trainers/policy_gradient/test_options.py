"""Option and method files against the functions they name, and what is said about a wrong entry."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml

import trainers.policy_gradient
from trainers.config import OptionConfig
from trainers.policy_gradient.options import bind, load
from trainers.policy_gradient.parameters import AXES, SETTINGS, Axis, settings

CONF = Path(trainers.policy_gradient.__file__).parents[2] / "arena/conf"
FILES = [(axis, path) for axis in AXES for path in sorted((CONF / axis).glob("*.yaml"))]
METHODS = sorted((CONF / "method").glob("*.yaml"))
every_file = pytest.mark.parametrize(
    ("axis", "path"), FILES, ids=[f"{axis}/{path.stem}" for axis, path in FILES]
)


def read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(path.read_text())
    return values


def option(name: str, function: str, **parameters: Any) -> OptionConfig:
    return OptionConfig.model_validate({"option": name, "function": function, **parameters})


@every_file
def test_an_option_file_lists_every_parameter_with_the_default_of_the_code(axis: Axis, path: Path) -> None:
    values = read(path)
    function = load(values.pop("function"))
    own = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert set(values) == set(own) | set(SETTINGS[axis].model_fields)
    assert {name: values[name] for name in own} == own


@every_file
def test_an_option_file_binds_and_says_where_it_is_from(axis: Axis, path: Path) -> None:
    entry = option(path.stem, **read(path))
    bind(axis, entry)
    settings(entry, SETTINGS[axis])
    assert path.read_text().startswith("# ")
    assert load(entry.function).__name__ == path.stem


@pytest.mark.parametrize("path", METHODS, ids=[path.stem for path in METHODS])
def test_a_method_names_one_option_of_each_axis(path: Path) -> None:
    entries = read(path)
    assert set(entries) == set(AXES)
    for axis in AXES:
        entry = entries[axis]
        name, parameters = next(iter(entry.items())) if isinstance(entry, dict) else (entry, {})
        values = read(CONF / axis / f"{name}.yaml")
        assert set(parameters) <= set(values)
        bind(axis, option(name, **(values | parameters)))
        settings(option(name, **(values | parameters)), SETTINGS[axis])


def test_all_named_methods_are_there() -> None:
    grpo = {"GRPO", "GRPO_ST", "GRPO_SM", "DR_GRPO", "DAPO", "DAPO_GRPO"}
    others = {"DAPO_GIGPO", "CISPO", "CISPO_SM", "SAPO", "SAPO_SM", "GSPO", "GIGPO", "EMPG", "SAMPO"}
    assert {path.stem for path in METHODS} == grpo | others


TOKEN = "trainers.policy_gradient.is_clipping.token"


@pytest.mark.parametrize(
    ("function", "parameters", "message"),
    [
        (TOKEN, {"hii": 0.3}, "unknown parameter 'hii', did you mean 'hi'"),
        (TOKEN, {"zeta": 0.3}, "unknown parameter 'zeta', expected one of"),
        (TOKEN, {"lo": -0.1}, "lo: Input should be greater than or equal to 0, got -0.1"),
        (TOKEN, {"lo": "wide", "dual_clip": "x"}, "(?s)lo: .*dual_clip: "),
        ("trainers.policy_gradient.is_clipping.tokn", {}, "no function 'tokn', did you mean 'token'"),
        ("trainers.nowhere.token", {}, "cannot import 'trainers.nowhere'"),
        ("token", {}, "no import path"),
    ],
)
def test_a_wrong_entry_is_told_what_is_wrong(function: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bind("is_clipping", option("token", function, **parameters))


def test_a_missing_parameter_is_named() -> None:
    with pytest.raises(ValueError, match="parameter 'delta' is missing"):
        bind("is_clipping", option("own", f"{__name__}.needs_delta"))


def needs_delta(log_probs: Any, *, delta: float) -> Any:
    return log_probs


PRESETS = sorted((CONF / "preset").rglob("*.yaml"))


@pytest.mark.parametrize("path", PRESETS, ids=[path.stem for path in PRESETS])
def test_a_preset_sets_parameters_that_the_options_have(path: Path) -> None:
    for axis, options in read(path).get("options", {}).items():
        for name, parameters in options.items():
            values = read(CONF / axis / f"{name}.yaml")
            assert set(parameters) <= set(values)
            bind(axis, option(name, **(values | parameters)))
            settings(option(name, **(values | parameters)), SETTINGS[axis])
