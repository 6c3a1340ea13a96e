"""Commands on grid files: run, plan, schema."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arena.commands.shared import (
    DONE,
    WRONG,
    ask,
    format_option,
    grid_arguments,
    plan_grid,
    print_json,
    show_plan,
    stdout_to_stderr,
    studies_option,
)

if TYPE_CHECKING:
    from arena.plan import Part, Study


@click.command()
@grid_arguments
@click.option("--yes", is_flag=True, help="Do not ask before starting.")
@click.option("--dry-run", is_flag=True, help="Show the plan and what would stop it; start nothing.")
@click.option("--retry", type=click.Choice(["failed"]), help="Run failed trials again.")
@click.option("--available", is_flag=True, help="Skip environments that cannot run on this machine.")
@click.option("--only", multiple=True, metavar="KEY=VALUE", help="Run only these, e.g. is_clipping=cispo.")
@click.option("--limit", type=click.IntRange(1), help="Run at most this many trials.")
@click.option(
    "--reuse", multiple=True, metavar="STUDY", help="Take over results of the same trials from this study."
)
@click.option("--address", help="A running Ray cluster; without it Ray is started on this machine.")
@studies_option
@format_option
def run(
    grid: Path,
    assignments: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    retry: str | None,
    available: bool,
    only: tuple[str, ...],
    limit: int | None,
    reuse: tuple[str, ...],
    address: str | None,
    studies: Path,
    output: str,
) -> int:
    """Train every trial of GRID that has no result yet, then write the report.

    Interrupted trials go on where they were; running again does only what is missing.
    """
    part = partial(_part, only=only, limit=limit, reuse=reuse, retry_failed=retry == "failed")
    study = plan_grid(grid, assignments, studies, part)
    show_plan(study, stderr=output == "json")
    chosen: dict[str, Any] = {}
    if study.part.only is not None:
        chosen["only"] = study.part.only
        click.echo(f"of these {len(study.part.only):,} are chosen", err=True)
    sources = _sources(study, reuse)
    reasons = _refusals(study, available=available)
    for reason in reasons:
        click.echo(f"refused: {reason}", err=True)
    if reasons:
        return WRONG
    if dry_run:
        if output == "json":
            print_json(study.document())
        return DONE
    if not yes and study.estimate.seconds:
        ask("Start?", default=True)
    from arena.controller import run_study

    with stdout_to_stderr() if output == "json" else contextlib.nullcontext():
        code = run_study(
            study,
            retry_failed=retry == "failed",
            available_only=available,
            address=address,
            reuse=sources,
            **chosen,
        )
    if output == "json":
        print_json(plan_grid(grid, assignments, studies).document() | {"exit": code})
    return code


@click.command()
@grid_arguments
@studies_option
@format_option
def plan(grid: Path, assignments: tuple[str, ...], studies: Path, output: str) -> int:
    """Show the trials of GRID, which are done, and how long the rest will take. Creates nothing."""
    study = plan_grid(grid, assignments, studies)
    if output == "json":
        print_json(study.document())
    else:
        show_plan(study)
    return DONE


@click.command()
def schema() -> int:
    """Print the JSON Schema of grid files, for editors that complete and check YAML."""
    from arena.grid_schema import grid_schema
    from arena.options import Catalogue

    print_json(grid_schema(Catalogue()))
    return DONE


def _part(
    study: Study, *, only: Sequence[str], limit: int | None, reuse: Sequence[str], retry_failed: bool
) -> Part:
    """What of a study is run. Raises MistakesError for a choice that cannot be understood, or is empty."""
    from arena.plan import Part
    from arena.reuse import elsewhere
    from arena.selection import select

    chosen = None
    if only or limit is not None:
        chosen = select(study, only, limit, retry_failed=retry_failed)
    found = elsewhere(study, chosen) if reuse else {}
    return Part(chosen, frozenset(trial for name in reuse for trial in found.get(name, ())))


def _sources(study: Study, reuse: Sequence[str]) -> list[Path]:
    """The folders of the studies whose results are taken over; says what these and others have.

    Raises NoSuchTrialError for a study that is not there.
    """
    from arena.ledger import find_study
    from arena.reuse import elsewhere

    folders = [find_study(study.studies, name) for name in reuse]
    for name, trials in elsewhere(study, study.part.only).items():
        if name in reuse:
            click.echo(f"{len(trials):,} are taken over from {name}", err=True)
        else:
            click.echo(
                f"{name} has results of {len(trials):,} of them: `--reuse {name}` takes these over", err=True
            )
    return folders


def _refusals(study: Study, *, available: bool) -> list[str]:
    """Why a study is not started."""
    reasons, only = list(study.over_budget), study.part.only
    trials = [trial for trial in study.trials if only is None or trial.id in only]
    unavailable = dict.fromkeys(trial.env for trial in trials if trial.state == "unavailable")
    if unavailable and not available:
        reasons.append(f"{', '.join(unavailable)} cannot run here; `--available` runs the rest")
    runs_here = bool(study.searches) or any(trial.state != "unavailable" for trial in trials)
    if unavailable and available and not runs_here:
        reasons.append("no environment of this grid can run here")
    return reasons
