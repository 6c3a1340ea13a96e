"""The JSON Schema of grid files, with the names that may stand in them: what editors complete and check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter

from arena.configuration import GROUP_KEYS
from arena.grid import Design, Grid, TuningSection
from arena.identity import CollapseConfig, TrialConfig
from arena.options import AXES, Catalogue

Schema = dict[str, Any]


def grid_schema(catalogue: Catalogue) -> Schema:
    """The schema, in JSON Schema 2020-12."""
    schema: Schema = Grid.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "ARLArena grid"
    properties: Schema = schema["properties"]
    for name, field in Grid.model_fields.items():
        properties[name].pop("title", None)
        properties[name]["description"] = field.description
    options = {axis: _option(axis, catalogue) for axis in AXES}
    point = {"type": "object", "additionalProperties": False, "properties": options}
    keys = _configuration_keys(catalogue)
    _fill(
        properties,
        axes={
            "type": "object",
            "additionalProperties": False,
            "properties": {axis: _some(option) for axis, option in options.items()},
        },
        methods={"type": "array", "items": _named(catalogue.methods, lambda _: _keys(keys))},
        envs=_some(_environment(catalogue)),
        points={"type": "array", "items": point},
        sweep={
            "type": "object",
            "properties": {key: _conditional(_some(value)) for key, value in keys.items()},
            "additionalProperties": _conditional(
                {"type": "array", "minItems": 1},
                {
                    "type": "object",
                    "minProperties": 1,
                    "additionalProperties": {**_keys(keys), "minProperties": 1},
                },
            ),
        },
        design=_design(),
        tuning=_tuning(keys),
        profile={"enum": ["auto", *catalogue.names("profile")]},
        overrides=_keys(keys),
        collapse={
            "type": "object",
            "additionalProperties": False,
            "properties": {
                key: _value(field.rebuild_annotation()) for key, field in CollapseConfig.model_fields.items()
            },
        },
    )
    for unused in ("Choice", "Design", "Sweep", "TunedParameter", "TuningSection"):
        schema["$defs"].pop(unused, None)
    return schema


def _design() -> Schema:
    """A design's name, or the name of one that takes a number with it."""
    fields = {name: _value(field.rebuild_annotation()) for name, field in Design.model_fields.items()}
    runs = {key: fields[key] for key in ("runs", "interactions")}
    numbered = {
        "fraction": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "d_optimal": {"anyOf": [{"type": "integer", "minimum": 1}, _closed(runs, required=["runs"])]},
    }
    names = [name for name in fields["name"]["enum"] if name != "d_optimal"]
    alone = [_closed({name: value}, required=[name]) for name, value in numbered.items()]
    return {"anyOf": [{"enum": names}, *alone]}


def _tuning(keys: Mapping[str, Schema]) -> Schema:
    """What to tune over which keys, or null."""
    fields = {name: _value(field.rebuild_annotation()) for name, field in TuningSection.model_fields.items()}
    for name, field in TuningSection.model_fields.items():
        fields[name]["description"] = field.description
    when = {"when": {"type": "object", "minProperties": 1}}

    def parameter(value: Schema) -> Schema:
        choices = {"type": "array", "minItems": 2, "items": value}
        number = {"type": "number"}
        span = {"low": number, "high": number, "log": {"type": "boolean"}, **when}
        return {
            "anyOf": [
                choices,
                _closed({"choices": choices, **when}, required=["choices"]),
                _closed(span, required=["low", "high"]),
            ]
        }

    fields["params"] = {
        "type": "object",
        "minProperties": 1,
        "properties": {key: parameter(value) for key, value in keys.items()},
        "additionalProperties": parameter({}),
        "description": fields["params"]["description"],
    }
    return {"anyOf": [{"type": "null"}, _closed(fields, required=["params"])]}


def _conditional(*values: Schema) -> Schema:
    """Values of a swept key, or values and when they are taken."""
    whole = {"values": {"anyOf": list(values)}, "when": {"type": "object", "minProperties": 1}}
    return {"anyOf": [*values, _closed(whole, required=["values"])]}


def _closed(properties: Schema, required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _fill(properties: Schema, **known: Schema) -> None:
    for name, schema in known.items():
        kept = {key: properties[name][key] for key in ("description", "default") if key in properties[name]}
        properties[name] = schema | kept


def _option(axis: str, catalogue: Catalogue) -> Schema:
    """An option of an axis: its name, alone or with parameters; one of another package has a function."""

    def parameters(name: str) -> Schema:
        fields = catalogue.option(axis, name).schema.model_fields
        return {
            "type": "object",
            "properties": {key: _value(field.rebuild_annotation()) for key, field in fields.items()},
            "additionalProperties": {},
        }

    known = _named(catalogue.names(axis), parameters)
    known["anyOf"][1]["additionalProperties"] = {
        "type": "object",
        "required": ["function"],
        "properties": {"function": {"type": "string"}},
    }
    return known


def _environment(catalogue: Catalogue) -> Schema:
    """An environment: its name, alone or with keys of its configuration; or another by its import path."""
    known = _named(catalogue.names("env"), lambda _: {"type": "object"})
    known["anyOf"][1]["additionalProperties"] = {
        "type": "object",
        "required": ["environment"],
        "properties": {"environment": {"type": "string"}, "max_turns": {"type": "integer", "minimum": 1}},
    }
    return known


def _named(names: Iterable[str], parameters: Any) -> Schema:
    """A name, or a mapping of one name to parameters."""
    listed = list(names)
    whole = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "properties": {name: parameters(name) for name in listed},
        "additionalProperties": False,
    }
    return {"anyOf": [{"enum": listed}, whole]}


def _some(item: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": item}


def _keys(keys: Mapping[str, Schema]) -> Schema:
    """Configuration keys: those known here completed, others (an environment's, an option's) allowed."""
    return {"type": "object", "properties": dict(keys), "additionalProperties": {}}


def _configuration_keys(catalogue: Catalogue) -> dict[str, Schema]:
    keys: dict[str, Schema] = {group: {"enum": list(catalogue.names(group))} for group in GROUP_KEYS}
    for section, field in TrialConfig.model_fields.items():
        if section not in (*AXES, "seed", "env", "backend"):
            keys |= dict(_leaves(section, field.rebuild_annotation()))
    return keys


def _leaves(name: str, annotation: Any) -> Iterable[tuple[str, Schema]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for inner, field in annotation.model_fields.items():
            yield from _leaves(f"{name}.{inner}", field.rebuild_annotation())
    else:
        yield name, _value(annotation)


def _value(annotation: Any) -> Schema:
    schema: Schema = TypeAdapter(annotation).json_schema()
    value: Schema = _inlined(schema, schema.pop("$defs", {}))
    return value


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """References resolved in place: a value's schema stands on its own."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return {key: _inlined(value, definitions) for key, value in schema.items() if key != "title"}
    if isinstance(schema, list):
        return [_inlined(item, definitions) for item in schema]
    return schema
