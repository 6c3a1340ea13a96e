"""The command that hands a trial to other programs: export."""

from __future__ import annotations

from pathlib import Path

import click

from arena.commands.shared import DONE, studies_option


@click.command()
@click.argument("name", metavar="TRIAL")
@click.option("--to", "target", type=click.Choice(["verl"]), required=True, help="For which program.")
@click.option(
    "--grid",
    type=click.Path(path_type=Path),
    help="A grid that plans the trial, when it has not been started yet.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    show_default="./TRIAL-verl",
    help="The folder to write.",
)
@click.option("--gpus", type=click.IntRange(1), default=1, show_default=True, help="GPUs of each node.")
@studies_option
def export(name: str, target: str, grid: Path | None, out: Path | None, gpus: int, studies: Path) -> int:
    """Write a trial's equivalent configuration and command line for verl.

    TRIAL is the beginning of an id, as long as it is unique, or STUDY/beginning.
    """
    from arena.clones import clone_folder, is_ready
    from arena.exporting import find_config
    from trainers.verl.export import export as write
    from trainers.verl.schema import VerlMissingError
    from trainers.verl.translation import Surroundings

    trial, clone, config = find_config(name, grid=grid, studies=studies.absolute())
    folder = out or Path(f"{trial}-{target}")
    model = clone_folder(studies.absolute(), clone)
    around = Surroundings(
        model=str(model), checkpoints=str(folder.absolute() / "checkpoints"), gpus=gpus, name=trial
    )
    try:
        written = write(config, folder, around=around)
    except (ValueError, VerlMissingError) as error:
        raise click.ClickException(str(error)) from None
    for path in written:
        click.echo(str(path))
    if not is_ready(model):
        click.echo(f"Its clone is not made yet; `arena run` or `arena trial` puts it at {model}", err=True)
    return DONE
