"""Commands on one trial: trial, show, logs."""

from __future__ import annotations

from pathlib import Path

import click

from arena.commands.shared import (
    DONE,
    INTERRUPTED,
    SOME_FAILED,
    format_option,
    print_json,
    show_view,
    studies_option,
)


@click.command()
@click.argument("name", metavar="TRIAL")
@studies_option
def trial(name: str, studies: Path) -> int:
    """Run one trial in this process: the same code as in a study, for a debugger.

    TRIAL is the beginning of an id, as long as it is unique, or STUDY/beginning.
    """
    from arena.ledger import find_trial
    from arena.trial import run_foreground

    outcome = run_foreground(find_trial(studies, name))
    click.echo(f"{outcome.outcome}: {outcome.reason}")
    return {"failed": SOME_FAILED, "interrupted": INTERRUPTED}.get(outcome.outcome, DONE)


@click.command()
@click.argument("name", metavar="TRIAL")
@studies_option
@format_option
def show(name: str, studies: Path, output: str) -> int:
    """Show a trial: its outcome and why, its configuration, the last lines of its log."""
    from arena.ledger import find_trial
    from arena.status_view import trial_document, trial_view

    folder = find_trial(studies, name)
    if output == "json":
        print_json(trial_document(folder))
    else:
        show_view(trial_view(folder))
    return DONE


@click.command()
@click.argument("name", metavar="TRIAL")
@click.option("-f", "--follow", is_flag=True, help="Go on as long as the trial is running.")
@click.option("-n", "--lines", type=click.IntRange(1), default=200, show_default=True, help="Lines to show.")
@studies_option
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
