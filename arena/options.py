"""The options of the axes: which there are, their defaults, what each parameter may be. Imports none of them.

An option is a function and a file of the Hydra group named after its axis: `function` (an import path) and
the function's parameters with their defaults. What a parameter may be is read from the function's
keyword-only parameters, in its source, because importing it would import torch.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

from arena.mistakes import Mistake, MistakesError, Place
from arena.yaml_source import Source, read
from trainers.config import OptionConfig, TrainingConfig
from trainers.policy_gradient import parameters

CONF = Path(__file__).parent / "conf"

AXES = tuple(name for name, field in TrainingConfig.model_fields.items() if field.annotation is OptionConfig)
"""The four axes, in the order in which points name them."""

_ANNOTATION_NAMES = {name: getattr(parameters, name) for name in parameters.__all__} | {
    kind.__name__: kind for kind in (bool, float, int, str)
}
_ANNOTATION_NODES = (ast.Name, ast.Constant, ast.Subscript, ast.Tuple, ast.BinOp, ast.BitOr, ast.Load)


class FunctionError(ValueError):
    """An option's function cannot be used; the message says why."""


@dataclass(frozen=True)
class Signature:
    """What an option's function takes.

    data: its positional parameters, which a trainer fills in; parameters: the keyword-only ones, which a grid
    sets: name -> (type, default or `...` when it has none).
    """

    data: tuple[str, ...]
    parameters: Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True, eq=False)
class Option:
    """One option of an axis.

    defaults: every parameter with its value unless a grid says otherwise; schema: checks a set of parameters;
    data: what its function is given beside them (an advantage that takes `anchors` needs states that recur).
    """

    axis: str
    name: str
    function: str
    defaults: Mapping[str, Any]
    schema: type[BaseModel]
    data: tuple[str, ...]


@dataclass(frozen=True)
class Method:
    """A named point: per axis an option and the parameters in which it differs from the option's defaults."""

    name: str
    point: Mapping[str, tuple[str, Mapping[str, Any]]]


class Catalogue:
    """What the configuration folder offers by name. Files are read when first asked for, once."""

    def __init__(self, folder: Path = CONF) -> None:
        self.folder = folder
        self._names: dict[str, tuple[str, ...]] = {}
        self._options: dict[tuple[str, str], Option] = {}

    def names(self, group: str) -> tuple[str, ...]:
        """The names of a group (an axis, `env`, `model`, ... or `method`), sorted."""
        if group not in self._names:
            self._names[group] = tuple(sorted(path.stem for path in (self.folder / group).glob("*.yaml")))
        return self._names[group]

    def chosen_by(self, profile: str) -> Mapping[str, str]:
        """The files of other groups that a profile takes unless a grid names others: {group: name}."""
        if profile not in self.names("profile"):
            return {}
        chosen = self._read("profile", profile).value.get("chooses", {})
        return {str(group): str(name) for group, name in chosen.items()}

    def option(self, axis: str, name: str) -> Option:
        """The option of that name. Raises MistakesError when it is wrong, KeyError when there is none."""
        if name not in self.names(axis):
            raise KeyError(name)
        if (axis, name) not in self._options:
            source = self._read(axis, name)
            values = dict(source.value)
            try:
                self._options[axis, name] = make_option(axis, name, values)
            except FunctionError as error:
                place = source.place(("function",))
                raise MistakesError([Mistake(place, "function", str(error))]) from None
        return self._options[axis, name]

    @cached_property
    def defaults(self) -> Mapping[str, str]:
        """What `config.yaml` takes of every group: an option per axis, an environment, a model, ..."""
        listed = read(self.folder / "config.yaml", name=f"{self.folder.name}/config.yaml").value["defaults"]
        return {group: name for entry in listed if isinstance(entry, dict) for group, name in entry.items()}

    @cached_property
    def methods(self) -> Mapping[str, Method]:
        """All named methods."""
        return {name: self._method(name) for name in self.names("method")}

    def _method(self, name: str) -> Method:
        source = self._read("method", name)
        point = {}
        mistakes = []
        for axis, entry in source.value.items():
            single = isinstance(entry, dict) and len(entry) == 1
            option, parameters = next(iter(entry.items())) if single else (entry, None)
            if axis not in AXES or option not in self.names(axis):
                message = (
                    f"expected `axis: option` or `axis: {{option: {{parameter: value}}}}`, got {entry!r}"
                )
                mistakes.append(Mistake(source.key_place((axis,)), axis, message))
            else:
                point[axis] = (option, parameters or {})
        missing = [axis for axis in AXES if axis not in source.value]
        if missing:
            mistakes.append(Mistake(Place(source.name), "", f"names no option for {', '.join(missing)}"))
        if mistakes:
            raise MistakesError(mistakes)
        return Method(name, {axis: point[axis] for axis in AXES})

    def _read(self, group: str, name: str) -> Source:
        path = self.folder / group / f"{name}.yaml"
        return read(path, name=f"{self.folder.name}/{group}/{name}.yaml")


