"""Commands on studies: status, report, compare, rm."""

from __future__ import annotations

from pathlib import Path

import click

from arena.commands.shared import (
    DONE,
    ask,
    format_option,
    print_json,
    show_view,
    studies_option,
    study_folder,
)


@click.command()
@click.argument("name", metavar="STUDY")
@click.option("--watch", is_flag=True, help="Go on as long as the study is being run.")
@studies_option
@format_option
def status(name: str, watch: bool, studies: Path, output: str) -> int:
    """Show how far every trial of a study is."""
    from arena.status_view import study_document, study_view

    folder = study_folder(name, studies)
    if watch:
        if output == "json":
            raise click.UsageError("--watch shows a table or lines; leave out --format json")
        from arena.status_watch import watch as watch_study

        watch_study(folder)
    elif output == "json":
        print_json(study_document(folder))
    else:
        show_view(study_view(folder))
    return DONE


@click.command()
@click.argument("name", metavar="STUDY")
@click.option("--html", is_flag=True, help="Print the path of the page instead of that of the markdown.")
@click.option("--latex", is_flag=True, help="Write its tables as LaTeX too, and print that path.")
@click.option(
    "--publish",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Write a small copy there, for version control, and print that path.",
)
@studies_option
def report(name: str, html: bool, latex: bool, publish: Path | None, studies: Path) -> int:
    """Write a study's report again, from its files: report.md, report.html, figures, tables."""
    if publish and (html or latex):
        raise click.UsageError("--publish prints the path of its own page; leave out --html and --latex")
    folder = study_folder(name, studies)
    from analysis.report import write_report
    from arena.progress import progress_line

    try:
        with progress_line("report") as tell:
            path = write_report(folder, tell, latex=latex, publication=publish)
    except FileExistsError as error:
        raise click.UsageError(str(error)) from None
    if latex:
        path = path.with_name("tables.tex")
    click.echo(path.with_name("report.html") if html else path)
    return DONE


@click.command()
@click.argument("names", metavar="STUDY STUDY", nargs=2)
@studies_option
def compare(names: tuple[str, str], studies: Path) -> int:
    """Compare two studies, or one study run by two versions of the code; prints markdown."""
    first, second = (study_folder(name, studies) for name in names)
    from analysis.comparison import compare as compared
    from analysis.study import load_study

    click.echo(compared(load_study(first), load_study(second)), nl=False)
    return DONE


@click.command()
@click.argument("name", metavar="STUDY|TRIAL")
@click.option("--yes", is_flag=True, help="Do not ask.")
@studies_option
def rm(name: str, yes: bool, studies: Path) -> int:
    """Remove a study or a trial with all its files. MLflow keeps what it was told."""
    from arena.ledger import NoSuchTrialError, find_trial
    from arena.removal import InUseError, remove_study, remove_trial

    try:
        folder, what, remove = study_folder(name, studies), "study", remove_study
    except NoSuchTrialError:
        folder, what, remove = find_trial(studies, name), "trial", remove_trial
    if not yes:
        ask(f"Remove the {what} {folder}?", default=False)
    try:
        remove(folder)
    except InUseError as error:
        raise click.ClickException(str(error)) from None
    return DONE
