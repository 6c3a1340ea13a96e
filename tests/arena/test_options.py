"""Options: what their files say, and their functions' parameters as read from source."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import ValidationError

from arena.configuration import check_model
from arena.mistakes import MistakesError
from arena.options import AXES, Catalogue, FunctionError, make_option, read_signature

CATALOGUE = Catalogue()
OPTIONS = [(axis, name) for axis in AXES for name in CATALOGUE.names(axis)]


def test_the_axes_are_those_of_the_schema() -> None:
    assert AXES == ("loss_aggregation", "is_clipping", "dynamic_filtering", "advantage")


@pytest.mark.parametrize(("axis", "name"), OPTIONS)
def test_parameters_read_from_source_are_those_of_the_function(axis: str, name: str) -> None:
    path = CATALOGUE.option(axis, name).function
    module, _, attribute = path.rpartition(".")
    function = getattr(import_module(module), attribute)
    expected = {
        parameter.name: (
            get_type_hints(function, include_extras=True)[parameter.name],
            ... if parameter.default is inspect.Parameter.empty else parameter.default,
        )
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert read_signature(path).parameters == expected
    assert Any not in [annotation for annotation, _ in expected.values()]


@pytest.mark.parametrize(("axis", "name"), OPTIONS)
def test_the_defaults_of_every_option_pass_their_own_check(axis: str, name: str) -> None:
    option = CATALOGUE.option(axis, name)
    checked = check_model(option.schema, option.defaults)
    assert check_model(option.schema, checked.model_dump(mode="json")) == checked


def test_every_method_names_options_that_exist_with_parameters_that_are_right() -> None:
    for method in CATALOGUE.methods.values():
        assert tuple(method.point) == AXES
        for axis, (name, parameters) in method.point.items():
            option = CATALOGUE.option(axis, name)
            check_model(option.schema, {**option.defaults, **parameters})


def test_gigpo_is_seen_to_need_anchors() -> None:
    assert "anchors" in CATALOGUE.option("advantage", "gigpo").data
    assert "anchors" not in CATALOGUE.option("advantage", "grpo").data


@pytest.mark.parametrize(
    "wrong",
    [
        {"hi": -0.1},
        {"hi": "0.2"},
        {"hi": True},
        {"hi": None},
        {"high": 0.2},
        {"sequence_mask": {"delta": "x"}},
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any]) -> None:
    option = CATALOGUE.option("is_clipping", "token")
    with pytest.raises(ValidationError):
        check_model(option.schema, {**option.defaults, **wrong})


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of somebody else's, which must not be imported."""
    folder = tmp_path / "theirs"
    (folder / "deep").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    (folder / "__init__.py").write_text("raise ImportError('planning imported this')\n")
    (folder / "deep" / "__init__.py").write_text("from .clips import tight as exported\n")
    (folder / "deep" / "clips.py").write_text(
        "import torch\n"
        "def tight(log_ratio, advantages, mask, *, eps: Positive = 0.1, level: Literal['a', 'b'] = 'a',\n"
        "          scale: torch.Tensor = None, seen: 'Count | None' = None):\n"
        "    pass\n"
        "def needy(log_ratio, *, must: float): pass\n"
        "async def later(): pass\n"
    )
    return folder


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("path", ["theirs.deep.clips.tight", "theirs.deep.exported"])
def test_an_option_of_another_package_is_read_without_importing_it(path: str) -> None:
    option = make_option("is_clipping", "mine", {"function": path, "eps": 0.3})
    own = {key: value for key, value in option.defaults.items() if not key.endswith("_mask")}
    assert own == {"eps": 0.3, "level": "a", "scale": None, "seen": None}
    assert check_model(option.schema, {**option.defaults, "scale": [1, 2], "seen": 3})
    for wrong in ({"eps": 0}, {"level": "c"}, {"seen": 0}, {"other": 1}):
        with pytest.raises(ValidationError):
            check_model(option.schema, {**option.defaults, **wrong})


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "expected `function: package.module.name`"),
        ({"function": 3}, "expected `function: package.module.name`"),
        ({"function": "tight"}, "is no import path"),
        ({"function": "theirs.deep clips.tight"}, "is no import path"),
        ({"function": "nowhere.clips.tight"}, "no module 'nowhere.clips'"),
        ({"function": "theirs.shallow.tight"}, "no module 'theirs.shallow'"),
        (
            {"function": "theirs.deep.clips.tigth"},
            "no function 'tigth' in module theirs.deep.clips (it has: tight, needy)",
        ),
        ({"function": "math.sqrt"}, "has no Python source"),
        ({"function": "theirs.deep.clips.needy"}, "needs a value for must"),
    ],
)
def test_functions_that_cannot_be_used_say_why(values: dict[str, Any], message: str) -> None:
    with pytest.raises(FunctionError) as caught:
        make_option("is_clipping", "mine", values)
    assert message in str(caught.value)


def test_a_broken_option_file_is_blamed_by_name(tmp_path: Path) -> None:
    (tmp_path / "advantage").mkdir()
    (tmp_path / "advantage" / "mine.yaml").write_text("# mine\nfunction: nowhere.at.all\n")
    with pytest.raises(MistakesError, match=r"advantage/mine.yaml:2:11: function: no module 'nowhere.at'"):
        Catalogue(tmp_path).option("advantage", "mine")


def test_a_method_that_names_no_option_for_an_axis_is_refused(tmp_path: Path) -> None:
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "HALF.yaml").write_text("is_clipping: tokenn\n")
    with pytest.raises(MistakesError) as caught:
        _ = Catalogue(tmp_path).methods
    assert "names no option for loss_aggregation" in str(caught.value)
    assert "HALF.yaml:1:1: is_clipping: expected `axis: option`" in str(caught.value)