def make_option(
    axis: str, name: str, values: Mapping[str, Any], *, set_elsewhere: Collection[str] = ()
) -> Option:
    """An option from the content of its file: `function`, and parameters with their defaults.

    Parameters that `values` leaves out take the default of the function. Raises FunctionError when there is
    no such function, or a parameter has no value and is not `set_elsewhere`.
    """
    if not isinstance(values.get("function"), str):
        raise FunctionError("expected `function: package.module.name`")
    function = values["function"]
    signature = read_signature(function)
    fields = {**framework_parameters(axis), **signature.parameters}
    given = {key: value for key, value in values.items() if key not in ("function", "option")}
    defaults = {key: default for key, (_, default) in fields.items() if default is not ...} | given
    missing = [key for key in fields if key not in defaults and key not in set_elsewhere]
    if missing:
        raise FunctionError(f"{function} needs a value for {', '.join(missing)}")
    definitions: dict[str, Any] = {key: (annotation, ...) for key, (annotation, _) in fields.items()}
    settled = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())
    model = create_model(f"{axis}.{name}", __config__=settled, **definitions)
    return Option(axis, name, function, defaults, model, signature.data)


def framework_parameters(axis: str) -> dict[str, tuple[Any, Any]]:
    """The parameters that every option of an axis has, because what surrounds its function reads them."""
    fields = parameters.SETTINGS[axis].model_fields if axis in parameters.SETTINGS else {}  # type: ignore[index]
    return {name: (field.rebuild_annotation(), field.get_default()) for name, field in fields.items()}


@cache
def read_signature(function: str) -> Signature:
    """Read what a function takes from its source. Raises FunctionError when it cannot be found."""
    module, _, name = function.rpartition(".")
    if not module or not all(part.isidentifier() for part in function.split(".")):
        raise FunctionError(f"{function!r} is no import path; expected package.module.name")
    node = _find_function(module, name, function)
    arguments = node.args
    own = {
        argument.arg: (_annotation(argument.annotation), _default(default))
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    }
    return Signature(tuple(argument.arg for argument in arguments.posonlyargs + arguments.args), own)


def _find_function(module: str, name: str, asked: str, depth: int = 0) -> ast.FunctionDef:
    tree = _parse(module)
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            return statement
        if isinstance(statement, ast.ImportFrom) and depth < 5:
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    return _find_function(_absolute(statement, module), alias.name, asked, depth + 1)
    functions = [statement.name for statement in tree.body if isinstance(statement, ast.FunctionDef)]
    listed = ", ".join(function for function in functions if not function.startswith("_")) or "none"
    raise FunctionError(f"{asked!r}: no function {name!r} in module {module} (it has: {listed})")


def _absolute(statement: ast.ImportFrom, module: str) -> str:
    if not statement.level:
        return statement.module or ""
    parts = module.split(".")
    is_package = Path(_spec(module).origin or "").name == "__init__.py"
    kept = parts[: len(parts) - statement.level + is_package]
    return ".".join(kept + ([statement.module] if statement.module else []))


@cache
def _parse(module: str) -> ast.Module:
    origin = _spec(module).origin
    if not origin or not origin.endswith(".py"):
        raise FunctionError(f"module {module} has no Python source")
    try:
        return ast.parse(Path(origin).read_bytes())
    except SyntaxError as error:
        raise FunctionError(f"module {module} does not parse: {error}") from None


def _spec(module: str) -> importlib.machinery.ModuleSpec:
    """Find a module without importing the packages around it, which `importlib.util.find_spec` would."""
    parts = module.split(".")
    try:
        spec = importlib.util.find_spec(parts[0])
    except ValueError:
        spec = None
    for count in range(2, len(parts) + 1):
        if spec is None or spec.submodule_search_locations is None:
            break
        spec = importlib.machinery.PathFinder.find_spec(
            ".".join(parts[:count]), list(spec.submodule_search_locations)
        )
    if spec is None or spec.name != module:
        raise FunctionError(f"no module {module!r}; is it installed, or on PYTHONPATH?")
    return spec


def _annotation(node: ast.expr | None) -> Any:
    """The type an annotation names; Any when it names something unknown here (a type of another package)."""
    if node is None or not all(isinstance(part, _ANNOTATION_NODES) for part in ast.walk(node)):
        return Any
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _annotation(ast.parse(node.value, mode="eval").body)
    try:
        return eval(  # only the node types above, over the names above
            compile(ast.Expression(node), "<annotation>", "eval"),
            {"__builtins__": {}},
            dict(_ANNOTATION_NAMES),
        )
    except (NameError, TypeError):
        return Any


def _default(node: ast.expr | None) -> Any:
    if node is None:
        return ...
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ...
