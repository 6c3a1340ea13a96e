"""What commands share: their options, the folders they name, the ways they print and ask."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from arena.plan import Part, Study

DONE, SOME_FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: every trial has a result; some trial failed; grid or arguments are wrong; Ctrl-C."""

Command = TypeVar("Command", bound=Callable[..., Any])


def studies_option(command: Command) -> Command:
    """Add `--studies`."""
    return click.option(
        "--studies",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="ARENA_STUDIES",
        default=Path("studies"),
        show_default="$ARENA_STUDIES, else ./studies",
        help="The folder that studies are kept in.",
    )(command)


def format_option(command: Command) -> Command:
    """Add `--format`, given as `output`."""
    return click.option(
        "--format",
        "output",
        type=click.Choice(["text", "json"]),
        default="text",
        help="json: standard output is JSON and nothing else.",
    )(command)


def grid_arguments(command: Command) -> Command:
    """Add the arguments GRID and KEY=VALUE, given as `grid` and `assignments`."""
    command = click.argument("assignments", metavar="[KEY=VALUE]...", nargs=-1)(command)
    return click.argument("grid", type=click.Path(path_type=Path))(command)


def plan_grid(
    grid: Path,
    assignments: Sequence[str],
    studies: Path,
    part: Callable[[Study], Part] | None = None,
) -> Study:
    """Plan a grid file as the command line changes it. Raises MistakesError with all that is wrong."""
    from arena.planning import plan_study

    return plan_study(grid, assignments, studies=studies.absolute(), part=part)


def ask(question: str, *, default: bool) -> None:
    """Ask before something happens. Raises click.Abort after a no, click.UsageError without a terminal."""
    if not sys.stdin.isatty():
        raise click.UsageError("nobody to ask; pass --yes")
    click.confirm(question, default=default, abort=True, err=True)


def study_folder(name: str, studies: Path) -> Path:
    """A study by its name, or by the path of its folder."""
    from arena.ledger import TRIALS, find_study

    path = Path(name)
    if (path / TRIALS).is_dir():
        return path.absolute()
    return find_study(studies, name)


def show_plan(study: Study, *, stderr: bool = False) -> None:
    """Print a plan for people."""
    from arena.plan_view import console, plan_view

    console(stderr=stderr).print(plan_view(study))


def show_view(view: Any) -> None:
    """Print something of rich."""
    from arena.plan_view import console

    console().print(view)


def print_json(value: Any) -> None:
    """Print JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Whatever is printed meanwhile, by child processes too, goes to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
