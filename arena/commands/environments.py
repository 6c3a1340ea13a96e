"""Commands on environments: envs, data, serve."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from arena.commands.shared import DONE, WRONG, format_option, print_json, show_view


@click.command()
@format_option
def envs(output: str) -> int:
    """List the environments: what runs here, with which data, and what each needs."""
    from arena.environment_list import environments_view, list_environments

    listed = list_environments()
    if output == "json":
        print_json({"environments": [each.document() for each in listed]})
    else:
        show_view(environments_view(listed))
    return DONE


@click.command()
@click.argument("env", metavar="ENV")
@click.argument("assignments", metavar="[KEY=VALUE]...", nargs=-1)
@click.option(
    "--games", type=click.IntRange(1), help="ALFWorld: how many to train on (generated.train_games)."
)
@format_option
def data(env: str, assignments: tuple[str, ...], games: int | None, output: str) -> int:
    """Make the data of ENV in advance; what is there already is kept, and training makes the rest itself."""
    from arena.environments import choose_environment
    from arena.progress import progress_bar

    if games is not None:
        assignments = (*assignments, f"generated.train_games={games}")
    chosen = choose_environment(env, assignments)
    prepare = getattr(chosen.environment, "prepare", None)
    if chosen.problems:
        for problem in chosen.problems:
            click.echo(f"{env} cannot run here: {problem}", err=True)
        return WRONG
    told: dict[str, Any] = {"environment": env, "data": chosen.environment.data_id(chosen.config)}
    if prepare is None:
        where = "nothing to make in advance"
    else:
        with progress_bar(env, "games") as progress:
            where = prepare(chosen.config, progress)
    if output == "json":
        print_json({**told, "where": where})
    else:
        click.echo(f"{env}: {where}")
    return DONE


@click.command()
@click.argument("env", metavar="ENV")
@click.argument("assignments", metavar="[KEY=VALUE]...", nargs=-1)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any free one."
)
def serve(env: str, assignments: tuple[str, ...], port: int) -> int:
    """Offer ENV to programs on this machine as an OpenEnv server, until interrupted.

    KEY=VALUE changes its configuration: max_turns=10. ENV may be the import path of an environment.
    """
    from importlib.util import find_spec

    from arena.environments import choose_environment

    chosen = choose_environment(env, assignments)
    missing = [] if find_spec("openenv") else ["serving needs openenv: pip install 'arlarena[openenv]'"]
    for problem in (*chosen.problems, *missing):
        click.echo(f"{env} cannot be served here: {problem}", err=True)
    if chosen.problems or missing:
        return WRONG
    from envs.adapters.openenv_server import listen, serve

    with listen(port) as socket:
        click.echo(f"{env} is at http://127.0.0.1:{socket.getsockname()[1]} (Ctrl-C ends)")
        with contextlib.suppress(KeyboardInterrupt):
            serve(chosen.environment, chosen.config, socket)
    return DONE
