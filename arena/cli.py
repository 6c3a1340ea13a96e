"""The command line: the group of commands, and what people are told when something is wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from arena.commands import diagnose, environments, export, grids, play, studies, tracking, trials
from arena.commands.shared import DONE, INTERRUPTED, WRONG


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="arlarena", prog_name="arena")
def cli() -> None:
    """Which design choices make agentic RL stable, and which make it collapse?

    GRID is a YAML file of choices. Every point of it is trained, watched and reported. KEY=VALUE overrides a
    key of the grid (seeds=2) or, for every trial, a key of the configuration (trainer.steps=10).
    """


for _command in (
    grids.run,
    grids.plan,
    grids.schema,
    trials.trial,
    trials.show,
    trials.logs,
    export.export,
    studies.status,
    studies.report,
    studies.compare,
    studies.rm,
    diagnose.diagnose,
    tracking.ui,
    tracking.sync,
    play.play,
    environments.envs,
    environments.data,
    environments.serve,
):
    cli.add_command(_command)


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
