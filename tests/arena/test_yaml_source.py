"""The YAML reader: what values mean, where they stand, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.mistakes import MistakesError, Place
from arena.yaml_source import flatten, parse, parse_mapping, read

# YAML 1.2.2, section 10.3.2, its own examples and those where YAML 1.1 reads something else
CORE_SCHEMA: dict[str, Any] = {
    "null": None,
    "~": None,
    "": None,
    "Null": None,
    "true": True,
    "False": False,
    "TRUE": True,
    "yes": "yes",
    "no": "no",
    "on": "on",
    "off": "off",
    "0": 0,
    "-19": -19,
    "+12": 12,
    "010": 10,
    "0o7": 7,
    "0x3A": 58,
    "0.": 0.0,
    "-0.0": -0.0,
    ".5": 0.5,
    "12e03": 12000.0,
    "-2E+05": -200000.0,
    "1e-3": 0.001,
    "6e-4": 0.0006,
    ".inf": math.inf,
    "-.Inf": -math.inf,
    "1_000": "1_000",
    "12:30:45": "12:30:45",
    "2001-12-14": "2001-12-14",
    "0b1": "0b1",
    "e3": "e3",
    ".": ".",
    "'1'": "1",
    '"no"': "no",
    "!!str 1": "1",
    "nan": "nan",
}


@pytest.mark.parametrize(("text", "value"), CORE_SCHEMA.items())
def test_plain_scalars_mean_what_yaml_12_says(text: str, value: Any) -> None:
    found = parse(f"key: {text}\n", "x.yaml").value["key"]
    assert found == value
    assert type(found) is type(value)


def test_nan_is_a_number() -> None:
    assert math.isnan(parse("[.nan]", "x").value[0])


# YAML does not join JSON's escaped surrogate pairs
text = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(json_values)
def test_json_is_yaml(value: Any) -> None:
    written = json.dumps(value)
    assert parse(written, "x").value == json.loads(written)


def test_places_are_those_an_editor_shows() -> None:
    source = parse_mapping("name: a\naxes:\n  is_clipping: [token,\n    {cispo: {hi: 4}}]\n", "g.yaml")
    assert source.place(("axes", "is_clipping", 0)) == Place("g.yaml", 3, 17)
    assert source.place(("axes", "is_clipping", 1, "cispo", "hi")) == Place("g.yaml", 4, 18)
    assert source.key_place(("axes", "is_clipping", 1, "cispo", "hi")) == Place("g.yaml", 4, 14)
    assert source.key_place(("axes",)) == Place("g.yaml", 2, 1)
    assert source.place(("axes", "missing")) == source.place(("axes",))


def test_what_is_set_later_has_its_own_place() -> None:
    source = parse_mapping("seeds: [1, 2]\n", "g.yaml")
    elsewhere = Place("command line")
    source.set(("seeds",), 3, elsewhere)
    source.set(("budget", "trials"), 4, elsewhere)
    assert source.value == {"seeds": 3, "budget": {"trials": 4}}
    assert source.place(("seeds", 1)) == elsewhere
    assert source.key_place(("budget", "trials")) == elsewhere


def mistakes(text: str) -> list[str]:
    with pytest.raises(MistakesError) as caught:
        parse_mapping(text, "g.yaml")
    return str(caught.value).splitlines()


def test_every_duplicate_key_is_refused_with_both_places() -> None:
    assert mistakes("a: 1\nb: {c: 1, c: 2}\na: 2\n") == [
        "g.yaml:2:11: b.c: duplicate key (first on line 2); remove one of them",
        "g.yaml:3:1: a: duplicate key (first on line 1); remove one of them",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "g.yaml: empty"),
        ("# only a comment\n", "g.yaml: empty"),
        ("{}", "g.yaml: empty"),
        ("- a\n- b\n", "g.yaml:1:1: a list"),
        ("just words\n", "g.yaml:1:1: a single value"),
        ("a: [1, 2\nb: 3\n", "g.yaml:2:2: not valid YAML"),
        ("a: b: c\n", "g.yaml:1:5: not valid YAML"),
        ("a: 1\n---\nb: 2\n", "g.yaml:2:1: not valid YAML"),
        ("a: !!python/object/apply:os.system [ls]\n", "g.yaml:1:4: a: the tag"),
        ("a: !mine 3\n", "g.yaml:1:4: a: the tag"),
        ("a: !!int x\n", "g.yaml:1:4: a: 'x' is not a int"),
        ("? [a]\n: 1\n", "g.yaml:1:3: a key must be a plain word"),
        ("base: &b {x: 1}\na:\n  <<: *b\n", "g.yaml:3:3: a.<<: merge keys"),
        ("a: &a [*a]\n", "g.yaml:1:4: a.0: an alias inside its own anchor"),
        ("a: *nobody\n", "g.yaml:1:4: not valid YAML: found undefined alias"),
        ("a: " + "[" * 900 + "]" * 900, "nested too deeply"),
        ("a: " + "[" * 100_000, "not valid YAML"),
        ("a: \x01\n", "not valid YAML"),
    ],
)
def test_what_cannot_be_used_gives_one_message(text: str, message: str) -> None:
    (found,) = mistakes(text)
    assert message in found


def test_aliases_repeat_a_value_but_do_not_unfold_without_end() -> None:
    assert parse("a: &x [1]\nb: *x\n", "g").value == {"a": [1], "b": [1]}
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    (found,) = mistakes("\n".join(lines))
    assert "too many values" in found


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"name: \xff\xfe\n", "not UTF-8 text (line 1)"),
        (b"# " + b"x" * (5 << 20), "larger than 4 MiB"),
    ],
)
def test_unreadable_files_give_one_message(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "g.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(MistakesError) as caught:
        read(path, name="g.yaml")
    (found,) = caught.value.mistakes
    assert str(found).startswith(f"g.yaml: {message}")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(MistakesError, match="this is a folder"):
        read(tmp_path)


def test_a_byte_order_mark_is_not_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: a\n")
    assert read(path).value == {"name": "a"}


def test_flatten_gives_leaves_with_their_paths() -> None:
    assert list(flatten({"a": {"b": 1, "c": {}}, "d": [1]})) == [
        (("a", "b"), 1),
        (("a", "c"), {}),
        (("d",), [1]),
    ]
