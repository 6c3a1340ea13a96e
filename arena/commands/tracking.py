"""Commands on MLflow: ui, sync."""

from __future__ import annotations

from pathlib import Path

import click

from arena.commands.shared import DONE, SOME_FAILED, studies_option, study_folder


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True)
@studies_option
def ui(port: int, host: str, studies: Path) -> int:
    """Open MLflow on the runs of all studies."""
    from arena.tracking import PortInUseError, serve_ui

    try:
        return serve_ui(studies, port, host, announce=click.echo)
    except PortInUseError as error:
        raise click.ClickException(str(error)) from None


@click.command()
@click.argument("name", metavar="[STUDY]", required=False)
@studies_option
def sync(name: str | None, studies: Path) -> int:
    """Bring MLflow up to date with a study's files, or with all studies; repeating it adds nothing."""
    from arena.ledger import PLAN, study_folders

    everything = [folder for folder in study_folders(studies) if (folder / PLAN).exists()]
    folders = [study_folder(name, studies)] if name else everything
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
