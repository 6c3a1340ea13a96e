"""From an option's entry in a config to the function it names, with its parameters bound."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from trainers.config import OptionConfig
from trainers.policy_gradient.parameters import SETTINGS, Axis

OptionFunction = Callable[..., Tensor]


def load(path: str) -> OptionFunction:
    """The function at an import path such as `trainers.policy_gradient.is_clipping.token`.

    Raises ValueError when the module cannot be imported or holds no such function.
    """
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise ValueError(f"{path!r} is no import path; expected package.module.function")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"cannot import {module_name!r} of {path!r}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        functions = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise ValueError(f"{module_name!r} has no function {name!r}{_nearest(name, functions)}")
    return function  # type: ignore[no-any-return]


def bind(axis: Axis, option: OptionConfig) -> OptionFunction:
    """The option's function with its own parameters bound; those of the axis (`SETTINGS`) are left out.

    Raises ValueError naming every parameter that is unknown, missing or of the wrong type.
    """
    function = load(option.function)
    shared = SETTINGS[axis].model_fields
    given = {name: value for name, value in option.parameters.items() if name not in shared}
    declared = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    hints = get_type_hints(function, include_extras=True)
    problems = []
    bound: dict[str, Any] = {}
    for name, value in given.items():
        if name not in declared:
            problems.append(f"unknown parameter {name!r}{_nearest(name, [*declared, *shared])}")
            continue
        try:
            bound[name] = TypeAdapter(hints.get(name, Any)).validate_python(value)
        except ValidationError as error:
            problems.extend(f"{name}: {problem['msg']}, got {value!r}" for problem in error.errors())
    problems.extend(
        f"parameter {name!r} is missing"
        for name, parameter in declared.items()
        if name not in given and parameter.default is inspect.Parameter.empty
    )
    if problems:
        raise ValueError(f"{axis} option {option.option!r} ({option.function}): " + "; ".join(problems))
    return partial(function, **bound)


def _nearest(name: str, candidates: list[str]) -> str:
    near = difflib.get_close_matches(name, candidates, n=1)
    if near:
        return f", did you mean {near[0]!r}?"
    return f", expected one of {sorted(candidates)}" if candidates else ", it takes none"
