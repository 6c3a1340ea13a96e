"""One environment by name, with the `key=value` of a command line over its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from arena.configuration import Composer, Setting
from arena.mistakes import Mistake, MistakesError, Place, unknown
from arena.options import Catalogue
from arena.sections import Sections
from arena.yaml_source import flatten, parse
from envs.registry import load_environment
from envs.text_env import EnvConfig, Environment
from trainers.config import EvaluationConfig, PromptConfig

SECTIONS = ("env", "prompt", "evaluation")
"""The sections that playing depends on; any other key is one of the environment's own."""


@dataclass(frozen=True)
class Chosen:
    """An environment with its checked configuration, and how a policy is shown its turns and sampled."""

    name: str
    environment: Environment
    config: EnvConfig
    prompt: PromptConfig
    evaluation: EvaluationConfig

    @property
    def problems(self) -> tuple[str, ...]:
        """Why it cannot run on this machine, each with its remedy."""
        return tuple(self.environment.problems(self.config))


def choose_environment(
    name: str,
    assignments: Sequence[str] = (),
    *,
    catalogue: Catalogue | None = None,
    trained: Mapping[str, Any] | None = None,
) -> Chosen:
    """The environment of that name or import path, as the command line wants it.

    assignments: `max_turns=10`, the same as `env.max_turns=10`; `prompt.history=2`. trained: sections of a
    configuration that go over the environment's defaults, those a policy was trained under. Raises
    MistakesError with everything that is wrong.
    """
    catalogue = catalogue or Catalogue()
    names = catalogue.names("env")
    place = Place("command line")
    target = name if "." in name else (trained or {}).get("env", {}).get("environment")
    if name in names:
        base = Composer(catalogue).base(env=name)
    elif target is not None:
        base = Composer(catalogue).foreign_base(name.rpartition(".")[2].lower(), target, place)
    else:
        raise MistakesError([Mistake(place, "", unknown("environment", name, names))])
    base = replace(base, sections={**base.sections, **(trained or {})})
    settings, mistakes = _settings(assignments)
    sections = Sections()
    env = sections.env(base, settings["env"])
    prompt = sections.plain(base, "prompt", settings["prompt"])
    evaluation = sections.plain(base, "evaluation", settings["evaluation"])
    mistakes += sections.mistakes
    if mistakes or env is None or prompt is None or evaluation is None:
        raise MistakesError(mistakes)
    environment, config = load_environment(env.section.plain)
    return Chosen(name, environment, config, prompt.value, evaluation.value)


def _settings(assignments: Sequence[str]) -> tuple[dict[str, tuple[Setting, ...]], list[Mistake]]:
    """What a command line sets, by section, and what is wrong with how it is written."""
    settings: dict[str, tuple[Setting, ...]] = dict.fromkeys(SECTIONS, ())
    mistakes: list[Mistake] = []
    for text in assignments:
        place = Place(f"command line ({text})")
        key, equals, written = text.partition("=")
        if not equals or not all(key.split(".")):
            mistakes.append(Mistake(place, "", "expected key=value"))
            continue
        try:
            value = parse(written, str(place)).value
        except MistakesError as error:
            mistakes += [Mistake(place, "", mistake.message) for mistake in error.mistakes]
            continue
        path = tuple(key.split("."))
        if path[0] not in SECTIONS:
            path = ("env", *path)
        for leaf, inner in flatten({path[-1]: value}):
            whole = (*path[:-1], *map(str, leaf))
            settings[path[0]] += (Setting(whole, inner, "", place, place),)
            if whole[1:2] in (("name",), ("environment",)) and whole[0] == "env":
                mistakes.append(Mistake(place, "", "environments are chosen by their name"))
    return settings, mistakes
