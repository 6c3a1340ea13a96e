"""The compact line against what is true in the engine."""

from __future__ import annotations

import random

import pytest

from envs.alfworld.environment import ALFWORLD
from envs.alfworld.notes import Notes, goal_of, words
from envs.alfworld.planning import Situation

INTRODUCTION = (
    "-= Welcome to TextWorld, ALFRED! =-\n\n"
    "You are in the middle of a room. Looking quickly around you, you see "
    "a cabinet 2, a cabinet 1, and a sinkbasin 1.\n\nYour task is to: put a clean Mug in cabinet."
)


def test_a_line_grows_with_what_was_seen():
    notes = Notes(INTRODUCTION)
    goal = "put a clean mug in cabinet"
    assert notes.line() == f"{goal} | at middle | hold nothing | cabinet 2 ? | cabinet 1 ? | sinkbasin 1 ?"
    for feedback, line in (
        ("You arrive at cabinet 1. The cabinet 1 is closed.", "at cabinet 1 | hold nothing | cabinet 2 ? | "
         "cabinet 1 closed | sinkbasin 1 ?"),
        ("You open the cabinet 1. The cabinet 1 is open. In it, you see a mug 1, and a cup 1.",
         "at cabinet 1 | hold nothing | cabinet 2 ? | cabinet 1 mug 1 cup 1 | sinkbasin 1 ?"),
        ("You pick up the mug 1 from the cabinet 1.", "at cabinet 1 | hold mug 1 | cabinet 2 ? | "
         "cabinet 1 cup 1 | sinkbasin 1 ?"),
        ("You close the cabinet 1.", "at cabinet 1 | hold mug 1 | cabinet 2 ? | cabinet 1 closed cup 1 | "
         "sinkbasin 1 ?"),
        ("You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing.", "at sinkbasin 1 | hold mug 1 | "
         "cabinet 2 ? | cabinet 1 closed cup 1 | sinkbasin 1 nothing"),
        ("You clean the mug 1 using the sinkbasin 1.", "at sinkbasin 1 | hold mug 1 clean | cabinet 2 ? | "
         "cabinet 1 closed cup 1 | sinkbasin 1 nothing"),
        ("You move the mug 1 to the sinkbasin 1.", "at sinkbasin 1 | hold nothing | cabinet 2 ? | "
         "cabinet 1 closed cup 1 | sinkbasin 1 mug 1 clean"),
    ):  # fmt: skip
        notes.hear(feedback)
        assert notes.line() == f"{goal} | {line}"


def test_what_is_heated_is_no_longer_cool():
    notes = Notes(INTRODUCTION)
    notes.hear("You pick up the mug 1 from the cabinet 1.")
    for deed, qualities in (
        ("cool", "cool"),
        ("clean", "cool clean"),
        ("heat", "clean hot"),
        ("cool", "clean cool"),
    ):
        notes.hear(f"You {deed} the mug 1 using the thing 1.")
        assert f"hold mug 1 {qualities} |" in notes.line()


def test_a_lamp_is_on_or_not():
    notes = Notes(INTRODUCTION)
    notes.hear("On the cabinet 2, you see a desklamp 1.")
    notes.hear("You turn on the desklamp 1.")
    assert "cabinet 2 desklamp 1 on |" in notes.line()
    notes.hear("You turn off the desklamp 1.")
    assert "cabinet 2 desklamp 1 |" in notes.line()


def test_older_wording_and_goals_in_free_words_are_understood():
    notes = Notes(INTRODUCTION.replace("put a clean Mug in cabinet.", "Wash it; put it away!"))
    notes.hear("You put the mug 1 in/on the cabinet 2.")
    assert notes.line().startswith("wash it ; put it away ! | at middle | hold nothing | cabinet 2 mug 1 |")
    assert goal_of(INTRODUCTION) == "put a clean Mug in cabinet."
    assert words("Don't, in/on: 2") == "don't , in/on : 2"
    with pytest.raises(ValueError, match="names no task"):
        Notes("You are nowhere.")


def test_everything_noted_is_true_in_the_engine(make_config):
    config, chance = make_config(max_turns=40), random.Random(4)
    env = ALFWORLD.make(config)
    closed_seen = 0
    for seed in range(30):
        text, info = env.reset(seed)
        over = False
        while not over:
            _, at, held, *receptacles = text.split(" | ")
            situation = Situation.of(env.game.facts(env.node))
            name = env.game.name
            assert held.split()[1:3] == (name(situation.held).split() if situation.held else ["nothing"])
            place = {name(receptacle): where for receptacle, where in situation.place.items()}
            assert situation.at == place[at.removeprefix("at ")] if at != "at middle" else True
            for part in receptacles:
                first, number, *known = part.split()
                receptacle = f"{first} {number}"
                (identifier,) = [each for each in situation.place if name(each) == receptacle]
                if known == ["?"]:
                    continue
                closed = known[0] == "closed"
                closed_seen += closed
                assert closed == (identifier in situation.closed)
                inside = [
                    word for word in known[closed:] if word not in ("clean", "hot", "cool", "on", "nothing")
                ]
                true = {name(thing) for thing, where in situation.inside.items() if where == identifier}
                if inside or "nothing" in known:
                    assert {" ".join(pair) for pair in zip(inside[::2], inside[1::2], strict=True)} == true
            action = chance.choice(info["admissible"])
            text, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
    assert closed_seen > 50
