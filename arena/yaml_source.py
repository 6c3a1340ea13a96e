"""YAML as people mean it, with the place of everything: YAML 1.2, no duplicate keys, nothing executed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from arena.mistakes import Mistake, MistakesError, Place

MAX_BYTES = 4 * 2**20
MAX_NODES = 200_000
"""Far above any grid. Aliases count each time they are used: a small file cannot unfold without end."""

Path_ = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_CORE_SCHEMA = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
)


@dataclass
class Source:
    """A document: its plain value and where each part of it was written.

    places: path -> place of the value; `key_places`: path -> place of the key that names it. A path is the
    keys and list positions from the top, `("axes", "is_clipping", 1)`.
    """

    name: str
    text: str
    value: Any
    places: dict[Path_, Place] = field(default_factory=dict)
    key_places: dict[Path_, Place] = field(default_factory=dict)

    def place(self, path: Path_) -> Place:
        """Where the value at `path` is, or the nearest part around it when that was not written down."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return Place(self.name)

    def key_place(self, path: Path_) -> Place:
        """Where the key that names `path` is; the value's place for items of lists."""
        return self.key_places.get(path) or self.place(path)

    def set(self, path: Path_, value: Any, place: Place) -> None:
        """Put a value that was written elsewhere (a command line) at `path`; mappings on the way are made."""
        target = self.value
        for key in path[:-1]:
            if not isinstance(target.get(key), dict):
                target[key] = {}
            target = target[key]
        target[path[-1]] = value
        for table in (self.places, self.key_places):
            for known in [known for known in table if known[: len(path)] == path]:
                del table[known]
        self.places[path] = self.key_places[path] = place


def read(path: Path, *, name: str | None = None) -> Source:
    """Read a YAML file whose top is a mapping.

    name: what messages call it (default: the path as given). Raises MistakesError when the file is missing,
    unreadable, not UTF-8, too large, empty, not YAML, not a mapping, or has duplicate keys.
    """
    name = name or str(path)

    def refuse(message: str) -> MistakesError:
        return MistakesError([Mistake(Place(name), "", message)])

    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise refuse("no such file") from None
    except IsADirectoryError:
        raise refuse("this is a folder; expected a YAML file") from None
    except OSError as error:
        raise refuse(f"cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise refuse(f"larger than {MAX_BYTES // 2**20} MiB; this is not a file written by hand")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise refuse(f"not UTF-8 text (line {line}); save it as UTF-8") from None
    return parse_mapping(text, name)


def parse_mapping(text: str, name: str) -> Source:
    """As `parse`, and the top must be a mapping that is not empty."""
    source = parse(text, name)
    if source.value is None or source.value == {}:
        raise MistakesError([Mistake(Place(name), "", "empty; expected `key: value` lines")])
    if not isinstance(source.value, dict):
        kind = "list" if isinstance(source.value, list) else "single value"
        raise MistakesError([Mistake(Place(name, 1, 1), "", f"a {kind}; expected a mapping of `key: value`")])
    return source


def parse(text: str, name: str) -> Source:
    """Parse one document. Raises MistakesError: the syntax error, or every duplicate key and unusable tag."""
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(name, mark.line + 1, mark.column + 1) if mark else Place(name)
        what = " ".join(part for part in (error.context, error.problem) if part)
        raise MistakesError([Mistake(place, "", f"not valid YAML: {what}")]) from None
    except yaml.YAMLError as error:
        raise MistakesError([Mistake(Place(name), "", f"not valid YAML: {error}".splitlines()[0])]) from None
    source = Source(name, text, None)
    if node is None:
        return source
    builder = _Builder(source)
    try:
        source.value = builder.build(node, ())
    except RecursionError:
        raise MistakesError([Mistake(Place(name), "", "nested too deeply")]) from None
    if builder.mistakes:
        raise MistakesError(builder.mistakes)
    return source


_FastestLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_FastestLoader):  # type: ignore[misc]
    """The parser, resolving plain scalars by YAML 1.2's core schema instead of YAML 1.1."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (the attribute yaml looks up)


for _name, _pattern, _first in _CORE_SCHEMA:
    _Loader.add_implicit_resolver(
        _TAG + _name, re.compile(rf"^(?:{_pattern})$"), ["" if c == "\0" else c for c in _first]
    )


class _Builder:
    """Turns nodes into plain values, noting places and collecting mistakes."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.mistakes: list[Mistake] = []
        self.nodes = 0
        self.open: set[int] = set()

    def build(self, node: yaml.Node, path: Path_) -> Any:
        self.source.places[path] = self._place(node)
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise MistakesError([Mistake(Place(self.source.name), "", "aliases unfold to too many values")])
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self.open:
            raise MistakesError([Mistake(self._place(node), dotted(path), "an alias inside its own anchor")])
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                self._expect_tag(node, "seq", path)
                return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
            self._expect_tag(node, "map", path)
            return dict(self._items(node, path))
        finally:
            self.open.discard(id(node))

    def _items(self, node: yaml.Node, path: Path_) -> Iterator[tuple[str, Any]]:
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._add(key_node, path, "a key must be a plain word")
                continue
            key = key_node.value
            inner = (*path, key)
            if inner in self.source.key_places:
                first = self.source.key_places[inner]
                self._add(key_node, inner, f"duplicate key (first on line {first.line}); remove one of them")
                continue
            if key == "<<" and not key_node.style:
                self._add(key_node, inner, "merge keys are not part of YAML 1.2; write the keys out")
                continue
            self.source.key_places[inner] = self._place(key_node)
            yield key, self.build(value_node, inner)

    def _scalar(self, node: yaml.ScalarNode, path: Path_) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        try:
            match kind:
                case "str":
                    return text
                case "null":
                    return None
                case "bool":
                    return {"true": True, "false": False}[text.lower()]
                case "int":
                    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
                case "float":
                    return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
        except (ValueError, KeyError):
            self._add(node, path, f"{text!r} is not a {kind}")
            return None
        self._add(node, path, f"the tag {node.tag!r} is not supported; write a plain value")
        return None

    def _expect_tag(self, node: yaml.Node, kind: str, path: Path_) -> None:
        if node.tag != _TAG + kind:
            self._add(node, path, f"the tag {node.tag!r} is not supported; write a plain value")

    def _place(self, node: yaml.Node) -> Place:
        return Place(self.source.name, node.start_mark.line + 1, node.start_mark.column + 1)

    def _add(self, node: yaml.Node, path: Path_, message: str) -> None:
        self.mistakes.append(Mistake(self._place(node), dotted(path), message))


def dotted(path: Path_) -> str:
    """A path as messages show it: `axes.is_clipping.1`."""
    return ".".join(map(str, path))


def flatten(value: Mapping[str, Any], prefix: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """The leaves of nested mappings with their paths; an empty mapping is a leaf."""
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield from flatten(inner, (*prefix, key))
        else:
            yield (*prefix, key), inner
