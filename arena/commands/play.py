"""Playing environments: arena play."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arena.commands.shared import DONE, WRONG, format_option, print_json, studies_option

if TYPE_CHECKING:
    from arena.environments import Chosen
    from envs.playing import Episode, Policy

HUMAN, EXPERT, RANDOM = BASELINES = ("human", "expert", "random")
"""Players that need no training."""


@click.command()
@click.argument("env", metavar="ENV")
@click.argument("assignments", metavar="[KEY=VALUE]...", nargs=-1)
@click.option(
    "--policy",
    "player",
    metavar="human|expert|random|CHECKPOINT",
    default=HUMAN,
    show_default=True,
    help="Who plays. CHECKPOINT: a trial, or the folder of a trial, checkpoint or clone.",
)
@click.option("--episodes", type=click.IntRange(1), default=1, show_default=True, help="How many.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the first; then one more each."
)
@click.option(
    "--split",
    type=click.Choice(["train", "eval"]),
    default="eval",
    show_default=True,
    help="Which initial states.",
)
@click.option(
    "--pictures",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a PNG of every state into this folder, where the environment draws them.",
)
@click.option("--browser", is_flag=True, help="As web pages of this machine (webshop), until interrupted.")
@studies_option
@format_option
def play(
    env: str,
    assignments: tuple[str, ...],
    player: str,
    episodes: int,
    seed: int,
    split: str,
    pictures: Path | None,
    browser: bool,
    studies: Path,
    output: str,
) -> int:
    """Play episodes of ENV and show them turn by turn.

    KEY=VALUE changes its configuration: max_turns=10, prompt.style=full. A policy of a trial plays the
    environment as it was trained in it.
    """
    from arena.environments import choose_environment
    from arena.trained_policies import NoPolicyError, find_trained

    try:
        trained = None if player in BASELINES else find_trained(player, studies.absolute())
        sections = trained.sections_for(env) if trained else None
    except NoPolicyError as error:
        raise click.ClickException(str(error)) from None
    chosen = choose_environment(env, assignments, trained=sections)
    for problem in chosen.problems:
        click.echo(f"{env} cannot run here: {problem}", err=True)
    if chosen.problems:
        return WRONG
    policy = trained.load(chosen, seed=seed) if trained else _baseline(player, chosen, seed)
    if browser:
        return _browse(chosen, None if player == HUMAN else policy, seed=seed, split=split)
    if player == HUMAN:
        _tell(f"{chosen.environment.task(chosen.config)}\n")
    played = _play(
        chosen,
        policy,
        seeds=range(seed, seed + episodes),
        split=split,
        pictures=pictures,
        shown=output == "text" or player == HUMAN,
        stderr=output == "json",
    )
    from arena.play_view import episode_document, summary

    means = summary(played)
    if output == "json":
        told = {"environment": env, "policy": trained.label if trained else player, "split": split}
        print_json({**told, **means, "episodes": [episode_document(episode) for episode in played]})
    elif len(played) > 1:
        click.echo(
            f"{len(played)} episodes: success {means['success']:.3f}, return {means['return']:.2f}, "
            f"{means['turns']:.1f} turns"
        )
    return DONE


def _browse(chosen: Chosen, policy: Policy | None, *, seed: int, split: Any) -> int:
    """Show the environment as web pages, to a person who acts, or who watches a policy."""
    import webbrowser

    pages = getattr(chosen.environment, "pages", None)
    if pages is None:
        raise click.ClickException(f"{chosen.name} has no web pages; leave --browser out")
    with pages(chosen.config, seed=seed, split=split, policy=policy) as server:
        click.echo(f"{chosen.name} is at {server.url} (Ctrl-C ends)")
        if sys.stdout.isatty():
            webbrowser.open(server.url)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return DONE


def _baseline(name: str, chosen: Chosen, seed: int) -> Policy:
    from arena.play_view import Person
    from envs.baselines import ExpertPolicy, RandomPolicy

    if name == EXPERT:
        return ExpertPolicy(chosen.environment.expert(chosen.config), aloud=True)
    if name == RANDOM:
        return RandomPolicy(seed)
    return Person(_read_line, _tell)


def _read_line(prompt: str) -> str:
    """A line of standard input; the prompt goes to standard error, as the game is not the result."""
    click.echo(prompt, nl=False, err=True)
    line = sys.stdin.readline()
    if not line:
        click.echo(err=True)
        raise EOFError
    return line.rstrip("\n")


def _tell(text: str) -> None:
    click.echo(text, err=True)


def _play(
    chosen: Chosen,
    policy: Policy,
    *,
    seeds: range,
    split: Any,
    pictures: Path | None,
    shown: bool,
    stderr: bool,
) -> list[Episode]:
    """Play the episodes of the seeds, up to the one in which a person quits."""
    from arena.play_view import Quit, Transcript
    from envs.playing import play as play_episode

    colors = (sys.stderr if stderr else sys.stdout).isatty()
    write: Callable[[str], None] = _tell if stderr else click.echo
    transcript = Transcript(write, max_turns=chosen.config.max_turns, colors=colors)
    env = chosen.environment.make(chosen.config)
    played: list[Episode] = []
    try:
        for seed in seeds:

            def watch(env: Any, seen: Any, turns: Any, seed: int = seed) -> None:
                if shown:
                    transcript(env, seen, turns)
                if pictures is not None:
                    _save_picture(pictures, f"{seed}-{len(turns):03d}.png", env.render_png())

            if shown:
                transcript.begin(f"{chosen.name}, {split} split, seed {seed}")
            played.append(play_episode(env, policy, seed=seed, split=split, watch=watch))
            if shown:
                transcript.end(played[-1])
    except Quit:
        click.echo(f"ended after {len(played)} whole episodes", err=True)
    finally:
        env.close()
    return played


def _save_picture(folder: Path, name: str, picture: bytes | None) -> None:
    if picture is None:
        raise click.ClickException("this environment draws no pictures; leave --pictures out")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(picture)
