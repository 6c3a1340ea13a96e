"""What a snippet may use, and how it can end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Ending = Literal["done", "raised", "died", "cpu", "wall", "memory", "output", "lost"]
"""How a snippet ended:

done     its last line ran (or it called `exit()`)
raised   an exception nobody caught, or `exit` with a failure
died     a signal killed it that was not one of the limits: a crash in C code
cpu, wall, memory, output   it was killed at that limit
lost     its worker stopped answering and was replaced; the snippet may not have run
"""


class Limits(BaseModel):
    """The limits of one snippet; of all processes it starts together unless said otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cpu_seconds: Annotated[float, Field(gt=0)] = 2.0
    wall_seconds: Annotated[float, Field(gt=0)] = 6.0
    memory_mb: Annotated[int, Field(ge=64)] = 512
    """Address space of each process, and resident memory of all beyond the worker's own."""
    processes: Annotated[int, Field(ge=1)] = 16
    """Processes and threads."""
    output_kb: Annotated[int, Field(ge=1)] = 64
    files_mb: Annotated[int, Field(ge=1)] = 16
    """Size of its temporary folder."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """Code to run in fresh globals, or in those that the code of the same session `before` it leaves."""

    code: str
    before: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of a snippet.

    output       everything it wrote to stdout and stderr, in order, up to the limit
    cpu_seconds  of itself and the processes it waited for
    """

    output: str
    ending: Ending
    cpu_seconds: float
