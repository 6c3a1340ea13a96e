"""The hypotheses of a grid, checked before anything runs: each must name what the grid has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.hypotheses import HypothesisError, Vocabulary, parse
from arena.grid_entries import GridFile
from arena.mistakes import Mistake
from arena.yaml_source import dotted


def unreadable_hypotheses(
    file: GridFile, axes: Mapping[str, Sequence[str]], methods: Sequence[str]
) -> list[Mistake]:
    """What is wrong with a grid's hypotheses.

    axes: per axis the labels of the options that occur; methods: the names of methods that points are.
    """
    swept = {swept.key: [str(value) for value, _ in swept.choices] for swept in file.sweep}
    vocabulary = Vocabulary({**axes, **swept, "env": [env.name for env in file.envs]}, methods)
    mistakes = []
    for index, text in enumerate(file.grid.hypotheses):
        path = ("hypotheses", index)
        try:
            parse(text, vocabulary)
        except HypothesisError as error:
            mistakes.append(Mistake(file.source.place(path), dotted(path), str(error)))
    return mistakes
