"""What playing looks like: a transcript for people, a document for programs, and a person's turn."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

import click

from envs.playing import Episode, Move, Turn
from envs.prompts import FENCE, Rejection
from envs.text_env import Observation, TextEnv

WIDTH = 100
"""Columns that a list of actions may fill."""

_WHY: dict[Rejection, str] = {
    "repeated_tags": "a tag occurs twice",
    "no_think": "no thought",
    "no_action": "no action",
    "truncated": "cut off at its length limit",
    "unpaired_tag": "a tag lacks its partner",
    "wrong_order": "the blocks are in the wrong order",
    "text_outside": "text outside the blocks",
    "empty_action": "the action is empty",
    "inadmissible": "not admissible",
}


class Quit(Exception):
    """A person has had enough."""


class Transcript:
    """Writes episodes turn by turn as they are played (an `envs.playing.Watch`).

    write: where lines go. colors: draw as terminals can.
    """

    def __init__(self, write: Callable[[str], None], *, max_turns: int, colors: bool) -> None:
        self._write, self._max_turns, self._colors = write, max_turns, colors

    def begin(self, title: str) -> None:
        """The line above an episode."""
        self._write(click.style(title, bold=True) if self._colors else title)

    def __call__(self, env: TextEnv, seen: Observation, turns: Sequence[Turn]) -> None:
        """Say what the last move did, and show what there is now."""
        if turns:
            self._move(turns[-1], len(turns))
        drawn = env.render(colors=self._colors)
        text = printable(seen.text) if drawn is None else drawn
        self._write("\n".join(f"  {line}" for line in text.splitlines()))

    def end(self, episode: Episode) -> None:
        """The line below an episode."""
        why = "success" if episode.success else "no success" if episode.terminated else "out of turns"
        self._write(f"{why}: {len(episode.turns)} turns, return {episode.total_reward:g}\n")

    def _move(self, turn: Turn, number: int) -> None:
        move = turn.move
        said = move.response if move.response is not None else move.action or "(nothing)"
        told = "" if move.rejection is None else f"; rejected: {_WHY[move.rejection]}"
        self._write(f"{number}/{self._max_turns}  {printable(said)}   [reward {turn.reward:g}{told}]")


class Person:
    """Asks someone at the keyboard (an `envs.playing.Policy`).

    A choice is the number or the text of an admissible action; where none are listed, any text, and a line
    that opens a fence is read on to the line that closes it. What is no choice is explained and asked again:
    it costs no turn. read(prompt) gives a line and raises EOFError at the end; write: where hints go.
    """

    def __init__(self, read: Callable[[str], str], write: Callable[[str], None]) -> None:
        self._read, self._write = read, write

    def act(self, env: TextEnv, observation: Observation, turns: Sequence[Turn]) -> Move:
        """See `envs.playing.Policy.act`. Raises Quit on `q` and at the end of the input."""
        actions = observation.admissible
        if actions is not None:
            self._write(in_columns([f"{number} {text}" for number, text in enumerate(actions, 1)]))
        while True:
            text = self._line("action> ")
            if text == "q":
                raise Quit
            if actions is None:
                if text.startswith(FENCE) and not (len(text) > len(FENCE) and text.endswith(FENCE)):
                    text = self._block(text)
                if text:
                    return Move(text)
                self._write("write an action; q ends the game")
            elif (chosen := choice(text, actions)) is not None:
                return Move(chosen)
            else:
                self._write(hint(text, actions))

    def _block(self, first: str) -> str:
        lines = [first]
        while lines[-1].strip() != FENCE or len(lines) == 1:
            lines.append(self._line("...> ", strip=False))
        return "\n".join(lines)

    def _line(self, prompt: str, *, strip: bool = True) -> str:
        try:
            line = self._read(prompt)
        except EOFError:
            raise Quit from None
        return line.strip() if strip else line


def choice(text: str, actions: Sequence[str]) -> str | None:
    """The action that a person means by its number (from 1) or its text, None when it is neither."""
    if text.isdecimal() and 1 <= int(text) <= len(actions):
        return actions[int(text) - 1]
    folded = {" ".join(action.lower().split()): action for action in reversed(actions)}
    return folded.get(" ".join(text.lower().split()))


def hint(text: str, actions: Sequence[str]) -> str:
    """Why a text is no choice, and what is."""
    how = f"type a number from 1 to {len(actions)} or an action as it is listed; q ends the game"
    if not text:
        return how
    if text.isdecimal():
        return f"there is no action {text}: {how}"
    near = difflib.get_close_matches(text.lower(), actions, 1, 0.5)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return f"{printable(text)!r} is not admissible here{meant}\n{how}"


def in_columns(items: Sequence[str], width: int = WIDTH) -> str:
    """Items in as many columns as fit, read downwards."""
    if not items:
        return ""
    wide = max(map(len, items)) + 2
    columns = max(1, width // wide)
    rows = -(-len(items) // columns)
    lines = ["".join(f"{item:<{wide}}" for item in items[row::rows]).rstrip() for row in range(rows)]
    return "\n".join(lines)


def printable(text: str) -> str:
    """Text that a model may have written, without what could steer a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text.replace("\t", "    "))


def episode_document(episode: Episode) -> dict[str, Any]:
    """An episode as JSON."""
    rejections = [turn.move.rejection for turn in episode.turns if turn.move.rejection is not None]
    return {
        "seed": episode.seed,
        "success": episode.success,
        "return": episode.total_reward,
        "turns": len(episode.turns),
        "rejections": {reason: rejections.count(reason) for reason in dict.fromkeys(rejections)},
        "transcript": [
            {
                "observation": turn.observation,
                "response": turn.move.response,
                "action": turn.move.action,
                "reward": turn.reward,
                "rejection": turn.move.rejection,
            }
            for turn in episode.turns
        ],
        "last": episode.last,
    }


def summary(episodes: Sequence[Episode]) -> dict[str, float]:
    """Means over episodes: success, return, turns."""
    count = max(len(episodes), 1)
    return {
        "success": sum(episode.success for episode in episodes) / count,
        "return": sum(episode.total_reward for episode in episodes) / count,
        "turns": sum(len(episode.turns) for episode in episodes) / count,
    }
