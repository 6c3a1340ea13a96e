"""The command line. Every command imports what it needs when it runs, so that `arena --help` is immediate."""

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
    from arena.plan import Study

DONE, SOME_FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: every trial has a result; some trial failed; grid or arguments are wrong; Ctrl-C."""

Command = TypeVar("Command", bound=Callable[..., Any])


def _studies(command: Command) -> Command:
    return click.option(
        "--studies",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="ARENA_STUDIES",
        default=Path("studies"),
        show_default="$ARENA_STUDIES, else ./studies",
        help="The folder that studies are kept in.",
    )(command)


def _format(command: Command) -> Command:
    return click.option(
        "--format",
        "output",
        type=click.Choice(["text", "json"]),
        default="text",
        help="json: standard output is JSON and nothing else.",
    )(command)


def _grid(command: Command) -> Command:
    command = click.argument("assignments", metavar="[KEY=VALUE]...", nargs=-1)(command)
    return click.argument("grid", type=click.Path(path_type=Path))(command)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="arlarena", prog_name="arena")
def cli() -> None:
    """Which design choices make agentic RL stable, and which make it collapse?

    GRID is a YAML file of choices. Every point of it is trained, watched and reported. KEY=VALUE overrides a
    key of the grid (seeds=2) or, for every trial, a key of the configuration (trainer.steps=10).
    """


@cli.command()
@_grid
@click.option("--yes", is_flag=True, help="Do not ask before starting.")
@click.option("--dry-run", is_flag=True, help="Show the plan and what would stop it; start nothing.")
@click.option("--retry", type=click.Choice(["failed"]), help="Run failed trials again.")
@click.option("--available", is_flag=True, help="Skip environments that cannot run on this machine.")
@click.option("--only", multiple=True, metavar="KEY=VALUE", help="Run only these, e.g. is_clipping=cispo.")
@click.option("--limit", type=click.IntRange(1), help="Run at most this many trials.")
@click.option("--address", help="A running Ray cluster; without it Ray is started on this machine.")
@_studies
@_format
def run(
    grid: Path,
    assignments: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    retry: str | None,
    available: bool,
    only: tuple[str, ...],
    limit: int | None,
    address: str | None,
    studies: Path,
    output: str,
) -> int:
    """Train every trial of GRID that has no result yet, then write the report.

    Interrupted trials go on where they were; running again does only what is missing.
    """
    study = _plan(grid, assignments, studies)
    chosen: dict[str, Any] = {}
    if only or limit is not None:
        from arena.selection import select

        chosen["only"] = select(study, only, limit, retry_failed=retry == "failed")
    _show(study, stderr=output == "json")
    if chosen:
        click.echo(f"of these {len(chosen['only']):,} are chosen", err=True)
    reasons = _refusals(study, available=available)
    for reason in reasons:
        click.echo(f"refused: {reason}", err=True)
    if reasons:
        return WRONG
    if dry_run:
        if output == "json":
            _print_json(study.document())
        return DONE
    if not yes and study.estimate.trial_seconds:
        _ask("Start?", default=True)
    from arena.controller import run_study

    with _stdout_to_stderr() if output == "json" else contextlib.nullcontext():
        code = run_study(
            study, retry_failed=retry == "failed", available_only=available, address=address, **chosen
        )
    if output == "json":
        _print_json(_plan(grid, assignments, studies).document() | {"exit": code})
    return code


@cli.command()
@_grid
@_studies
@_format
def plan(grid: Path, assignments: tuple[str, ...], studies: Path, output: str) -> int:
    """Show the trials of GRID, which are done, and how long the rest will take. Creates nothing."""
    study = _plan(grid, assignments, studies)
    if output == "json":
        _print_json(study.document())
    else:
        _show(study)
    return DONE


@cli.command()
def schema() -> int:
    """Print the JSON Schema of grid files, for editors that complete and check YAML."""
    from arena.grid_schema import grid_schema
    from arena.options import Catalogue

    _print_json(grid_schema(Catalogue()))
    return DONE


@cli.command()
@click.argument("name", metavar="TRIAL")
@_studies
def trial(name: str, studies: Path) -> int:
    """Run one trial in this process: the same code as in a study, for a debugger.

    TRIAL is the beginning of an id, as long as it is unique, or STUDY/beginning.
    """
    from arena.ledger import find_trial
    from arena.trial import run_foreground

    outcome = run_foreground(find_trial(studies, name))
    click.echo(f"{outcome.outcome}: {outcome.reason}")
    return {"failed": SOME_FAILED, "interrupted": INTERRUPTED}.get(outcome.outcome, DONE)


@cli.command()
@click.argument("name", metavar="STUDY")
@_studies
@_format
def status(name: str, studies: Path, output: str) -> int:
    """Show how far every trial of a study is."""
    from arena.status_view import study_document, study_view

    folder = _study_folder(name, studies)
    if output == "json":
        _print_json(study_document(folder))
    else:
        _print(study_view(folder))
    return DONE


@cli.command()
@click.argument("name", metavar="TRIAL")
@_studies
@_format
def show(name: str, studies: Path, output: str) -> int:
    """Show a trial: its outcome and why, its configuration, the last lines of its log."""
    from arena.ledger import find_trial
    from arena.status_view import trial_document, trial_view

    folder = find_trial(studies, name)
    if output == "json":
        _print_json(trial_document(folder))
    else:
        _print(trial_view(folder))
    return DONE


@cli.command()
@click.argument("name", metavar="TRIAL")
@click.option("-f", "--follow", is_flag=True, help="Go on as long as the trial is running.")
@click.option("-n", "--lines", type=click.IntRange(1), default=200, show_default=True, help="Lines to show.")
@_studies
def logs(name: str, follow: bool, lines: int, studies: Path) -> int:
    """Show what a trial printed."""
    import time

    from arena.ledger import find_trial, follow_log, last_log_lines

    folder = find_trial(studies, name)
    if not follow:
        for line in last_log_lines(folder, lines):
            click.echo(line)
        return DONE
    for text in follow_log(folder):
        click.echo(text, nl=False)
        if not text:
            time.sleep(0.5)
    return DONE


@cli.command()
@click.argument("name", metavar="STUDY")
@_studies
def report(name: str, studies: Path) -> int:
    """Write a study's report again, from its files."""
    folder = _study_folder(name, studies)
    from analysis.report import write_report

    click.echo(write_report(folder))
    return DONE


