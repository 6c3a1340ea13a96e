"""verl's configuration, composed from its own files and checked without importing verl.

verl takes unknown names of losses and estimators in silence until the process that looks them up dies; here
they are looked up in verl's sources beforehand.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trainers.verl.translation import NAME, SECTION, Overrides

# fields of verl's data classes that its files leave out
EXTRA = (
    SECTION,
    "actor_rollout_ref.model.override_config.attn_implementation",
    "actor_rollout_ref.actor.fsdp_config.mixed_precision",
    "actor_rollout_ref.ref.fsdp_config.mixed_precision",
    "actor_rollout_ref.rollout.enable_sleep_mode",
    "ray_kwargs.ray_init.num_gpus",
    "ray_kwargs.ray_init.include_dashboard",
    "ray_kwargs.ray_init._temp_dir",
    "ray_kwargs.ray_init.address",
)
FREE = ("engine_kwargs", "override_config", "ray_init", "runtime_env", "sampler_kwargs")
"""Mappings that verl passes on to others, whose keys it does not know."""

_REGISTRIES = {
    "actor_rollout_ref.actor.policy_loss.loss_mode": ("register_policy_loss", "policy loss"),
    "algorithm.adv_estimator": ("register_adv_est", "advantage estimator"),
}
_CHOICES = {
    "actor_rollout_ref.actor.loss_agg_mode": (
        "token-mean",
        "token-sum",
        "seq-mean-token-sum",
        "seq-mean-token-mean",
        "seq-mean-token-sum-norm",
    ),
    "actor_rollout_ref.actor.kl_loss_type": ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "full"),
}


class VerlMissingError(RuntimeError):
    """verl is not installed."""


class VerlConfigError(ValueError):
    """Keys or values that verl does not know; `problems` has (verl's key, message) of all of them."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{key}: {message}" for key, message in problems))


def problems() -> list[str]:
    """Why verl cannot run here, with the remedy; empty when it can. Looks, and imports nothing."""
    missing = [name for name in ("verl", "tensordict", "transfer_queue", "peft") if find_spec(name) is None]
    if not missing:
        return []
    return [f"{' and '.join(missing)} not installed: pip install 'arlarena[verl]'"]


def source_folder() -> Path:
    """Where verl is installed. Raises VerlMissingError."""
    spec = find_spec("verl")
    if spec is None or not spec.origin:
        raise VerlMissingError("verl is not installed: pip install 'arlarena[verl]'")
    return Path(spec.origin).parent


@cache
def base() -> Any:
    """verl's own configuration as its files have it, an OmegaConf that takes no unknown key."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    folder = source_folder() / "trainer" / "config"
    GlobalHydra.instance().clear()
    with initialize_config_dir(version_base=None, config_dir=str(folder)):
        return compose("ppo_trainer")


def composed(overrides: Overrides) -> Any:
    """verl's configuration with a trial's keys in it. Raises VerlConfigError naming every unknown one."""
    import copy

    from omegaconf import OmegaConf, open_dict

    check(overrides)
    config = copy.deepcopy(base())
    with open_dict(config):
        for key, value in overrides.items():
            OmegaConf.update(config, key, value, merge=False, force_add=True)
    return config


def check(overrides: Overrides) -> None:
    """Raise VerlConfigError for keys, and names in registries, that verl does not have."""
    found = []
    for key, value in overrides.items():
        if message := _unknown(key):
            found.append((key, message))
        elif key in _REGISTRIES:
            decorator, what = _REGISTRIES[key]
            found += _known(key, str(value), (*registered(decorator), NAME), what)
        elif key in _CHOICES:
            found += _known(key, str(value), _CHOICES[key], "value")
    if found:
        raise VerlConfigError(found)


def _known(key: str, value: str, names: tuple[str, ...], what: str) -> list[tuple[str, str]]:
    if value in names:
        return []
    return [(key, f"unknown {what} {value!r}{_nearest(value, names)}")]


def _unknown(key: str) -> str | None:
    """Why verl's configuration has no such key, None when it has."""
    if any(key == known or key.startswith(f"{known}.") for known in EXTRA):
        return None
    node: Any = _plain()
    walked: list[str] = []
    for part in key.split("."):
        if not isinstance(node, Mapping) or (walked and walked[-1] in FREE):
            return (
                None if walked and walked[-1] in FREE else f"{'.'.join(walked)} of verl has no keys below it"
            )
        if part not in node:
            names = tuple(str(name) for name in node)
            where = ".".join(walked) or "its configuration"
            return f"verl has no {part!r} in {where}{_nearest(part, names)}"
        node = node[part]
        walked.append(part)
    return None


@cache
def _plain() -> Mapping[str, Any]:
    from omegaconf import OmegaConf

    plain: Any = OmegaConf.to_container(base(), resolve=False)
    return plain  # type: ignore[no-any-return]


@cache
def registered(decorator: str) -> tuple[str, ...]:
    """The names under which verl's core algorithms register functions, read from their source."""
    source = (source_folder() / "trainer" / "ppo" / "core_algos.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    members = {
        f"{node.name}.{target.id}": statement.value.value
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    return tuple(dict.fromkeys(str(members.get(name, name)) for name in _decorated(tree, decorator)))


def _decorated(tree: ast.Module, decorator: str) -> Iterator[str]:
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == decorator:
                argument = call.args[0]
                yield str(argument.value) if isinstance(argument, ast.Constant) else ast.unparse(argument)


def _nearest(name: str, names: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else f" (there are {', '.join(sorted(names))})"
