"""From a configuration to an environment."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from envs.registry import UnknownEnvironmentError, load_environment
from envs.sokoban.config import SokobanConfig
from envs.sokoban.environment import SOKOBAN


def test_loads_the_named_environment_and_checks_its_parameters(configuration):
    environment, config = load_environment(configuration("sokoban"))
    assert environment is SOKOBAN
    assert isinstance(config, SokobanConfig)
    assert config.size == 4


def test_refused_parameters_are_pydantic_errors(configuration):
    with pytest.raises(ValidationError) as caught:
        load_environment({**configuration("sokoban"), "size": "large", "sise": 4})
    assert {error["loc"] for error in caught.value.errors()} == {("size",), ("sise",)}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (None, "expected an import path like"),
        ("sokoban", "'sokoban' is no import path"),
        ("", "is no import path"),
        (".relative.NAME", "is no import path"),
        ("nowhere.environment.IT", "no module 'nowhere'"),
        ("envs.sokobann.environment.SOKOBAN", "no module 'envs.sokobann'"),
        ("envs.sokoban.environment.SOKOBANN", "did you mean SOKOBAN"),
        ("envs.sokoban.environment.SokobanEnvironment", "is a class"),
        ("envs.sokoban.environment.ACTIONS", "is no Environment, it lacks config_type, data_id"),
    ],
)
def test_a_path_that_leads_to_no_environment_says_why(path, message):
    with pytest.raises(UnknownEnvironmentError, match=message):
        load_environment({"name": "x", "environment": path})


def test_a_missing_dependency_is_not_taken_for_a_wrong_path(tmp_path, monkeypatch):
    (tmp_path / "needy_environment.py").write_text("import a_package_nobody_has\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnknownEnvironmentError, match="needs the package 'a_package_nobody_has'"):
        load_environment({"name": "x", "environment": "needy_environment.IT"})
