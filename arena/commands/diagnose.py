"""Commands on runs that were trained elsewhere: diagnose."""

from __future__ import annotations

from pathlib import Path

import click

from arena.commands.shared import DONE, WRONG, format_option, print_json

COLLAPSED = 3
"""Exit code: a run collapsed or diverged."""


@click.command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--figure", type=click.Path(dir_okay=False, path_type=Path), help="Draw the runs into this PNG."
)
@format_option
def diagnose(sources: tuple[Path, ...], figure: Path | None, output: str) -> int:
    """Say when runs trained elsewhere went wrong, what moved first, and which choices bear on it.

    SOURCE: a log or trainer_state.json of TRL, verl's console or JSON lines, a CSV export of W&B,
    TensorBoard event files, a run or database of MLflow; a file or a folder. Exits with 0 when all runs are
    healthy, 3 when one collapsed or diverged, 2 when a source cannot be read.
    """
    from analysis.diagnosis import diagnose as judge
    from analysis.diagnosis import draw_diagnoses, side_by_side, told
    from analysis.foreign import UnreadableError, read_source

    runs = []
    unreadable = False
    for source in sources:
        try:
            runs += read_source(source)
        except UnreadableError as error:
            click.echo(f"error: {error}", err=True)
            unreadable = True
    found = [judge(run) for run in runs]
    if output == "json":
        print_json([diagnosis.document() for diagnosis in found])
    else:
        for diagnosis in found:
            click.echo("\n".join(told(diagnosis)) + "\n")
        if len(found) > 1:
            click.echo("\n".join(side_by_side(found)))
    if figure is not None and found:
        drawn = draw_diagnoses(found, figure)
        click.echo(str(figure) if drawn else "nothing to draw", err=True)
    if unreadable:
        return WRONG
    return COLLAPSED if any(not diagnosis.healthy for diagnosis in found) else DONE
