"""Conditions: what they hold of, and that nonsense is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from arena.conditions import MISSING, ConditionError, Facts, assertion, condition, dig
from arena.grid_entries import Rule
from arena.mistakes import Place


def facts(values: Mapping[str, Any]) -> Facts:
    return lambda key: values.get(".".join(key), MISSING)


CELL = facts(
    {
        "is_clipping": "cispo",
        "is_clipping.hi": 0.4,
        "is_clipping.dual_clip": None,
        "env": "sokoban",
        "trainer.epochs": 4,
        "trainer.shuffle": "rows",
        "collapse.stop": True,
    }
)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("is_clipping", "cispo"),
        ("is_clipping", ["token", "cispo"]),
        ("is_clipping", {"cispo": {"hi": 0.4}}),
        ("is_clipping", {"cispo": {"hi": "> 0.3"}}),
        ("is_clipping", {"cispo": {}}),
        ("is_clipping", ["token", {"cispo": {"hi": ["< 0.1", "> 0.3"]}}]),
        ("is_clipping", "!= token"),
        ("is_clipping.hi", 0.4),
        ("is_clipping.hi", "> 3e-1"),
        ("is_clipping.hi", "<=.4"),
        ("is_clipping.hi", [">= 1", "< 1"]),
        ("is_clipping.dual_clip", None),
        ("is_clipping.dual_clip", "!= 3"),
        ("trainer.epochs", 4.0),
        ("trainer.epochs", "== 4"),
        ("collapse.stop", True),
        ("trainer.shuffle", "!= none"),
    ],
)
def test_it_holds(key: str, value: Any) -> None:
    assert condition(key, value).holds(CELL)
    assert not condition(key, value).is_broken(CELL)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("is_clipping", "token"),
        ("is_clipping", {"cispo": {"hi": "> 0.4"}}),
        ("is_clipping", {"token": {"hi": 0.4}}),
        ("is_clipping", {"cispo": {"lo": 1}}),
        ("is_clipping.hi", "> 0.4"),
        ("is_clipping.hi", ["< 0.4", 3]),
        ("is_clipping.dual_clip", "> 1"),
        ("trainer.epochs", "4"),
        ("trainer.epochs", "!= 4"),
        ("trainer.shuffle", "< 3"),
        ("collapse.stop", 1),
        ("collapse.stop", "> 0"),
    ],
)
def test_it_does_not_hold(key: str, value: Any) -> None:
    assert not condition(key, value).holds(CELL)
    assert condition(key, value).is_broken(CELL)


@pytest.mark.parametrize("value", [1, "> 1", "!= 1", None])
def test_of_a_key_that_is_not_there_nothing_holds_and_nothing_is_broken(value: Any) -> None:
    assert not condition("is_clipping.tau_pos", value).holds(CELL)
    assert not condition("is_clipping.tau_pos", value).is_broken(CELL)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("trainer.epochs", "> many", "`>` compares numbers, got 'many'"),
        ("trainer.epochs", "<= true", "`<=` compares numbers, got true"),
        ("trainer.epochs", "> [1", "not valid YAML"),
        ("is_clipping", {"cispo": {}, "token": {}}, "expected a name or {name: {parameter: value}}"),
    ],
)
def test_what_means_nothing_is_told(key: str, value: Any, message: str) -> None:
    with pytest.raises(ConditionError, match=message.replace("[", r"\[").replace("{", r"\{")):
        condition(key, value)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("is_clipping=cispo", True),
        ("is_clipping == cispo", True),
        ("is_clipping!=cispo", False),
        ("is_clipping=[token, cispo]", True),
        ("is_clipping.hi>0.3", True),
        ("is_clipping.hi >= 0.5", False),
        ("trainer.epochs<=4", True),
        ("is_clipping={cispo: {hi: 0.4}}", True),
        ("is_clipping.dual_clip=null", True),
    ],
)
def test_assertions_of_a_command_line_are_conditions(text: str, holds: bool) -> None:
    assert assertion(text).holds(CELL) == holds


@pytest.mark.parametrize("text", ["", "cispo", "=cispo", "is_clipping=", "is clipping=cispo", "epochs>x"])
def test_assertions_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(ConditionError):
        assertion(text)


def test_an_exclusion_removes_what_all_of_it_holds_of() -> None:
    def removes(**conditions: Any) -> bool:
        parts = tuple(condition(key.replace("__", "."), value) for key, value in conditions.items())
        return Rule("exclude", parts, (), "", Place("")).removes(CELL)

    assert removes(env="sokoban", trainer__epochs="> 3")
    assert not removes(env="sokoban", trainer__epochs="> 4")
    assert not removes(env="sokoban", trainer__steps="> 4")


def test_a_requirement_removes_what_breaks_it_where_its_condition_holds() -> None:
    def removes(required: Mapping[str, Any], when: Mapping[str, Any]) -> bool:
        parts = tuple(condition(key, value) for key, value in required.items())
        where = tuple(condition(key, value) for key, value in when.items())
        return Rule("require", parts, where, "", Place("")).removes(CELL)

    assert removes({"trainer.epochs": 1}, {})
    assert removes({"trainer.epochs": 4, "env": "webshop"}, {})
    assert not removes({"trainer.epochs": 4, "env": "sokoban"}, {})
    assert removes({"trainer.epochs": 1}, {"is_clipping": "cispo"})
    assert not removes({"trainer.epochs": 1}, {"is_clipping": "token"})
    assert not removes({"is_clipping.tau_pos": "> 1"}, {})


def test_dig_takes_mappings_apart() -> None:
    assert dig({"a": {"b": None}}, ("a", "b")) is None
    assert dig({"a": {"b": 1}}, ("a", "c")) is MISSING
    assert dig({"a": 1}, ("a", "b")) is MISSING