@cli.command()
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True)
@_studies
def ui(port: int, host: str, studies: Path) -> int:
    """Open MLflow on the runs of all studies."""
    from arena.tracking import PortInUseError, serve_ui

    try:
        return serve_ui(studies, port, host, announce=click.echo)
    except PortInUseError as error:
        raise click.ClickException(str(error)) from None


@cli.command()
@click.argument("name", metavar="STUDY|TRIAL")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_studies
def rm(name: str, yes: bool, studies: Path) -> int:
    """Remove a study or a trial with all its files. MLflow keeps what it was told."""
    from arena.ledger import NoSuchTrialError, find_trial
    from arena.removal import InUseError, remove_study, remove_trial

    try:
        folder, what, remove = _study_folder(name, studies), "study", remove_study
    except NoSuchTrialError:
        folder, what, remove = find_trial(studies, name), "trial", remove_trial
    if not yes:
        _ask(f"Remove the {what} {folder}?", default=False)
    try:
        remove(folder)
    except InUseError as error:
        raise click.ClickException(str(error)) from None
    return DONE


@cli.command()
@click.argument("name", metavar="[STUDY]", required=False)
@_studies
def sync(name: str | None, studies: Path) -> int:
    """Bring MLflow up to date with a study's files, or with all studies; repeating it adds nothing."""
    everything = sorted(path.parent for path in studies.glob("*/plan.json"))
    folders = [_study_folder(name, studies)] if name else everything
    if not folders:
        raise click.ClickException(f"no studies in {studies}; `arena run GRID` makes one")
    from arena.tracking import sync_study

    worst = DONE
    for folder in folders:
        result = sync_study(folder)
        click.echo(
            f"{folder.name}: {result.trials} trials, {result.metrics:,} numbers, {result.seconds:.1f} s"
        )
        for problem in result.errors:
            click.echo(f"{folder.name}: {problem}", err=True)
            worst = SOME_FAILED
    return worst


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code. What a user got wrong is said in a line, never as a traceback."""
    try:
        listed = None if arguments is None else list(arguments)
        code = cli.main(args=listed, prog_name="arena", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = WRONG
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone (`arena plan | head`): nothing more to say, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = DONE
    except Exception as error:
        message = _user_error(error)
        if message is None:
            raise
        click.echo(message, err=True)
        code = WRONG
    sys.exit(code or DONE)


def _user_error(error: Exception) -> str | None:
    """What to say of an error that the user can do something about, None for all others."""
    from arena.ledger import NoSuchTrialError
    from arena.locks import LockedError
    from arena.mistakes import MistakesError
    from arena.records import CorruptRecordError

    if isinstance(error, MistakesError):
        return str(error)
    if isinstance(error, NoSuchTrialError | LockedError | CorruptRecordError):
        return f"error: {error}"
    if isinstance(error, OSError):
        told = f"{error.strerror}: {error.filename}" if error.strerror and error.filename else str(error)
        return f"error: {told}"
    return None


def _plan(grid: Path, assignments: Sequence[str], studies: Path) -> Study:
    from arena.planning import plan_study

    return plan_study(grid, assignments, studies=studies.absolute())


def _refusals(study: Study, *, available: bool) -> list[str]:
    """Why a study is not started."""
    reasons = list(study.over_budget)
    unavailable = dict.fromkeys(trial.env for trial in study.trials if trial.state == "unavailable")
    if unavailable and not available:
        reasons.append(f"{', '.join(unavailable)} cannot run here; `--available` runs the rest")
    if unavailable and available and not any(trial.state != "unavailable" for trial in study.trials):
        reasons.append("no environment of this grid can run here")
    return reasons


def _ask(question: str, *, default: bool) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("nobody to ask; pass --yes")
    click.confirm(question, default=default, abort=True, err=True)


def _study_folder(name: str, studies: Path) -> Path:
    """A study by its name, or by the path of its folder."""
    from arena.ledger import TRIALS, find_study

    path = Path(name)
    if (path / TRIALS).is_dir():
        return path.absolute()
    return find_study(studies, name)


def _show(study: Study, *, stderr: bool = False) -> None:
    from arena.plan_view import console, plan_view

    console(stderr=stderr).print(plan_view(study))


def _print(view: Any) -> None:
    from arena.plan_view import console

    console().print(view)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
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
